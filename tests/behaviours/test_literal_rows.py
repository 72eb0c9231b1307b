"""INSERT of literals: the short way stores what the general one does, and refuses what it refuses.

Three ways take the same statement: the short one, the general one, and the general one in which
every row that has no common type with the others is a query of its own. Rows, rows set aside,
messages and their places must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from literal_texts import literals
from warehouses import open_inline, quiet

from tidemill.engine import Database
from tidemill.errors import TidemillError

WAYS = ("short", "general", "alone")
TYPES = {
    "i": "INTEGER",
    "t": "TINYINT",
    "l": "BIGINT",
    "h": "HUGEINT",
    "x": "DOUBLE",
    "f": "FLOAT",
    "n": "DECIMAL(12,4)",
    "s": "VARCHAR",
    "b": "BOOLEAN",
    "d": "DATE",
    "m": "TIMESTAMP",
    "z": "TIMESTAMPTZ",
    "c": "TIME",
    "v": "INTERVAL",
    "u": "UUID",
    "j": "JSON",
    "a": "INTEGER[]",
}
FITTING = {
    "i": ("7", "-7::INT", "'12'", "3.00", "CAST('5' AS BIGINT)"),
    "x": ("0.1", "12345678901234567.89", "1e-3", "'0.3'::DOUBLE", "7", "0.12345678901234567890"),
    "n": ("1.5", "2", "'3.25'::DECIMAL(10,2)", "1e0", "NULL"),
    "s": ("'it''s é😀'", "1.50", "2::TINYINT", "true", "DATE '2024-01-02'", "'1' "),
    "m": ("'2024-01-02'", "'2024-01-02 03:04:05'::TIMESTAMP", "DATE '2024-01-02'", "NULL"),
    "z": ("'2024-01-02 03:00:00+02'", "'2024-01-02 03:00:00+02'::TIMESTAMPTZ"),
    "v": ("INTERVAL '1' DAY", "INTERVAL 90 MINUTES", "'2 months'", "'1 day'::INTERVAL"),
    "u": ("'12345678-9abc-def0-1234-56789abcdef0'", "NULL::UUID"),
}


@some.composite
def statements(draw: some.DrawFn) -> tuple[str, ...]:
    """The names of columns, then rows of values for them."""
    names = draw(some.lists(some.sampled_from(sorted(TYPES)), min_size=1, max_size=4, unique=True))
    count = draw(some.integers(1, 4))
    rows = []
    for _ in range(count):
        values = [
            draw(
                some.one_of(some.sampled_from(FITTING[name]), literals())
                if name in FITTING
                else literals()
            )
            for name in names
        ]
        rows.append(f"({', '.join(values)})")
    return ", ".join(names), *rows


@contextmanager
def way(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if name != "short":
            patch.setattr("tidemill.sql.inserts.read_literal_rows", lambda text, at: None)
        if name == "alone":
            patch.setattr("tidemill.statements.row_values.VALUES_MAX", 1)
        yield


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Database]]:
    path: Path = tmp_path_factory.mktemp("literals")
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    with quiet():
        opened = {name: open_inline(path / name) for name in WAYS}
        for db in opened.values():
            head = (
                f"(ts TIMESTAMP DEFAULT TIMESTAMP '2024-01-01', {columns}, WATERMARK FOR ts AS ts)"
            )
            db.sql(f"CREATE STREAMING TABLE strict {head}")
            db.sql(f"CREATE STREAMING TABLE divert {head} WITH (rejected = 'divert')")
            db.sql(f"CREATE TABLE refers ({columns})")
        yield opened
        for db in opened.values():
            db.close()


def outcome(db: Database, text: str) -> tuple[Any, ...]:
    try:
        return (db.sql(text).message,)
    except TidemillError as error:
        return type(error), error.message, error.detail, error.hint, error.position


def contents(db: Database) -> list[list[tuple[Any, ...]]]:
    columns = ", ".join(f"CAST({name} AS VARCHAR)" for name in TYPES)
    queries = [
        f"SELECT {columns} FROM strict ORDER BY _seq DESC LIMIT 5",
        f"SELECT {columns} FROM divert ORDER BY _seq DESC LIMIT 5",
        'SELECT _row, _reason FROM "divert$rejected"',
        f"SELECT {columns} FROM refers",
    ]
    return [db.sql(query).fetchall()[-5:] for query in queries]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(statement=statements(), table=some.sampled_from(["strict", "divert", "refers"]))
@example(statement=("i", "(1)", "('x'::INT)"), table="divert")
@example(statement=("s", "('a')", "(1)", "(1.50)", "(true)"), table="strict")
@example(statement=("x", "('1e400')", "(1)"), table="divert")
@example(statement=("t, s", "(1, 'a')", "(300, 2)", "('x', 3)"), table="divert")
@example(statement=("t, s", "(1, 'a')", "(300, 2)", "(1::TINYINT, 3::TINYINT)"), table="strict")
@example(statement=("i, x", "(1, 2)", "(1)"), table="strict")
@example(statement=("i", "(1::INT, 2)"), table="strict")
@example(statement=("m", "(TIMESTAMP '2024-01-01')", "('2024-01-01 25:00:00')"), table="refers")
def test_three_ways_agree(
    databases: dict[str, Database], statement: tuple[str, ...], table: str
) -> None:
    names, *rows = statement
    text = f"INSERT INTO {table} ({names})\n VALUES {', '.join(rows)}"
    found = {}
    for name, db in databases.items():
        with way(name):
            found[name] = [outcome(db, text), *contents(db)]
    assert found["short"] == found["general"], text
    assert found["general"] == found["alone"], text


@pytest.mark.parametrize(
    "value",
    [
        "0.1",
        "0.3",
        "123456.789",
        "9007199254740993.0",
        "0.12345678901234567890",
        "-12345678901234567890.123456789",
        "4.35",
    ],
)
def test_a_decimal_becomes_the_nearest_double(databases: dict[str, Database], value: str) -> None:
    nearest = float(value)
    for name, db in databases.items():
        with way(name):
            db.sql(f"INSERT INTO strict (x, v) VALUES ({value}, INTERVAL '1' DAY)")
        found = db.sql("SELECT x FROM strict ORDER BY _seq DESC LIMIT 1").fetchall()
        assert found == [(nearest,)], name


def test_the_short_way_is_taken(databases: dict[str, Database]) -> None:
    """Or the comparison would say nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.sql.inserts.parse_body", _refuse)
        db = databases["short"]
        for rows in (
            "('1'::INT, INTERVAL '1' DAY)",
            "('a', NULL::INTERVAL), (1, INTERVAL '1' DAY)",
        ):
            assert db.sql(f"INSERT INTO strict (s, v) VALUES {rows}").message.startswith("INSERT")


