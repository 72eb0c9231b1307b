"""Compact: many small files of history become few (document 003 §5, reorganisation).

Every move leaves a file in each partition it touches, so a stream that moves every second would
leave thousands. Two rules keep them few without writing every row again and again:

1. **in levels**, while rows still come to a partition: ``FAN`` files of about one size become one
   of the next, so a row is rewritten a logarithmic number of times;
2. **whole**, once a partition is cold: its small files become one or two, and neighbouring
   partitions that are small together become one range of time, short enough for retention to drop
   it whole. A file much larger than all that would join it is left out, so that a trickle of late
   rows does not rewrite it again and again.

Files that are large already are left alone, unless rows in them were deleted. A compaction reads
files and writes files; it conflicts with no load and no move, since those only add. Its commit
names the new files and drops the old ones in one transaction.

What is written lies as in every file of history (``history.slices``), so a short window reads as
little of the joined file as of those it came from. A task reads its rows from the oldest to the
newest, as many at a time as its memory may hold, so it can join more than that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.model import (
    FILE_ROWS,
    DataFile,
    History,
    NewFile,
    Snapshot,
    Table,
)
from tidemill.catalog.store import Catalog
from tidemill.changes.model import Change
from tidemill.history import deletes
from tidemill.history.memory import COPIES
from tidemill.history.storage import Storage
from tidemill.history.writing import RETENTION_SHARE
from tidemill.hot.crash import point
from tidemill.hot.table import HotTable
from tidemill.pipeline.job import JobContext, Nothing, OfTable, Outcome, Uncommitted, Written
from tidemill.pipeline.rewriting import RewriteTask, Rewritten, rewrite_files
from tidemill.pipeline.saving import changes_of, saving
from tidemill.pipeline.spans import spans_of, touches
from tidemill.stream.relation import scan_of

FAN = 4
TARGET_BYTES = 128 * 1024 * 1024
TARGET_ROWS = 8_000_000
LEVEL_BYTES_MIN = 64 * 1024
SPAN_US_MAX = 31 * 86_400 * 1_000_000
TASKS_MAX = 16  # of one job, so that others of the table need not wait long
ROW_BYTES = 64  # of a row in memory, for an estimate


@dataclass(frozen=True)
class Compact:
    """The plan of a compaction."""

    job_id: str
    table: Table
    tasks: tuple[RewriteTask, ...]
    dropped: tuple[int, ...]  # file ids
    kind: str = field(default="compact", init=False)

    @property
    def rows(self) -> int:
        return sum(file.rows for task in self.tasks for file in task.files)

    def explain(self) -> list[str]:
        count = sum(len(task.files) for task in self.tasks)
        return [
            f'compact {count} files of table "{self.table.name}" into about {len(self.tasks)}',
            f"  {self.rows} rows, {len(self.dropped) - count} files of deletes done with",
        ]


@dataclass(frozen=True)
class Group:
    """Files to be made one, for a range of time."""

    lo_us: int
    hi_us: int
    files: tuple[DataFile, ...]


def plan_compact(
    job_id: str,
    table: Table,
    history: History,
    storage: Storage,
    cold_before_us: int | None,
    changes: Sequence[Change] = (),
) -> Compact | None:
    """What should be compacted now, or None. Partitions that end before ``cold_before_us`` are
    cold; None means that all but the newest are. ``changes`` are carried out on the way."""
    groups = list(_groups(table, history, cold_before_us))[:TASKS_MAX]
    if not groups:
        return None
    tasks = tuple(
        RewriteTask(
            job_id,
            number,
            table,
            storage,
            group.lo_us,
            group.hi_us,
            scan_of(history, group.files, changes=changes),
        )
        for number, group in enumerate(groups)
    )
    rewritten = {file.file_id for group in groups for file in group.files}
    left = [f for f in history.files if f.kind == FILE_ROWS and f.file_id not in rewritten]
    spent = [file.file_id for file in deletes.done_with(history, left)]
    return Compact(job_id, table, tasks, (*sorted(rewritten), *spent))


def ideal_files(history: History) -> int:
    """How few files would do: one for each partition, more for large ones."""
    return sum(-(-max(p.bytes, 1) // TARGET_BYTES) for p in history.partitions if p.rows)


def _groups(table: Table, history: History, cold_before_us: int | None) -> Iterator[Group]:
    if cold_before_us is None:
        cold_before_us = max((p.lo_us for p in history.partitions if p.rows), default=0)
    run: list[Group] = []
    for partition in history.partitions:
        rows = [file for file in partition.files if file.kind == FILE_ROWS]
        if not rows:
            continue
        if partition.hi_us > cold_before_us:
            yield from (Group(partition.lo_us, partition.hi_us, f) for f in _levels(rows))
            continue
        hit = deletes.losing_rows(history, rows)
        small = [f for f in rows if _is_small(f) and f not in hit]
        for file in hit:
            yield Group(partition.lo_us, partition.hi_us, (file,))
        if len(small) < len(rows):
            yield from _packed(partition.lo_us, partition.hi_us, _worth(small))
            continue
        group = Group(partition.lo_us, partition.hi_us, tuple(small))
        if run and not _may_join(table, run, group):
            yield from _joined(run)
            run = []
        run.append(group)
    if run:
        yield from _joined(run)


def _levels(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """Sets of ``FAN`` files of about one size."""
    by_level: dict[int, list[DataFile]] = {}
    for file in files:
        if _is_small(file):
            by_level.setdefault(_level(file.bytes), []).append(file)
    for level in sorted(by_level):
        same = by_level[level]
        # as many as there are at once: one that fell behind catches up in one step
        while len(same) >= FAN:
            taken = _first_within(same)
            yield tuple(taken)
            same = same[len(taken) :]


def _first_within(files: Sequence[DataFile]) -> list[DataFile]:
    taken: list[DataFile] = []
    size = rows = 0
    for file in files:
        size, rows = size + file.bytes, rows + file.rows
        if len(taken) >= FAN and (size > TARGET_BYTES or rows > TARGET_ROWS):
            break
        taken.append(file)
    return taken


def _level(size: int) -> int:
    level = 0
    while size > LEVEL_BYTES_MIN:
        size //= FAN
        level += 1
    return level


def _is_small(file: DataFile) -> bool:
    return file.bytes < TARGET_BYTES // 2 and file.rows < TARGET_ROWS // 2


def _may_join(table: Table, run: Sequence[Group], group: Group) -> bool:
    """Whether a partition may join the range before it."""
    files = [file for each in (*run, group) for file in each.files]
    retention = table.settings["retention"]
    span_max = SPAN_US_MAX if retention is None else retention // RETENTION_SHARE
    return (
        group.lo_us == run[-1].hi_us
        and group.hi_us - run[0].lo_us <= span_max
        and sum(file.bytes for file in files) <= TARGET_BYTES
        and sum(file.rows for file in files) <= TARGET_ROWS
    )


def _joined(run: Sequence[Group]) -> Iterator[Group]:
    """One group of all, if that is worth it; otherwise each partition by itself."""
    files = [file for group in run for file in group.files]
    if len(run) > 1 and (len(run) >= 2 * FAN or _grows(files)):
        yield from _packed(run[0].lo_us, run[-1].hi_us, _worth(files))
        return
    for group in run:
        yield from _packed(group.lo_us, group.hi_us, _worth(group.files))


def _grows(files: Sequence[DataFile]) -> bool:
    """Whether the largest would grow enough to be written again."""
    sizes = sorted(file.bytes for file in files)
    return sum(sizes[:-1]) * (FAN - 1) >= sizes[-1]


def _worth(files: Sequence[DataFile]) -> Sequence[DataFile]:
    """The files of one partition to be made one: all, or all but the much larger one."""
    if len(files) < 2 or _grows(files):
        return files
    largest = max(files, key=lambda file: file.bytes)
    return [file for file in files if file is not largest]


def _packed(lo_us: int, hi_us: int, files: Sequence[DataFile]) -> Iterator[Group]:
    """Groups that each fit a file; one file alone is no group."""
    rest = list(files)
    while len(rest) > 1:
        taken = _first_within(rest)
        if len(taken) > 1:
            yield Group(lo_us, hi_us, tuple(taken))
        rest = rest[len(taken) :]


@dataclass(frozen=True)
class CompactJob(OfTable):
    """The job around the plan, made when its turn has come."""

    table: Table
    catalog: Catalog
    storage: Storage
    cold_before_us: int | None
    hot: HotTable | None = None  # its changes are carried out on the way
    kind: str = field(default="compact", init=False)
    exclusive: bool = field(default=True, init=False)

    def explain(self) -> list[str]:
        return [f'compact small files of table "{self.table_name}"']

    def run(self, context: JobContext) -> Uncommitted[None]:
        held = changes_of(self.hot)
        history = self.catalog.snapshot().history(self.table_id)
        plan = plan_compact(
            context.job_id, self.table, history, self.storage, self.cold_before_us, held.changes
        )
        if plan is None:
            return Nothing(Outcome(None, detail="nothing to do"))
        context.tell(plan.explain()[0])

        def count(_index: int, files: tuple[NewFile, ...]) -> None:
            context.count(sum(f.rows for f in files), sum(f.bytes for f in files))

        name = f'compact "{self.table_name}"'
        need = max(task.rows for task in plan.tasks) * ROW_BYTES * COPIES
        results = context.run_tasks(name, rewrite_files, plan.tasks, count, need)
        had = [file.changed for task in plan.tasks for file in task.files]
        changed = max([held.last, *had])
        files = tuple(replace(file, changed=changed) for made in results for file in made)
        point("compact.written")
        made = Rewritten(files, plan.dropped, plan.explain()[0], held.last)
        return Written(made, self.commit)

    def commit(self, written: Rewritten) -> Outcome[None]:
        held = saving(self.hot, written.changed)
        with held as changes, self.catalog.transaction() as change:
            commit = FileCommit(written.files, written.dropped, changes=changes)
            change.commit_files(self.table_id, commit)
        point("compact.committed")
        return written.outcome


Expired = Mapping[int, Sequence[DataFile]]
"""Files that retention no longer wants, by their table."""


@dataclass(frozen=True)
class ExpireJob(OfTable):
    """Drop whole partitions that retention no longer wants (document 002 §VI-D), and with them, in
    one transaction, what digests of the table hold of them."""

    table: Table
    catalog: Catalog
    before_us: int
    aside_before_us: int
    kind: str = field(default="expire", init=False)
    exclusive: bool = field(default=True, init=False)

    def explain(self) -> list[str]:
        return [f'drop expired partitions of table "{self.table_name}"']

    def run(self, context: JobContext) -> Written[Expired, None]:
        bounds = self.before_us, self.aside_before_us
        gone = expired_with_digests(self.catalog.snapshot(), self.table_id, *bounds)
        return Written(gone, self.commit)

    def commit(self, gone: Expired) -> Outcome[None]:
        if gone:
            with self.catalog.transaction() as change:
                for table_id, files in gone.items():
                    if table_id == self.table_id or change.snapshot.table(table_id) is not None:
                        expired = FileCommit(drop=[file.file_id for file in files])
                        change.commit_files(table_id, expired)
            point("expire.committed")
        own = gone.get(self.table_id, [])
        rows = sum(file.rows for file in own if file.kind == FILE_ROWS)
        size = sum(file.bytes for files in gone.values() for file in files)
        return Outcome(None, rows, size, sum(map(len, gone.values())))


def expired_files(history: History, before_us: int, aside_before_us: int) -> list[DataFile]:
    """Files of partitions that end before a moment; rows set aside have a moment of their own."""
    expired = chain.from_iterable(p.files for p in history.partitions if p.hi_us <= before_us)
    aside = chain.from_iterable(p.files for p in history.sides if p.hi_us <= aside_before_us)
    return [*expired, *deletes.expired(history, before_us), *aside]


def expired_with_digests(
    snapshot: Snapshot, table_id: int, before_us: int, aside_before_us: int
) -> Expired:
    """The expired files of a stream and of its digests, by table; tables without any are left out.

    Partials go when no file of rows is left that reaches into their partition."""
    digests = snapshot.digests_of(table_id)
    history = snapshot.history(table_id)
    own = expired_files(history, before_us, aside_before_us)
    gone = {file.file_id for file in own}
    found = {table_id: own}
    left = spans_of(f for f in history.files if f.kind == FILE_ROWS and f.file_id not in gone)
    for digest in digests:
        found[digest.table_id] = [
            file
            for file in snapshot.history(digest.table_id).files
            if file.hi_us <= before_us and not touches(left, file)
        ]
    return {each: files for each, files in found.items() if files}
