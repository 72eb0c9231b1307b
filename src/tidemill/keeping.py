"""Keeping: the rooms of history wired together, and the work that keeps it in order.

Rows leave memory by moves (the *mover* decides, FLUSH insists), small files are compacted, what
retention no longer wants is dropped, and snapshots that nobody may read any more are forgotten with
their files. Each of these is a job of the pipeline; one thread looks what is due. Nothing here is
on the way of an append or of a query.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pyarrow as pa

from tidemill.catalog.model import Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock
from tidemill.config import Settings
from tidemill.errors import ConflictError, TidemillError
from tidemill.executions import cancellable
from tidemill.federation.duck import Duck
from tidemill.federation.past import Pins
from tidemill.history.reading import deleted_seqs, find_keys, prune
from tidemill.history.storage import Storage
from tidemill.hot import keys
from tidemill.hot.primary import Key
from tidemill.hot.retention import horizon_us
from tidemill.hot.table import HotTable
from tidemill.hot.tier import HotTier
from tidemill.pipeline.compact import CompactJob, ExpireJob, expired_with_digests, plan_compact
from tidemill.pipeline.digest_compact import DigestCompactJob, plan_digest_compact
from tidemill.pipeline.jobs import Job, JobHandle, Outcome, Pipeline
from tidemill.pipeline.lifetime import Lifetime
from tidemill.pipeline.move import MoveJob
from tidemill.pipeline.mover import Mover
from tidemill.publishing import Publishing

LOOK_EVERY_S = 1.0
FORGET_EVERY_S = 60.0
COMPACT_PRIORITY, MOVE_PRIORITY = 10, 0
CONFLICTS_MAX = 5
MAX_US = 2**63 - 1
_log = logging.getLogger("tidemill.keeping")


class Keeping:
    def __init__(
        self,
        catalog: Catalog,
        tier: HotTier,
        pipeline: Pipeline,
        storage: Storage,
        pins: Pins,
        duck: Duck,
        clock: Clock,
        settings: Settings,
        life: Lifetime,
    ) -> None:
        self.pipeline = pipeline
        self.storage = storage
        self.life = life
        self.mover = Mover(tier.tables, clock, self._submit_move, life)
        self.publishing = Publishing(catalog, storage)
        self.publishing.compact = self._compact_deleted
        self._catalog = catalog
        self._tier = tier
        self._pins = pins
        self._duck = duck
        self._clock = clock
        self._settings = settings
        # what else is due from time to time, told whether work in the background is allowed
        self.on_look: Callable[[bool], None] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemill-history", daemon=True)

    def adopt(self, hot: HotTable) -> None:
        """Wire a table that was opened or created: its keys in history, its need for room."""
        hot.on_pressure = self.mover.hurry
        hot.relief = self.mover.relief
        if hot.primary is not None:
            hot.find_keys = lambda batch: self._keys_in_history(hot, batch)

    def start(self) -> None:
        self.life.begin()
        self.mover.start()
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self.mover.close()
        if self._thread.is_alive():
            self._thread.join()
        self.pipeline.close()

    # -- moves

    def flush(self, tables: list[Table]) -> int:
        """Move all that is published in some tables; answers the rows moved."""
        found = [self._tier.tables.get(table.table_id) for table in tables]
        hot = [each for each in found if each is not None]
        handles = [(each, self._submit_move(each, None, "asked for by FLUSH")) for each in hot]
        rows = sum(self._flushed(each, handle) for each, handle in handles)
        self.publishing.follow()
        return rows

    def _flushed(self, hot: HotTable, handle: JobHandle) -> int:
        """The rows of a move; one that met a change of its digests is made again."""
        for _ in range(CONFLICTS_MAX):
            try:
                return self.wait(handle).rows
            except ConflictError:
                handle = self._submit_move(hot, None, "asked for by FLUSH")
        return self.wait(handle).rows

    def wait(self, handle: JobHandle) -> Outcome:
        """The job's outcome; who cancels the statement that waits cancels the job."""
        with cancellable(handle.cancel, handle.progress):
            return handle.wait()

    def _submit_move(self, hot: HotTable, upto_seq: int | None, reason: str) -> JobHandle:
        job = MoveJob(hot, self._catalog, self.storage, upto_seq, reason)
        return self.submit(job, MOVE_PRIORITY)

    def submit(self, job: Job, priority: int) -> JobHandle:
        return self.pipeline.submit(job, priority)

    # -- keys

    def _keys_in_history(self, hot: HotTable, batch: pa.RecordBatch) -> dict[Key, int]:
        """The primary keys of a batch that files hold. Most batches are newer than any file."""
        table = hot.table
        history = self._catalog.snapshot().history(table.table_id)
        if not history.files or hot.primary is None or table.time_column is None:
            return {}
        times = keys.words(batch.column(table.time_column))
        pruned = prune(history, int(times.min()), int(times.max()))
        if not pruned.files:
            return {}
        wanted = pa.Table.from_batches([batch]).select(list(hot.primary.columns))
        with self._duck.lent(exact=True) as cursor:
            found = find_keys(
                self.storage,
                cursor,
                table,
                pruned.files,
                pruned.deletes,
                wanted,
                table.time_column,
                table.name,
            )
        buried = hot.view().buried
        held: dict[Key, int] = {}
        for part in found.to_batches():
            numbers = part.column("_seq").to_pylist()
            for key, seq in zip(hot.primary.keys_of(part), numbers, strict=True):
                if seq not in buried:
                    held[key] = seq
        return held

    def recall(self, hot: HotTable) -> None:
        """After a start: rows that the log brought back and that loaded rows had replaced."""
        history = self._catalog.snapshot().history(hot.table.table_id)
        deletes = [file for file in history.deletes if file.seq_max > history.moved_seq]
        if deletes and hot.primary is not None:
            with self._duck.lent(exact=True) as cursor:
                seqs = deleted_seqs(self.storage, cursor, deletes, hot.table.name)
            later = [seq for seq in seqs if seq > history.moved_seq]
            hot.forget(later, [file.path for file in deletes])

    # -- order

    def _run(self) -> None:
        since_forget_s = 0.0
        while not self._stopping.wait(LOOK_EVERY_S):
            since_forget_s += LOOK_EVERY_S
            try:
                self.look()
                if since_forget_s >= FORGET_EVERY_S:
                    since_forget_s = 0.0
                    self.forget_snapshots()
            except Exception as error:  # the next look may fare better
                _log.warning("while keeping history: %s", error)

    def look(self) -> None:
        """Submit what is due: partitions to drop, and where Spark runs, files to compact."""
        snapshot = self._catalog.snapshot()
        is_allowed = bool(self._tier.tables) and self.life.allows_background()
        for table_id, history in snapshot.histories.items():
            hot = self._tier.tables.get(table_id)
            table = snapshot.table(table_id)
            if hot is None or table is None or not history.files:
                continue
            horizon = horizon_us(table, hot.progress.now_us())
            if horizon is not None:
                bounds = horizon, self._clock.now_us() - table.settings["retention"]
                is_new = not self.pipeline.pending(table_id, "expire")
                if is_new and expired_with_digests(snapshot, table_id, *bounds):
                    self.submit(ExpireJob(table, self._catalog, *bounds), MOVE_PRIORITY)
            if is_allowed:
                self.compact(table, hot)
                self._compact_digests(snapshot, table)
        if self.on_look is not None:
            self.on_look(is_allowed)
        self.publishing.follow()

    def compact(self, table: Table, hot: HotTable) -> JobHandle | None:
        """Compact what is due; None if nothing is, or if it is under way."""
        now_us = hot.progress.now_us()
        cold = None if now_us is None else now_us - table.settings["hot"]
        return self._submit_compact(table, cold)

    def _compact_digests(self, snapshot: Snapshot, table: Table) -> None:
        """Merge the partials of partitions that have many files of them."""
        for digest in snapshot.digests_of(table.table_id):
            history = snapshot.history(digest.table_id)
            if self.pipeline.pending(table.table_id, "compact"):
                return
            if plan_digest_compact("", digest, history, self.storage):
                job = DigestCompactJob(digest, table, self._catalog, self.storage)
                self.submit(job, COMPACT_PRIORITY)

    def _compact_deleted(self, table: Table) -> None:
        """Write files without their deleted rows, however young their partition is."""
        self._submit_compact(table, MAX_US)

    def _submit_compact(self, table: Table, cold_before_us: int | None) -> JobHandle | None:
        if self.pipeline.pending(table.table_id, "compact") or not self.life.allows_background():
            return None
        history = self._catalog.snapshot().history(table.table_id)
        if plan_compact("", table, history, self.storage, cold_before_us) is None:
            return None
        job = CompactJob(table, self._catalog, self.storage, cold_before_us)
        return self.submit(job, COMPACT_PRIORITY)

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
        known = self._catalog.known_paths()
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
        if kept_us is None:
            return 0
        paths = self._catalog.expire_snapshots(self._clock.now_us() - kept_us, self._pins.held())
        for path in paths:
            try:
                self.storage.delete(path)
            except (OSError, TidemillError) as error:  # it is an orphan now: VACUUM finds it
                _log.warning("cannot remove %s: %s", path, error)
        return len(paths)

    def _running(self) -> set[str]:
        return {record.job_id for record in self.pipeline.board.records() if not record.is_ended}
