"""Views and kept queries: CREATE and DROP MATERIALIZED VIEW, CREATE STREAMING TABLE … AS."""

from __future__ import annotations

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.errors import DuplicateNameError, UnsupportedError
from tidemill.hot.tier import HotTier
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers
from tidemill.statements.definitions.making import Making
from tidemill.views.continuous import KeptQueries
from tidemill.views.registry import Views


class ViewDefinitions:
    def __init__(
        self, catalog: Catalog, making: Making, tier: HotTier, views: Views, kept: KeptQueries
    ) -> None:
        self._catalog = catalog
        self._making = making
        self._tier = tier
        self._views = views
        self._kept = kept

    @property
    def handlers(self) -> Handlers:
        return {
            st.CreateView: self._create_view,
            st.CreateKeptQuery: self._create_kept,
            st.DropView: self._drop_view,
        }

    def _create_view(self, call: Call[st.CreateView]) -> Result:
        statement = call.statement
        tag = "CREATE MATERIALIZED VIEW"
        old = self._catalog.snapshot().find(statement.name)
        if old is not None and not old.is_view:
            raise DuplicateNameError(
                f'"{old.name}" is a table, not a view',
                hint="choose another name",
                position=statement.position,
            )
        if self._making.exists(statement):
            return done(tag)
        self._views.create(statement, old)
        return done(tag)

    def _create_kept(self, call: Call[st.CreateKeptQuery]) -> Result:
        statement = call.statement
        tag = "CREATE STREAMING TABLE"
        if self._making.exists(statement):
            return done(tag)
        new = self._kept.design(statement)
        self._making.create(new, statement.or_replace, self._tier.create)
        self._kept.follow()
        return done(tag)

    def _drop_view(self, call: Call[st.DropView]) -> Result:
        statement = call.statement
        tag = "DROP MATERIALIZED VIEW"
        snapshot = self._catalog.snapshot()
        if snapshot.find(statement.name) is None and statement.if_exists:
            return done(tag)
        view = snapshot.get(statement.name, statement.position)
        if not view.is_view:
            raise UnsupportedError(
                f'"{view.name}" is not a view',
                hint=f'write DROP TABLE "{view.name}"',
                position=statement.position,
            )
        self._drop(view, statement.cascade)
        return done(tag)

    def _drop(self, view: Table, cascade: bool) -> None:
        for user in self._views.dependents(view) if cascade else ():
            if self._catalog.snapshot().table(user.table_id) is None:
                continue  # it went with another one
            if user.is_streaming:
                self._making.drop(user)
            else:
                self._drop(user, cascade)
        self._views.check_unused(view, "dropped")
        self._views.drop(view)
