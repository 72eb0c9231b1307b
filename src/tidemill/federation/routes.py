"""Routes: where a query runs. The answer is the same on each; the choice is one of cost.

- **local**: DuckDB in this process, over hot blocks and files in one plan;
- **spark**: partition-wise, DuckDB in Spark's tasks over their files (``scatter``); a query that is
  not the sum of its parts runs in one task, if most of its rows are in files (``shipping``);
- **spark_sql**: Spark's own SQL, for what needs a general shuffle, if all that the query uses is
  on the list of what was verified to mean the same there;
- **auto** chooses the faster one, by what queries were measured to take (``costs``). Of Spark
  nothing is known before it has run some: until then, scans of more bytes than ``spark_scan`` go
  there. It never waits for a Spark that is not running yet: it has it started, and runs locally
  meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from tidemill.errors import UnsupportedError
from tidemill.federation.costs import WAYS, RouteCosts
from tidemill.federation.driving import without_partners
from tidemill.federation.planner import HOT, Plan
from tidemill.federation.runner import Filled, Runner
from tidemill.federation.scatter import GATHER, SHIP, SPLIT, Scatter, manner_of, split
from tidemill.federation.shipping import shipping_refusal
from tidemill.hot.costs import SPARK_TASK
from tidemill.sql.decompose import Decomposition
from tidemill.sql.params import Params

AUTO, LOCAL, SPARK, SPARK_SQL = "auto", "local", "spark", "spark_sql"


class SparkSql(Protocol):
    """Runs a query on Spark's own SQL, or says why it must not."""

    def refusal(self, filled: Filled) -> str | None: ...

    def run(self, filled: Filled) -> tuple[pa.Table, list[str]]: ...


@dataclass(frozen=True)
class Spark:
    """What the routes know of Spark."""

    is_ready: Callable[[], bool]
    warm_up: Callable[[], None]
    scan_bytes: int  # a larger scan is worth it, as long as nothing was measured


@dataclass(frozen=True)
class _Elsewhere:
    """A way to run a query on Spark: its route, how its costs are called, and why that way."""

    route: str
    way: str
    why: str


