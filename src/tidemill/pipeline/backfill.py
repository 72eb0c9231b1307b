"""Back-fill: the history that a stream had before its digest came (document 004 §4.2).

A digest made over a stream with history starts without it. Jobs of this kind compute partials from
the stream's files, the newest partitions first, some ``JOB_BYTES`` at a time:

1. **plan**: files with rows before ``from_us`` (the time from which the digest has everything) by
   the spans of time that they share; as many spans as fit, from the newest on;
2. **run**: tasks read the files, without deleted rows and without those that a seal or a move
   wrote since the digest was made (``progress`` knows their numbers), and write partials by
   partition;
3. **commit**: one transaction names the files and lowers ``from_us`` to the begin of the oldest
   span taken, or says that the digest is complete.

Compactions may have joined partitions over ``from_us``; rows from there on are left out by their
time. The job has the stream's table for itself: rows that loads bring below ``from_us`` are in
files before or after it, never in between.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.model import FILE_ROWS, DataFile, History, NewFile, Table
from tidemill.catalog.store import Catalog
from tidemill.changes.model import Change
from tidemill.changes.values import Named, registered
from tidemill.digests.definition import Digest
from tidemill.digests.partials import (
    Origin,
    cut_rows,
    failing_alone,
    failure_of,
    partials_of_scan,
    write_file,
    write_partials,
)
from tidemill.digests.progress import Progress
from tidemill.history.checking import check_files
from tidemill.history.memory import held_bytes
from tidemill.history.partitions import partition_of
from tidemill.history.storage import Storage
from tidemill.hot.crash import point
from tidemill.hot.table import HotTable
from tidemill.pipeline.digesting import DigestWork, fail_digest, without_loads
from tidemill.pipeline.job import JobContext, Nothing, OfTable, Outcome, Uncommitted, Written
from tidemill.pipeline.saving import changes_of, saving
from tidemill.pipeline.spans import Span, spans_of
from tidemill.stream.relation import FileScan, TimeRange, scan_of
from tidemill.types import SEQ, quote

JOB_BYTES = 512 * 1024 * 1024  # of the stream's files, for one job
TASK_BYTES = 128 * 1024 * 1024
CHUNK_BYTES = 256 * 1024 * 1024  # of rows that a task holds
BATCH_ROWS = 100_000

ORIGIN = "backfill"


@dataclass(frozen=True)
class FilesTask:
    """Rows of a stream's files that one task digests, without those that the work's progress knows
    as sealed."""

    label: str
    table: Table
    storage: Storage
    work: DigestWork
    scan: FileScan
    origin: str = ORIGIN

    @property
    def files(self) -> tuple[NewFile, ...]:
        return self.scan.files

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class Backfill:
    """The plan of a job; ``from_us`` is how far the digest reaches when it is done."""

    digest: Digest
    tasks: tuple[FilesTask, ...]
    from_us: int | None
    spans: int
    spans_left: int
    kind: str = field(default="backfill", init=False)

    def explain(self) -> list[str]:
        size = sum(task.bytes for task in self.tasks)
        return [
            f'back-fill digest "{self.digest.name}" from {self.spans} partitions',
            f"  {size} bytes in {len(self.tasks)} tasks, {self.spans_left} partitions left",
        ]


def plan_backfill(
    job_id: str,
    table: Table,
    history: History,
    storage: Storage,
    work: DigestWork,
    changes: Sequence[Change] = (),
) -> Backfill:
    """What the next job of a digest that is not complete does."""
    upper_us = work.progress.upper_us
    found = spans_of(
        file
        for file in history.files
        if file.kind == FILE_ROWS and (upper_us is None or file.time_min_us < upper_us)
    )[::-1]
    taken = list(_within(found, JOB_BYTES))
    before = TimeRange(table.get_column(work.digest.time_column), high_us=upper_us)
    groups = [group for span in taken for group in _groups(span)]
    tasks = tuple(
        FilesTask(
            f"{job_id}-{number}", table, storage, work, scan_of(history, group, before, changes)
        )
        for number, group in enumerate(groups)
    )
    left = len(found) - len(taken)
    return Backfill(work.digest, tasks, taken[-1].lo_us if left else None, len(taken), left)


def _within(spans: Sequence[Span[DataFile]], size_max: int) -> Iterator[Span[DataFile]]:
    """The first spans that together are not larger, but one at least."""
    size = 0
    for number, span in enumerate(spans):
        size += span.bytes
        if number and size > size_max:
            return
        yield span


def _groups(span: Span[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    group: list[DataFile] = []
    size = 0
    for file in span.files:
        if group and size + file.bytes > TASK_BYTES:
            yield tuple(group)
            group, size = [], 0
        group.append(file)
        size += file.bytes
    yield tuple(group)


@dataclass(frozen=True)
class WrittenBackfill:
    """The partials that the tasks of a back-fill wrote."""

    plan: Backfill
    files: tuple[NewFile, ...]
    changed: int = 0  # the files have all changes up to this number

    @property
    def outcome(self) -> Outcome[int]:
        plan = self.plan
        rows, size = sum(task.rows for task in plan.tasks), sum(task.bytes for task in plan.tasks)
        return Outcome(plan.spans_left, rows, size, len(self.files), plan.explain()[0])


@dataclass(frozen=True)
class BackfillJob(OfTable):
    """One step of a back-fill; its value is how many partitions are left."""

    digest: Table
    table: Table
    catalog: Catalog
    storage: Storage
    hot: HotTable | None = None
    kind: str = field(default="backfill", init=False)
    exclusive: bool = field(default=True, init=False)

    def explain(self) -> list[str]:
        return [f'back-fill digest "{self.digest.name}" of table "{self.table_name}"']

    def run(self, context: JobContext) -> Uncommitted[int]:
        progress = Progress.read(self.catalog.records.progress(self.digest.table_id))
        if progress.is_complete:
            return Nothing(Outcome(0, detail="nothing to do"))
        history = self.catalog.snapshot().history(self.table_id)
        own = without_loads(progress.sealed, history)  # some may have come since a move
        work = DigestWork(Digest.of(self.digest), replace(progress, sealed=own))
        return Written(self._run(context, work), self.commit)

    def _run(self, context: JobContext, work: DigestWork) -> WrittenBackfill:
        held = changes_of(self.hot)
        history = self.catalog.snapshot().history(self.table_id)
        where = (context.job_id, self.table, history, self.storage)
        plan = plan_backfill(*where, work, held.changes)
        context.tell("; ".join(line.strip() for line in plan.explain()))

        def count(index: int, _files: tuple[NewFile, ...]) -> None:
            context.count(plan.tasks[index].rows, plan.tasks[index].bytes)

        name = f'backfill "{self.digest.name}"'
        results = context.run_tasks(name, digest_files, plan.tasks, count) if plan.tasks else []
        files = tuple(replace(file, changed=held.last) for made in results for file in made)
        point("backfill.written")
        return WrittenBackfill(plan, files, held.last)

    def commit(self, written: WrittenBackfill) -> Outcome[int]:
        plan, files = written.plan, written.files
        digest_id = self.digest.table_id
        held = saving(self.hot, written.changed)
        with held as changes, self.catalog.transaction() as change:
            if change.snapshot.table(self.table_id) is not None and changes:
                change.commit_files(self.table_id, FileCommit(changes=changes))
            if change.snapshot.table(digest_id) is not None:  # or its view was dropped
                # A seal may have come meanwhile; in here nothing changes any more.
                now = Progress.read(self.catalog.records.progress(digest_id))
                error = failure_of(files)
                if error is not None:
                    fail_digest(change, digest_id, error)
                else:
                    text = now.lowered(plan.from_us).text
                    change.commit_files(digest_id, FileCommit(files, progress=text))
        point("backfill.committed")
        return written.outcome


# -- in the task


def digest_files(task: FilesTask) -> tuple[NewFile, ...]:
    """Write the partials of files of rows; runs in Spark's workers."""
    digest = task.work.digest
    check_files(task.storage, task.table.name, task.scan.all_files)
    lo_us = min(file.lo_us for file in task.files)
    hi_us = max(file.hi_us for file in task.files)
    label = f"{task.label}-{uuid.uuid4().hex[:6]}"
    is_one = (lo_us, hi_us) == partition_of(lo_us, digest.partition_us)
    found: list[NewFile] = []
    with failing_alone(digest, task.origin, found):
        found += _streamed(task, lo_us, hi_us, label) if is_one else _chunked(task, label)
    return tuple(found)


