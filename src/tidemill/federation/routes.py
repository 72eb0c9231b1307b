"""Routes: where a query runs. The answer is the same on each; the choice is one of cost.

Every way to run a query is a ``Route``, which says of a filled plan whether it can run it, how long
that will take, and how EXPLAIN tells of it. ``SET route`` has three names for them, and ``auto``:

- **local**: ``LocalRoute``, DuckDB in this process, over hot blocks and files in one plan;
- **spark**: ``PartitionRoute``, DuckDB in Spark's tasks over their files (``scatter``); for a query
  that is not the sum of its parts ``TaskRoute``, one task that runs it whole, if most of its rows
  are in files (``shipping``); else ``GatherRoute``, which brings the rows of files here;
- **spark_sql**: ``ShuffleRoute``, Spark's own SQL, for what needs a general shuffle, if all that
  the query uses is on the list of what was verified to mean the same there;
- **auto** chooses the faster one, by what queries were measured to take (``costs``). Of Spark
  nothing is known before it has run some: until then, scans of more bytes than ``spark_scan`` go
  there. It never waits for a Spark that is not running yet: it has it started, and runs locally
  meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import pyarrow as pa

from tidemill.errors import UnsupportedError
from tidemill.federation.costs import WAYS, RouteCosts
from tidemill.federation.driving import without_partners
from tidemill.federation.planner import HOT, Plan
from tidemill.federation.runner import Filled, Runner
from tidemill.federation.scatter import Scatter, split
from tidemill.federation.shipping import shipping_refusal
from tidemill.hot.costs import SPARK_TASK
from tidemill.sql.decompose import Decomposition
from tidemill.sql.params import Params

AUTO, LOCAL, SPARK, SPARK_SQL = "auto", "local", "spark", "spark_sql"
_NO_SPARK = "there is no Spark: spark_master = 'inline'"

Answer = tuple[pa.Table, list[str]]


class SparkSql(Protocol):
    """Runs a query on Spark's own SQL, or says why it must not."""

    def refusal(self, filled: Filled) -> str | None: ...

    def run(self, filled: Filled) -> Answer: ...


@dataclass(frozen=True)
class Spark:
    """What the routes know of Spark."""

    is_ready: Callable[[], bool]
    warm_up: Callable[[], None]
    scan_bytes: int  # a larger scan is worth it, as long as nothing was measured


class Route(Protocol):
    """A way to run a query. Nothing but ``run`` reads rows, and all but that is fast."""

    @property
    def name(self) -> str:
        """What ``SET route`` and EXPLAIN call it."""
        ...

    def refusal(self, filled: Filled) -> str | None:
        """Why it cannot run a query; None if it can."""
        ...

    def drawback(self, filled: Filled) -> str | None:
        """Why it is not worth trying unless it is asked for; None if it is."""
        ...

    def estimate_s(self, filled: Filled) -> float | None:
        """How long a query will take; None if too little is known."""
        ...

    def note(self, filled: Filled, elapsed_s: float) -> None:
        """A query took so long."""
        ...

    def why(self, filled: Filled) -> str:
        """What it does with the query, as a reason for taking it."""
        ...

    def place(self, filled: Filled) -> str:
        """What runs the query, and where."""
        ...

    def steps(self, filled: Filled) -> list[str]:
        """The lines of EXPLAIN that tell how the query is taken apart."""
        ...

    def run(self, filled: Filled) -> Answer:
        """The answer, with its SQL types."""
        ...


@dataclass(frozen=True)
class _Measured:
    """What routes have in common, unless they say otherwise."""

    costs: RouteCosts
    name: ClassVar[str] = SPARK
    way: ClassVar[str | None] = None

    def refusal(self, filled: Filled) -> str | None:
        return None

    def drawback(self, filled: Filled) -> str | None:
        return None

    def estimate_s(self, filled: Filled) -> float | None:
        return None if self.way is None else self.costs.estimate_s(filled, self.way)

    def note(self, filled: Filled, elapsed_s: float) -> None:
        if self.way is not None:
            self.costs.note(filled, self.way, elapsed_s)

    def steps(self, filled: Filled) -> list[str]:
        return []


@dataclass(frozen=True)
class LocalRoute(_Measured):
    """DuckDB in this process; a lookup needs not even that."""

    runner: Runner
    name: ClassVar[str] = LOCAL
    way: ClassVar[str | None] = LOCAL

    def why(self, filled: Filled) -> str:
        return "all its rows can be read here"

    def place(self, filled: Filled) -> str:
        return filled.manner

    def run(self, filled: Filled) -> Answer:
        return self.runner.run_filled(filled)


