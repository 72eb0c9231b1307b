"""Compaction on request: files are merged, or written again without their deleted rows.

``compact`` is the job; one of a table at a time, and only where work in the background is allowed.
What is due by itself, ``due`` finds.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.history.storage import Storage
from tidemill.hot.table import HotTable
from tidemill.pipeline.compact import CompactJob, plan_compact
from tidemill.pipeline.jobs import JobHandle, Pipeline
from tidemill.pipeline.lifetime import Lifetime

COMPACT_PRIORITY = 10
MAX_US = 2**63 - 1


class Compaction:
    def __init__(
        self,
        catalog: Catalog,
        tables: Mapping[int, HotTable],
        pipeline: Pipeline,
        storage: Storage,
        life: Lifetime,
    ) -> None:
        self._tables = tables
        self._catalog = catalog
        self._pipeline = pipeline
        self._storage = storage
        self._life = life

    def compact_deleted(self, table: Table) -> None:
        """Write files without their deleted rows, however young their partition is."""
        self.submit(table, MAX_US)

    def submit(self, table: Table, cold_before_us: int | None) -> JobHandle[None] | None:
        """Compact partitions that end before a moment; None if there is nothing to do, or if it is
        being done."""
        if self._pipeline.pending(table.table_id, "compact") or not self._life.allows_background():
            return None
        history = self._catalog.snapshot().history(table.table_id)
        if plan_compact("", table, history, self._storage, cold_before_us) is None:
            return None
        hot = self._tables.get(table.table_id)
        job = CompactJob(table, self._catalog, self._storage, cold_before_us, hot)
        return self._pipeline.submit(job, COMPACT_PRIORITY)
