"""Keeping: the work that keeps history in order, and what tables in memory ask of history.

Rows leave memory by moves (the *mover* decides, FLUSH insists), small files are compacted, what
retention no longer wants is dropped, and snapshots that nobody may read any more are forgotten with
their files. One thread looks what is due (``due`` has the rules) and has it done. Nothing here is
on the way of a query, and of an append only what its primary keys and its memory need.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeVar

import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock
from tidemill.config import Settings
from tidemill.errors import ConflictError, PipelineError, TidemillError
from tidemill.history.publishing import Publishing
from tidemill.history.storage import Storage
from tidemill.hot.environment import Relief
from tidemill.hot.primary import Key
from tidemill.hot.table import HotTable
from tidemill.pipeline.changing import (
    CARRY_OUT_PRIORITY,
    CarryOutJob,
    files_to_change,
    forget_done,
)
from tidemill.pipeline.compaction import Compaction
from tidemill.pipeline.due import (
    RULES,
    Due,
    DueJob,
    DueLooking,
    DuePublishing,
    DueTelling,
    Situation,
)
from tidemill.pipeline.job import Job, Outcome
from tidemill.pipeline.jobs import JobHandle, Pipeline
from tidemill.pipeline.lifetime import Lifetime
from tidemill.pipeline.move import Move, MoveJob
from tidemill.pipeline.mover import Mover
from tidemill.stream.keys import Keys
from tidemill.subscribers import Subscribers
from tidemill.workers import Worker

LOOK_EVERY_S = 1.0
MOVE_PRIORITY = 0
CONFLICTS_MAX = 5
_log = logging.getLogger("tidemill.keeping")

T = TypeVar("T")


class Keeping:
    """The ``Environment`` of the tables in memory."""

    def __init__(
        self,
        catalog: Catalog,
        tables: Mapping[int, HotTable],
        pipeline: Pipeline,
        storage: Storage,
        pinned: Callable[[], AbstractSet[int]],
        keys: Keys,
        clock: Clock,
        settings: Settings,
        life: Lifetime,
        looks: Subscribers[bool],
    ) -> None:
        """``pinned`` are the snapshots that statements read. ``looks`` are told whenever it was
        looked what is due, and whether work in the background is allowed."""
        self.pipeline = pipeline
        self.storage = storage
        self.life = life
        self.mover = Mover(tables, clock, self._submit_move, life)
        self.compaction = Compaction(catalog, tables, pipeline, storage, life)
        self.publishing = Publishing(
            catalog, storage, self.compaction.compact_deleted, self._has_changes
        )
        self._keys = keys
        self._catalog = catalog
        self._tables = tables
        self._pinned = pinned
        self._clock = clock
        self._settings = settings
        self._looks = looks
        self._forgot_s = time.monotonic()
        self._worker = Worker("tidemill-history", self._work, _log, first_s=LOOK_EVERY_S)

    def start(self) -> None:
        self.life.begin()
        self.mover.start()
        self._worker.start()

    def close(self) -> None:
        self.mover.close()
        self._worker.close()
        self.pipeline.close()

    # -- what tables in memory ask

    def find_keys(self, hot: HotTable, batch: pa.RecordBatch) -> dict[Key, int]:
        return self._keys.in_files(hot, batch)

    def make_room(self, hot: HotTable) -> None:
        self.mover.hurry(hot)

    def relief(self, hot: HotTable) -> Relief:
        return self.mover.relief(hot)

    def recall(self, hot: HotTable) -> None:
        """After a start: what history knows of the rows that the log brought back."""
        self._keys.recall(hot)

    # -- moves

    def flush(self, tables: list[Table]) -> int:
        """Move all that is published in some tables; answers the rows moved."""
        found = [self._tables.get(table.table_id) for table in tables]
        hot = [each for each in found if each is not None]
        handles = [(each, self._submit_move(each, None, "asked for by FLUSH")) for each in hot]
        rows = sum(self._flushed(each, handle) for each, handle in handles)
        for each in hot:
            self._carry_out_changes(each, "asked for by FLUSH")
        self.publishing.follow()
        return rows

    def carry_out(self, hot: HotTable) -> None:
        """Carry all changes out in files, for a writer who waits for it."""
        try:
            self._carry_out_changes(hot, "the table has changes = 'eager'")
        except TidemillError as error:
            raise PipelineError(
                f'the change of table "{hot.table.name}" is made and readers see it, but it could '
                "not be carried out in files",
                detail=str(error),
                hint="FLUSH tries again, and so does the next change",
            ) from error
        self.publishing.publish(hot.table)

    def _carry_out_changes(self, hot: HotTable, reason: str) -> None:
        """Carry all changes out in files."""
        while self._files_to_change(hot):
            job = CarryOutJob(hot, self._catalog, self.storage, reason)
            self.wait(self.submit(job, CARRY_OUT_PRIORITY))
        forget_done(hot, self._catalog)

    def _files_to_change(self, hot: HotTable) -> bool:
        changes = hot.published.every_change()
        history = self._catalog.snapshot().history(hot.table.table_id)
        return bool(files_to_change(history, changes))

    def _has_changes(self, table: Table) -> bool:
        """Whether files lack changes, so that others must not read them as they are; then they are
        carried out."""
        hot = self._tables.get(table.table_id)
        if hot is None or not hot.published.changes.last or not self._files_to_change(hot):
            return False
        if not self.pipeline.pending(table.table_id, "change") and self.life.allows_background():
            job = CarryOutJob(hot, self._catalog, self.storage, "the table is published")
            self.submit(job, CARRY_OUT_PRIORITY)
        return True

    def _flushed(self, hot: HotTable, handle: JobHandle[Move]) -> int:
        """The rows of a move; one that met a change of its digests is made again."""
        for _ in range(CONFLICTS_MAX):
            try:
                return self.wait(handle).rows
            except ConflictError:
                handle = self._submit_move(hot, None, "asked for by FLUSH")
        return self.wait(handle).rows

    def wait(self, handle: JobHandle[T]) -> Outcome[T]:
        """The job's outcome; who cancels the statement that waits cancels the job."""
        return handle.wait_cancellable()

    def _submit_move(self, hot: HotTable, upto_seq: int | None, reason: str) -> JobHandle[Move]:
        job = MoveJob(hot, self._catalog, self.storage, upto_seq, reason)
        return self.submit(job, MOVE_PRIORITY)

    def submit(self, job: Job[T], priority: int) -> JobHandle[T]:
        return self.pipeline.submit(job, priority)

    # -- order

    def _work(self, _is_woken: bool) -> float:
        self.look()
        return LOOK_EVERY_S

    def look(self) -> None:
        """Have done what is due, rule by rule."""
        situation = self._situation()
        for rule in RULES:
            for due in rule(situation):
                self._carry_out(due)

    def _situation(self) -> Situation:
        return Situation(
            self._catalog.snapshot(),
            dict(self._tables),
            self._catalog,
            self.storage,
            self._clock.now_us(),
            lambda table_id, kind: self.pipeline.pending(table_id, kind) > 0,
            bool(self._tables) and self.life.allows_background(),
            bool(self._tables) and self.life.allows_tidying(),
            self._settings["time_travel"],
            time.monotonic() - self._forgot_s,
        )

    def _look_at(self, hot: HotTable) -> None:
        """Have changes carried out in memory; who looks next is told what hinders it."""
        try:
            hot.view()
        except TidemillError as error:
            _log.warning('changes of table "%s" wait on: %s', hot.table.name, error)

    def _carry_out(self, due: Due) -> None:
        if isinstance(due, DueJob):
            self.submit(due.job, due.priority)
        elif isinstance(due, DueTelling):
            self._looks.tell(due.allows_background)
        elif isinstance(due, DuePublishing):
            self.publishing.publish(due.table)
        elif isinstance(due, DueLooking):
            self._look_at(due.hot)
        else:
            self._forgot_s = time.monotonic()
            self._forget_before(due.before_us)

    # -- vacuum

    def vacuum(self, tables: list[Table] | None) -> tuple[int, int]:
        """Forget old snapshots with their files, then remove files that no snapshot names: what
        failed jobs left. Answers files and bytes removed."""
        files = self.forget_snapshots()
        size = 0
        prefixes = [""] if tables is None else [f"{table.table_id}/" for table in tables]
        running = self._running()
        listed = [entry for prefix in prefixes for entry in self.storage.list(prefix)]
        running |= self._running()
        known = self._catalog.records.known_paths()
        for path, length, _ in listed:
            name = path.rpartition("/")[2]
            is_ours = path.partition("/")[0].isdecimal() and name.endswith(".parquet")
            is_ours = is_ours and "/_delta_log/" not in path
            in_progress = any(name.startswith(job_id) for job_id in running)
            if is_ours and path not in known and not in_progress:
                self.storage.delete(path)
                files, size = files + 1, size + length
        return files, size

    def forget_snapshots(self) -> int:
        """Snapshots older than ``time_travel``, except those that statements read."""
        kept_us = self._settings["time_travel"]
        return 0 if kept_us is None else self._forget_before(self._clock.now_us() - kept_us)

    def _forget_before(self, before_us: int) -> int:
        with self._catalog.transaction() as change:
            paths = change.expire_snapshots(before_us, self._pinned())
        for path in paths:
            try:
                self.storage.delete(path)
            except (OSError, TidemillError) as error:  # it is an orphan now: VACUUM finds it
                _log.warning("cannot remove %s: %s", path, error)
        return len(paths)

    def _running(self) -> set[str]:
        return {record.job_id for record in self.pipeline.board.records() if not record.is_ended}
