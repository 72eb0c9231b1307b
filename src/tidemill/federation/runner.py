"""The runner: fills a plan with values and rows, and lets DuckDB answer it.

All tables of a statement are looked at once, at its beginning: a table that is named twice is the
same twice. EXPLAIN uses the same steps, so it shows what runs and not what might.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.clock import Clock, from_us, to_us
from tidemill.errors import UnknownNameError
from tidemill.federation.duck import Duck
from tidemill.federation.lookup import ROWS_MAX as LOOKUP_ROWS_MAX
from tidemill.federation.lookup import answer, exact_conditions
from tidemill.federation.planner import HOT, LATE, NOW, SYSTEM, Plan, Scan
from tidemill.federation.scans import KEYS_MAX, Asked, wanted_of
from tidemill.federation.system import SystemTables
from tidemill.hot.table import HotTable
from tidemill.hot.view import Condition, Selection, View, Wanted
from tidemill.sql.fold import NotConstant, comparable, constant
from tidemill.sql.params import Params
from tidemill.sql.windows import NowBounds

TIME_US_MIN, TIME_US_MAX = to_us(datetime.min), to_us(datetime.max)

LOCAL = "local (DuckDB over hot blocks)"
LOOKUP = "lookup (few rows, tested without DuckDB)"


@dataclass(frozen=True)
class Selected:
    """The rows chosen for one scan: what was wanted, and what the indices made of it."""

    scan: Scan
    table: pa.Table
    wanted: Wanted | None = None
    selection: Selection | None = None


@dataclass(frozen=True)
class Filled:
    """A plan with its values and its rows: ready to run, or to be explained."""

    plan: Plan
    values: dict[str, object]
    selected: tuple[Selected, ...]
    sources: dict[str, pa.Table]
    exact: list[Condition] | None = None

    @property
    def route(self) -> str:
        return LOCAL if self.exact is None else LOOKUP


class Runner:
    def __init__(
        self, duck: Duck, hot: Mapping[int, HotTable], system: SystemTables, clock: Clock
    ) -> None:
        self._duck = duck
        self._hot = hot
        self._system = system
        self._clock = clock

    def run(self, plan: Plan, params: Params) -> tuple[pa.Table, list[str]]:
        return self.run_filled(self.fill(plan, params))

    def run_filled(self, filled: Filled) -> tuple[pa.Table, list[str]]:
        lookup = filled.plan.lookup
        if lookup is not None and filled.exact is not None:
            return answer(lookup, filled.exact, filled.selected[0].table), lookup.types
        return self._duck.query(filled.plan.sql, filled.values, filled.sources)

    def fill(self, plan: Plan, params: Params) -> Filled:
        """Values, then views of all tables, then the rows that can matter."""
        views: dict[int, View] = {}
        clocks: dict[str, NowBounds] = {}
        for table in _hot_tables(plan):
            if table.table_id not in views:
                hot = self._table(table)
                clocks[table.name.lower()] = _bounds(hot)
                views[table.table_id] = hot.view()
        values = plan.values(params)
        for bound in plan.bounds:
            values[bound.name] = bound.value(lambda name: clocks[name.lower()])
        return self._fill(plan, values, views)

    def _fill(self, plan: Plan, values: dict[str, object], views: dict[int, View]) -> Filled:
        if plan.uses_now:
            values[NOW] = from_us(self._clock.now_us()).replace(tzinfo=UTC)
        keys: dict[str, list[Asked]] = {}
        sources: dict[str, pa.Table] = {}
        for query in plan.key_queries:
            given = {key: values[key] for key in query.plan.keys}
            filled = self._fill(query.plan, query.plan.values(given), views)
            table, _ = self._duck.query(query.plan.sql, filled.values, filled.sources, exact=True)
            sources[query.source] = table
            if table.num_rows <= KEYS_MAX:
                asked = (query.column, "in", tuple(table.column(0).to_pylist()))
                keys.setdefault(query.scan, []).append(asked)
        selected = tuple(
            self._select(scan, views, values, keys.get(scan.source, [])) for scan in plan.scans
        )
        sources.update({chosen.scan.source: chosen.table for chosen in selected})
        used = {name: value for name, value in values.items() if name in plan.used}
        return Filled(plan, used, selected, sources, self._exact(plan, selected, values))

    def _exact(
        self, plan: Plan, selected: tuple[Selected, ...], values: Mapping[str, object]
    ) -> list[Condition] | None:
        """The conditions of a lookup that is small enough to be answered without DuckDB."""
        if plan.lookup is None or selected[0].table.num_rows > LOOKUP_ROWS_MAX:
            return None
        scan = selected[0].scan
        asked = _asked(scan, values)
        if scan.table is None or len(asked) < len(scan.conjuncts):
            return None
        return exact_conditions(scan.table, asked)

    def _table(self, table: Table) -> HotTable:
        hot = self._hot.get(table.table_id)
        if hot is None:
            raise UnknownNameError(f'table "{table.name}" was dropped')
        return hot

    def _select(
        self,
        scan: Scan,
        views: dict[int, View],
        values: Mapping[str, object],
        keys: list[Asked],
    ) -> Selected:
        if scan.kind == SYSTEM:
            return Selected(scan, self._system.table(scan.name))
        assert scan.table is not None
        hot = self._table(scan.table)
        if scan.kind != HOT:
            side = hot.published.late if scan.kind == LATE else hot.published.rejected
            with hot.published.lock:
                return Selected(scan, side.table())
        asked = [*_asked(scan, values), *keys]
        newest = scan.newest if len(asked) == len(scan.conjuncts) else None
        wanted = wanted_of(scan.table, asked, scan.with_seq, newest)
        selection = views[scan.table.table_id].select(wanted)
        return Selected(scan, selection.table, wanted, selection)


def _hot_tables(plan: Plan) -> Iterator[Table]:
    yield from (scan.table for scan in plan.scans if scan.kind == HOT and scan.table)
    for query in plan.key_queries:
        yield from _hot_tables(query.plan)


def _bounds(hot: HotTable) -> NowBounds:
    """What the table calls now. It is asked before the view is taken: a row that arrives between
    the two is newer than the upper bound, and RECENT leaves it to the next reader."""
    now_us, upper_us = hot.progress.now_us(), hot.progress.upper_us()
    if now_us is None:  # an event clock that believes nothing yet: nothing is recent
        return NowBounds(TIME_US_MIN, TIME_US_MIN)
    return NowBounds(now_us, TIME_US_MAX if upper_us is None else upper_us)


def _asked(scan: Scan, values: Mapping[str, object]) -> list[Asked]:
    """The conjuncts whose constants can be known now, in the column's own terms."""
    assert scan.table is not None
    asked: list[Asked] = []
    for conjunct in scan.conjuncts:
        column = scan.table.column(conjunct.column)
        if column is None or conjunct.op == "in_query":
            continue
        constants = [constant(value, values, None) for value in conjunct.values]
        known = [
            value if isinstance(value, NotConstant) else comparable(value, column.type)
            for value in constants
        ]
        if not any(isinstance(value, NotConstant) for value in known):
            asked.append((conjunct.column, conjunct.op, tuple(known)))
    return asked