def _streamed(task: FilesTask, lo_us: int, hi_us: int, label: str) -> list[NewFile]:
    """Of one partition: DuckDB reads the files as it groups, and only the columns it needs."""
    digest, storage = task.work.digest, task.storage
    names = [column.name for column in task.table.columns]
    named = Named()
    scan = _scan(task, [*names, SEQ] if digest.with_seq else names, named)
    origin = Origin(
        task.origin,
        lo_us,
        hi_us,
        (min(f.time_min_us for f in task.files), max(f.time_max_us for f in task.files)),
        (min(f.seq_min for f in task.files), max(f.seq_max for f in task.files)),
    )
    with storage.connect() as connection, registered(connection, named):
        partials = partials_of_scan(connection, digest, scan)
        return write_file(storage, connection, digest, partials, origin, label)


def _chunked(task: FilesTask, label: str) -> Iterator[NewFile]:
    """Of several partitions in the same files: rows are read once and cut."""
    digest, storage = task.work.digest, task.storage
    names = [column.name for column in task.table.columns]
    wanted = dict.fromkeys([*digest.needed(names), digest.time_column, SEQ])
    named = Named()
    scan = _scan(task, list(wanted), named)
    with (
        storage.connect() as reading,
        registered(reading, named),
        storage.connect() as connection,
    ):
        reader = reading.sql(scan).to_arrow_reader(BATCH_ROWS)
        for number, chunk in enumerate(_chunks(reader)):
            cuts = list(cut_rows(chunk, digest.time_column, digest.partition_us))
            name = f"{label}-{number}"
            yield from write_partials(storage, connection, digest, cuts, task.origin, name)


def _chunks(reader: pa.RecordBatchReader) -> Iterator[list[pa.RecordBatch]]:
    held: list[pa.RecordBatch] = []
    size, most = 0, held_bytes(CHUNK_BYTES)
    for batch in reader:
        held.append(batch)
        size += batch.nbytes
        if size >= most:
            yield held
            held, size = [], 0
    if held:
        yield held


def _scan(task: FilesTask, names: Sequence[str], named: Named) -> str:
    scan = replace(task.scan, except_ranges=tuple(task.work.progress.sealed))
    rows = scan.sql(task.storage, task.table, with_seq=True, named=named)
    return f"SELECT {', '.join(map(quote, names))} FROM ({rows})"
