"""Queries for the elements of lists: they compare as the literals do."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pytest

from tidemill.sql.fold import NOT_CONSTANT
from tidemill.sql.list_queries import list_query
from tidemill.types import SqlType


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("TINYINT", [1, -1, 300]),
        ("BIGINT", [2**63 - 1, -(2**63) + 1]),
        ("UBIGINT", [0, 1, -5]),
        ("HUGEINT", [5, 6]),
        ("VARCHAR", ["a", "", "it's", "a, b]", "é😀", " x "]),
        ("VARCHAR", ["\x1f", "a"]),
        ("DATE", [date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)]),
        ("DATE", ["2024-02-29", "1970-01-01"]),
        ("TIMESTAMP", [datetime(2024, 1, 2, 3, 4, 5, 678_900), datetime(1, 1, 1)]),
        ("TIMESTAMP", ["2024-01-02 03:04:05", "2024-01-02"]),
        ("TIMESTAMP WITH TIME ZONE", [datetime(2024, 1, 2, tzinfo=UTC)]),
        ("DOUBLE", [0.1, -0.0, 1e300, 5e-324]),
        ("DOUBLE", [1, 2**53]),
        ("DOUBLE", [Decimal("0.1"), Decimal("-12345.678")]),
        ("DECIMAL(18,2)", [Decimal("1.50"), Decimal("-0.005"), Decimal("7")]),
        ("DECIMAL(18,2)", [1, -2]),
    ],
)
def test_elements(duck: duckdb.DuckDBPyConnection, kind: str, values: list[object]) -> None:
    query = list_query(values, SqlType(kind))
    assert query is not None
    assert len(duck.sql(query).fetchall()) == len(values)
    for value in values:
        text = _sql(value, kind)
        asked = f"SELECT {text} IN ({query}), {text} NOT IN ({query}), NULL IN ({query})"
        assert duck.sql(asked).fetchall() == [(True, False, None)], text


def _sql(value: object, kind: str) -> str:
    text = str(value).replace("'", "''")
    wide = {"TINYINT": "INTEGER", "UBIGINT": "HUGEINT", "DECIMAL(18,2)": "DECIMAL(30,10)"}
    return f"CAST('{text}' AS {wide.get(kind, kind)})"


def test_null_among_the_values(duck: duckdb.DuckDBPyConnection) -> None:
    query = list_query([1, None, 2], SqlType("INTEGER"))
    assert duck.sql(f"SELECT 1 IN ({query}), 3 IN ({query}), 3 NOT IN ({query})").fetchall() == [
        (True, None, None)
    ]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("INTEGER", ["1", "2"]),
        ("INTEGER", [Decimal("1.5")]),
        ("INTEGER", [1, 2**63]),
        ("INTEGER", [True, False]),
        ("INTEGER", [1, "2"]),
        ("INTEGER", [1, NOT_CONSTANT]),
        ("INTEGER", [None, None]),
        ("VARCHAR", [1]),
        ("VARCHAR", ["\x1f\x1e\x1d\x01"]),
        ("FLOAT", [1.5]),
        ("DOUBLE", [Decimal("0.12345678901234567890")]),
        ("DOUBLE", [2**53 + 1]),
        ("DATE", [datetime(2024, 1, 1)]),
        ("DATE", ["no date"]),
        ("TIMESTAMP", ["2024-01-01 00:00:00+02"]),
        ("BOOLEAN", [True]),
        ("UUID", ["12345678-9abc-def0-1234-56789abcdef0"]),
        ("DECIMAL(38,2)", [Decimal("0.001")]),
    ],
)
def test_no_query(kind: str, values: list[object]) -> None:
    assert list_query(values, SqlType(kind)) is None
