"""Maintenance: FLUSH and VACUUM of one stream or of all, REFRESH of a view."""

from __future__ import annotations

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.errors import UnsupportedError
from tidemill.pipeline.keeping import Keeping
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers
from tidemill.statements.naming import get_view
from tidemill.statements.verifying import Verifying
from tidemill.views.continuous import KeptQueries
from tidemill.views.kept.definition import is_kept
from tidemill.views.registry import Views


class Maintenance:
    def __init__(
        self,
        catalog: Catalog,
        keeping: Keeping,
        verifying: Verifying,
        views: Views,
        kept: KeptQueries,
    ) -> None:
        self._catalog = catalog
        self._keeping = keeping
        self._verifying = verifying
        self._views = views
        self._kept = kept

    @property
    def handlers(self) -> Handlers:
        return {
            st.Flush: self._flush,
            st.Vacuum: self._vacuum,
            st.RefreshView: self._refresh,
        }

    def _flush(self, call: Call[st.Flush]) -> Result:
        table = self._stream_of(call.statement)
        tables = self._catalog.snapshot().tables.values()
        chosen = [each for each in tables if each.is_streaming] if table is None else [table]
        return done(f"FLUSH {self._keeping.flush(chosen)}")

    def _vacuum(self, call: Call[st.Vacuum]) -> Result:
        table = self._stream_of(call.statement)
        files, size = self._keeping.vacuum(None if table is None else [table])
        message = f"VACUUM {files}" + (f" ({size} bytes of orphans)" if size else "")
        if call.statement.drops_damaged and table is not None:
            dropped, rows = self._verifying.drop_damaged(table)
            return done(f"{message} ({dropped} damaged files with {rows} rows dropped)")
        self._verifying.check(table)
        return done(message)

    def _stream_of(self, statement: st.Flush | st.Vacuum) -> Table | None:
        """The stream that a statement names; None if it means all."""
        if statement.table is None:
            return None
        table = self._catalog.snapshot().get(statement.table, statement.position)
        if not table.is_streaming:
            raise UnsupportedError(
                f'reference table "{table.name}" has no history', position=statement.position
            )
        return table

    def _refresh(self, call: Call[st.RefreshView]) -> Result:
        statement = call.statement
        table = self._catalog.snapshot().get(statement.name, statement.position)
        if is_kept(table):
            return done(f"REFRESH MATERIALIZED VIEW {self._kept.catch_up()}")
        view = get_view(self._catalog.snapshot(), statement.name, statement)
        answer = self._views.refresh(view)
        return done(f"REFRESH MATERIALIZED VIEW {answer.table.num_rows}")
