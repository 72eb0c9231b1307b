"""The input of a run, laid down in files before the clock starts, so that making it costs nothing
while it is measured.

1. The expressways of a plan are split over the cores; a process makes each *part*: an Arrow file
   with one batch for every second. A file from elsewhere becomes one part.
2. The same pass counts the reports of every minute, expressway and segment (what one-time queries
   are checked against) and notes who asks for a day's expenditure: only the past of those matters.
3. With a history, the three hours of an earlier day are laid down as Parquet files: the same cars,
   shifted so that the last report is ten minutes older than the first of the run. That is long
   enough for no rule to look at it, and all trips begin anew. The newest half a minute is in files
   of its own, to be appended rather than loaded: it is the appended rows that a stream's clock
   goes by, and queries that are made afterwards begin where it stands.

``Stage.seconds`` reads the parts side by side, a second at a time; nothing is held but that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import workers
from benchmarks.linear_road import files, generator
from benchmarks.linear_road.fields import EXPENDITURE, INPUT, REPORT, SEGMENTS
from benchmarks.linear_road.traffic import Ints, Plan
from examples.linear_road.application import moments_of
from tidemill.errors import DefinitionError

HISTORY_MINUTES = 180
HISTORY_GAP_MINUTES = 10
HISTORY_FILE_MINUTES = 20
HISTORY_GROUP_ROWS = 200_000
_NARROW = {
    "vid": pa.int32(),
    "spd": pa.int16(),
    "xway": pa.int16(),
    "lane": pa.int8(),
    "dir": pa.int8(),
    "seg": pa.int8(),
    "pos": pa.int32(),
}
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A file of the input: a batch a second, and what was counted while it was written."""

    path: Path
    first: int  # second
    last: int
    rows: int
    counts: Counts  # of reports: minute from ``first // 60`` on, expressway from 0 on, segment
    asking: Ints  # vehicles that ask for a day


@dataclass(frozen=True)
class Stage:
    """Everything a run is fed with. ``plan`` is None if the input came from elsewhere."""

    plan: Plan | None
    parts: tuple[Path, ...]
    tolls: Path
    first: int
    last: int
    rows: int
    counts: Counts
    history: Path | None = None
    history_counts: Counts | None = None  # minute of the history, expressway, segment

    @property
    def xways(self) -> int:
        return int(self.counts.shape[1])

    @property
    def history_first(self) -> int:
        """The second at which the history begins; before 0, if the run begins early."""
        return 60 * (self.first_minute - HISTORY_GAP_MINUTES - HISTORY_MINUTES)

    @property
    def first_minute(self) -> int:
        return self.first // 60

    def known(self) -> tuple[Counts, int]:
        """The reports of history and input together, and the minute from which on they count."""
        if self.history_counts is None:
            return self.counts, self.first_minute
        between = np.zeros((HISTORY_GAP_MINUTES, self.xways, SEGMENTS), np.int64)
        whole = np.concatenate([self.history_counts, between, self.counts])
        return whole, self.history_first // 60

    def reports_by_minute(self) -> Counts:
        """Of all expressways, from the minute of ``first`` on."""
        return np.asarray(self.counts.sum(axis=(1, 2)))

    def seconds(self) -> Iterator[pa.RecordBatch]:
        """The input, one batch for each second."""
        with ExitStack() as held:
            readers = [
                pa.ipc.open_file(held.enter_context(pa.OSFile(str(path)))) for path in self.parts
            ]
            for number in range(readers[0].num_record_batches):
                batches = [reader.get_batch(number) for reader in readers]
                yield batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def daily_tolls(self) -> pa.Table:
        return pq.read_table(self.tolls)


