"""Lookups answer as DuckDB does: every query is asked twice, once so that it cannot be a lookup."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import tidemill
from tidemill.hot import published

START = datetime(2024, 1, 1)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidemill.Database]:
    random_ = random.Random(7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "BLOCK_ROWS", 100)
        patch.setattr(published, "BLOCK_ROWS_MAX", 200)
        with tidemill.open(tmp_path_factory.mktemp("lookup")) as db:
            db.sql(
                "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, u UBIGINT, d DATE, s VARCHAR, "
                "f DOUBLE, p DECIMAL(9, 2), b BOOLEAN) WITH (clock = 'event'); "
                "CREATE INDEX ON t (k); CREATE INDEX ON t USING hash (u)"
            )
            rows = [_row(random_, number) for number in range(1_234)]
            for start in range(0, len(rows), 77):
                db.append("t", rows[start : start + 77])
            yield db


def _row(random_: random.Random, number: int) -> dict[str, object]:
    jitter = timedelta(seconds=random_.choice([0, 0, 0, -500, 300]))
    return {
        "ts": START + timedelta(seconds=number) + jitter,
        "k": random_.choice([None, *range(-3, 20)]),
        "u": random_.choice([0, 1, 2**64 - 1, None]),
        "d": (START + timedelta(days=random_.randrange(5))).date(),
        "s": random_.choice(["a", "é", None, ""]),
        "f": random_.choice([1.5, float("nan"), None]),
        "p": random_.choice([None, 1, 2]),
        "b": random_.choice([True, False, None]),
    }


CONDITIONS = [
    "k = 3",
    "k = 99",
    "k > 17",
    "k <= -2 AND k > -100000000000",
    "k IN (1, 2, 2, NULL)",
    "k BETWEEN 4 AND 5",
    "3 < k AND k <= 6 AND k <> 5",
    "u = 18446744073709551615",
    "u IN (1, 18446744073709551615) AND k = 1",
    "u = -1",
    "d = DATE '2024-01-03' AND k = 2",
    "ts >= TIMESTAMP '2024-01-01 00:10:00' AND ts < TIMESTAMP '2024-01-01 00:11:00'",
    "ts BETWEEN '2024-01-01 00:10:00' AND '2024-01-01 00:10:05' AND k = 7",
    "ts > TIMESTAMP '2030-01-01'",
    "s = 'a' AND k = 1",
    "f > 1 AND k = 1",
    "k = 1.5",
    "k = '4'",
    "k = NULL",
]
SHAPES = [
    "SELECT * FROM t WHERE {} ",
    "SELECT k, ts, s, f, p, b FROM t WHERE {} ",
    "SELECT x.u, x.d FROM t AS x WHERE {} ",
    "SELECT k, ts FROM t WHERE {} ORDER BY ts DESC, ts LIMIT 5",
    "SELECT ts FROM t WHERE {} ORDER BY ts DESC LIMIT 5",
    "SELECT ts FROM t WHERE {} ORDER BY ts LIMIT 3",
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_lookup_answers_as_duckdb_does(db: tidemill.Database, shape: str, condition: str) -> None:
    looked_up = db.sql(shape.format(condition))
    by_duckdb = db.sql(shape.format(f"{condition} AND true"))
    assert looked_up.types == by_duckdb.types
    assert looked_up.columns == by_duckdb.columns
    assert looked_up.arrow().schema.equals(by_duckdb.arrow().schema)
    assert _shown(looked_up) == _shown(by_duckdb)


def _shown(result: tidemill.Result) -> list[str]:
    return [repr(row) for row in result.fetchall()]


def test_explain_names_the_route(db: tidemill.Database) -> None:
    assert "lookup" in _route(db, "SELECT * FROM t WHERE k = 3")
    for query in (
        "SELECT * FROM t",
        "SELECT count(*) FROM t WHERE k = 3",
        "SELECT * FROM t WHERE k = 3 OR k = 4 AND s = 'a'",
        "SELECT * FROM t WHERE s = 'a'",
        "SELECT k + 1 FROM t WHERE k = 3",
        "SELECT k FROM t WHERE k = 3 GROUP BY k",
        "SELECT DISTINCT k FROM t WHERE k = 3",
    ):
        assert "lookup" not in _route(db, query), query


def _route(db: tidemill.Database, query: str) -> str:
    return str(db.sql(f"EXPLAIN {query}").fetchall()[0][0])


def test_values_may_be_parameters(db: tidemill.Database, tmp_path: Path) -> None:
    query = "SELECT k, ts FROM t WHERE k = $1 AND ts < $2"
    found = db.sql(query, [3, START + timedelta(minutes=5)]).fetchall()
    assert found
    assert found == db.sql(f"{query} AND true", [3, START + timedelta(minutes=5)]).fetchall()
    assert db.sql(query, [3, "2024-01-01 00:05:00"]).fetchall() == found
