"""Querying: SELECT and EXPLAIN. A plan is kept as long as no definition changes."""

from __future__ import annotations

import time
from functools import lru_cache

from sqlglot import exp

from tidemill.catalog.store import Catalog
from tidemill.errors import UnknownNameError, UnsupportedError
from tidemill.federation.duck import Duck
from tidemill.federation.explain import analyze_lines, explain_lines, timed_lines
from tidemill.federation.planner import Plan, make_plan
from tidemill.federation.routes import LOCAL, Router
from tidemill.federation.runner import Filled
from tidemill.result import Result, lines_result
from tidemill.sql import statements as st
from tidemill.sql.params import Params
from tidemill.sql.scopes import unbound_tables
from tidemill.statements.call import Call, Handlers
from tidemill.statements.caller import Find, frames_of
from tidemill.statements.naming import get_view
from tidemill.views.registry import Views

PLANS_MAX = 512


class Querying:
    def __init__(self, catalog: Catalog, router: Router, views: Views, duck: Duck) -> None:
        self._catalog = catalog
        self._router = router
        self._views = views
        self._duck = duck
        self._plan_for = lru_cache(maxsize=PLANS_MAX)(self._make_plan)

    @property
    def handlers(self) -> Handlers:
        return {
            st.Query: self.select,
            st.Explain: self._explain,
            st.ExplainView: self._explain_view,
        }

    def select(self, call: Call[st.Query]) -> Result:
        """Plan (or find the plan again) and run a query."""
        plan = self.plan(call.statement, call.params, call.find)
        if plan.whole_view is not None:
            table, types = self._views.shown(plan.whole_view)
        else:
            table, types = self._router.run(plan, call.params, call.session["route"])
        return Result(table, types, f"SELECT {table.num_rows}")

    def fill(self, call: Call[st.Query]) -> Filled:
        """A query's plan with its rows, and the route that it will take."""
        plan = self.plan(call.statement, call.params, call.find)
        return self._router.fill(plan, call.params, call.session["route"])

    def plan(self, query: st.Query, params: Params, find: Find | None = None) -> Plan:
        try:
            if params and _has_window_parameter(query):
                return make_plan(query.body, self._catalog.snapshot(), params)
            return self._plan_for(query, self._catalog.snapshot().definition_id)
        except UnknownNameError as error:
            names = (name for _, name in unbound_tables(query.body))
            frames = frames_of(names, find, error)
            return make_plan(query.body, self._catalog.snapshot(), params, frames)

    def _make_plan(self, query: st.Query, definition_id: int) -> Plan:
        del definition_id  # part of the cache's key: moves make snapshots, but no other plans
        return make_plan(query.body, self._catalog.snapshot())

    def _explain(self, call: Call[st.Explain]) -> Result:
        inner = call.statement.statement
        if isinstance(inner, st.CreateView):
            return lines_result(self._views.check(inner).parts.explain(), "EXPLAIN")
        if not isinstance(inner, st.Query):
            raise UnsupportedError(
                "only queries can be explained",
                hint="write EXPLAIN SELECT …",
                position=inner.position,
            )
        filled = self.fill(call.of(inner))
        lines = explain_lines(filled, self._router.route_of(filled))
        if call.statement.analyze and filled.route == LOCAL:
            lines += analyze_lines(self._duck, filled)
        elif call.statement.analyze:
            began = time.perf_counter()
            table, _ = self._router.run_filled(filled)
            lines += timed_lines(table.num_rows, time.perf_counter() - began)
        return lines_result(lines, "EXPLAIN")

    def _explain_view(self, call: Call[st.ExplainView]) -> Result:
        view = get_view(self._catalog.snapshot(), call.statement.name, call.statement)
        return lines_result(self._views.explain(view), "EXPLAIN")


@lru_cache(maxsize=PLANS_MAX)
def _has_window_parameter(query: st.Query) -> bool:
    """Whether a stream window may depend on a parameter, so that the plan cannot be kept."""
    return any(
        isinstance(node.this, exp.Anonymous) and node.find(exp.Placeholder)
        for node in query.body.find_all(exp.Table)
    )
