"""What kept queries need of the rooms around them: clocks, rows, evaluation and a place to append.

``WarehouseEnvironment`` is the warehouse's own; a test may give another ``KeptEnvironment``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import DATETIME_US_MIN, Clock
from tidemill.errors import UnknownNameError
from tidemill.federation.duck import Duck
from tidemill.federation.planner import Plan, make_plan
from tidemill.federation.runner import Runner
from tidemill.history.storage import Storage
from tidemill.hot.intake import Accepted
from tidemill.hot.table import HotTable
from tidemill.stream.feed import Feed

PLANS_MAX = 1_000
# As if now were then: no row that is still there is outside the retention. A query that is behind
# looks for its rows like that, and leaves out by itself what was outside as of each instant.
BEFORE_ALL_US = DATETIME_US_MIN

Answer = tuple[pa.Table, list[str]]
Append = Callable[[Table, pa.Table, str, int], object]
"""Stores answers in their table under a source and an offset, all or nothing."""


class KeptEnvironment(Protocol):
    def snapshot(self) -> Snapshot: ...

    def hot(self, table: Table) -> HotTable:
        """The stream in memory; raises when it was dropped."""
        ...

    def feed(self, table: Table) -> Feed:
        """What arrives in a stream, for those who take nothing back; raises when it was dropped."""
        ...

    def now_us(self) -> int:
        """The machine's clock."""
        ...

    def evaluate(
        self,
        query: exp.Expression,
        at_us: int | None = None,
        params: Mapping[str, object] | None = None,
        *,
        exact: bool = False,
    ) -> Answer:
        """Answer a query over all of the warehouse, as if now were ``at_us``. The same tree may be
        given again and again; it must not be changed meanwhile. ``exact`` keeps every type as the
        hot tier holds it, which libraries outside may not know."""
        ...

    def run(
        self,
        sql: str,
        values: Mapping[str, object],
        sources: Mapping[str, pa.Table],
        *,
        exact: bool = False,
    ) -> Answer:
        """Answer SQL of DuckDB over named Arrow tables and reference tables."""
        ...

    def append(self, table: Table, rows: pa.Table, source: str, offset: int) -> None:
        """Store answers, once for each source and offset; returns when they are durable."""
        ...

    def note(self, table: Table, source: str, offset: int) -> None:
        """Remember an offset without any row."""
        ...


class WarehouseEnvironment:
    """What a warehouse gives its kept queries."""

    def __init__(
        self,
        catalog: Catalog,
        hot: Mapping[int, HotTable],
        runner: Runner,
        duck: Duck,
        append: Append,
        clock: Clock,
        storage: Storage,
    ) -> None:
        self._storage = storage
        self._catalog = catalog
        self._hot = hot
        self._runner = runner
        self._duck = duck
        self._append = append
        self._clock = clock
        self._plans: dict[int, tuple[exp.Expression, int, Plan]] = {}

    def snapshot(self) -> Snapshot:
        return self._catalog.snapshot()

    def hot(self, table: Table) -> HotTable:
        found = self._hot.get(table.table_id)
        if found is None:
            raise UnknownNameError(f'table "{table.name}" was dropped')
        return found

    def feed(self, table: Table) -> Feed:
        hot = self.hot(table)
        return Feed(hot, self._catalog, self._storage, self._duck, with_retractions=False)

    def now_us(self) -> int:
        return self._clock.now_us()

    def evaluate(
        self,
        query: exp.Expression,
        at_us: int | None = None,
        params: Mapping[str, object] | None = None,
        *,
        exact: bool = False,
    ) -> Answer:
        filled = self._runner.fill(self._plan(query), params, at_us)
        if not exact:
            return self._runner.run_filled(filled)
        return self._duck.query(filled.sql, filled.values, filled.sources, exact=True)

    def _plan(self, query: exp.Expression) -> Plan:
        """Plans are kept by the tree itself, while no definition changes."""
        snapshot = self._catalog.snapshot()
        known = self._plans.get(id(query))
        if known is not None and known[0] is query and known[1] == snapshot.definition_id:
            return known[2]
        plan = make_plan(query, snapshot)
        if len(self._plans) >= PLANS_MAX:
            self._plans = {}
        self._plans[id(query)] = (query, snapshot.definition_id, plan)
        return plan

    def run(
        self,
        sql: str,
        values: Mapping[str, object],
        sources: Mapping[str, pa.Table],
        *,
        exact: bool = False,
    ) -> Answer:
        return self._duck.query(sql, values, sources, exact=exact)

    def append(self, table: Table, rows: pa.Table, source: str, offset: int) -> None:
        self._append(table, rows, source, offset)

    def note(self, table: Table, source: str, offset: int) -> None:
        self.hot(table).append(Accepted((), (), source, offset))
