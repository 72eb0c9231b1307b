"""Making and removing tables together with their storage.

A new table's storage is prepared inside the transaction and an old one's removed after it, so a
crash leaves at most something to sweep up at the next start.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.catalog.model import NewTable, Table
from tidemill.catalog.store import Catalog
from tidemill.catalog.transaction import Transaction
from tidemill.errors import DuplicateNameError, UnknownNameError, UnsupportedError
from tidemill.executions import uncancellable
from tidemill.federation.references import References
from tidemill.hot.tier import HotTier
from tidemill.pipeline.keeping import Keeping
from tidemill.pipeline.loads.loads import Loads
from tidemill.sql import statements as st
from tidemill.views.continuous import KeptQueries
from tidemill.views.kept.definition import is_kept
from tidemill.views.registry import Views

Creating = st.CreateStreamingTable | st.CreateTable | st.CreateView | st.CreateKeptQuery


class Making:
    def __init__(
        self,
        catalog: Catalog,
        tier: HotTier,
        references: References,
        keeping: Keeping,
        loads: Loads,
        views: Views,
        kept: KeptQueries,
    ) -> None:
        self._catalog = catalog
        self._tier = tier
        self._references = references
        self._keeping = keeping
        self._loads = loads
        self._views = views
        self._kept = kept

    def exists(self, statement: Creating) -> bool:
        """Whether there is nothing to make. A name that is taken is an error, unless the statement
        says what to do then."""
        if self._catalog.snapshot().find(statement.name) is None or statement.or_replace:
            return False
        if statement.if_not_exists:
            return True
        raise DuplicateNameError(
            f'table "{statement.name}" already exists',
            hint="use CREATE OR REPLACE, or IF NOT EXISTS",
            position=statement.position,
        )

    def create(self, new: NewTable, or_replace: bool, prepare: Callable[[Table], None]) -> None:
        """Make a table, perhaps in the place of another; ``prepare`` makes its storage."""
        old = self._catalog.snapshot().find(new.name)
        if old is not None:
            check_table(old)
            self._views.check_unused(old, "replaced")
        made: Table | None = None
        try:
            with self._catalog.transaction() as change:
                if old is not None and or_replace:
                    self._drop_sources_of(change, old)
                made = change.replace_table(new) if or_replace else change.create_table(new)
                prepare(made)
        except BaseException:
            if made is not None:
                self.remove(made)
            raise
        if old is not None:
            self.remove(old)

    def drop(self, table: Table) -> None:
        self._views.check_unused(table, "dropped")
        with self._catalog.transaction() as change:
            self._drop_sources_of(change, table)
            change.drop_table(table.table_id)
        self.remove(table)

    def remove(self, table: Table) -> None:
        """Remove what a table that is no more has left, whoever cancels the statement."""
        with uncancellable():
            if is_kept(table):
                self._kept.follow()
            if table.is_streaming:
                self._loads.follow()
                self._keeping.publishing.withdraw(table)
                gone = UnknownNameError(f'table "{table.name}" was dropped')
                self._keeping.pipeline.cancel_table(table.table_id, gone)
                self._tier.drop(table.table_id)
            else:
                self._references.drop(table.table_id)

    def follow(self, table_id: int) -> None:
        """Let the hot tier see the table as the catalog has it now."""
        table = self._catalog.snapshot().table(table_id)
        hot = self._tier.tables.get(table_id)
        if table is not None and hot is not None:
            hot.set_table(table)

    def _drop_sources_of(self, change: Transaction, table: Table) -> None:
        for source in self._catalog.snapshot().sources.values():
            if source.table_id == table.table_id:
                change.drop_source(source.source_id)


def check_table(table: Table, statement: st.Statement | None = None) -> None:
    """Views and digests are no tables to DROP TABLE, CREATE INDEX and the like."""
    if table.is_view or table.is_digest:
        raise UnsupportedError(
            f'"{table.name}" is a materialized view',
            hint=f'write DROP MATERIALIZED VIEW "{table.name}", or choose another name',
            position=statement.position if statement else None,
        )
