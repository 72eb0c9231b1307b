"""Costs of routes: how long a query will take here and on Spark, by what others took before.

A query q that reads b rows in memory and h rows in files takes about

    here            fixed + w(q) · (c_b · b + c_h · h)
    in Spark's tasks fixed + w(q) · (c_b · b + c_s · h)

c_b and c_h are those of document 000 §IV-C, for each table (``hot.costs``); *fixed* is what a query
takes however little it reads, for each way to run it; w(q) is how heavy this query is beside others
that read as much, which stands for the paper's own costs of each query q_i. All are measured as
queries run:

1. a query over one stream that reads few rows, which should take no more than half of its time,
   tells what is fixed, and so does one that takes less than what was thought to be;
2. one that reads many tells what a row costs in the place where, by the present estimates, most of
   the time went: what is left of its time when the other parts are taken off;
3. what the whole took over what was estimated is a measurement of w(q). Queries over several
   streams give no more than that.

Rows of files are those of the files that were not ruled out. Lookups, which do not go through
DuckDB, are not measured, nor is the first query on Spark. Estimates are smoothed and bounded
(``smoothing``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.clock import Clock
from tidemill.federation.planner import HOT, Plan
from tidemill.federation.runner import Filled
from tidemill.hot.costs import FILES, MEMORY, SPARK, SPARK_SQL, SPARK_TASK, Cost
from tidemill.hot.table import HotTable
from tidemill.smoothing import clamped

LOCAL = "local"
WAYS = (LOCAL, SPARK, SPARK_TASK, SPARK_SQL)
FIXED_START_MS = {LOCAL: 3.0, SPARK: 300.0, SPARK_TASK: 300.0, SPARK_SQL: 1_000.0}
ROWS_MANY = 100_000  # fewer are few
# Of the time of a query of many rows, its rows took this share at least.
ROWS_SHARE_MIN = 0.1
WEIGHT_MIN, WEIGHT_MAX = 1 / 32, 32.0
WEIGHTS_MAX = 512
# What Spark costs is forgotten after this: it may have other workers by then.
SPARK_FRESH_US = 3_600 * 1_000_000


@dataclass(frozen=True)
class Part:
    """Rows of one table that a query reads in one place."""

    table_id: int
    place: str
    rows: int


@dataclass(frozen=True)
class _Priced:
    """A part with what its table says of the place; None if that is not known."""

    part: Part
    cost: Cost | None

    @property
    def seconds(self) -> float:
        return 0.0 if self.cost is None else self.cost.value * self.part.rows / 1e9


class RouteCosts:
    """Thread-safe. Remembers ``WEIGHTS_MAX`` plans; tables keep what their rows cost."""

    def __init__(self, tables: Mapping[int, HotTable], clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._lock = threading.Lock()
        self._fixed_ms = {way: Cost(ms) for way, ms in FIXED_START_MS.items()}
        self._weights: OrderedDict[Plan, Cost] = OrderedDict()
        self._has_begun = {way: way == LOCAL for way in WAYS}

    def fixed_s(self, way: str) -> float:
        """What a query takes at least."""
        return self._fixed_ms[way].value / 1e3

    def estimate_s(self, filled: Filled, way: str) -> float | None:
        """How long a query will take; None if too little is known of that way."""
        priced = self._priced(filled, way)
        if not all(self._is_known(each) for each in priced):
            return None
        weight = self._weights.get(filled.plan)
        rows_s = sum(each.seconds for each in priced)
        return self.fixed_s(way) + (1.0 if weight is None else weight.value) * rows_s

    def note(self, filled: Filled, way: str, elapsed_s: float) -> None:
        """A query took so long."""
        if filled.exact is not None:
            return
        if not self._has_begun[way]:
            self._has_begun[way] = True  # the first work of workers takes long, and tells nothing
            return
        priced = [each for each in self._priced(filled, way) if each.part.rows]
        if not priced:
            return
        if sum(chosen.scan.kind == HOT for chosen in filled.selected) == 1:
            self._note_parts(priced, way, elapsed_s)
            priced = self._priced(filled, way)
        self._note_weight(filled.plan, priced, way, elapsed_s)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of ``tidemill.costs``."""
        fixed = [
            {
                "place": way,
                "fixed_ms": cost.value,
                "runs": cost.runs,
                "measured_at": cost.measured_at_us,
            }
            for way, cost in self._fixed_ms.items()
        ]
        scans = [
            {
                "table_name": hot.table.name,
                "place": place,
                "row_ns": cost.value,
                "runs": cost.runs,
                "measured_at": cost.measured_at_us,
            }
            for hot in sorted(self._tables.values(), key=lambda hot: hot.table.name.lower())
            for place, cost in hot.costs.items()
        ]
        return [*fixed, *scans]

    def _is_known(self, priced: _Priced) -> bool:
        """Whether a cost can be relied on; memory and files have start values."""
        if priced.cost is None:
            return not priced.part.rows
        at_us = priced.cost.measured_at_us
        if priced.part.place in (MEMORY, FILES) or at_us is None:
            return True
        return self._clock.now_us() - at_us <= SPARK_FRESH_US

    def _priced(self, filled: Filled, way: str) -> list[_Priced]:
        found = []
        for part in parts_of(filled, way):
            hot = self._tables.get(part.table_id)
            found.append(_Priced(part, None if hot is None else hot.costs.get(part.place)))
        return found

    def _note_parts(self, priced: list[_Priced], way: str, elapsed_s: float) -> None:
        """Few rows tell what is fixed, many what a row costs where most of the time went."""
        now_us, fixed_s = self._clock.now_us(), self.fixed_s(way)
        rows_s = sum(each.seconds for each in priced)
        is_few = sum(each.part.rows for each in priced) < ROWS_MANY
        if elapsed_s < fixed_s or (is_few and 2 * rows_s <= elapsed_s):
            with self._lock:
                found_ms = (elapsed_s - min(rows_s, elapsed_s / 2)) * 1e3
                self._fixed_ms[way] = self._fixed_ms[way].after(found_ms, now_us)
            return
        unknown = [each for each in priced if each.cost is None]
        heaviest = unknown[0] if unknown else max(priced, key=lambda each: each.seconds)
        part, hot = heaviest.part, self._tables.get(heaviest.part.table_id)
        if hot is None or part.rows < ROWS_MANY:
            return
        others_s = fixed_s + sum(each.seconds for each in priced if each is not heaviest)
        found_s = max(elapsed_s - others_s, ROWS_SHARE_MIN * elapsed_s)
        hot.costs.note(part.place, found_s * 1e9 / part.rows, now_us)

    def _note_weight(self, plan: Plan, priced: list[_Priced], way: str, elapsed_s: float) -> None:
        fixed_s, rows_s = self.fixed_s(way), sum(each.seconds for each in priced)
        is_known = all(each.cost is not None for each in priced if each.part.rows)
        if not is_known or rows_s <= 0 or elapsed_s < 2 * fixed_s:
            return  # what is fixed hides it
        now_us = self._clock.now_us()
        with self._lock:
            known = self._weights.pop(plan, None) or Cost(1.0)
            found = known.after((elapsed_s - fixed_s) / rows_s, now_us)
            weight = clamped(found.value, WEIGHT_MIN, WEIGHT_MAX)
            self._weights[plan] = Cost(weight, found.runs, now_us)
            while len(self._weights) > WEIGHTS_MAX:
                self._weights.popitem(last=False)


def parts_of(filled: Filled, way: str) -> list[Part]:
    """What a query reads of each place on its way; rows that travel are read where they go."""
    found = []
    for chosen in filled.selected:
        if chosen.scan.kind != HOT or chosen.scan.table is None:
            continue
        table_id, hot_rows = chosen.scan.table.table_id, int(chosen.table.num_rows)
        file_rows = 0 if chosen.past is None else chosen.past.rows
        if way in (SPARK_TASK, SPARK_SQL):
            found.append(Part(table_id, way, hot_rows + file_rows))
        else:
            found.append(Part(table_id, MEMORY, hot_rows))
            found.append(Part(table_id, FILES if way == LOCAL else SPARK, file_rows))
    return found
