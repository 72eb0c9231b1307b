"""Casts of literals: what is sure, and what is left to DuckDB."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from tidemill.sql.casting import (
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NARROW,
    NULL,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    Cell,
    cast_cell,
    span_of,
    target_of,
)


def cast(cell: Cell, name: str) -> Cell | None:
    target = target_of(name)
    assert target is not None
    return cast_cell(cell, target)


@pytest.mark.parametrize(
    ("cell", "name", "value"),
    [
        ((INTEGER, 127), "TINYINT", 127),
        ((INTEGER, 128), "TINYINT", None),
        ((INTEGER, -(2**31)), "int", -(2**31)),
        ((TEXT, "-12"), "BIGINT", -12),
        ((TEXT, " 12 "), "BIGINT", None),
        ((TEXT, "١٢"), "BIGINT", None),
        ((DECIMAL, Decimal("3.00")), "INTEGER", 3),
        ((DECIMAL, Decimal("3.5")), "INTEGER", None),
        ((BOOLEAN, True), "INTEGER", None),
        ((INTEGER, 7), "DECIMAL(4,2)", Decimal("7.00")),
        ((INTEGER, 100), "DECIMAL(4,2)", None),
        ((DECIMAL, Decimal("1.005")), "DECIMAL(4,2)", None),
        ((TEXT, "1.5"), "NUMERIC", Decimal("1.500")),
        ((INTEGER, 2**53), "DOUBLE", 2.0**53),
        ((INTEGER, 2**53 + 1), "DOUBLE", None),
        ((DECIMAL, Decimal("0.3")), "DOUBLE", 0.3),
        ((DECIMAL, Decimal("0.12345678901234567890")), "DOUBLE", None),
        ((TEXT, "0.12345678901234567890"), "DOUBLE", 0.12345678901234567890),
        ((TEXT, "1e400"), "DOUBLE", None),
        ((TEXT, "nan"), "DOUBLE", None),
        ((INTEGER, 5), "TEXT", "5"),
        ((BOOLEAN, False), "VARCHAR", "false"),
        ((DOUBLE, 1.5), "VARCHAR", None),
        ((TEXT, "true"), "BOOL", True),
        ((TEXT, "yes"), "BOOL", None),
        ((TEXT, "2024-02-29"), "DATE", date(2024, 2, 29)),
        ((TEXT, "2024-02-29 01:00:00"), "DATE", None),
        ((TEXT, "2024-02-29 01:02:03"), "DATETIME", datetime(2024, 2, 29, 1, 2, 3)),
        ((TEXT, "2024-02-29 01:02:03+01"), "TIMESTAMP", None),
        ((TEXT, "2024-02-29 01:02:03+01"), "timestamptz", datetime(2024, 2, 29, 0, 2, 3, 0, UTC)),
        ((DATE, date(2024, 1, 2)), "TIMESTAMP", datetime(2024, 1, 2)),
        ((TIMESTAMP, datetime(2024, 1, 2)), "TIMESTAMPTZ", datetime(2024, 1, 2, tzinfo=UTC)),
        ((TIMESTAMP, datetime(2024, 1, 2)), "DATE", None),
        ((TEXT, "01:02:03.5"), "TIME", time(1, 2, 3, 500_000)),
        ((TEXT, "25:00:00"), "TIME", None),
        ((TEXT, "1 day"), "INTERVAL", (0, 1, 0)),
        ((TEXT, "12345678-9abc-def0-1234-56789abcdef0"), "UUID", ...),
        ((TEXT, "{12345678-9abc-def0-1234-56789abcdef0}"), "UUID", None),
        ((VARCHAR, "7"), "INTEGER", 7),
    ],
)
def test_values(cell: Cell, name: str, value: object) -> None:
    found = cast(cell, name)
    assert (None if found is None else found[1]) == (cell[1] if value is ... else value)


def test_a_null_takes_the_type_of_its_cast_but_a_decimal_has_a_scale() -> None:
    assert cast((NULL, None), "TINYINT") == (NARROW, None)
    assert cast((NULL, None), "BIGINT") == (INTEGER, None)
    assert cast((TEXT, None), "timestamp with time zone") == (TIMESTAMPTZ, None)
    assert cast((NULL, None), "DECIMAL(5,2)") is None


@pytest.mark.parametrize("name", ["HUGEINT", "FLOAT", "VARCHAR(3)", "DECIMAL(19,2)", "BLOB", "x"])
def test_types_that_are_left_to_duckdb(name: str) -> None:
    assert target_of(name) is None


@pytest.mark.parametrize(
    ("text", "unit", "span"),
    [
        ("1", "YEAR", (12, 0, 0)),
        ("-2", "weeks", (0, -14, 0)),
        ("3 hours 4 seconds", None, (0, 0, 10_804_000_000)),
        ("1.5", "DAY", None),
        ("1 day", "HOUR", None),
        ("1", None, None),
        ("01:00:00", None, None),
        ("999999999", "YEARS", None),
    ],
)
def test_spans(text: str, unit: str | None, span: object) -> None:
    assert span_of(text, unit) == span


def test_every_kind_has_a_name() -> None:
    kinds = {BOOLEAN, DATE, DOUBLE, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ, UUID, VARCHAR}
    assert {target.kind for kind in kinds if (target := target_of(kind))} == kinds
