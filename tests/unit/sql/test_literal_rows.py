"""Rows of literals: one type a column where DuckDB has one, and row by row where it refuses."""

from __future__ import annotations

import itertools

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from literal_texts import literals

from tidemill.accept.literals import array_of
from tidemill.sql.literal_rows import LiteralRows, read_literal_rows

KINDS = {
    "INTEGER": "1",
    "TINYINT": "1::TINYINT",
    "DECIMAL": "1.5",
    "DOUBLE": "1e0",
    "TEXT": "'1'",
    "VARCHAR": "'1'::VARCHAR",
    "BOOLEAN": "true",
    "DATE": "DATE '2024-01-02'",
    "TIMESTAMP": "TIMESTAMP '2024-01-02'",
    "TIMESTAMPTZ": "TIMESTAMPTZ '2024-01-02 00:00:00+00'",
    "TIME": "TIME '00:00:01'",
    "INTERVAL": "INTERVAL '1' DAY",
    "UUID": "'00000000-0000-0000-0000-000000000001'::UUID",
    "NULL": "NULL",
    "NULL TIME": "NULL::TIME",
}


def rows_of(*rows: str) -> LiteralRows | None:
    text = ", ".join(f"({row})" for row in rows)
    found = read_literal_rows(f" {text} ;", 0)
    if found is None:
        return None
    assert found[1] == len(text) + 1
    return found[0]


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def check(duck: duckdb.DuckDBPyConnection, column: list[str]) -> LiteralRows | None:
    """Compare a column with what DuckDB makes of it, if it is sure."""
    found = rows_of(*column)
    if found is None:
        return None
    (cells,) = found.columns
    values = "VALUES " + ", ".join(f"({text})" for text in column)
    if found.is_by_row:
        with pytest.raises(duckdb.Error):
            duck.sql(values).fetchall()
        for text, cell in zip(column, cells, strict=True):
            assert_same(duck, f"VALUES ({text})", [cell])
    else:
        assert_same(duck, values, list(cells))
    return found


def assert_same(duck: duckdb.DuckDBPyConnection, sql: str, cells: list[tuple[str, object]]) -> None:
    wanted, found = duck.sql(sql).to_arrow_table().column(0).combine_chunks(), array_of(cells)
    kinds = [
        str(array.type).partition("(")[0].removesuffix("32").removesuffix("64")
        for array in (wanted, found)
    ]
    is_same = kinds[0] == kinds[1] or {*kinds} <= {"int8", "int16", "int"} or found.type == "null"
    assert is_same or wanted.null_count == len(wanted), (sql, kinds)
    assert list(map(repr, found.to_pylist())) == list(map(repr, wanted.to_pylist())), sql


@pytest.mark.parametrize("pair", list(itertools.permutations(KINDS, 2)))
def test_every_pair_of_kinds(duck: duckdb.DuckDBPyConnection, pair: tuple[str, str]) -> None:
    check(duck, [KINDS[name] for name in pair])


@pytest.mark.parametrize(
    "three", list(itertools.permutations(["INTEGER", "DECIMAL", "TEXT", "NULL", "VARCHAR"], 3))
)
def test_three_kinds(duck: duckdb.DuckDBPyConnection, three: tuple[str, ...]) -> None:
    check(duck, [KINDS[name] for name in three])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(column=some.lists(literals(), min_size=1, max_size=5))
def test_a_column(duck: duckdb.DuckDBPyConnection, column: list[str]) -> None:
    check(duck, column)


@pytest.mark.parametrize(
    ("column", "is_by_row"),
    [
        (["1", "2.5", "NULL"], False),
        (["1", "2.5", "1e0"], False),
        (["'a'", "'b'::VARCHAR"], False),
        (["DATE '2024-01-01'", "TIMESTAMP '2024-01-01 01:00:00'"], False),
        (["TIMESTAMP '2024-01-01'", "'2024-01-02 03:00:00'"], False),
        (["'2024-01-02 03:00:00'", "TIMESTAMP '2024-01-01'"], True),
        (["1", "DATE '2024-01-01'"], True),
        (["'1'::VARCHAR", "1"], True),
        (["1", "'2'", "3000000000"], False),
        (["1", "true", "2::TINYINT"], False),
        (["12.5", "'3.1'", "NULL"], False),
        (["TIMESTAMP '2024-01-01'", "DATE '2024-01-02'", "TIMESTAMPTZ '2024-01-03'"], False),
        (["INTERVAL '1' DAY", "'2 hours'"], False),
    ],
)
def test_what_is_sure(duck: duckdb.DuckDBPyConnection, column: list[str], is_by_row: bool) -> None:
    found = check(duck, column)
    assert found is not None
    assert found.is_by_row == is_by_row


@pytest.mark.parametrize(
    "rows",
    [
        ["1, 2", "3"],
        ["1", "'x'"],
        ["1", "'3000000000'"],
        ["1::TINYINT", "'300'"],
        ["1", "true", "1.5"],
        ["1.5", "'22.5'"],
        [".5", "'0.5'"],
        ["1", "now()"],
        ["9007199254740993", "1e0"],
        ["12345678901234567890.5", "0.12345678901234567890"],
        ["'\ud800'::VARCHAR"],
        [""],
    ],
)
def test_what_is_left_to_the_general_path(rows: list[str]) -> None:
    assert rows_of(*rows) is None


def test_one_column_that_is_refused_leaves_all_as_they_are() -> None:
    """Also one of which it is not sure whether DuckDB has a type for it."""
    found = rows_of("1, 'a', 1", "2.5, 1, 'x'")
    assert found is not None
    assert found.is_by_row
    assert [kind for kind, _ in found.columns[0]] == ["INTEGER", "DECIMAL"]
    assert [kind for kind, _ in found.columns[2]] == ["INTEGER", "TEXT"]
