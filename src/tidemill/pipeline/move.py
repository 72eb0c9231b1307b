"""Move: rows of the hot tier become files of history (document 000 §IV).

1. **plan**: up to which sequence number, from which segments of the log, and which of those rows
   are rows of the table (``stream.leaving``);
2. **run**: tasks read the segments themselves, so rows pass neither through the driver nor through
   Python objects; each writes the files of its rows, sorted and in their final place, and the
   partials of the table's digests beside them (``digesting``). Rows that others replaced go to
   files of their own, which only those read who ask for a moment before;
3. **commit**: one catalog transaction names the files and advances ``moved_seq``; only then does
   the hot tier let go. A reader before it sees the rows in memory, one after it in the files.

Killed anywhere before the commit, a move leaves files that nobody names (VACUUM removes them), and
the rows are moved again by the next one; killed behind it, the next start finds ``moved_seq`` in
the catalog and does not take the rows into memory.
"""

from __future__ import annotations

import json
import mmap
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import (
    FILE_LATE,
    FILE_REJECTED,
    FILE_REPLACED,
    NewFile,
    Table,
)
from tidemill.catalog.store import Catalog
from tidemill.changes.model import Change
from tidemill.changes.patching import patched
from tidemill.changes.resolving import resolve
from tidemill.errors import CorruptLogError
from tidemill.history.memory import held_bytes
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_rows, write_side
from tidemill.hot import frame
from tidemill.hot.crash import point
from tidemill.hot.frame_meta import AppendMeta
from tidemill.hot.gather import SEQ_FIELD
from tidemill.hot.log import Segment
from tidemill.hot.side import REJECTED_SCHEMA, late_schema
from tidemill.hot.table import HotTable
from tidemill.pipeline.changing import forget_done
from tidemill.pipeline.digesting import (
    Digested,
    DigestWork,
    commit_moved,
    digest_rows,
    gathered,
    planned_digests,
)
from tidemill.pipeline.fixing import fix_partition, follow_table
from tidemill.pipeline.job import JobContext, OfStream, Outcome, Written
from tidemill.pipeline.saving import saving
from tidemill.plain_rows import batch_of_rows
from tidemill.stream.leaving import NO_ROWS, Leaving, Live, Seqs, leaving
from tidemill.types import SEQ

TASK_BYTES = 128 * 1024 * 1024  # of log per task
BUFFER_BYTES = 256 * 1024 * 1024  # of rows that a task holds before it writes them


@dataclass(frozen=True)
class MoveTask:
    """What one task does: read some segments, write the files of their rows."""

    job_id: str
    number: int
    paths: tuple[str, ...]
    after_seq: int
    upto_seq: int
    live: Live
    storage: Storage
    table: Table
    digests: tuple[DigestWork, ...] = ()
    replaced: Live = NO_ROWS  # where they are not alive, rows for the past
    changes: tuple[Change, ...] = ()  # to be carried out in the rows, all up to ``changed``
    changed: int = 0


@dataclass(frozen=True)
class Moved:
    """What a task wrote; ``replaced`` are files of rows for the past."""

    files: tuple[NewFile, ...]
    rows: int
    log_bytes: int
    replaced: tuple[NewFile, ...] = ()
    digested: Digested = field(default_factory=FrozenMap)


@dataclass(frozen=True)
class Move:
    """The plan of a move: frozen, so that what EXPLAIN and ``tidemill.jobs`` show is what runs."""

    job_id: str
    table: Table
    leaving: Leaving
    tasks: tuple[MoveTask, ...]
    reason: str = ""
    digests: tuple[DigestWork, ...] = ()
    kind: str = field(default="move", init=False)

    @property
    def rows(self) -> int:
        return self.leaving.live.rows

    def explain(self) -> list[str]:
        first, last = self.leaving.after_seq + 1, self.leaving.upto_seq
        return [
            f'move {self.rows} rows of table "{self.table.name}" to history',
            f"  sequence numbers {first} to {last}: {self.reason}",
            f"  {sum(len(task.paths) for task in self.tasks)} log segments in "
            f"{len(self.tasks)} tasks",
            *(f'  partials for digest "{work.digest.name}"' for work in self.digests),
        ]