def stage_plan(plan: Plan, folder: Path, processes: int) -> Stage:
    """Make a plan's input in a folder."""
    share = -(-plan.xways // processes)
    plans = [
        replace(plan, first_xway=at, xways=min(share, plan.first_xway + plan.xways - at))
        for at in range(plan.first_xway, plan.first_xway + plan.xways, share)
    ]
    paths = [folder / f"input-{number}.arrow" for number in range(len(plans))]
    with workers(processes) as pool:
        parts = list(pool.map(_make_part, plans, paths))
    asking = np.unique(np.concatenate([part.asking for part in parts]))
    tolls = folder / "tolls.parquet"
    files.write_tolls(tolls, generator.daily_tolls(plan.seed, asking))
    return _stage(plan, parts, tolls)


def stage_files(given: Path, tolls: Path | None, folder: Path) -> Stage:
    """Take input and tolls made elsewhere; without tolls, nobody was on the road before."""
    part = write_part(folder / "input-0.arrow", files.seconds(files.read_input(given)))
    kept = folder / "tolls.parquet"
    files.write_tolls(kept, () if tolls is None else files.read_tolls(tolls))
    return _stage(None, [part], kept)


def stage_history(stage: Stage, folder: Path, processes: int) -> Stage:
    """The same stage with a history of three hours, made in a folder of its own."""
    if stage.plan is None:
        raise DefinitionError("a history can be made only for generated input")
    plan = stage.plan
    whole = replace(plan, minutes=HISTORY_MINUTES, from_minute=0, xways=1)
    count = plan.xways
    plans = [replace(whole, first_xway=plan.first_xway + at) for at in range(count)]
    history = folder / "history"
    history.mkdir()
    with workers(processes) as pool:
        shift = [stage.history_first] * count
        made = list(pool.map(_make_history, plans, [history] * count, shift))
    return replace(stage, history=history, history_counts=_added(made))


def write_part(path: Path, seconds: Iterable[pa.RecordBatch]) -> Part:
    """Write one batch a second, counting."""
    first = last = None
    rows, counted, asking = 0, _Counted(), [np.empty(0, np.int32)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, INPUT) as writer:
        for batch in seconds:
            writer.write_batch(batch)
            if not batch.num_rows:
                continue
            rows += batch.num_rows
            last = batch.column("time")[-1].as_py()
            first = last if first is None else first
            counted.add(batch, first // 60)
            kinds, vids = batch.column("type").to_numpy(), batch.column("vid").to_numpy()
            asking.append(vids[kinds == EXPENDITURE])
    if first is None or last is None:
        raise DefinitionError("there are no rows in the input")
    return Part(path, first, last, rows, counted.table(), np.unique(np.concatenate(asking)))


class _Counted:
    """Reports by minute, expressway and segment."""

    def __init__(self) -> None:
        self._minutes: list[Counts] = []

    def add(self, batch: pa.RecordBatch, first_minute: int) -> None:
        """Count the reports of rows that are all of one minute."""
        taken = batch.column("type").to_numpy() == REPORT
        xway, seg = (batch.column(name).to_numpy()[taken] for name in ("xway", "seg"))
        minute = batch.column("time")[0].as_py() // 60 - first_minute
        counts = np.bincount(xway.astype(np.int64) * SEGMENTS + seg).astype(np.int64)
        while len(self._minutes) <= minute:
            self._minutes.append(np.zeros(0, np.int64))
        self._minutes[minute] = _sum(self._minutes[minute], counts)

    def table(self) -> Counts:
        xways = max(1, -(-max(map(len, self._minutes), default=0) // SEGMENTS))
        whole = np.zeros((len(self._minutes), xways * SEGMENTS), np.int64)
        for row, counts in zip(whole, self._minutes, strict=True):
            row[: len(counts)] = counts
        return whole.reshape(-1, xways, SEGMENTS)


def _sum(one: Counts, other: Counts) -> Counts:
    short, long = sorted((one, other), key=len)
    summed = long.copy()
    summed[: len(short)] += short
    return summed


def _added(tables: list[Counts]) -> Counts:
    """One table of the counts of several parts, whose expressways differ."""
    minutes, xways = (max(table.shape[axis] for table in tables) for axis in (0, 1))
    whole = np.zeros((minutes, xways, SEGMENTS), np.int64)
    for table in tables:
        whole[: table.shape[0], : table.shape[1]] += table
    return whole


def _stage(plan: Plan | None, parts: list[Part], tolls: Path) -> Stage:
    return Stage(
        plan,
        tuple(part.path for part in parts),
        tolls,
        min(part.first for part in parts),
        max(part.last for part in parts),
        sum(part.rows for part in parts),
        _added([part.counts for part in parts]),
    )


def _make_part(plan: Plan, path: Path) -> Part:
    return write_part(path, generator.batches(plan))


def _make_history(plan: Plan, folder: Path, first: int) -> Counts:
    """One expressway's three hours, from second ``first`` on; the counts of its reports."""
    counted, held = _Counted(), list[pa.RecordBatch]()
    last = 2 * HISTORY_MINUTES
    for number, batch in enumerate(generator.batches(plan, 30), start=1):
        counted.add(batch, 0)
        held.append(_narrow(batch, first))
        if number % (2 * HISTORY_FILE_MINUTES) == 0 or number == last - 1:
            kind = "newest" if number == last else "older"
            name = f"{kind}-{plan.first_xway:04}-{number:04}.parquet"
            pq.write_table(
                pa.Table.from_batches(held), folder / name, row_group_size=HISTORY_GROUP_ROWS
            )
            held = []
    return counted.table()


def _narrow(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """The reports as the application's table has them."""
    reports = batch.filter(pa.array(batch.column("type").to_numpy() == REPORT))
    moments = moments_of(reports.column("time").to_numpy() + np.int32(first))
    columns = {name: reports.column(name).cast(type_) for name, type_ in _NARROW.items()}
    return pa.RecordBatch.from_pydict({"ts": moments, **columns})
