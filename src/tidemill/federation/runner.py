"""The runner: fills a plan with values and rows, and lets DuckDB answer it.

All tables of a statement are looked at once, at its beginning: a table that is named twice is the
same twice. EXPLAIN uses the same steps, so it shows what runs and not what might.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC

import pyarrow as pa

from tidemill.clock import Clock, from_us
from tidemill.errors import UnknownNameError
from tidemill.federation.duck import Duck
from tidemill.federation.planner import HOT, LATE, NOW, SYSTEM, Plan, Scan
from tidemill.federation.scans import Asked, wanted_of
from tidemill.federation.system import SystemTables
from tidemill.hot.table import HotTable
from tidemill.hot.view import Selection, View, Wanted
from tidemill.sql.fold import NotConstant, comparable, constant
from tidemill.sql.params import Params
from tidemill.sql.windows import NowBounds

_TIME_US_MAX = 253_402_300_799_999_999


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


class Runner:
    def __init__(
        self, duck: Duck, hot: Mapping[int, HotTable], system: SystemTables, clock: Clock
    ) -> None:
        self._duck = duck
        self._hot = hot
        self._system = system
        self._clock = clock

    def run(self, plan: Plan, params: Params) -> tuple[pa.Table, list[str]]:
        filled = self.fill(plan, params)
        sources = {selected.scan.source: selected.table for selected in filled.selected}
        return self._duck.query(plan.sql, filled.values, sources)

    def fill(self, plan: Plan, params: Params) -> Filled:
        """Values, then views of all tables, then the rows that can matter."""
        values = plan.values(params)
        views: dict[int, View] = {}
        for scan in plan.scans:
            if scan.kind == HOT and scan.table is not None:
                views.setdefault(scan.table.table_id, self._table(scan).view())
        if plan.uses_now:
            values[NOW] = from_us(self._clock.now_us()).replace(tzinfo=UTC)
        if plan.bounds:
            by_name = {view.table.name.lower(): view for view in views.values()}
            for bound in plan.bounds:
                values[bound.name] = bound.value(lambda name: _bounds(by_name[name.lower()]))
        selected = tuple(self._select(scan, views, values) for scan in plan.scans)
        return Filled(plan, values, selected)

    def _table(self, scan: Scan) -> HotTable:
        assert scan.table is not None
        hot = self._hot.get(scan.table.table_id)
        if hot is None:
            raise UnknownNameError(f'table "{scan.name}" was dropped')
        return hot

    def _select(self, scan: Scan, views: dict[int, View], values: Mapping[str, object]) -> Selected:
        if scan.kind == SYSTEM:
            return Selected(scan, self._system.table(scan.name))
        hot = self._table(scan)
        if scan.kind != HOT:
            side = hot.published.late if scan.kind == LATE else hot.published.rejected
            with hot.published.lock:
                return Selected(scan, side.table())
        assert scan.table is not None
        wanted = wanted_of(scan.table, _asked(scan, values), scan.with_seq)
        selection = views[scan.table.table_id].select(wanted)
        return Selected(scan, selection.table, wanted, selection)


def _bounds(view: View) -> NowBounds:
    now_us = view.now_us if view.now_us is not None else 0
    upper_us = view.upper_us if view.upper_us is not None else _TIME_US_MAX
    return NowBounds(now_us, upper_us)


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
