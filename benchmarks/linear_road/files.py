"""The files of Linear Road: the input, and the tolls of the past, as others write and read them.

The input is one line of 15 comma-separated integers a row, in time order, without a header; the
tolls are lines of vehicle, day, expressway, toll. A name that ends in ``.gz`` is compressed; tolls
may also be Parquet. Reading streams: a block of the file at a time becomes a record batch, which is
checked whole: types, the order of time, ranges (``fields.RANGES``), a vehicle's two reports in one
second, a query's number that was there before. The line at fault is looked for, and named by its
number, only once a block did not fit.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.linear_road.fields import (
    BALANCE,
    DAILY_TOLLS,
    EXPENDITURE,
    INPUT,
    INPUT_NAMES,
    RANGES,
    REPORT,
    SEGMENT_FEET,
    TRAVEL_TIME,
)
from tidemill.errors import FileFormatError, Position

BLOCK_BYTES = 8 << 20
_TYPES = (REPORT, BALANCE, EXPENDITURE, TRAVEL_TIME)
_INT32 = range(-(2**31), 2**31)


def read_input(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file, as they stand there; what no input may hold is refused."""
    last, seen = -1, Seen()
    for batch in _read(path, INPUT):
        times = batch.column("time").to_numpy()
        in_order = np.all(np.diff(times, prepend=last) >= 0)
        if not in_order or not _is_in_range(batch) or seen.has_duplicate(batch):
            _find_bad_line(path, INPUT)
            raise FileFormatError(f"{path.name} cannot be read", detail="a row does not fit")
        last = int(times[-1])
        yield batch


