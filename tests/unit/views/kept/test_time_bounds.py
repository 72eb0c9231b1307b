"""How far apart rows of two streams may lie, by what a join says."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from tidemill.views.kept.time_bounds import TimeBounds, time_bounds

HOUR_US = 3_600_000_000
MONTH_US = 31 * 24 * HOUR_US


def of(*conditions: str) -> TimeBounds:
    def time(alias: str) -> object:
        return lambda node: isinstance(node, exp.Column) and node.sql() == f"{alias}.ts"

    parsed = [parse_one(text, dialect="duckdb") for text in conditions]
    return time_bounds(parsed, time("side"), time("row"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("side.ts <= row.ts", TimeBounds(None, 0)),
        ("side.ts < row.ts", TimeBounds(None, 0, is_open=True)),
        ("row.ts > side.ts", TimeBounds(None, 0, is_open=True)),
        ("side.ts = row.ts", TimeBounds(0, 0)),
        ("side.ts >= row.ts - INTERVAL '1' HOUR", TimeBounds(-HOUR_US)),
        ("side.ts <= row.ts + INTERVAL '2' HOUR", TimeBounds(None, 2 * HOUR_US)),
        ("side.ts - INTERVAL '2' HOUR <= row.ts", TimeBounds(None, 2 * HOUR_US)),
        ("side.ts - row.ts <= INTERVAL '2' HOUR", TimeBounds(None, 2 * HOUR_US)),
        ("row.ts - side.ts < INTERVAL '1' HOUR", TimeBounds(-HOUR_US)),
        (
            "side.ts BETWEEN row.ts - INTERVAL '1' HOUR AND row.ts + INTERVAL '2' HOUR",
            TimeBounds(-HOUR_US, 2 * HOUR_US),
        ),
        ("(side.ts) <= (row.ts + INTERVAL '1' HOUR)", TimeBounds(None, HOUR_US)),
    ],
)
def test_comparisons_of_the_two_times(condition: str, expected: TimeBounds) -> None:
    assert of(condition) == expected


def test_a_month_is_as_long_as_months_get() -> None:
    assert of("side.ts <= row.ts + INTERVAL '1' MONTH").high_us == MONTH_US
    assert of("side.ts >= row.ts - INTERVAL '1' MONTH").low_us == -MONTH_US
    assert of("side.ts <= row.ts - INTERVAL '1' MONTH").high_us == 0


@pytest.mark.parametrize(
    "condition",
    [
        "side.k = row.k",
        "side.ts <> row.ts",
        "side.ts <= row.ts + row.span",
        "side.ts + row.ts <= INTERVAL '1' HOUR",
        "side.ts <= side.ts",
        "side.ts <= TIMESTAMP '2024-01-01'",
        "side.ts <= row.ts OR side.k = 1",
        "side.ts <= row.ts + row.ts",
    ],
)
def test_what_says_nothing_of_their_distance(condition: str) -> None:
    found = of(condition)
    assert (found.low_us, found.high_us) == (None, None)
    times = {part for part in ("side.ts", "row.ts") if part in condition}
    assert found.is_unclear == (len(times) == 2), "told if the condition has both times"


def test_all_conditions_together_and_the_narrowest_counts() -> None:
    both = of("side.ts >= row.ts - INTERVAL '2' HOUR", "side.ts > row.ts - INTERVAL '1' HOUR")
    assert both.low_us == -HOUR_US
    assert of("side.ts <= row.ts", "side.ts < row.ts") == TimeBounds(None, 0, is_open=True)
    assert of("side.ts < row.ts + INTERVAL '1' HOUR", "side.ts <= row.ts") == TimeBounds(None, 0)