def _refuse(*_: object) -> None:
    raise AssertionError("the general path was taken")


def test_parameters_and_defaults_beside_casts(databases: dict[str, Database]) -> None:
    db = databases["short"]
    db.sql("INSERT INTO strict (i, x) VALUES (?, '0.5'::DOUBLE)", [5])
    with pytest.raises(TidemillError, match="1 parameter value"):
        db.sql("INSERT INTO strict (i, x) VALUES (1, '0.5'::DOUBLE)", [5])
    with pytest.raises(TidemillError, match="DEFAULT cannot stand beside"):
        db.sql("INSERT INTO strict (i, x) VALUES (DEFAULT, '0.5'::DOUBLE)")


def test_a_reference_table_with_a_tail(tmp_path: Path) -> None:
    with open_inline(tmp_path / "w") as db:
        db.sql("CREATE TABLE r (k INTEGER PRIMARY KEY, v INTERVAL)")
        insert = "INSERT INTO r VALUES (1, INTERVAL '1' DAY), (2::INT, NULL)"
        assert db.sql(f"{insert} RETURNING k").fetchall() == [(1,), (2,)]
        assert db.sql(f"{insert} ON CONFLICT DO NOTHING").message == "INSERT 0"
        with pytest.raises(TidemillError, match="uplicate key"):
            db.sql(insert)


def test_many_rows_are_stored_in_their_order(databases: dict[str, Database]) -> None:
    rows = [f"({at}::BIGINT, {at}.5, 'text {at}')" for at in range(3_000)]
    mixed = [f"({at}, 'x{at}', now())" if at % 3 else f"('{at}', {at}, NULL)" for at in range(300)]
    plain = duckdb.connect(":memory:")
    plain.execute("CREATE TABLE t (l BIGINT, x DOUBLE, s VARCHAR)")
    plain.execute(f"INSERT INTO t VALUES {', '.join(rows)}")
    for name, db in databases.items():
        with way(name):
            db.sql(f"INSERT INTO strict (l, x, s) VALUES {', '.join(rows)}")
            found = db.sql("SELECT l, x, s FROM strict ORDER BY _seq DESC LIMIT 3000").fetchall()
            assert found[::-1] == plain.sql("FROM t").fetchall()
            db.sql(f"INSERT INTO strict (l, s, z) VALUES {', '.join(mixed)}")
            found = db.sql("SELECT l, s FROM strict ORDER BY _seq DESC LIMIT 300").fetchall()
            wanted = [(at, f"x{at}" if at % 3 else str(at)) for at in range(300)]
            assert found[::-1] == wanted