def _is_in_range(batch: pa.RecordBatch) -> bool:
    """Whether the fields of all rows are what their types may have."""
    columns = {name: batch.column(name).to_numpy() for name in INPUT.names}
    if not np.isin(columns["type"], _TYPES).all():
        return False
    for kind, ranges in RANGES.items():
        taken = columns["type"] == kind
        for name, allowed in ranges.items():
            values = columns[name][taken]
            if len(values) and (values.min() < allowed.start or values.max() >= allowed.stop):
                return False
    reports = columns["type"] == REPORT
    return bool(np.all(columns["seg"][reports] == columns["pos"][reports] // SEGMENT_FEET))


class Seen:
    """What must not come twice: a vehicle's report of one second, and a query's number. Holds the
    numbers of queries, and the vehicles of the last second."""

    def __init__(self) -> None:
        self._queries = np.zeros(0, np.int64)
        self._time = -1
        self._vids = np.zeros(0, np.int64)

    def has_duplicate(self, batch: pa.RecordBatch) -> bool:
        """Whether rows, in time order behind those before, hold something twice."""
        kind, time, vid, qid = (
            batch.column(name).to_numpy().astype(np.int64)
            for name in ("type", "time", "vid", "qid")
        )
        asked = qid[np.isin(kind, (BALANCE, EXPENDITURE))]
        queries = np.union1d(self._queries, asked)
        if len(queries) < len(self._queries) + len(asked):
            return True
        self._queries = queries
        reports = kind == REPORT
        cars = time[reports] << 32 | vid[reports]
        known = self._time << 32 | self._vids
        if len(np.union1d(known, cars)) < len(known) + len(cars):
            return True
        of_last = reports & (time == time[-1])
        earlier = self._vids if self._time == time[-1] else np.zeros(0, np.int64)
        self._time, self._vids = int(time[-1]), np.concatenate([earlier, vid[of_last]])
        return False


def read_tolls(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file of past tolls."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            if file.schema_arrow.names != DAILY_TOLLS.names:
                raise FileFormatError(
                    f"{path.name} has other columns than a file of tolls",
                    detail=f"it has {', '.join(file.schema_arrow.names)}",
                    hint=f"they must be {', '.join(DAILY_TOLLS.names)}",
                )
            for batch in file.iter_batches():
                yield batch.cast(DAILY_TOLLS)
        return
    yield from _read(path, DAILY_TOLLS)


def write_input(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows of the input; the number of rows."""
    return _write(path, INPUT, batches)


def write_tolls(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows of past tolls; the number of rows."""
    if path.suffix != ".parquet":
        return _write(path, DAILY_TOLLS, batches)
    rows = 0
    with pq.ParquetWriter(path, DAILY_TOLLS, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def seconds(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in time order, one batch for each second that has any."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        times = batch.column("time").to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), len(times)]
        for start, stop in pairwise(cuts):
            if held and stop > start and held[-1].column("time")[-1].as_py() != times[start]:
                yield _one(held)
                held = []
            if stop > start:
                held.append(batch.slice(start, stop - start))
    if held:
        yield _one(held)


def _one(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    return held[0] if len(held) == 1 else pa.concat_batches(held)


def _read(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reading = csv.ReadOptions(column_names=schema.names, block_size=BLOCK_BYTES)
    # No text stands for NULL: an empty field is a fault of the file.
    converting = csv.ConvertOptions(column_types=schema, null_values=[], strings_can_be_null=False)
    try:
        with (
            pa.input_stream(str(path), compression="detect") as stream,
            csv.open_csv(stream, read_options=reading, convert_options=converting) as lines,
        ):
            yield from (batch for batch in lines if batch.num_rows)
    except pa.ArrowInvalid as error:
        if _is_empty(path):
            return
        _find_bad_line(path, schema)
        raise FileFormatError(f"{path.name} cannot be read", detail=str(error)) from error
    except OSError as error:
        raise FileFormatError(f"{path.name} cannot be read", detail=str(error)) from error


def _write(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    writing = csv.WriteOptions(include_header=False)
    with (
        pa.output_stream(str(path), compression="detect") as stream,
        csv.CSVWriter(stream, schema, write_options=writing) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", errors="replace")
    return path.open(errors="replace")


def _is_empty(path: Path) -> bool:
    with _text(path) as lines:
        return not any(line.strip() for line in lines)


def _find_bad_line(path: Path, schema: pa.Schema) -> None:
    """Raise for the first line that does not fit, saying why."""
    lines_before = _LinesBefore()
    with _text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            cells = line.strip().split(",")
            fault = _fault(cells, schema)
            if fault is None and schema is INPUT:
                fault = lines_before.fault(
                    number, dict(zip(INPUT_NAMES, map(int, cells), strict=True))
                )
            if fault is not None:
                raise FileFormatError(
                    f"line {number:,} of {path.name} {fault}",
                    detail=line.strip()[:200],
                    position=Position(number, 1),
                )


def _fault(cells: list[str], schema: pa.Schema) -> str | None:
    """What is wrong with the fields of a line, if anything."""
    if len(cells) != len(schema):
        return f"has {len(cells)} fields, not {len(schema)}"
    for name, cell in zip(schema.names, cells, strict=True):
        try:
            fits = int(cell) in _INT32
        except ValueError:
            fits = False
        if not fits:
            return f'has "{cell.strip()}" for {name}, which is no 32-bit integer'
    return None


class _LinesBefore:
    """What the lines before make impossible, and the ranges of a row's fields."""

    def __init__(self) -> None:
        self._time = -1
        self._reports: dict[int, int] = {}  # of the last second: vehicle, line
        self._queries: dict[int, int] = {}  # number, line

    def fault(self, line: int, row: dict[str, int]) -> str | None:
        """What is wrong with a row, if anything; otherwise it is noted."""
        kind, time = row["type"], row["time"]
        if kind not in _TYPES:
            return f"is of type {kind}: a row's type is 0, 2, 3 or 4"
        if time < self._time:
            return f"is of second {time}, after one of second {self._time}"
        for name, allowed in RANGES[kind].items():
            if row[name] not in allowed:
                bounds = f"{allowed.start:,} to {allowed.stop - 1:,}"
                return f"has {row[name]:,} for {name}: that of type {kind} is {bounds}"
        if kind == REPORT and row["seg"] != row["pos"] // SEGMENT_FEET:
            return f"has {row['seg']} for seg, and pos {row['pos']:,} is in another segment"
        if time > self._time:
            self._time, self._reports = time, {}
        if kind == REPORT:
            first = self._reports.setdefault(row["vid"], line)
            if first != line:
                of = f"vehicle {row['vid']} in second {time}"
                return f"is a second report of {of}, as line {first:,}"
        elif kind in (BALANCE, EXPENDITURE):
            first = self._queries.setdefault(row["qid"], line)
            if first != line:
                return f"asks query {row['qid']}, as line {first:,} does"
        return None
