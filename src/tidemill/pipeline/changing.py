"""Changing: changes (UPDATE, DELETE) of streams are carried out in files, and kept as long as files
or memory need them.

A change costs nothing when it is made: memory carries it out with the next read, a move in the
rows that it writes, and readers of files look through those that the files do not have. Here is
what ends it:

1. **save**: a commit that names files with changes puts those that the log had alone into the
   catalog (``unsaved``), so that the log may go;
2. **carry out**: a job writes files anew that changes may touch (``CarryOutJob``);
3. **forget**: a change that no file and no row in memory can need is done (``forget_done``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.model import FILE_ROWS, DataFile, History, NewFile, Table
from tidemill.catalog.store import Catalog
from tidemill.changes.files import takes_all, touching
from tidemill.changes.pending import NOTHING_PENDING, Pending
from tidemill.digests.definition import Digest
from tidemill.digests.lacking import concerning
from tidemill.history.storage import Storage
from tidemill.hot.crash import point
from tidemill.hot.table import HotTable
from tidemill.pipeline.job import JobContext, Nothing, OfStream, Outcome, Uncommitted, Written
from tidemill.pipeline.rewriting import RewriteTask, Rewritten, rewrite_files
from tidemill.pipeline.saving import saving
from tidemill.stream.image import look
from tidemill.stream.relation import scan_of

TASKS_MAX = 16
CARRY_OUT_PRIORITY = 5


@dataclass(frozen=True)
class CarryOut:
    """Files that are written anew with all changes up to a number, by their tasks."""

    tasks: tuple[RewriteTask, ...]
    gone: tuple[DataFile, ...]  # of these nothing is left
    changed: int

    @property
    def dropped(self) -> tuple[int, ...]:
        files = [file for task in self.tasks for file in task.scan.files]
        named = [file.file_id for file in (*files, *self.gone) if isinstance(file, DataFile)]
        return tuple(sorted(named))


def files_to_change(history: History, changes: Pending) -> list[DataFile]:
    """The files of rows that changes may touch."""
    if not changes or not history.files:
        return []
    rows = (file for file in history.files if file.kind == FILE_ROWS)
    return [file for file in rows if touching(changes, file).any()]


@dataclass(frozen=True)
class CarryOutJob(OfStream):
    """Carry changes out in files. One file becomes one or several of the same span of time."""

    hot: HotTable
    catalog: Catalog
    storage: Storage
    reason: str = "changes wait"
    kind: str = field(default="change", init=False)
    exclusive: bool = field(default=True, init=False)

    def explain(self) -> list[str]:
        return [f'carry out changes of table "{self.table_name}" in files: {self.reason}']

    def run(self, context: JobContext) -> Uncommitted[None]:
        plan = self._plan(context.job_id)
        if not plan.tasks and not plan.gone:
            forget_done(self.hot, self.catalog)
            return Nothing(Outcome(None, detail="nothing to do"))
        context.tell(self.explain()[0])

        def count(_index: int, files: tuple[NewFile, ...]) -> None:
            context.count(sum(f.rows for f in files), sum(f.bytes for f in files))

        made: list[tuple[NewFile, ...]] = []
        if plan.tasks:
            made = context.run_tasks(
                f'change "{self.table_name}"', rewrite_files, plan.tasks, count
            )
        files = tuple(replace(file, changed=plan.changed) for some in made for file in some)
        point("change.written")
        return Written((plan, Rewritten(files, plan.dropped, self.explain()[0])), self.commit)

    def commit(self, written: tuple[CarryOut, Rewritten]) -> Outcome[None]:
        plan, found = written
        with saving(self.hot, plan.changed) as changes, self.catalog.transaction() as change:
            commit = FileCommit(found.files, plan.dropped, changes=changes)
            change.commit_files(self.table_id, commit)
        point("change.committed")
        forget_done(self.hot, self.catalog)
        return found.outcome

    def _plan(self, job_id: str) -> CarryOut:
        image = look(self.hot).at(self.catalog.snapshot())
        self.hot.flush()  # files that have a change must not outlive it
        changes, history = image.view.changes, image.history
        found = files_to_change(history, changes)[:TASKS_MAX]
        gone = [file for file in found if any(takes_all(change, file) for change in changes)]
        table: Table = image.table
        tasks = tuple(
            RewriteTask(
                job_id,
                number,
                table,
                self.storage,
                file.lo_us,
                file.hi_us,
                scan_of(history, [file], changes=changes),
                "change",
            )
            for number, file in enumerate(file for file in found if file not in gone)
        )
        return CarryOut(tasks, tuple(gone), image.view.last_change)


def forget_done(hot: HotTable, catalog: Catalog) -> None:
    """Forget the changes that no row can need any more."""
    with hot.changing.saving:  # nobody puts later ones into the catalog meanwhile
        _forget_done(hot, catalog)


def _forget_done(hot: HotTable, catalog: Catalog) -> None:
    published = hot.published
    if not published.changes.pending:
        return
    changes, first_seq = published.changes.pending, published.first_seq
    snapshot = catalog.snapshot()
    history = snapshot.history(hot.table.table_id)
    is_done = changes.uptos < first_seq
    for file in history.files:
        if file.kind == FILE_ROWS:
            is_done &= ~touching(changes, file)
    for digest in snapshot.digests_of(hot.table.table_id):
        files = snapshot.history(digest.table_id).files
        own = concerning(changes, Digest.of(digest), hot.table) if files else NOTHING_PENDING
        concerned = np.isin(changes.numbers, own.numbers)
        for file in files if len(own) else ():
            is_done &= ~(touching(changes, file) & concerned)
    done = set(changes.numbers[is_done].tolist())
    if not done:
        return
    sets = catalog.records.changes(hot.table.table_id)
    left = set(changes.numbers.tolist()) - done
    ended = [
        each.first_number
        for each in sets
        if not any(each.first_number <= number <= each.last_number for number in left)
    ]
    if ended:
        with catalog.transaction() as change:
            if change.snapshot.table(hot.table.table_id) is not None:
                change.commit_files(hot.table.table_id, FileCommit(done=ended))
    with published.lock:
        published.changes.forget(done)
