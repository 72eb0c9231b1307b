"""Ranges leave nothing out: a file that holds a value is never ruled out by it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from history_kit import QUICK, build
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.history.ranges import may_hold, range_of
from tidemill.types import SqlType

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "UBIGINT": st.integers(0, 2**64 - 1) | st.integers(0, 3),
    "BOOLEAN": st.booleans(),
    "DOUBLE": st.floats(),
    "FLOAT": st.floats(width=32),
    "VARCHAR": st.text(max_size=3) | st.sampled_from(["z" * 64, "z" * 65, "z" * 200, "😀" * 65]),
    "BLOB": st.binary(max_size=3) | st.sampled_from([b"\xff" * 32, b"\xff" * 33]),
    "DECIMAL(20,2)": st.decimals(-99, 99, places=2),
    "UUID": st.binary(min_size=16, max_size=16),
    "TIMESTAMP": st.integers(-(2**62), 2**62),
    "DATE": st.integers(-9, 9),
    "TIME": st.integers(0, 86_400_000_000),
}


def is_in(value: Any, interval: tuple[Any, bool, Any, bool]) -> bool:
    """As SQL sees it: NULL is nowhere, NaN is above everything."""
    low, low_included, high, high_included = interval
    if value is None:
        return False
    if value != value:
        return high is None
    above = low is None or value > low or (low_included and value == low)
    below = high is None or value < high or (high_included and value == high)
    return above and below


@QUICK
@given(st.sampled_from(sorted(VALUES)), st.data())
def test_a_file_that_holds_a_value_is_kept(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=5))
    ends = st.none() | VALUES[kind].filter(lambda v: v == v)
    intervals = data.draw(
        st.lists(st.tuples(ends, st.booleans(), ends, st.booleans()), min_size=1, max_size=3)
    )
    found = range_of(build(SqlType.parse(kind).arrow, values))
    assert found is not None
    kept = tuple(json.loads(json.dumps(found, allow_nan=False)))  # as the catalog keeps it
    if any(is_in(value, interval) for value in values for interval in intervals):
        assert may_hold(kept, intervals)


@pytest.mark.parametrize(
    ("kind", "values", "interval"),
    [
        ("BIGINT", [5, 9], (10, True, None, True)),
        ("BIGINT", [5, 9], (9, False, None, True)),
        ("BIGINT", [5, 9], (None, True, Decimal("4.9"), True)),
        ("UBIGINT", [2**64 - 1], (None, True, 2**63, True)),
        ("VARCHAR", ["b", "c"], ("a", True, "a", True)),
        ("VARCHAR", ["b", "z" * 100], (None, True, "a", True)),
        ("DECIMAL(20,2)", [Decimal("9.50")], (Decimal("10"), True, None, True)),
        ("BLOB", [b"b"], (b"c", True, b"c", True)),
        ("DOUBLE", [1.5, float("nan")], (None, True, 1.0, True)),
        ("DATE", [3], (4, True, 8, True)),
        ("BIGINT", [None], (None, True, None, True)),
    ],
)
def test_a_file_that_holds_none_is_not(kind: str, values: list[Any], interval: Any) -> None:
    found = range_of(build(SqlType.parse(kind).arrow, values))
    assert found is not None
    assert not may_hold(found, [interval])


@example(5)
@example(b"x")
@example(Decimal("NaN"))
@given(st.none() | st.text() | st.integers() | st.binary())
@QUICK
def test_values_of_another_type_rule_nothing_out(value: Any) -> None:
    for found in (("a", "b"), ("1.5", "2.5", "decimal"), ("00", "ff", "hex"), (1, 2)):
        same = isinstance(value, str) == (len(found) == 2 and isinstance(found[0], str))
        if not same or isinstance(value, bytes):
            kinds = {"decimal": int | Decimal, "hex": bytes}
            own = kinds.get(str(found[2]), str) if len(found) > 2 else type(found[0])
            if not isinstance(value, own):
                assert may_hold(found, [(value, True, value, True)])


def test_types_without_a_range() -> None:
    for kind in ("INTERVAL", "JSON", "INTEGER[]", "HUGEINT"):
        some = {"JSON": "1", "INTEGER[]": [1], "HUGEINT": 1}.get(kind, pa.MonthDayNano((1, 1, 1)))
        assert range_of(build(SqlType.parse(kind).arrow, [some])) is None
