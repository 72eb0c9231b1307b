"""Redigesting: partials of rows that changes (UPDATE, DELETE) touched are made again.

A digest's files hold partial results of rows as these were when they were moved, loaded or
back-filled. A sum could give back what a changed row had added, a maximum could not, so partitions
with such rows are digested again, from the stream's files with all changes up to a number. Until
then their view is answered by its query.

One job of this kind runs for a stream at a time, and none that moves its rows; files of loads that
are committed meanwhile stay beside those that it makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.model import FILE_ROWS, DataFile, NewFile, Table
from tidemill.catalog.store import Catalog
from tidemill.digests.definition import Digest
from tidemill.digests.lacking import lacking
from tidemill.digests.partials import failure_of
from tidemill.digests.progress import Progress
from tidemill.history.storage import Storage
from tidemill.hot.crash import point
from tidemill.hot.table import HotTable
from tidemill.pipeline.backfill import FilesTask, digest_files
from tidemill.pipeline.changing import forget_done
from tidemill.pipeline.digesting import DigestWork, fail_digest
from tidemill.pipeline.job import JobContext, Nothing, OfStream, Outcome, Uncommitted, Written
from tidemill.pipeline.saving import saving
from tidemill.stream.image import Image, look
from tidemill.stream.relation import TimeRange, scan_of

REDONE = "change"  # the origin of the files
SPANS_MAX = 64  # of one job

Span = tuple[int, int]


@dataclass(frozen=True)
class Redigest:
    """Files of partials that take the place of others, made by tasks; they have all changes up to
    the number ``changed``."""

    tasks: tuple[FilesTask, ...]
    dropped: tuple[int, ...]
    changed: int


@dataclass(frozen=True)
class RedigestJob(OfStream):
    """One digest; ``SPANS_MAX`` spans of time at once, the rest with the next job."""

    digest: Table
    hot: HotTable
    catalog: Catalog
    storage: Storage
    kind: str = field(default="redigest", init=False)
    exclusive: bool = field(default=True, init=False)

    def explain(self) -> list[str]:
        return [f'digest changed rows of table "{self.table_name}" again, for "{self.digest.name}"']

    def run(self, context: JobContext) -> Uncommitted[None]:
        plan = self._plan(context.job_id)
        if plan is None:
            return Nothing(Outcome(None, detail="nothing to do"))
        context.tell(self.explain()[0])

        def count(index: int, _files: tuple[NewFile, ...]) -> None:
            context.count(plan.tasks[index].rows, plan.tasks[index].bytes)

        name = f'redigest "{self.digest.name}"'
        made = context.run_tasks(name, digest_files, plan.tasks, count) if plan.tasks else []
        files = tuple(replace(file, changed=plan.changed) for some in made for file in some)
        point("redigest.written")
        return Written((plan, files), self.commit)

    def commit(self, written: tuple[Redigest, tuple[NewFile, ...]]) -> Outcome[None]:
        plan, files = written
        digest_id, error = self.digest.table_id, failure_of(written[1])
        with saving(self.hot, plan.changed) as changes, self.catalog.transaction() as change:
            if change.snapshot.table(digest_id) is not None:  # or its view was dropped
                if error is not None:
                    fail_digest(change, digest_id, error)
                else:
                    change.commit_files(digest_id, FileCommit(files, plan.dropped))
            if change.snapshot.table(self.table_id) is not None and changes:
                change.commit_files(self.table_id, FileCommit(changes=changes))
        point("redigest.committed")
        forget_done(self.hot, self.catalog)
        rows, size = sum(task.rows for task in plan.tasks), sum(file.bytes for file in files)
        return Outcome(None, rows, size, len(files), self.explain()[0])

    def _plan(self, job_id: str) -> Redigest | None:
        if not Progress.read(self.catalog.records.progress(self.digest.table_id)).is_complete:
            return None  # a back-fill comes first
        snapshot = self.catalog.snapshot()
        if snapshot.table(self.digest.table_id) is None:
            return None
        image = look(self.hot).at(snapshot)
        self.hot.flush()  # files that have a change must not outlive it
        digest = Digest.of(self.digest)
        files = snapshot.history(self.digest.table_id).files
        found = lacking(image.view.changes, digest, image.table, files)
        spans = list(_spans(found, files))[:SPANS_MAX]
        if not spans:
            return None
        dropped = [f.file_id for f in files for lo, hi in spans if lo <= f.lo_us and f.hi_us <= hi]
        tasks = tuple(self._tasks(job_id, image, DigestWork(digest), spans))
        return Redigest(tasks, tuple(sorted(dropped)), image.view.last_change)

    def _tasks(
        self, job_id: str, image: Image, work: DigestWork, spans: Sequence[Span]
    ) -> Iterator[FilesTask]:
        table, history = image.table, image.history
        time = table.get_column(work.digest.time_column)
        for number, (lo_us, hi_us) in enumerate(spans):
            within = TimeRange(time, lo_us, hi_us)
            files = [f for f in history.files if f.kind == FILE_ROWS and within.has_some(f)]
            if files:
                scan = scan_of(history, files, within, image.view.changes)
                label = f"{job_id}-{number}"
                yield FilesTask(label, table, self.storage, work, scan, REDONE)


def _spans(lacking: Sequence[DataFile], files: Sequence[DataFile]) -> Iterator[Span]:
    """The spans of time whose partials are made again, whole files of the digest each."""
    wanted = {file.file_id for file in lacking}
    ordered = sorted(files, key=lambda file: (file.lo_us, file.hi_us))
    lo_us = hi_us = 0
    is_wanted = False
    for at, file in enumerate(ordered):
        if at and file.lo_us < hi_us:
            hi_us = max(hi_us, file.hi_us)
        else:
            if is_wanted:
                yield lo_us, hi_us
            lo_us, hi_us, is_wanted = file.lo_us, file.hi_us, False
        is_wanted |= file.file_id in wanted
    if is_wanted:
        yield lo_us, hi_us