@dataclass(frozen=True)
class PartitionRoute(_Measured):
    """Partial results of each partition, in Spark's tasks, merged here."""

    scatter: Scatter
    way: ClassVar[str | None] = SPARK

    def refusal(self, filled: Filled) -> str | None:
        parts = split(filled.plan)
        return None if isinstance(parts, Decomposition) else parts.reason

    def why(self, filled: Filled) -> str:
        return "partial results of each partition are merged"

    def place(self, filled: Filled) -> str:
        return "DuckDB in Spark's tasks over files, in this process over hot blocks"

    def steps(self, filled: Filled) -> list[str]:
        parts = split(filled.plan)
        return parts.explain() if isinstance(parts, Decomposition) else []

    def run(self, filled: Filled) -> Answer:
        return self.scatter.run_partitions(filled)


@dataclass(frozen=True)
class TaskRoute(_Measured):
    """The whole query in one of Spark's tasks, to which the rows of memory travel."""

    scatter: Scatter
    has_spark: bool
    way: ClassVar[str | None] = SPARK_TASK

    def refusal(self, filled: Filled) -> str | None:
        return shipping_refusal(filled)

    def drawback(self, filled: Filled) -> str | None:
        return shipping_refusal(filled) or (None if self.has_spark else _NO_SPARK)

    def why(self, filled: Filled) -> str:
        return f"rows in memory travel to the task that runs it, since {_indivisible(filled)}"

    def place(self, filled: Filled) -> str:
        return "DuckDB in one of Spark's tasks, over files and the hot rows that travel there"

    def steps(self, filled: Filled) -> list[str]:
        rows = sum(chosen.table.num_rows for chosen in filled.selected)
        count = f"{rows:,} row{'' if rows == 1 else 's'}"
        travel = f"{count} of memory travel to the task that runs the sql"
        return [f"ship: {travel}, since {_indivisible(filled)}"]

    def run(self, filled: Filled) -> Answer:
        return self.scatter.run_task(filled)


@dataclass(frozen=True)
class GatherRoute(_Measured):
    """The whole query here, over the rows of files that Spark's tasks filtered. It can run every
    query, and is never the fastest: ``auto`` does not ask it, and its costs are not measured."""

    scatter: Scatter

    def why(self, filled: Filled) -> str:
        return f"rows are filtered by partition and gathered, since {_indivisible(filled)}"

    def place(self, filled: Filled) -> str:
        return "DuckDB in this process, over hot blocks and the rows of files that tasks filtered"

    def steps(self, filled: Filled) -> list[str]:
        how = "tasks filter and project, the sql runs here"
        return [f"gather: {how}, since {_indivisible(filled)}"]

    def run(self, filled: Filled) -> Answer:
        return self.scatter.run_gathered(filled)


@dataclass(frozen=True)
class ShuffleRoute(_Measured):
    """Spark's own SQL, which shuffles rows; ``spark_sql`` is None where there is no Spark."""

    spark_sql: SparkSql | None
    name: ClassVar[str] = SPARK_SQL
    way: ClassVar[str | None] = SPARK_SQL

    def refusal(self, filled: Filled) -> str | None:
        return _NO_SPARK if self.spark_sql is None else self.spark_sql.refusal(filled)

    def drawback(self, filled: Filled) -> str | None:
        return shipping_refusal(filled)  # rows of memory travel there, too

    def why(self, filled: Filled) -> str:
        return "the query needs a shuffle"

    def place(self, filled: Filled) -> str:
        return "Spark's own SQL over files and hot rows"

    def run(self, filled: Filled) -> Answer:
        assert self.spark_sql is not None
        return self.spark_sql.run(filled)


def _indivisible(filled: Filled) -> str:
    """Why a query is not the sum of its parts."""
    parts = split(filled.plan)
    assert not isinstance(parts, Decomposition)
    return parts.reason


@dataclass(frozen=True)
class _Choice:
    """A route, and why it is taken."""

    route: Route
    reason: str