def plan_move(
    job_id: str,
    table: Table,
    rows: Leaving,
    segments: Iterable[Segment],
    storage: Storage,
    reason: str,
    digests: tuple[DigestWork, ...] = (),
) -> Move:
    """The move of rows that leave memory, from the segments of the log that hold them."""
    chosen = _segments_between(list(segments), rows.after_seq, rows.upto_seq)
    tasks = [
        MoveTask(
            job_id,
            number,
            tuple(str(segment.path) for segment in group),
            rows.after_seq,
            rows.upto_seq,
            rows.live,
            storage,
            table,
            digests,
            rows.replaced,
            rows.changes,
            rows.changed,
        )
        for number, group in enumerate(_groups(chosen))
    ]
    return Move(job_id, table, rows, tuple(tasks), reason, digests)


def _segments_between(segments: list[Segment], after_seq: int, upto_seq: int) -> list[Segment]:
    """The segments with frames of that span; where the next one begins, a segment ends."""
    chosen = []
    for at, segment in enumerate(segments):
        following = segments[at + 1].first_seq if at + 1 < len(segments) else None
        # a frame without rows has the number of the next row, so a segment may hold `following`
        is_old = following is not None and following <= after_seq
        if segment.first_seq <= upto_seq and not is_old:
            chosen.append(segment)
    return chosen


def _groups(segments: list[Segment]) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    held = 0
    for segment in segments:
        size = segment.path.stat().st_size
        if group and held + size > TASK_BYTES:
            yield group
            group, held = [], 0
        group.append(segment)
        held += size
    if group:
        yield group


@dataclass(frozen=True)
class WrittenMove:
    """The files that the tasks of a move wrote; ``replaced`` are those of rows for the past."""

    move: Move
    rows: int
    files: tuple[NewFile, ...]
    replaced: tuple[NewFile, ...]
    digested: Digested

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class MoveJob(OfStream):
    """The job around the plan: it plans when its turn has come, on what the table is then.

    ``upto_seq`` None takes all that is published."""

    hot: HotTable
    catalog: Catalog
    storage: Storage
    upto_seq: int | None
    reason: str
    kind: str = field(default="move", init=False)
    exclusive: bool = field(default=True, init=False)

    def explain(self) -> list[str]:
        return [f'move rows of table "{self.table_name}" to history: {self.reason}']

    def run(self, context: JobContext) -> Written[WrittenMove, Move]:
        with self.hot.holding_log():
            digests = planned_digests(self.catalog, self.table_id)
            written = self._run(context, self._plan(context.job_id, digests))
        return Written(written, self.commit)

    def _run(self, context: JobContext, move: Move) -> WrittenMove:
        context.tell(self.reason)
        point("move.planned")

        def count(_index: int, moved: Moved) -> None:
            context.count(moved.rows, sum(file.bytes for file in moved.files))

        results: list[Moved] = []
        if move.tasks:
            name = f'move "{self.table_name}"'
            results = context.run_tasks(name, move_segments, move.tasks, count)
        files = [file for moved in results for file in moved.files]
        digested = gathered(moved.digested for moved in results)
        written = sum(moved.rows for moved in results)
        if written != move.rows:
            raise CorruptLogError(
                f'a move of table "{self.table_name}" found {written} rows in the log instead of '
                f"{move.rows}; it was given up",
                hint="the rows are still in memory; please report this",
            )
        history = self.catalog.snapshot().history(self.table_id)
        label = f"{move.job_id}-deletes"
        files += move.leaving.write_removed(self.storage, move.table, history, label)
        point("move.written")
        past = tuple(file for moved in results for file in moved.replaced)
        return WrittenMove(move, written, tuple(files), past, digested)

    def commit(self, written: WrittenMove) -> Outcome[Move]:
        move, rows = written.move, written.move.leaving
        if rows.upto_seq > rows.after_seq:
            packages = self.hot.packages  # the log that knows of them may go
            held = saving(self.hot, rows.changed)
            with held as changes, self.catalog.transaction() as change:
                fix_partition(change, self.table_id, written.files)
                commit = FileCommit(
                    written.files,
                    replaced=written.replaced,
                    moved_seq=rows.upto_seq,
                    progress=json.dumps({"offsets": self.hot.offsets.newest()}),
                    packages=packages,
                    marks=self.hot.marks.up_to(rows.upto_seq),
                    changes=changes,
                )
                change.commit_files(self.table_id, commit)
                digested = written.digested
                commit_moved(change, self.table_id, move.digests, digested, rows.upto_seq)
            point("move.committed")
            follow_table(self.hot, self.catalog)
            self.hot.settle_packages(packages)
            rows.release(self.hot)
            forget_done(self.hot, self.catalog)
            point("move.released")
        return Outcome(move, written.rows, written.bytes, len(written.files), self.reason)

    def _plan(self, job_id: str, digests: tuple[DigestWork, ...]) -> Move:
        rows = leaving(self.hot, self.upto_seq)
        if rows.changes:
            self.hot.flush()  # files that have a change must not outlive it
        segments = self.hot.log.segments if rows.upto_seq > rows.after_seq else ()
        return plan_move(job_id, self.hot.table, rows, segments, self.storage, self.reason, digests)


