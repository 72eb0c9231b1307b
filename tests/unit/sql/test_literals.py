"""Literals read from the text: kinds, values, signs and casts; and what is not read."""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings
from literal_texts import bases, literals

from tidemill.sql.casting import (
    BOOLEAN,
    DECIMAL,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NARROW,
    NULL,
    TEXT,
    TIMESTAMP,
)
from tidemill.sql.literals import LITERAL, read_cell


def read(text: str) -> tuple[str, object] | None:
    found = read_cell(f"{text},", 0)
    if found is None:
        return None
    cell, end, is_last = found
    assert (end, is_last) == (len(text) + 1, False)
    return cell


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("1", (INTEGER, 1)),
        ("- 7", (INTEGER, -7)),
        ("+7", (INTEGER, 7)),
        ("-1.50", (DECIMAL, Decimal("-1.50"))),
        ("-1.5e0", (DOUBLE, -1.5)),
        ("'it''s'", (TEXT, "it's")),
        ("' :: , ) '", (TEXT, " :: , ) ")),
        ("null", (NULL, None)),
        ("True", (BOOLEAN, True)),
        ("-5::TINYINT", (NARROW, -5)),
        ("'5' :: INT :: BIGINT", (INTEGER, 5)),
        ("CAST( -5::INT AS BIGINT )", (INTEGER, -5)),
        ("cast(cast('5' as INT) AS DOUBLE)::DOUBLE", (DOUBLE, 5.0)),
        ("TIMESTAMP'2024-01-01'", (TIMESTAMP, datetime(2024, 1, 1))),
        ("'2024-01-01'::DATE::TIMESTAMP", (TIMESTAMP, datetime(2024, 1, 1))),
        ("INTERVAL '3' DAYS", (INTERVAL, (0, 3, 0))),
        ("interval 2 hours", (INTERVAL, (0, 0, 7_200_000_000))),
    ],
)
def test_what_is_read(text: str, cell: object) -> None:
    assert read(text) == cell


@pytest.mark.parametrize(
    "text",
    [
        "1 + 1",
        "now()",
        "a",
        "'a' 'b'",
        "'a' || 'b'",
        "1_000",
        "0x1f",
        "1.2.3",
        "-'5'",
        "--5",
        "- -5",
        "-128::TINYINT",
        "CAST(1 AS INT",
        "1 AS INT)",
        "CAST(1)",
        "'1'::INT[]",
        "E'a'",
        "$$a$$",
        "x'00'",
        "NULL::DECIMAL(5,2)",
        "9223372036854775808",
        "1e400",
        "INTERVAL '1' DAY TO HOUR",
        "INTERVAL '1.5' DAY",
        "TIMESTAMP '2024-13-01'",
        "1 /* one */",
        "٣",
        "1" * 400,
        "DEFAULT",
        "?",
        "$1",
    ],
)
def test_what_is_left_to_the_general_path(text: str) -> None:
    assert read(text) is None


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=literals())
@example(text="-9223372036854775807")
@example(text="CAST(0.5 AS VARCHAR)")
@example(text="-0e0")
@example(text="-0.")
@example(text="CAST('-0.0' AS DECIMAL)")
@example(text="CAST(.1 AS VARCHAR)")
def test_what_is_sure_is_what_duckdb_reads(duck: duckdb.DuckDBPyConnection, text: str) -> None:
    cell = read(text)
    if cell is None:
        return
    kind, value = cell
    relation = duck.sql(f"SELECT {text} AS v")
    assert kind in _KINDS[str(relation.types[0]).partition("(")[0]], text
    found = relation.fetchall()[0][0]
    if kind == INTERVAL and value is not None:
        parts = "epoch_us(v - to_months(0)), v"
        assert duck.sql(f"SELECT {parts} FROM (SELECT {text} AS v)").fetchall()
        months, days, us = value  # type: ignore[misc]
        made = f"to_months({months}) + to_days({days}) + to_microseconds({us})"
        assert duck.sql(
            f"SELECT CAST(({text}) AS VARCHAR) = CAST({made} AS VARCHAR)"
        ).fetchall() == [(True,)]
        return
    assert str(found) == str(value), text
    assert (found is None) == (value is None)


_INTEGERS = {"TINYINT": {NARROW}, "SMALLINT": {NARROW}, "BIGINT": {INTEGER}}
_KINDS = {
    **_INTEGERS,
    '"NULL"': {NULL},
    "INTEGER": {INTEGER, NULL},
    "VARCHAR": {TEXT, "VARCHAR"},
    **{name: {name} for name in ("DECIMAL", "DOUBLE", "BOOLEAN", "DATE", "TIME", "INTERVAL")},
    **{name: {name} for name in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID")},
}


@settings(max_examples=200, deadline=None)
@given(text=bases)
def test_a_pattern_finds_what_is_read(text: str) -> None:
    """Lists are found by a pattern that knows no intervals and no plus."""
    cell = read(text)
    plain = cell is not None and cell[0] != INTERVAL and text[0] != "+" and "- " not in text[:2]
    if plain:
        assert re.fullmatch(LITERAL, text, re.ASCII | re.IGNORECASE), text
