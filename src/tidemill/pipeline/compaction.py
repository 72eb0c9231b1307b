"""Compaction: which files are due to be merged, or written again without their deleted rows.

``compact`` and ``digest_compact`` are the jobs; here they are submitted, one of a table at a time,
and only where work in the background is allowed.
"""

from __future__ import annotations

from tidemill.catalog.model import Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.history.storage import Storage
from tidemill.hot.table import HotTable
from tidemill.pipeline.compact import CompactJob, plan_compact
from tidemill.pipeline.digest_compact import DigestCompactJob, plan_digest_compact
from tidemill.pipeline.jobs import JobHandle, Pipeline
from tidemill.pipeline.lifetime import Lifetime

COMPACT_PRIORITY = 10
MAX_US = 2**63 - 1


class Compaction:
    def __init__(
        self, catalog: Catalog, pipeline: Pipeline, storage: Storage, life: Lifetime
    ) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._storage = storage
        self._life = life

    def compact(self, table: Table, hot: HotTable) -> JobHandle | None:
        """Compact what is due; None if nothing is, or if it is under way."""
        now_us = hot.progress.now_us()
        cold = None if now_us is None else now_us - table.settings["hot"]
        return self.submit(table, cold)

    def compact_digests(self, snapshot: Snapshot, table: Table) -> None:
        """Merge the partials of partitions that have many files of them."""
        for digest in snapshot.digests_of(table.table_id):
            history = snapshot.history(digest.table_id)
            if self._pipeline.pending(table.table_id, "compact"):
                return
            if plan_digest_compact("", digest, history, self._storage):
                job = DigestCompactJob(digest, table, self._catalog, self._storage)
                self._pipeline.submit(job, COMPACT_PRIORITY)

    def compact_deleted(self, table: Table) -> None:
        """Write files without their deleted rows, however young their partition is."""
        self.submit(table, MAX_US)

    def submit(self, table: Table, cold_before_us: int | None) -> JobHandle | None:
        """Compact partitions that end before a moment."""
        if self._pipeline.pending(table.table_id, "compact") or not self._life.allows_background():
            return None
        history = self._catalog.snapshot().history(table.table_id)
        if plan_compact("", table, history, self._storage, cold_before_us) is None:
            return None
        job = CompactJob(table, self._catalog, self._storage, cold_before_us)
        return self._pipeline.submit(job, COMPACT_PRIORITY)