class Router:
    """Asks the routes, in the order in which they are preferred."""

    def __init__(
        self,
        runner: Runner,
        scatter: Scatter,
        spark: Spark,
        costs: RouteCosts,
        spark_sql: SparkSql | None = None,
    ) -> None:
        self._runner = runner
        self._spark = spark
        self._costs = costs
        self._local = LocalRoute(costs, runner)
        self._spark_sql = ShuffleRoute(costs, spark_sql)
        partitions = PartitionRoute(costs, scatter)
        task = TaskRoute(costs, scatter, has_spark=spark_sql is not None)
        self._elsewhere: tuple[Route, ...] = (partitions, self._spark_sql, task)
        self._named: dict[str, tuple[Route, ...]] = {
            LOCAL: (self._local,),
            SPARK: (partitions, task, GatherRoute(costs, scatter)),
            SPARK_SQL: (self._spark_sql,),
        }

    def run(self, plan: Plan, params: Params, asked: str = AUTO) -> Answer:
        return self.run_filled(self.fill(plan, params, asked))

    def fill(self, plan: Plan, params: Params, asked: str = AUTO) -> Filled:
        """A plan with its rows, and the route it will take."""
        filled = self._fill(plan, params, asked)
        choice = self._choose(filled, asked)
        return replace(filled, route=choice.route.name, reason=choice.reason)

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

    def run_filled(self, filled: Filled) -> Answer:
        """Run a query on its route, and note what it took."""
        route = self.route_of(filled)
        began_s = time.perf_counter()
        answer = route.run(filled)
        route.note(filled, time.perf_counter() - began_s)
        return answer

    def route_of(self, filled: Filled) -> Route:
        """The route that a filled plan names: of those with its name the first that can run it."""
        *others, last = self._named[filled.route]
        return next((route for route in others if route.refusal(filled) is None), last)

    def _choose(self, filled: Filled, asked: str) -> _Choice:
        if not any(chosen.scan.kind == HOT for chosen in filled.selected):
            return _Choice(self._local, "no streaming table is read")
        if asked == LOCAL:
            return _Choice(self._local, "asked for")
        if any(chosen.keys for chosen in filled.selected):
            return _Choice(self._local, "the past of a table with keys is put together here")
        if asked == SPARK:
            route = self.route_of(replace(filled, route=SPARK))
            return _Choice(route, f"asked for; {route.why(filled)}")
        if asked == SPARK_SQL:
            self._check_spark_sql(filled)
            meaning = "all that the query uses is verified to mean the same there"
            return _Choice(self._spark_sql, f"asked for; {meaning}")
        return self._choose_by_cost(filled)

    def _choose_by_cost(self, filled: Filled) -> _Choice:
        size, limit = filled.history_bytes, self._spark.scan_bytes
        if not size:
            return _Choice(self._local, "no files are read")
        here_s = self._local.estimate_s(filled)
        if here_s is None:
            return _Choice(self._local, "the table is being dropped")
        soonest_s = min(self._costs.fixed_s(way) for way in WAYS if way != LOCAL)
        if size < limit and here_s <= soonest_s:
            spark = f"Spark takes {_time(soonest_s)} at least"
            return _Choice(self._local, f"{_bytes(size)} of files, about {_time(here_s)}; {spark}")
        there = self._best_elsewhere(filled)
        if isinstance(there, str):
            return _Choice(self._local, f"{_bytes(size)} of files, but {there}")
        return self._compare(filled, there, here_s)

    def _compare(self, filled: Filled, there: Route, here_s: float) -> _Choice:
        """This process, which takes so long, or a route on Spark."""
        size, limit = filled.history_bytes, self._spark.scan_bytes
        there_s = there.estimate_s(filled)
        if there_s is None and size < limit:
            few = f"{_bytes(size)} of files are less than spark_scan = {_bytes(limit)}"
            return _Choice(self._local, few)
        if there_s is None:
            reason = f"{_bytes(size)} of files, and Spark was not measured yet"
        else:
            reason = f"about {_time(here_s)} here and {_time(there_s)} on Spark, as measured"
            if here_s <= there_s:
                return _Choice(self._local, reason)
        reason = f"{reason}; {there.why(filled)}"
        if not self._spark.is_ready():
            self._spark.warm_up()
            return _Choice(self._local, f"{reason}; but Spark is not running yet")
        return _Choice(there, reason)

    def _best_elsewhere(self, filled: Filled) -> Route | str:
        """The route on Spark that suits a query best; or why it should stay here."""
        refusal = ""
        for route in self._elsewhere:
            found = route.drawback(filled) or route.refusal(filled)
            if found is None:
                return route
            refusal = found
        return f"it is not the sum of its parts, and {refusal}"

    def _check_spark_sql(self, filled: Filled) -> None:
        refusal = self._spark_sql.refusal(filled)
        if refusal is not None:
            raise UnsupportedError(
                "the query cannot run on Spark's SQL",
                detail=refusal,
                hint="SET route = 'auto', 'local' or 'spark'",
            )


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
