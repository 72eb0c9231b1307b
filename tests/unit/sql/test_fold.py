"""Constant folding agrees with DuckDB, or says nothing."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from support import body, duck

from tidemill.clock import from_us, to_us
from tidemill.sql.fold import NOT_CONSTANT, comparable, constant
from tidemill.types import SqlType

NOW = datetime(2024, 3, 31, 10, 20, 30, 123456)

SURE = [
    "1",
    "-1",
    "- -1",
    "1.50",
    "1e3",
    "'a''b'",
    "true",
    "NULL",
    "(1 + 2) * 3 - 4",
    "1.5 + 1",
    "DATE '2024-02-28'",
    "DATE '2024-02-28' + 2",
    "TIMESTAMP '2024-02-28 01:02:03.5'",
    "TIMESTAMPTZ '2024-02-28 01:02:03+02:30'",
    "'2024-01-01'::TIMESTAMP",
    "CAST('2024-01-01 10:00' AS TIMESTAMP) - INTERVAL '90' MINUTE",
    "TIMESTAMP '2024-03-31' - INTERVAL '1' MONTH",
    "TIMESTAMP '2024-02-29' + INTERVAL '1 year 2 hours'",
    "INTERVAL '2' HOUR + TIMESTAMP '2024-03-31'",
    "DATE '2024-03-31' - INTERVAL '1 day'",
    "TIMESTAMP '2024-03-31' - TIMESTAMP '2024-03-30 23:00'",
    "INTERVAL '1' DAY",
    "INTERVAL '1 hour 30 minutes'",
    "INTERVAL '01:30:00'",
    "to_minutes(5)",
    "INTERVAL '5' SECOND * 3",
    "-INTERVAL '5' SECOND",
    "'7'::INT",
    "7::BIGINT",
    "7::DECIMAL(5, 2)",
    "7::DOUBLE",
    "TRY_CAST('7' AS INT)",
    "date_trunc('hour', TIMESTAMP '2024-03-31 10:20:30')",
    "date_trunc('week', TIMESTAMP '2024-03-31 10:20:30')",
    "date_trunc('month', TIMESTAMP '2024-03-31 10:20:30')",
    "'00000000-0000-0000-0000-00000000000a'::UUID",
]


@pytest.mark.parametrize("text", SURE)
def test_agrees_with_duckdb(text: str) -> None:
    folded = constant(body(f"SELECT {text}").expressions[0])
    assert folded is not NOT_CONSTANT
    with duck() as connection:
        answer = connection.execute(f"SELECT {text}").fetchone()
    assert answer is not None
    if isinstance(folded, datetime) and folded.tzinfo is not None:
        assert to_us(folded) == to_us(answer[0])
    else:
        assert folded == answer[0]


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "random()",
        "1 / 3",
        "'x'::INT",
        "300::TINYINT",
        "1.55::DECIMAL(5, 1)",
        "TIMESTAMP '2024-01-01 00:00:00+02'",
        "INTERVAL '1.5' HOUR",
        "INTERVAL '1' MONTH",
        "(SELECT 1)",
        "now()",
        "$1",
        "TIMESTAMP '9999-12-31' + INTERVAL '9999' DAY",
        "99999999999999999999999999999999999999 * 10.5",
        "'1'::BLOB",
    ],
)
def test_says_nothing(text: str) -> None:
    assert constant(body(f"SELECT {text}").expressions[0]) is NOT_CONSTANT


def test_now_and_parameters() -> None:
    now_us = to_us(NOW)

    def value(text: str, params: object = None) -> object:
        return constant(body(f"SELECT {text}").expressions[0], params, now_us)  # type: ignore[arg-type]

    assert value("now()") == NOW.replace(tzinfo=UTC)
    assert value("current_timestamp - INTERVAL '1' HOUR") == NOW.replace(tzinfo=UTC, hour=9)
    assert value("current_date") == date(2024, 3, 31)
    assert value("localtimestamp") == from_us(now_us)
    assert value("date_trunc('minute', now())") == datetime(2024, 3, 31, 10, 20, tzinfo=UTC)
    assert value("$1 + 1", [2]) == 3
    assert value(":at - :back", {"at": NOW, "back": timedelta(hours=1)}) == NOW - timedelta(hours=1)
    assert value("$1", [object()]) is NOT_CONSTANT


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ("2024-01-01", "TIMESTAMP", datetime(2024, 1, 1)),
        (date(2024, 1, 1), "TIMESTAMP", datetime(2024, 1, 1)),
        (datetime(2024, 1, 1, tzinfo=UTC), "TIMESTAMP", datetime(2024, 1, 1)),
        ("2024-01-01 02:00+02", "TIMESTAMPTZ", datetime(2024, 1, 1, tzinfo=UTC)),
        ("now-ish", "TIMESTAMP", NOT_CONSTANT),
        ("7", "BIGINT", 7),
        (Decimal("7.0"), "BIGINT", 7),
        (Decimal("7.5"), "BIGINT", Decimal("7.5")),
        (7.5, "BIGINT", NOT_CONSTANT),
        (True, "BIGINT", NOT_CONSTANT),
        (7, "VARCHAR", NOT_CONSTANT),
        ("x", "VARCHAR", "x"),
        (7, "DOUBLE", 7.0),
        (2**60, "DOUBLE", NOT_CONSTANT),
        ("2024-01-01", "DATE", date(2024, 1, 1)),
        (datetime(2024, 1, 1), "DATE", NOT_CONSTANT),
        ("00000000-0000-0000-0000-00000000000a", "UUID", UUID(int=10)),
        (None, "BIGINT", None),
        (1, "INTEGER[]", NOT_CONSTANT),
    ],
)
def test_comparable(value: object, type_: str, expected: object) -> None:
    assert comparable(value, SqlType.parse(type_)) == expected
