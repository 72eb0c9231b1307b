"""IN with long lists of constants: the same answers as literal by literal, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from sqlglot import exp
from warehouses import LAYOUTS, ROUTES, fill, open_inline, quiet

from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.sql.parser import parse_one
from tidemill.sql.spark import SparkQuery, to_spark
from tidemill.sql.statements import Query

COLUMNS = {
    "f": "FLOAT",
    "x": "DOUBLE",
    "i": "BIGINT",
    "t": "TINYINT",
    "n": "DECIMAL(18,2)",
    "b": "BOOLEAN",
    "s": "VARCHAR",
    "d": "DATE",
    "z": "TIMESTAMPTZ",
}
BIG = 2**53
ROWS: list[tuple[Any, ...]] = [
    (0.5, 0.1, BIG, 1, "0.10", True, "1", "2024-01-01", "2024-01-01 00:00:00+00"),
    (1.5, 1.5, BIG + 1, -1, "1.50", False, "it's", "2024-01-02", "2024-01-02 00:00:00+00"),
    (0.3, 0.3, BIG + 2, 127, "0.30", None, "true", "2024-01-03", "2024-01-01 12:00:00+00"),
    (16777216.0, 16777217.0, 1, 0, "2.00", True, "é😀", "2024-01-04", None),
    (None, None, None, None, None, None, None, None, None),
    (-0.0, 0.0, 0, 7, "0.00", False, "", "1970-01-01", "1970-01-01 00:00:00+00"),
]
CONSTANTS = {
    "whole": ("0", "1", "-1", "7", "300", "16777217", str(BIG), str(BIG + 1), str(2**63 - 1)),
    "huge": (str(2**63), str(2**64), "1"),
    "decimal": ("0.1", "1.5", "0.30", "-0.0", "2.00", "0.005"),
    "float": ("1e0", "1.5e0", "3e-1", "-0e0"),
    "text": ("'1'", "'it''s'", "'é😀'", "''", "'2024-01-02'", "'\x1f'"),
    "date": ("DATE '2024-01-02'", "'2024-01-03'::DATE", "CAST('1970-01-01' AS DATE)"),
    "moment": ("TIMESTAMP '2024-01-02'", "'2024-01-01 12:00:00'::TIMESTAMP"),
    "zoned": ("TIMESTAMPTZ '2024-01-01 13:00:00+01'", "TIMESTAMPTZ '2024-01-02'"),
    "boolean": ("true", "FALSE"),
    "cast": ("1::TINYINT", "'1'::BIGINT", "0.1::DOUBLE", "1.5::FLOAT", "1::HUGEINT"),
}


@some.composite
def conditions(draw: some.DrawFn) -> str:
    """An IN of at least a hundred constants, mostly of one kind."""
    kinds = draw(some.sampled_from([*((kind,) for kind in CONSTANTS), ("whole", "decimal")]))
    if draw(some.integers(0, 4)) == 0:
        kinds = (*kinds, draw(some.sampled_from(sorted(CONSTANTS))))
    pool = [each for kind in kinds for each in CONSTANTS[kind]]
    chosen = draw(some.lists(some.sampled_from(pool), min_size=1, max_size=6))
    chosen += ["NULL"] if draw(some.integers(0, 3)) == 0 else []
    items = ", ".join((chosen * 100)[:120])
    column = draw(some.sampled_from(sorted(COLUMNS)))
    word = draw(some.sampled_from(["IN", "NOT IN", "in"]))
    condition = f"{column} {word} ({items})"
    shape = draw(some.sampled_from(["{}", "{}", "NOT ({})", "k > 0 AND {}", "k = 4 OR {}"]))
    return shape.format(condition)


@contextmanager
def way(name: str) -> Iterator[None]:
    """``long``: as one text for DuckDB; ``listed``: as it was written; ``plain``: as literals."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.sql.lists.SHORTENED_MIN", 100 if name == "long" else 10**9)
        if name == "plain":
            patch.setattr("tidemill.sql.parser.tokenize_lists", lambda text: None)
        yield


def rows() -> list[tuple[Any, ...]]:
    return [(f"2024-01-01 0{at}:00:00", at, *row) for at, row in enumerate(ROWS)]


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


