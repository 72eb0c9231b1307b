"""Which route a query takes: by bytes until Spark was measured, by measured costs from then on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from tidemill.clock import FakeClock
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.errors import UnsupportedError
from tidemill.federation.costs import RouteCosts
from tidemill.federation.routes import (
    AUTO,
    LOCAL,
    SPARK,
    SPARK_SQL,
    GatherRoute,
    PartitionRoute,
    Router,
    Spark,
    TaskRoute,
)
from tidemill.federation.runner import Filled
from tidemill.federation.scatter import Scatter
from tidemill.hot.costs import SPARK_TASK, ScanCosts
from tidemill.sql import parse
from tidemill.sql.statements import Query

HOT, OLD = 20_000, 200_000
SUM = "SELECT sum(v) FROM s"
MEDIAN = "SELECT median(v) FROM s"
LARGE = 1 << 40


@dataclass
class Verified:
    """Spark's own SQL, which is asked whether it may."""

    reason: str | None = "median was not verified"

    def refusal(self, filled: Filled) -> str | None:
        return self.reason

    def run(self, filled: Filled) -> tuple[pa.Table, list[str]]:
        raise AssertionError("nothing runs here")


class NoTasks:
    """A place for tasks, of which there are none."""

    parallelism = 1

    def run(self, *_: object) -> list[object]:
        raise AssertionError("nothing runs here")

    def cancel(self, job_id: str) -> None:
        raise AssertionError("nothing runs here")


