"""Compact the files of a digest: many files of one partition's partials become one, merged.

Every move leaves a file of partials in each partition that it touches, for each digest. Partials of
the same keys become one row, so merged files shrink, unlike those of rows. A file much larger than
the others together is left out, so that a trickle does not rewrite it again and again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.model import DataFile, History, NewFile, Table
from tidemill.catalog.store import Catalog
from tidemill.digests.definition import Digest
from tidemill.digests.partials import (
    Origin,
    failing_alone,
    failure_of,
    merge_partials,
    read_partials,
    write_file,
)
from tidemill.history.storage import Storage
from tidemill.hot.crash import point
from tidemill.pipeline.compact import TASKS_MAX
from tidemill.pipeline.digesting import fail_digest
from tidemill.pipeline.job import JobContext, Nothing, OfTable, Outcome, Uncommitted, Written
from tidemill.pipeline.rewriting import Rewritten

FILES_MAX = 8  # of one partition; more are merged
LARGER = 3  # a file this many times as large as the others together is left out
ORIGIN = "compact"


@dataclass(frozen=True)
class DigestCompactTask:
    """Files of one partition of a digest that become one."""

    label: str
    digest: Digest
    storage: Storage
    files: tuple[DataFile, ...]


def plan_digest_compact(
    job_id: str, digest: Table, history: History, storage: Storage
) -> tuple[DigestCompactTask, ...]:
    """What should be merged now; nothing most of the time."""
    groups = list(_groups(history))[:TASKS_MAX]
    made = Digest.of(digest) if groups else None
    return tuple(
        DigestCompactTask(f"{job_id}-{number}", made, storage, group)
        for number, group in enumerate(groups)
        if made is not None
    )


def _groups(history: History) -> Iterator[tuple[DataFile, ...]]:
    for partition in history.partitions:
        if len(partition.files) > FILES_MAX:
            yield _worth(partition.files)


def _worth(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    largest = max(files, key=lambda file: file.bytes)
    others = [file for file in files if file is not largest]
    is_larger = largest.bytes > LARGER * sum(file.bytes for file in others)
    return tuple(others if is_larger else files)


@dataclass(frozen=True)
class DigestCompactJob(OfTable):
    """The job around the plan. It has the stream for itself, as all jobs of its digests have."""

    digest: Table
    table: Table
    catalog: Catalog
    storage: Storage
    kind: str = field(default="compact", init=False)
    exclusive: bool = field(default=True, init=False)

    def explain(self) -> list[str]:
        return [f'merge small files of digest "{self.digest.name}"']

    def run(self, context: JobContext) -> Uncommitted[None]:
        history = self.catalog.snapshot().history(self.digest.table_id)
        tasks = plan_digest_compact(context.job_id, self.digest, history, self.storage)
        if not tasks:
            return Nothing(Outcome(None, detail="nothing to do"))
        context.tell(self.explain()[0])

        def count(_index: int, files: tuple[NewFile, ...]) -> None:
            context.count(sum(f.rows for f in files), sum(f.bytes for f in files))

        name = f'compact "{self.digest.name}"'
        results = context.run_tasks(name, merge_files, tasks, count)
        files = tuple(
            replace(file, changed=min(each.changed for each in task.files))
            for task, made in zip(tasks, results, strict=True)
            for file in made
        )
        dropped = tuple(file.file_id for task in tasks for file in task.files)
        point("compact.written")
        return Written(Rewritten(files, dropped, self.explain()[0]), self.commit)

    def commit(self, written: Rewritten) -> Outcome[None]:
        digest_id = self.digest.table_id
        with self.catalog.transaction() as change:
            if change.snapshot.table(digest_id) is not None:
                error = failure_of(written.files)
                if error is not None:
                    fail_digest(change, digest_id, error)
                else:
                    change.commit_files(digest_id, FileCommit(written.files, written.dropped))
        point("compact.committed")
        return written.outcome


# -- in the task


def merge_files(task: DigestCompactTask) -> tuple[NewFile, ...]:
    """Merge the partials of some files into one; runs in Spark's workers."""
    files, digest, storage = task.files, task.digest, task.storage
    origin = Origin(
        ORIGIN,
        min(f.lo_us for f in files),
        max(f.hi_us for f in files),
        (min(f.time_min_us for f in files), max(f.time_max_us for f in files)),
        (min(f.seq_min for f in files), max(f.seq_max for f in files)),
    )
    label = f"{task.label}-{uuid.uuid4().hex[:6]}"
    found: list[NewFile] = []
    with storage.connect() as connection, failing_alone(digest, ORIGIN, found):
        held = read_partials(storage, connection, digest, files)
        merged = merge_partials(connection, digest, [held])
        found += write_file(storage, connection, digest, merged, origin, label)
    return tuple(found)