class Router:
    def __init__(
        self,
        runner: Runner,
        scatter: Scatter,
        spark: Spark,
        costs: RouteCosts,
        spark_sql: SparkSql | None = None,
    ) -> None:
        self._runner = runner
        self._scatter = scatter
        self._spark = spark
        self._costs = costs
        self._spark_sql = spark_sql

    def run(self, plan: Plan, params: Params, asked: str = AUTO) -> tuple[pa.Table, list[str]]:
        return self.run_filled(self.fill(plan, params, asked))

    def fill(self, plan: Plan, params: Params, asked: str = AUTO) -> Filled:
        """A plan with its rows, and the route it will take."""
        filled = self._fill(plan, params, asked)
        route, reason = self._choose(filled, asked)
        return replace(filled, route=route, reason=reason)

    def _fill(self, plan: Plan, params: Params, asked: str) -> Filled:
        """Rows that were read first cannot go to Spark's SQL; a query that may run there for its
        size reads nothing first."""
        if asked == SPARK_SQL:
            return self._runner.fill(without_partners(plan), params)
        filled = self._runner.fill(plan, params)
        is_large = asked == AUTO and filled.history_bytes >= self._spark.scan_bytes
        if filled.plan is plan or not is_large or not self._spark.is_ready():
            return filled
        if isinstance(split(filled.plan), Decomposition):
            return filled
        return self._runner.fill(without_partners(plan), params)

    def run_filled(self, filled: Filled) -> tuple[pa.Table, list[str]]:
        """Run a query on its route, and note what it took."""
        began_s = time.perf_counter()
        answer = self._run(filled)
        way = _way_of(filled)
        if way is not None:
            self._costs.note(filled, way, time.perf_counter() - began_s)
        return answer

    def _run(self, filled: Filled) -> tuple[pa.Table, list[str]]:
        if filled.route == SPARK:
            return self._scatter.run(filled)
        if filled.route == SPARK_SQL:
            assert self._spark_sql is not None
            return self._spark_sql.run(filled)
        return self._runner.run_filled(filled)

    def _choose(self, filled: Filled, asked: str) -> tuple[str, str]:
        if not any(chosen.scan.kind == HOT for chosen in filled.selected):
            return LOCAL, "no streaming table is read"
        if asked == LOCAL:
            return LOCAL, "asked for"
        if any(chosen.keys for chosen in filled.selected):
            return LOCAL, "the past of a table with keys is put together here"
        if asked == SPARK:
            return SPARK, f"asked for; {_manner(filled)}"
        if asked == SPARK_SQL:
            return SPARK_SQL, self._check_spark_sql(filled)
        return self._choose_by_cost(filled)

    def _choose_by_cost(self, filled: Filled) -> tuple[str, str]:
        size, limit = filled.history_bytes, self._spark.scan_bytes
        if not size:
            return LOCAL, "no files are read"
        here_s = self._costs.estimate_s(filled, LOCAL)
        if here_s is None:
            return LOCAL, "the table is being dropped"
        soonest_s = min(self._costs.fixed_s(way) for way in WAYS if way != LOCAL)
        if size < limit and here_s <= soonest_s:
            spark = f"Spark takes {_time(soonest_s)} at least"
            return LOCAL, f"{_bytes(size)} of files, about {_time(here_s)}; {spark}"
        place = self._elsewhere(filled)
        if isinstance(place, str):
            return LOCAL, f"{_bytes(size)} of files, but {place}"
        there_s = self._costs.estimate_s(filled, place.way)
        if there_s is None and size < limit:
            return LOCAL, f"{_bytes(size)} of files are less than spark_scan = {_bytes(limit)}"
        if there_s is None:
            why = f"{_bytes(size)} of files, and Spark was not measured yet; {place.why}"
        else:
            why = f"about {_time(here_s)} here and {_time(there_s)} on Spark, as measured"
            if here_s <= there_s:
                return LOCAL, why
            why = f"{why}; {place.why}"
        if not self._spark.is_ready():
            self._spark.warm_up()
            return LOCAL, f"{why}; but Spark is not running yet"
        return place.route, why

    def _elsewhere(self, filled: Filled) -> _Elsewhere | str:
        """How Spark would run a query; or why it should not."""
        if isinstance(split(filled.plan), Decomposition):
            return _Elsewhere(SPARK, SPARK, _manner(filled))
        stays = shipping_refusal(filled)
        if stays is not None:
            return f"it is not the sum of its parts, and {stays}"
        if self._spark_sql is None:
            return "it is not the sum of its parts, and there is no Spark: spark_master = 'inline'"
        if self._spark_sql.refusal(filled) is None:
            return _Elsewhere(SPARK_SQL, SPARK_SQL, "the query needs a shuffle")
        return _Elsewhere(SPARK, SPARK_TASK, _manner(filled))

    def _check_spark_sql(self, filled: Filled) -> str:
        refusal = "there is no Spark: spark_master = 'inline'"
        if self._spark_sql is not None:
            found = self._spark_sql.refusal(filled)
            if found is None:
                return "asked for; all that the query uses is verified to mean the same there"
            refusal = found
        raise UnsupportedError(
            "the query cannot run on Spark's SQL",
            detail=refusal,
            hint="SET route = 'auto', 'local' or 'spark'",
        )


def _way_of(filled: Filled) -> str | None:
    """How the costs of a query's route are called; None if they are not measured."""
    if filled.route != SPARK:
        return filled.route
    return {SPLIT: SPARK, SHIP: SPARK_TASK, GATHER: None}[manner_of(filled)]


def _manner(filled: Filled) -> str:
    manner, parts = manner_of(filled), split(filled.plan)
    if isinstance(parts, Decomposition):
        return "partial results of each partition are merged"
    if manner == SHIP:
        return f"rows in memory travel to the task that runs it, since {parts.reason}"
    return f"rows are filtered by partition and gathered, since {parts.reason}"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def _time(seconds: float) -> str:
    """
    >>> _time(0.0031), _time(2.5)
    ('3 ms', '2.5 s')
    """
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"