class Routes:
    """A router over a warehouse, with a Spark of which the test says everything."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.is_ready, self.started, self.spark_sql = True, 0, Verified()
        for hot in db._hot.values():
            hot.costs = ScanCosts()
        self.costs = RouteCosts(db._hot, db._clock)

    def filled(self, text: str, scan_bytes: int = LARGE, asked: str = AUTO) -> Filled:
        (statement,) = parse(text)
        assert isinstance(statement, Query)
        spark = Spark(lambda: self.is_ready, self._start, scan_bytes)
        scatter = Scatter(NoTasks(), self.db._duck, self.db._runner._storage)
        router = Router(self.db._runner, scatter, spark, self.costs, self.spark_sql)
        return router.fill(self.db._querying.plan(statement, None), None, asked)

    def _start(self) -> None:
        self.started += 1

    def took(self, text: str, way: str, seconds: float) -> None:
        """A query was seen to take so long, often enough to be believed."""
        query = self.filled(text)
        for _ in range(40):
            self.costs.note(query, way, seconds)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "inline", "threads": 1})
    folder: Path = tmp_path_factory.mktemp("routes")
    with Database(folder / "w", settings, clock=FakeClock(10**15)) as opened:
        opened.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, v INT) WITH (move = 'manual')")
        opened.sql("CREATE STREAMING TABLE fresh (ts TIMESTAMP, v INT) WITH (move = 'manual')")
        rows = "SELECT make_timestamp(1000000 * i), i FROM range({}, {}) r(i)"
        opened.sql(f"INSERT INTO s {rows.format(0, OLD)}")
        opened.sql("FLUSH s")
        opened.sql(f"INSERT INTO s {rows.format(OLD, OLD + HOT)}")
        opened.sql("CREATE STREAMING TABLE young (ts TIMESTAMP, v INT) WITH (move = 'manual')")
        opened.sql(f"INSERT INTO young {rows.format(0, 10)}")
        opened.sql("FLUSH young")
        opened.sql(f"INSERT INTO young {rows.format(10, 30)}")
        yield opened


@pytest.fixture
def routes(db: Database) -> Routes:
    return Routes(db)


def test_a_query_without_files_stays(routes: Routes) -> None:
    found = routes.filled("SELECT sum(v) FROM fresh", 0)
    assert (found.route, found.reason) == (LOCAL, "no files are read")


def test_a_query_that_is_done_before_spark_begins_stays(routes: Routes) -> None:
    found = routes.filled(SUM)
    assert found.route == LOCAL
    assert found.reason.endswith("Spark takes 300 ms at least")


def test_bytes_decide_until_spark_was_measured(routes: Routes) -> None:
    routes.took(SUM, LOCAL, 5.0)
    found = routes.filled(SUM)
    assert found.route == LOCAL
    assert "are less than spark_scan" in found.reason
    found = routes.filled(SUM, 1)
    assert found.route == SPARK
    assert "Spark was not measured yet" in found.reason


@pytest.mark.parametrize(("here_s", "there_s", "route"), [(5, 1, SPARK), (1, 5, LOCAL)])
@pytest.mark.parametrize("scan_bytes", [1, LARGE])
def test_the_faster_one_is_taken_once_both_were_measured(
    routes: Routes, here_s: float, there_s: float, route: str, scan_bytes: int
) -> None:
    routes.took(SUM, LOCAL, here_s)
    routes.took(SUM, SPARK, there_s)
    found = routes.filled(SUM, scan_bytes)
    assert found.route == route
    assert "as measured" in found.reason
    assert found.reason.startswith("about ")


def test_a_spark_that_does_not_run_is_started_and_not_waited_for(routes: Routes) -> None:
    routes.took(SUM, LOCAL, 5.0)
    routes.took(SUM, SPARK, 1.0)
    routes.is_ready = False
    found = routes.filled(SUM)
    assert (found.route, routes.started) == (LOCAL, 1)
    assert "Spark is not running yet" in found.reason


def test_what_is_not_the_sum_of_its_parts_goes_to_sparks_sql_if_it_may(routes: Routes) -> None:
    routes.spark_sql.reason = None
    found = routes.filled(MEDIAN, 1)
    assert found.route == SPARK_SQL
    assert "needs a shuffle" in found.reason


def test_and_to_one_task_otherwise(routes: Routes) -> None:
    found = routes.filled(MEDIAN, 1)
    assert found.route == SPARK
    assert "rows in memory travel to the task that runs it" in found.reason
    routes.took(MEDIAN, LOCAL, 1.0)
    routes.took(MEDIAN, SPARK_TASK, 4.0)
    assert routes.filled(MEDIAN, 1).route == LOCAL
    routes.took(MEDIAN, LOCAL, 20.0)
    assert routes.filled(MEDIAN, 1).route == SPARK


def test_it_stays_where_most_rows_are_in_memory(routes: Routes) -> None:
    found = routes.filled("SELECT median(v) FROM young", 1)
    assert found.route == LOCAL
    assert "most of its rows are in memory" in found.reason


def test_it_stays_where_too_much_would_travel(
    routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.federation.shipping.SHIPPED_BYTES_MAX", 10)
    found = routes.filled(MEDIAN, 1)
    assert found.route == LOCAL
    assert "more than the 10 bytes that may travel" in found.reason


def test_without_spark_such_a_query_stays(routes: Routes) -> None:
    routes.spark_sql = None  # type: ignore[assignment]
    found = routes.filled(MEDIAN, 1)
    assert found.route == LOCAL
    assert "spark_master = 'inline'" in found.reason
    assert routes.filled(SUM, 1).route == SPARK  # tasks need no Spark of their own


def test_sparks_route_is_the_first_that_does_not_refuse(
    db: Database, routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, kind in ((SUM, PartitionRoute), (MEDIAN, TaskRoute)):
        assert isinstance(db._router.route_of(routes.filled(text, 1, SPARK)), kind)
    monkeypatch.setattr("tidemill.federation.shipping.SHIPPED_BYTES_MAX", 10)
    gathered = routes.filled(MEDIAN, 1, SPARK)
    assert isinstance(db._router.route_of(gathered), GatherRoute)
    assert "gathered" in gathered.reason


@pytest.mark.parametrize("asked", [LOCAL, SPARK, SPARK_SQL])
def test_a_route_is_called_as_it_is_asked_for(db: Database, routes: Routes, asked: str) -> None:
    routes.spark_sql.reason = None
    filled = routes.filled(MEDIAN, 1, asked)
    assert filled.route == asked
    route = db._router.route_of(filled)
    assert route.name == asked
    assert route.place(filled)


def test_a_refusal_of_sparks_sql_is_an_error_if_it_is_asked_for(routes: Routes) -> None:
    with pytest.raises(UnsupportedError, match="cannot run on Spark's SQL") as raised:
        routes.filled(MEDIAN, 1, SPARK_SQL)
    assert raised.value.detail == "median was not verified"


def test_a_route_that_is_asked_for_is_taken(routes: Routes) -> None:
    assert routes.filled(SUM, 1, LOCAL).reason == "asked for"
    assert routes.filled(SUM, LARGE, SPARK).route == SPARK


def test_what_runs_is_measured(db: Database) -> None:
    for hot in db._hot.values():
        hot.costs = ScanCosts()

    def runs() -> int:
        return sum(
            row["runs"] for row in db.sql("SELECT * FROM tidemill.costs").arrow().to_pylist()
        )

    before = runs()
    for route in (LOCAL, SPARK):
        db.sql(f"SET route = '{route}'")
        for _ in range(3):
            db.sql(SUM)
    db.sql("RESET route")
    assert runs() >= before + 3 + 2  # the first on Spark does not count
