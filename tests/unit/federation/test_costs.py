"""What routes cost: measured from the times of queries, which the test makes up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemill.clock import FakeClock
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.federation.costs import (
    FIXED_START_MS,
    LOCAL,
    SPARK_FRESH_US,
    WEIGHT_MAX,
    WEIGHTS_MAX,
    RouteCosts,
    parts_of,
)
from tidemill.federation.runner import Filled
from tidemill.hot.costs import (
    FILES,
    MEMORY,
    SPARK,
    SPARK_SQL,
    SPARK_TASK,
    START_NS,
    ScanCosts,
)
from tidemill.sql import parse
from tidemill.sql.statements import Query

HOT, OLD = 200_000, 500_000


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "inline", "threads": 1})
    folder: Path = tmp_path_factory.mktemp("costs")
    with Database(folder / "w", settings, clock=FakeClock(10**15)) as opened:
        for name in ("s", "u"):
            opened.sql(f"CREATE STREAMING TABLE {name} (ts TIMESTAMP, v INT) WITH (move='manual')")
        rows = "SELECT make_timestamp(1000000 * i), i FROM range({}, {}) r(i)"
        opened.sql(f"INSERT INTO s {rows.format(0, OLD)}")
        opened.sql("FLUSH s")
        opened.sql(f"INSERT INTO s {rows.format(OLD, OLD + HOT)}")
        opened.sql(f"INSERT INTO u {rows.format(0, 10)}")
        yield opened


@pytest.fixture
def costs(db: Database) -> RouteCosts:
    """Costs of which nothing is known yet."""
    for hot in db._hot.values():
        hot.costs = ScanCosts()
    return RouteCosts(db._hot, db._clock)


def filled(db: Database, text: str) -> Filled:
    (statement,) = parse(text)
    assert isinstance(statement, Query)
    return db._runner.fill(db._querying.plan(statement, None), None)


def cost(db: Database, place: str, table: int = 1) -> float:
    found = db._hot[table].costs.get(place)
    assert found is not None
    return found.value


ALL = "SELECT sum(v) FROM s"
NEW = "SELECT sum(v) FROM s WHERE ts >= '1970-01-06 18:53:20'"  # 500,000 s: in memory
FEW = "SELECT sum(v) FROM u"
BOTH = "SELECT count(*) FROM s JOIN u USING (v)"


def test_the_rows_of_each_place_are_told(db: Database) -> None:
    assert [part.rows for part in parts_of(filled(db, NEW), LOCAL)] == [HOT, 0]
    told = {
        way: [(part.place, part.rows) for part in parts_of(filled(db, ALL), way)]
        for way in (LOCAL, SPARK, SPARK_TASK, SPARK_SQL)
    }
    assert told[LOCAL] == [(MEMORY, HOT), (FILES, OLD)]
    assert told[SPARK] == [(MEMORY, HOT), (SPARK, OLD)]
    assert told[SPARK_TASK] == [(SPARK_TASK, HOT + OLD)]
    assert told[SPARK_SQL] == [(SPARK_SQL, HOT + OLD)]


def test_an_estimate_begins_with_start_values(db: Database, costs: RouteCosts) -> None:
    rows_s = (HOT * START_NS[MEMORY] + OLD * START_NS[FILES]) / 1e9
    wanted = FIXED_START_MS[LOCAL] / 1e3 + rows_s
    assert costs.estimate_s(filled(db, ALL), LOCAL) == pytest.approx(wanted)
    assert costs.estimate_s(filled(db, ALL), SPARK) is None


def test_each_part_of_the_cost_is_learnt_from_the_queries_that_show_it(
    db: Database, costs: RouteCosts
) -> None:
    """2 ms fixed, 100 ns a row in memory, 400 ns in files."""

    def took(query: Filled) -> float:
        parts = parts_of(query, LOCAL)
        prices = {MEMORY: 100e-9, FILES: 400e-9}
        return 0.002 + sum(prices[part.place] * part.rows for part in parts)

    queries = [filled(db, text) for text in (FEW, NEW, ALL)]
    for _ in range(40):
        for query in queries:
            costs.note(query, LOCAL, took(query))
    assert costs.fixed_s(LOCAL) == pytest.approx(0.002, rel=0.1)
    assert cost(db, MEMORY) == pytest.approx(100, rel=0.1)
    assert cost(db, FILES) == pytest.approx(400, rel=0.1)
    for query in queries:
        assert costs.estimate_s(query, LOCAL) == pytest.approx(took(query), rel=0.1)


def test_a_heavy_query_is_known_by_its_weight(db: Database, costs: RouteCosts) -> None:
    """The same rows, ten times the time: the estimate of each query is its own."""
    light, heavy = filled(db, ALL), filled(db, "SELECT median(v) FROM s")
    for _ in range(60):
        costs.note(light, LOCAL, 0.05)
        costs.note(heavy, LOCAL, 0.5)
    assert costs.estimate_s(light, LOCAL) == pytest.approx(0.05, rel=0.3)
    assert costs.estimate_s(heavy, LOCAL) == pytest.approx(0.5, rel=0.3)


def test_a_query_over_several_streams_teaches_its_weight_only(
    db: Database, costs: RouteCosts
) -> None:
    join = filled(db, BOTH)
    before = costs.estimate_s(join, LOCAL)
    for _ in range(20):
        costs.note(join, LOCAL, 0.1)
    assert (cost(db, MEMORY), cost(db, FILES)) == (START_NS[MEMORY], START_NS[FILES])
    after = costs.estimate_s(join, LOCAL)
    assert before is not None
    assert after == pytest.approx(0.1, rel=0.1)
    assert after > 2 * before


def test_spark_is_known_from_its_second_query_on_and_forgotten_in_time(
    db: Database, costs: RouteCosts
) -> None:
    query = filled(db, ALL)
    costs.note(query, SPARK, 9.0)  # workers start
    assert costs.estimate_s(query, SPARK) is None
    costs.note(query, SPARK, 0.8)
    first = costs.estimate_s(query, SPARK)
    assert first == pytest.approx(0.8, rel=0.1)
    clock = db._clock
    assert isinstance(clock, FakeClock)
    clock.advance(SPARK_FRESH_US / 1e6 + 1)
    assert costs.estimate_s(query, SPARK) is None
    clock.advance(-SPARK_FRESH_US / 1e6 - 1)


def test_few_rows_tell_what_is_fixed_on_spark(db: Database, costs: RouteCosts) -> None:
    query = filled(db, FEW)
    for _ in range(30):
        costs.note(query, SPARK, 0.12)
    assert costs.fixed_s(SPARK) == pytest.approx(0.12, rel=0.1)


def test_rows_are_not_charged_with_what_is_fixed(db: Database, costs: RouteCosts) -> None:
    """5 ms fixed, which is more than was thought, and 4 ns a row: short windows tell the one."""
    few = filled(db, "SELECT sum(v) FROM s WHERE ts >= '1970-01-07 16:53:20'")
    assert [part.rows for part in parts_of(few, LOCAL)] == [HOT - 79_200, 0]
    fewer = filled(db, "SELECT sum(v) FROM s WHERE ts >= '1970-01-08 01:13:20'")
    many = filled(db, NEW)
    for _ in range(60):
        for query in (fewer, many):
            rows = sum(part.rows for part in parts_of(query, LOCAL))
            costs.note(query, LOCAL, 0.005 + rows * 4e-9)
    assert costs.fixed_s(LOCAL) == pytest.approx(0.005, rel=0.05)
    assert cost(db, MEMORY) == pytest.approx(4, rel=0.3)


def test_no_time_is_learnt_from_a_lookup(db: Database, costs: RouteCosts) -> None:
    query = filled(db, ALL)
    costs.note(replace(query, exact=[]), LOCAL, 1e6)
    assert cost(db, FILES) == START_NS[FILES]
    assert costs.rows()[0]["runs"] == 0


def test_estimates_are_bounded_whatever_is_measured(db: Database, costs: RouteCosts) -> None:
    query = filled(db, ALL)
    for _ in range(200):
        costs.note(query, LOCAL, 1e5)
    for took in (0.0, -1.0, 1e-12):
        costs.note(query, LOCAL, took)
    estimate = costs.estimate_s(query, LOCAL)
    assert estimate is not None
    assert estimate > 0
    assert all(each.value <= WEIGHT_MAX for each in costs._weights.values())


def test_no_more_than_some_weights_are_kept(db: Database, costs: RouteCosts) -> None:
    query = filled(db, ALL)
    for _ in range(WEIGHTS_MAX + 10):
        costs.note(replace(query, plan=replace(query.plan)), LOCAL, 0.1)
    assert len(costs._weights) == WEIGHTS_MAX


def test_the_system_table_shows_them(db: Database) -> None:
    db.sql(ALL)
    found: list[dict[str, Any]] = db.sql("SELECT * FROM tidemill.costs").arrow().to_pylist()
    fixed = [row for row in found if row["table_name"] is None]
    assert [row["place"] for row in fixed] == [LOCAL, SPARK, SPARK_TASK, SPARK_SQL]
    assert all(row["fixed_ms"] > 0 and row["row_ns"] is None for row in fixed)
    of_s = {row["place"]: row for row in found if row["table_name"] == "s"}
    assert of_s[MEMORY]["row_ns"] > 0
    assert of_s[FILES]["runs"] + of_s[MEMORY]["runs"] + fixed[0]["runs"] > 0
