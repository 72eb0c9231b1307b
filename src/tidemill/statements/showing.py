"""Showing: SHOW and DESCRIBE are queries of system tables."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.catalog.store import Catalog
from tidemill.result import Result
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers, RunQuery
from tidemill.statements.dispatch import parsed

_LISTS: Mapping[type[st.Statement], str] = {
    st.ShowJobs: "SELECT * FROM tidemill.jobs ORDER BY planned_at DESC",
    st.ShowSources: "SELECT * FROM tidemill.sources ORDER BY source_name",
    st.ShowTables: (
        "SELECT table_name, kind, rows, bytes FROM tidemill.tables ORDER BY table_name"
    ),
    st.ShowViews: "SELECT * FROM tidemill.views ORDER BY view_name",
}
_INDEXES = "SELECT * FROM tidemill.indexes ORDER BY table_name, index_name"
_INDEXES_OF = "SELECT * FROM tidemill.indexes WHERE table_name = $1 ORDER BY index_name"
_PARTITIONS = "SELECT * FROM tidemill.partitions ORDER BY table_name, lo"
_PARTITIONS_OF = "SELECT * FROM tidemill.partitions WHERE table_name = $1 ORDER BY lo"
_COLUMNS_OF = (
    'SELECT column_name, type, nullable, "default", is_key, is_time '
    "FROM tidemill.columns WHERE table_name = $1 ORDER BY position"
)


class Showing:
    def __init__(self, catalog: Catalog, query: RunQuery) -> None:
        self._catalog = catalog
        self._query = query

    @property
    def handlers(self) -> Handlers:
        return {
            **dict.fromkeys(_LISTS, self._list),
            st.ShowIndexes: self._show_indexes,
            st.ShowPartitions: self._show_partitions,
            st.Describe: self._describe,
        }

    def _list(self, call: Call[st.Statement]) -> Result:
        return self._run(_LISTS[type(call.statement)], call)

    def _show_indexes(self, call: Call[st.ShowIndexes]) -> Result:
        if call.statement.table is None:
            return self._run(_INDEXES, call)
        return self._run(_INDEXES_OF, call, call.statement.table)

    def _show_partitions(self, call: Call[st.ShowPartitions]) -> Result:
        if call.statement.table is None:
            return self._run(_PARTITIONS, call)
        return self._run(_PARTITIONS_OF, call, call.statement.table)

    def _describe(self, call: Call[st.Describe]) -> Result:
        return self._run(_COLUMNS_OF, call, call.statement.table)

    def _run(self, text: str, call: Call[st.Statement], name: str | None = None) -> Result:
        """Run a query of ours for the session that asked; ``$1`` is a table's name."""
        (query,) = parsed(text)
        assert isinstance(query, st.Query)
        params = None
        if name is not None:
            params = [self._catalog.snapshot().get(name, call.statement.position).name]
        return self._query(Call(query, params, call.session))
