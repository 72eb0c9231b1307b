"""What a load needs of the warehouse: sequence numbers, keys to compare with, a transaction.

Sequence numbers come from the table's own counter; primary keys are compared with files and with
rows in memory; one transaction names the files. While keys are compared and committed, writers of
the table wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tidemill.catalog.model import FILE_DELETES, NewFile, Package, Table
from tidemill.catalog.store import Catalog
from tidemill.errors import UnknownNameError
from tidemill.history.checking import check_files
from tidemill.history.reading import prune, scan_sql
from tidemill.history.storage import Storage
from tidemill.hot.crash import point
from tidemill.hot.table import HotTable
from tidemill.pipeline.digesting import commit_loaded
from tidemill.pipeline.fixing import fix_partition, follow_table
from tidemill.pipeline.load import KeyConflicts, LoadCommit
from tidemill.pipeline.loads.loaded import marked
from tidemill.pipeline.local_duck import LocalDuck
from tidemill.types import quote

_NO_NUMBERS = np.empty(0, dtype=np.int64)


class WarehouseLoadDesk:
    """The ``LoadDesk`` of a warehouse."""

    def __init__(
        self,
        catalog: Catalog,
        tables: Mapping[int, HotTable],
        storage: Storage,
        duck: LocalDuck,
    ) -> None:
        self._catalog = catalog
        self._tables = tables
        self._storage = storage
        self._duck = duck

    def hot(self, table_id: int) -> HotTable:
        hot = self._tables.get(table_id)
        if hot is None:
            raise UnknownNameError("the table of the load was dropped")
        return hot

    def known(self, table_id: int, names: Sequence[str]) -> Sequence[Package]:
        return [*self._catalog.packages(table_id, names), *marked(self.hot(table_id), names)]

    def reserve(self, table_id: int, count: int) -> int:
        def record(first: int, last: int) -> None:
            self._catalog.reserve(table_id, first, last)

        return self.hot(table_id).reserve(count, record)

    def check_keys(self, table: Table, files: Sequence[NewFile]) -> KeyConflicts:
        """Keys that files repeat: of each other, of history, and of rows in memory."""
        if not files:
            return KeyConflicts(_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS)
        assert table.time_column is not None
        hot = self.hot(table.table_id)
        view = hot.view()
        history = self._catalog.snapshot().history(table.table_id)
        low = min(file.time_min_us for file in files)
        high = max(file.time_max_us for file in files)
        old = prune(history, low, high)
        names = list(table.primary_key)
        read = [*files, *old.files, *old.deletes]
        check_files(self._storage, table.name, read, [*names, "_seq"])
        keys = ", ".join(quote(name) for name in names)
        time = quote(table.time_column)
        new_sql = scan_sql(self._storage, table, files, (), names, with_seq=True)
        old_sql = scan_sql(
            self._storage,
            table,
            old.files,
            old.deletes,
            names,
            with_seq=True,
            buried=view.buried,
        )
        held = view.after(history.moved_seq).whole(True).select([*names, "_seq"])
        columns = f"{keys}, _seq"
        sql = f"""
            WITH added AS (SELECT {columns} FROM ({new_sql})),
            there AS (
                SELECT {columns} FROM ({old_sql}) UNION ALL SELECT {columns} FROM tm_held
            ),
            met AS (SELECT * FROM there SEMI JOIN added USING ({keys})),
            rows AS (
                SELECT {columns}, true AS is_new FROM added
                UNION ALL SELECT {columns}, false FROM met
            )
            SELECT _seq, lag(_seq) OVER w AS against, epoch_us({time}) AS at_us
            FROM rows
            WINDOW w AS (PARTITION BY {keys} ORDER BY is_new, _seq)
            QUALIFY is_new AND against IS NOT NULL
        """
        found, _ = self._duck.query(sql, {}, {"tm_held": held}, exact=True)
        return KeyConflicts(*(_numbers(found.column(at)) for at in range(3)))

    def commit(self, commit: LoadCommit) -> None:
        point("load.written")
        with self._catalog.transaction() as change:
            fix_partition(change, commit.table_id, commit.files)
            change.commit_files(
                commit.table_id,
                add=commit.files,
                packages=commit.packages,
                reserved=[commit.reserved] if commit.reserved is not None else [],
            )
            commit_loaded(change, commit.digested)
        point("load.committed")
        hot = self.hot(commit.table_id)
        follow_table(hot, self._catalog)
        hot.announce()
        deletes = [file.path for file in commit.files if file.kind == FILE_DELETES]
        if deletes:
            self.hot(commit.table_id).forget(commit.replaced, deletes)


def _numbers(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype=np.int64)
