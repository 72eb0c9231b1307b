"""What a load needs of the warehouse: sequence numbers, keys to compare with, a transaction.

Sequence numbers come from the table's own counter; primary keys are compared with files and with
rows in memory; one transaction names the files. While keys are compared and committed, writers of
the table wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.model import FILE_DELETES, NewFile, Package, Table
from tidemill.catalog.store import Catalog
from tidemill.errors import UnknownNameError
from tidemill.hot.crash import point
from tidemill.hot.table import HotTable
from tidemill.pipeline.digesting import commit_loaded
from tidemill.pipeline.fixing import fix_partition, follow_table
from tidemill.pipeline.load import LoadCommit
from tidemill.pipeline.loads.loaded import marked
from tidemill.stream.keys import KeyConflicts, Keys


class WarehouseLoadEnvironment:
    """The ``LoadEnvironment`` of a warehouse."""

    def __init__(
        self,
        catalog: Catalog,
        tables: Mapping[int, HotTable],
        keys: Keys,
    ) -> None:
        self._catalog = catalog
        self._tables = tables
        self._keys = keys

    def hot(self, table_id: int) -> HotTable:
        hot = self._tables.get(table_id)
        if hot is None:
            raise UnknownNameError("the table of the load was dropped")
        return hot

    def known(self, table_id: int, names: Sequence[str]) -> Sequence[Package]:
        return [
            *self._catalog.records.packages(table_id, names),
            *marked(self.hot(table_id), names),
        ]

    def reserve(self, table_id: int, count: int) -> int:
        def record(first: int, last: int) -> None:
            with self._catalog.transaction() as change:
                change.reserve(table_id, first, last)

        return self.hot(table_id).reserve(count, record)

    def check_keys(self, table: Table, files: Sequence[NewFile]) -> KeyConflicts:
        """Keys that files repeat: of each other, of history, and of rows in memory."""
        return self._keys.repeated(self.hot(table.table_id), files)

    def commit(self, commit: LoadCommit) -> None:
        point("load.written")
        with self._catalog.transaction() as change:
            fix_partition(change, commit.table_id, commit.files)
            reserved = [commit.reserved] if commit.reserved is not None else []
            change.commit_files(
                commit.table_id,
                FileCommit(commit.files, packages=commit.packages, reserved=reserved),
            )
            commit_loaded(change, commit.digested)
        point("load.committed")
        hot = self.hot(commit.table_id)
        follow_table(hot, self._catalog)
        hot.listeners.tell(hot)
        deletes = [file.path for file in commit.files if file.kind == FILE_DELETES]
        if deletes:
            self.hot(commit.table_id).forget(commit.replaced, deletes)