@pytest.fixture(scope="module", params=LAYOUTS)
def db(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("lists")
    kinds = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    with quiet(), open_inline(path / "w") as db:
        db.sql(
            f"CREATE STREAMING TABLE t (ts TIMESTAMP, k INTEGER, {kinds}, WATERMARK FOR ts AS ts)"
        )
        for name in COLUMNS:
            db.sql(f"CREATE INDEX t_{name} ON t ({name})")
        named = [dict(zip(("ts", "k", *COLUMNS), row, strict=True)) for row in rows()]
        batches = [named[low:high] for low, high in pairwise(range(7))]
        fill(db, "t", batches, str(request.param))
        db.sql("CREATE TABLE r AS SELECT * FROM t")
        yield db


def answer(db: Database, query: str) -> Any:
    try:
        return sorted(db.sql(query).fetchall())
    except TidemillError as error:
        return type(error), error.message, error.hint, error.position


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(condition=conditions(), where=some.sampled_from(["t", "r", "t AS q", "(FROM t) AS q"]))
def test_answers(
    db: Database, plain: duckdb.DuckDBPyConnection, condition: str, where: str
) -> None:
    query = f"SELECT k FROM {where} WHERE {condition}"
    for route in ROUTES:
        db.sql(f"SET route = '{route}'")
        found = {}
        for name in ("long", "listed", "plain"):
            with way(name):
                db._querying._plan_for.cache_clear()
                found[name] = answer(db, query)
        assert found["long"] == found["plain"], (route, query)
        assert found["listed"] == found["plain"], (route, query)
        if isinstance(found["plain"], list):
            other = query.replace(" r ", " t ")
            assert found["plain"] == sorted(plain.sql(other).fetchall()), (route, query)


def test_a_list_of_a_thousand_is_one_text_for_duckdb(db: Database) -> None:
    listed = ", ".join(map(str, range(-500, 500)))
    lines = db.sql(f"EXPLAIN SELECT k FROM t WHERE i IN ({listed})").fetchall()
    assert any("unnest(CAST('[-500, -499" in line for (line,) in lines)
    assert db.sql(f"SELECT count(*) FROM t WHERE t NOT IN ({listed})").fetchall() == [(0,)]
    names = db.sql(f"SELECT i IN ({listed}) FROM t LIMIT 1").table.column_names
    assert names[0].startswith("(i IN (-500, -499")


LONG = {
    "i": ", ".join(map(str, range(1_200))),
    "s": ", ".join(f"'{at}'" for at in range(1_200)),
    "n": ", ".join(f"{at}.5" for at in range(1_200)),
    "d": ", ".join(f"DATE '2024-01-0{at % 3 + 1}'" for at in range(1_200)),
    "k + 1": ", ".join(map(str, range(3, 1_200))),
}


@pytest.mark.parametrize("word", ["IN", "NOT IN"])
@pytest.mark.parametrize("column", LONG)
def test_changes_of_a_reference_table(db: Database, column: str, word: str) -> None:
    condition = f"{column} {word} ({LONG[column]})"
    wanted = db.sql(f"SELECT k FROM r WHERE {condition} ORDER BY k").fetchall()
    left = db.sql(f"SELECT count(*) FROM r WHERE ({condition}) IS NOT TRUE").fetchall()[0][0]
    db.sql("CREATE OR REPLACE TABLE changed AS FROM r")
    updated = f"UPDATE changed AS c SET x = 99 WHERE {condition} RETURNING k"
    assert sorted(db.sql(updated).fetchall()) == wanted
    assert db.sql(f"DELETE FROM changed WHERE {condition}").message == f"DELETE {len(wanted)}"
    assert db.sql("SELECT count(*) FROM changed").fetchall() == [(left,)]


@pytest.mark.parametrize("word", ["IN", "NOT IN"])
@pytest.mark.parametrize("column", LONG)
def test_views(tmp_path: Path, column: str, word: str) -> None:
    """A view with a long list follows its stream, also after the warehouse was opened again."""
    kinds = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    condition = f"{column} {word} ({LONG[column]})"
    query = f"SELECT b, count(*) AS c, sum(k) AS total FROM t WHERE {condition} GROUP BY b"
    named = [dict(zip(("ts", "k", *COLUMNS), row, strict=True)) for row in rows()]
    with quiet():
        with open_inline(tmp_path / "w") as db:
            columns = f"ts TIMESTAMP, k INTEGER, {kinds}"
            db.sql(f"CREATE STREAMING TABLE t ({columns}, WATERMARK FOR ts AS ts)")
            db.append("t", named[:2])
            db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
            db.append("t", named[2:4])
            db.sql("FLUSH t")
        with open_inline(tmp_path / "w") as db:
            db.append("t", named[4:])
            found = db.sql("SELECT * FROM v ORDER BY ALL").fetchall()
            assert found == db.sql(f"{query} ORDER BY ALL").fetchall()
            assert found


def test_spark_sql_gets_the_literals(plain: duckdb.DuckDBPyConnection) -> None:
    """What Spark is told of a list does not depend on how the list was read."""
    text = f"SELECT count(*) FROM t WHERE i IN ({LONG['i']})"
    kinds = {"i": "BIGINT", "k": "INTEGER"}
    found = []
    for name in ("long", "plain"):
        with way(name):
            statement = parse_one(text)
        assert isinstance(statement, Query)
        assert isinstance(statement.body, exp.Select)
        found.append(to_spark(statement.body, lambda node: kinds))
    assert isinstance(found[0], SparkQuery)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM t WHERE i IN ({}) AND", "something is missing"),
        ("SELECT * FROM t WHERE i IN ({} 5)", "expected"),
        ("SELECT * FROM t WHERE nothing IN ({})", "nothing"),
        ("SELECT * FROM nowhere\nWHERE i IN ({})\nAND x", "nowhere"),
        ("SELECT * FROM t WHERE d IN ({})", "INTEGER"),
        ("SELECT *\nFROM t\nWHERE i IN ({}) AND\n wrong > 1", "wrong"),
    ],
)
def test_errors_and_their_places(db: Database, text: str, message: str) -> None:
    db.sql("SET route = 'local'")
    query = text.format(",\n".join(map(str, range(1_100))))
    found = []
    for name in ("long", "listed", "plain"):
        with way(name), pytest.raises(TidemillError, match=message) as raised:
            db.sql(query)
        found.append((raised.value.message, raised.value.hint, raised.value.position))
    assert found[0] == found[1] == found[2]
    assert found[0][2] is not None
