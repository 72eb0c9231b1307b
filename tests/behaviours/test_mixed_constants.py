"""Conditions whose constants have different types: every route and every place of rows agrees.

DuckDB compares each part of an OR in its own type, but all elements of an IN and both bounds of a
BETWEEN in one. Indices, pruning and what tasks filter must not turn the one into the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from warehouses import LAYOUTS, ROUTES, fill, open_inline, quiet

import tidemill
from tidemill.errors import TidemillError

COLUMNS = {
    "f": "FLOAT",
    "x": "DOUBLE",
    "i": "BIGINT",
    "n": "DECIMAL(18,2)",
    "b": "BOOLEAN",
    "s": "VARCHAR",
    "d": "DATE",
}
BIG = 2**53
ROWS: list[tuple[Any, ...]] = [
    (0.1, 0.1, BIG, "0.10", True, "1", "2024-01-01"),
    (1.5, 1.5, BIG + 1, "1.50", False, "01", "2024-01-02"),
    (0.3, 0.3, BIG + 2, "0.30", None, "true", "2024-01-03"),
    (16777216.0, 16777217.0, 1, "2.00", True, "1.5", "2024-01-04"),
    (None, None, None, None, None, None, None),
    (-0.0, 0.0, 0, "0.00", False, "", "1970-01-01"),
]
CONSTANTS = (
    "0.1",
    "1.5",
    "0.3",
    "0.1::DOUBLE",
    "1.5::DOUBLE",
    "0.1::FLOAT",
    "0.30",
    "1",
    "0",
    "1.0",
    "16777217",
    "16777216",
    "1e0",
    "'1'",
    "'01'",
    "'1.5'",
    "'true'",
    "true",
    "false",
    "NULL",
    "9007199254740993",
    "9007199254740992::DOUBLE",
    "9007199254740993.0",
    "'2024-01-02'",
    "1::TINYINT",
    "DATE '2024-01-02'",
    "TIMESTAMP '2024-01-02'",
    "-0.0",
)
constants = some.sampled_from(CONSTANTS)
columns = some.sampled_from(sorted(COLUMNS))


@some.composite
def conditions(draw: some.DrawFn) -> str:
    column = draw(columns)
    parts = []
    for _ in range(draw(some.integers(1, 3))):
        shape = draw(some.sampled_from(["=", "flipped", "in", "between", "half"]))
        first, second = draw(constants), draw(constants)
        parts.append(
            {
                "=": f"{column} = {first}",
                "flipped": f"{first} = {column}",
                "in": f"{column} IN ({first}, {second})",
                "between": f"{column} BETWEEN {first} AND {second}",
                "half": f"{column} BETWEEN {first} AND x",
            }[shape]
        )
    return draw(some.sampled_from([" OR ", " AND "])).join(parts)


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(":memory:")
    kinds = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TABLE t (ts TIMESTAMP, k INTEGER, {kinds})")
    for row in rows():
        connection.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(row))})", row)
    yield connection
    connection.close()


def rows() -> list[tuple[Any, ...]]:
    return [(f"2024-01-01 0{at}:00:00", at, *row) for at, row in enumerate(ROWS)]


@pytest.fixture(scope="module", params=LAYOUTS)
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tidemill.Database]:
    path: Path = tmp_path_factory.mktemp("mixed")
    kinds = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    with quiet(), open_inline(path / "w") as db:
        db.sql(
            f"CREATE STREAMING TABLE t (ts TIMESTAMP, k INTEGER, {kinds}, WATERMARK FOR ts AS ts)"
        )
        for name in COLUMNS:
            db.sql(f"CREATE INDEX t_{name} ON t ({name})")
        named = [dict(zip(("ts", "k", *COLUMNS), row, strict=True)) for row in rows()]
        fill(
            db,
            "t",
            [named[low:high] for low, high in pairwise((0, 1, 2, 3, 4, 5, 6))],
            str(request.param),
        )
        yield db


def answer(ask: Any, query: str) -> list[Any] | str:
    try:
        return sorted(ask(query).fetchall())
    except (duckdb.Error, TidemillError):
        return "error"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(condition=conditions())
def test_a_condition_of_mixed_constants(
    db: tidemill.Database, plain: duckdb.DuckDBPyConnection, condition: str
) -> None:
    for query in (
        f"SELECT k FROM t WHERE {condition}",
        f"SELECT k, row_number() OVER (ORDER BY k) FROM t WHERE {condition}",
        f"SELECT k FROM (SELECT k, i, x, f AS f, n, b, s, d FROM t) WHERE {condition}",
    ):
        expected = answer(plain.execute, query)
        for route in ROUTES:
            db.sql(f"SET route = '{route}'")
            found = answer(db.sql, query)
            if "error" in (found, expected) and (not found or " AND " in condition):
                continue  # a cast fails or not, as the parts of a condition are taken in turn
            assert found == expected, (route, query)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("f = 0.1 OR f = 1.5::DOUBLE", [(0,), (1,)]),
        ("b = 'true' OR b = 1", [(0,), (3,)]),
        ("i IN (9007199254740993, 1.5::DOUBLE)", [(0,), (1,)]),
        ("i BETWEEN 9007199254740993 AND 9007199254740996::DOUBLE", [(0,), (1,), (2,)]),
    ],
)
def test_what_was_dropped(db: tidemill.Database, condition: str, expected: list[Any]) -> None:
    for route in ROUTES:
        db.sql(f"SET route = '{route}'")
        query = f"SELECT k FROM t WHERE {condition} ORDER BY row_number() OVER (ORDER BY k)"
        assert db.sql(query).fetchall() == expected, route
        assert sorted(db.sql(f"SELECT k FROM t WHERE {condition}").fetchall()) == expected, route