# -- in the task


def move_segments(task: MoveTask) -> Moved:
    """Read a task's segments and write its files; runs in Spark's workers."""
    with task.storage.connect() if task.digests else nullcontext() as connection:
        return _Mover(task, connection).run()


class _Mover:
    """Gathers the rows of a task and writes them whenever memory holds enough."""

    def __init__(self, task: MoveTask, connection: duckdb.DuckDBPyConnection | None) -> None:
        self._task = task
        self._connection = connection
        self._spec = WriteSpec.of(task.table)
        self._label = f"{task.job_id}-{task.number}-{uuid.uuid4().hex[:6]}"
        self._files: list[NewFile] = []
        self._replaced: list[NewFile] = []
        self._past: list[pa.RecordBatch] = []
        self._digested: list[Digested] = []
        self._buffered: list[pa.RecordBatch] = []

    def run(self) -> Moved:
        task = self._task
        rows = log_bytes = held = past_held = 0
        buffer_bytes = held_bytes(BUFFER_BYTES)
        sides: dict[str, list[pa.RecordBatch]] = {FILE_LATE: [], FILE_REJECTED: []}
        side_seqs: dict[str, list[int]] = {FILE_LATE: [], FILE_REJECTED: []}
        for path in task.paths:
            for read in frames_between(Path(path), task.after_seq, task.upto_seq):
                log_bytes += read.size
                for batch in rows_of(read, task):
                    self._buffered.append(batch)
                    rows += batch.num_rows
                    held += batch.nbytes
                for batch in replaced_of(read, task):
                    self._past.append(batch)
                    past_held += batch.nbytes
                for kind, batch in sides_of(read, task):
                    sides[kind].append(batch)
                    side_seqs[kind].append(read.first_seq)
                if held >= buffer_bytes:
                    self._write()
                    held = 0
                if past_held >= buffer_bytes:
                    self._write_replaced()
                    past_held = 0
        self._write()
        self._write_replaced()
        point("task.written")
        for kind, batches in sides.items():
            self._write_side(kind, batches, side_seqs[kind])
        replaced, digested = tuple(self._replaced), gathered(self._digested)
        return Moved(tuple(self._files), rows, log_bytes, replaced, digested)

    def _write(self) -> None:
        task, number = self._task, len(self._files)
        batches, self._buffered = self._buffered, []
        if not batches:
            return
        storage = task.storage
        batches = self._changed(batches)
        written = write_rows(storage, self._spec, batches, self._label, number, "move")
        self._files += [replace(file, changed=task.changed) for file in written]
        if self._connection is not None:
            label = f"{self._label}-{number}"
            made = digest_rows(storage, self._connection, task.digests, batches, "move", label)
            self._digested.append(
                {
                    digest: tuple(replace(file, changed=task.changed) for file in files)
                    for digest, files in made.items()
                }
            )

    def _changed(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Rows with their changes; what they were before is for the past. Rows that changes delete
        are not among them."""
        task = self._task
        if not task.changes:
            return batches
        rows = pa.Table.from_batches(batches)
        touched = resolve(task.table, rows, task.changes)
        if not touched:
            return batches
        found = []
        for batch in batches:
            seqs = np.asarray(batch.column(SEQ).to_numpy(), dtype=np.int64)
            is_touched = np.isin(seqs, touched.seqs)
            if is_touched.any():
                self._past.append(batch.filter(pa.array(is_touched)))
            found.append(patched(batch, seqs, touched))
        return found

    def _write_replaced(self) -> None:
        task, number = self._task, len(self._replaced)
        batches, self._past = self._past, []
        if batches:
            spec = replace(self._spec, kind=FILE_REPLACED)
            label = f"{self._label}-past"
            self._replaced += write_rows(task.storage, spec, batches, label, number, "move")

    def _write_side(
        self, kind: str, batches: Sequence[pa.RecordBatch], seqs: Sequence[int]
    ) -> None:
        if batches:
            task, number = self._task, len(self._files)
            where = (task.storage, task.table, kind)
            self._files += write_side(*where, batches, seqs, self._label, number, "move")


def frames_between(path: Path, after_seq: int, upto_seq: int) -> Iterator[frame.Frame]:
    """The frames of a segment with rows in a span, each checked; others are hopped over.

    The segment may be growing: a frame behind the span is never looked at."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    buffer = pa.py_buffer(mapped)
    previous = None
    for offset, first_seq in frame.places(memoryview(buffer)):
        if previous is not None and first_seq > after_seq:
            yield _checked(buffer, previous, path)
        if first_seq > upto_seq:
            return
        previous = offset
    if previous is not None:
        yield _checked(buffer, previous, path)


def _checked(buffer: pa.Buffer, offset: int, path: Path) -> frame.Frame:
    try:
        return frame.read_at(buffer, offset)
    except frame.TornError as error:
        raise CorruptLogError(
            f"log segment {path.name} is damaged at byte {offset}: {error}",
            detail="the move was given up; the rows are still in memory",
            hint="check the disk; FLUSH tries again",
        ) from error


def rows_of(read: frame.Frame, task: MoveTask) -> Iterator[pa.RecordBatch]:
    """The stored rows of a frame that are to be moved, with their sequence numbers."""
    for rows, seqs in _stored(read, task):
        yield from _masked(rows, task.live.mask(seqs))


def replaced_of(read: frame.Frame, task: MoveTask) -> Iterator[pa.RecordBatch]:
    """The stored rows of a frame that others replaced before they were moved. One that another of
    the same frame replaced was never seen."""
    if not isinstance(read.meta, AppendMeta) or not task.replaced.ranges:
        return
    for rows, seqs in _stored(read, task):
        unseen = np.isin(seqs, np.array(read.meta.replaced, dtype=np.int64))
        yield from _masked(rows, task.replaced.mask(seqs) & ~task.live.mask(seqs) & ~unseen)


def _masked(rows: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    if mask.any():
        yield rows if mask.all() else rows.filter(pa.array(mask))


def _stored(read: frame.Frame, task: MoveTask) -> Iterator[tuple[pa.RecordBatch, Seqs]]:
    """The stored rows of a frame in the span of the move, and their sequence numbers."""
    if not isinstance(read.meta, AppendMeta):
        return
    if read.meta.rows:
        batches = [batch_of_rows(read.meta.rows, task.table.schema)]
    else:
        parts = read.contents(frame.STORED)
        batches = [pa.ipc.read_record_batch(part, task.table.schema) for part in parts]
    first = read.first_seq
    for batch in batches:
        seqs = np.arange(first, first + batch.num_rows, dtype=np.int64)
        first += batch.num_rows
        low, high = np.searchsorted(seqs, (task.after_seq + 1, task.upto_seq + 1))
        columns = [*batch.columns, pa.array(seqs)]
        whole = pa.RecordBatch.from_arrays(columns, schema=task.table.schema.append(SEQ_FIELD))
        if low < high:
            yield whole.slice(low, high - low), seqs[low:high]


def sides_of(read: frame.Frame, task: MoveTask) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows set aside go with the first row of their frame."""
    if not task.after_seq < read.first_seq <= task.upto_seq:
        return
    for section in read.sections:
        if section.name == frame.LATE:
            schema = late_schema(task.table.schema)
            yield FILE_LATE, pa.ipc.read_record_batch(section.content, schema)
        elif section.name == frame.REJECTED:
            yield FILE_REJECTED, pa.ipc.read_record_batch(section.content, REJECTED_SCHEMA)
