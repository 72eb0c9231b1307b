"""Routes: where a query runs. The answer is the same on each; the choice is one of cost.

- **local**: DuckDB in this process, over hot blocks and files in one plan;
- **spark**: partition-wise, DuckDB in Spark's tasks over their files (``scatter``);
- **spark_sql**: Spark's own SQL, for what needs a general shuffle, if all that the query uses is
  on the list of what was verified to mean the same there;
- **auto** chooses: local for small scans, Spark for scans of many bytes. It never waits for a Spark
  that is not running yet: it has it started, and runs locally meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from tidemill.errors import UnsupportedError
from tidemill.federation.driving import without_partners
from tidemill.federation.planner import HOT, Plan
from tidemill.federation.runner import Filled, Runner
from tidemill.federation.scatter import Scatter, split
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
    scan_bytes: int  # a larger scan is worth it


class Router:
    def __init__(
        self, runner: Runner, scatter: Scatter, spark: Spark, spark_sql: SparkSql | None = None
    ) -> None:
        self._runner = runner
        self._scatter = scatter
        self._spark = spark
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
            return SPARK, f"asked for; {self._manner(filled)}"
        if asked == SPARK_SQL:
            return SPARK_SQL, self._check_spark_sql(filled)
        return self._choose_by_size(filled)

    def _choose_by_size(self, filled: Filled) -> tuple[str, str]:
        size, limit = filled.history_bytes, self._spark.scan_bytes
        if not size:
            return LOCAL, "no files are read"
        if size < limit:
            return LOCAL, f"{_bytes(size)} of files are less than spark_scan = {_bytes(limit)}"
        if not self._spark.is_ready():
            self._spark.warm_up()
            return LOCAL, f"{_bytes(size)} of files, but Spark is not running yet"
        if isinstance(split(filled.plan), Decomposition):
            return SPARK, f"{_bytes(size)} of files; {self._manner(filled)}"
        refusal = self._refusal(filled)
        if refusal is None:
            return SPARK_SQL, f"{_bytes(size)} of files, and the query needs a shuffle"
        return LOCAL, f"{_bytes(size)} of files, but {refusal}"

    def _manner(self, filled: Filled) -> str:
        parts = split(filled.plan)
        if isinstance(parts, Decomposition):
            return "partial results of each partition are merged"
        return f"rows are filtered by partition and gathered, since {parts.reason}"

    def _check_spark_sql(self, filled: Filled) -> str:
        refusal = self._refusal(filled)
        if refusal is not None:
            raise UnsupportedError(
                "the query cannot run on Spark's SQL",
                detail=refusal,
                hint="SET route = 'auto', 'local' or 'spark'",
            )
        return "asked for; all that the query uses is verified to mean the same there"

    def _refusal(self, filled: Filled) -> str | None:
        if self._spark_sql is None:
            return "there is no Spark: spark_master = 'inline'"
        return self._spark_sql.refusal(filled)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
