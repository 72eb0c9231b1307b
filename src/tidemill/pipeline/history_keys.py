"""Primary keys in history: what files hold of the keys that come, and of rows in memory."""

from __future__ import annotations

import pyarrow as pa

from tidemill.catalog.store import Catalog
from tidemill.history.reading import deleted_seqs, find_keys, prune
from tidemill.history.storage import Storage
from tidemill.hot import keys
from tidemill.hot.primary import Key
from tidemill.hot.table import HotTable
from tidemill.pipeline.local_duck import LocalDuck


class HistoryKeys:
    def __init__(self, catalog: Catalog, storage: Storage, duck: LocalDuck) -> None:
        self._catalog = catalog
        self._storage = storage
        self._duck = duck

    def find(self, hot: HotTable, batch: pa.RecordBatch) -> dict[Key, int]:
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
                self._storage,
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
                seqs = deleted_seqs(self._storage, cursor, deletes, hot.table.name)
            later = [seq for seq in seqs if seq > history.moved_seq]
            hot.forget(later, [file.path for file in deletes])
