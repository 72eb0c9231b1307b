"""Directories against brute force."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hot_kit import QUICK
from hypothesis import given
from hypothesis import strategies as st

from tidemill.hot import keys
from tidemill.hot.values import Range, build_hash, build_ordered, hash_key

INT64 = (-(2**63), 2**63 - 1)


def near(low: int, high: int) -> st.SearchStrategy[int]:
    """Few values, many of them at the limits, so that keys repeat."""
    edges = st.sampled_from([low, low + 1, high - 1, high, max(low, 0), max(low, 0) + 1])
    return edges | st.integers(low, high) | st.integers(max(low, -3), 3)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), near(-128, 127)),
    "int32": (pa.int32(), near(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), near(*INT64)),
    "uint16": (pa.uint16(), near(0, 2**16 - 1)),
    "uint64": (pa.uint64(), near(0, 2**64 - 1)),
    "double": (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, 1.0, math.inf, math.nan])),
    "float": (pa.float32(), st.floats(width=32)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), st.binary(max_size=2)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "decimal": (
        pa.decimal128(12, 3),
        st.decimals(-(10**8), 10**8, places=3, allow_nan=False) | st.just(Decimal("1.000")),
    ),
    "uuid": (pa.uuid(), st.uuids()),
}


def order_of(kind: pa.DataType) -> Callable[[Any], Any]:
    """A value as it compares: numbers as they are, NaN above everything, times as counts."""
    if pa.types.is_floating(kind):
        return lambda value: (math.isnan(value), 0.0 if math.isnan(value) else value)
    if pa.types.is_date(kind):
        return lambda value: (value - dt.date(1970, 1, 1)).days
    if pa.types.is_timestamp(kind):
        return lambda value: (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    if pa.types.is_time(kind):
        return lambda value: (
            (value.hour * 3600 + value.minute * 60 + value.second) * 10**6 + value.microsecond
        )
    if kind == pa.uuid():
        return lambda value: value.bytes
    return lambda value: value


def inside(key: Any, bounds: Range, wrap: Callable[[Any], Any]) -> bool:
    if bounds.low is not None:
        low = wrap(bounds.low)
        if key < low or (key == low and not bounds.low_included):
            return False
    if bounds.high is not None:
        high = wrap(bounds.high)
        if key > high or (key == high and not bounds.high_included):
            return False
    return True


@pytest.mark.parametrize("name", KINDS)
def test_ordered_directories(name: str) -> None:
    kind, values = KINDS[name]
    order = order_of(kind)
    is_float = pa.types.is_floating(kind)
    constants = values.filter(lambda value: not (is_float and math.isnan(value)))
    if pa.types.is_integer(kind):
        constants = constants | st.sampled_from([-(2**80), -(2**63) - 1, -1, 2**64, 2**80])

    def key_of(value: Any) -> Any:
        return value if is_float or pa.types.is_integer(kind) else order(value)

    def wrap(key: Any) -> Any:
        return (False, key) if is_float else key

    @QUICK
    @given(
        st.lists(st.none() | values, max_size=40),
        st.none() | constants,
        st.none() | constants,
        st.booleans(),
        st.booleans(),
        st.integers(0, 3),
    )
    def check(
        held: list[Any], low: Any, high: Any, low_in: bool, high_in: bool, skipped: int
    ) -> None:
        column = pa.array(held, kind).slice(skipped)
        held = held[skipped:]
        directory = build_ordered(column)
        bounds = Range(
            None if low is None else key_of(low),
            low_in,
            None if high is None else key_of(high),
            high_in,
        )
        keyed = [(row, order(value)) for row, value in enumerate(held) if value is not None]
        found = directory.between(bounds).tolist()
        assert sorted(found) == [row for row, key in keyed if inside(key, bounds, wrap)]
        by_row = dict(keyed)
        assert [by_row[row] for row in found] == sorted(by_row[row] for row in found)
        if low is not None:
            equal = directory.equal(key_of(low)).tolist()
            assert equal == [row for row, key in keyed if key == wrap(key_of(low))]
        assert directory.nbytes >= directory.rows.nbytes

    check()


@pytest.mark.parametrize("name", KINDS)
def test_hash_directories_of_two_columns(name: str) -> None:
    kind, values = KINDS[name]
    order = order_of(kind)

    @QUICK
    @given(st.lists(st.tuples(st.none() | values, st.none() | TEXTS), min_size=1, max_size=30))
    def check(held: list[tuple[Any, str | None]]) -> None:
        first = pa.array([row[0] for row in held], kind)
        second = pa.array([row[1] for row in held], pa.string())
        directory = build_hash([first, second])
        for value, text in held:
            if value is None or text is None:
                continue
            stored = keys.storage(pa.array([value], kind))[0].as_py()
            if pa.types.is_floating(kind) and math.isnan(stored):
                continue
            number = hash_key([kind, pa.string()], [stored, text])
            assert number is not None
            same = [
                row
                for row, (v, t) in enumerate(held)
                if v is not None and t == text and order(v) == order(value)
            ]
            assert directory.equal(number).tolist() == same

    check()


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("name", KINDS)
def test_nothing_but_nulls(name: str, count: int) -> None:
    column = pa.nulls(count, KINDS[name][0])
    for directory in (build_ordered(column), build_hash([column]), build_hash([column, column])):
        assert len(directory.rows) == 0
        assert directory.between(Range()).tolist() == []


def test_a_value_that_no_row_can_have_has_no_hash() -> None:
    assert hash_key([pa.int8()], [300]) is None
    assert hash_key([pa.uint64()], [-1]) is None
    assert hash_key([pa.int64()], [2**70]) is None
    assert hash_key([pa.decimal128(10, 2)], [Decimal("1.234")]) is None
    assert hash_key([pa.decimal128(10, 2)], [Decimal(10**30)]) is None
    assert hash_key([pa.bool_()], [1]) == hash_key([pa.bool_()], [True])


def test_wide_ranges_are_sorted_too() -> None:
    """Values too far apart to be packed with their row numbers."""
    held = [2**63 - 1, -(2**63), 0, 2**63 - 1, -1]
    directory = build_ordered(pa.array(held))
    assert directory.between(Range()).tolist() == [1, 4, 2, 0, 3]
    assert directory.equal(2**63 - 1).tolist() == [0, 3]
    assert build_ordered(pa.array([2**64 - 1, 0, 2**63], pa.uint64())).rows.tolist() == [1, 2, 0]
