"""A decimal becomes the nearest number, whatever its scale and however it comes in."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from accept_kit import QUICK, connection, make_column, make_table, stored
from hypothesis import given
from hypothesis import strategies as st

from tidemill.accept.cast import Caster
from tidemill.accept.nearest import nearest, nearest_within

D = Decimal
EXACT = Context(prec=80)  # the default one would round 38 digits to 28
DECIMALS = st.builds(
    lambda digits, scale: D(digits).scaleb(-scale, EXACT),
    st.one_of(st.integers(-(10**6), 10**6), st.integers(-(10**38) + 1, 10**38 - 1)),
    st.integers(0, 38),
)


def nearest_float32(value: Decimal) -> np.float32:
    """By exact comparison with the neighbours of a first guess."""
    with np.errstate(over="ignore"):
        guess = np.float32(float(value))
    candidates = [guess, np.nextafter(guess, np.float32(np.inf))]
    candidates.append(np.nextafter(guess, np.float32(-np.inf)))
    finite = [each for each in candidates if np.isfinite(each)]
    exact = Fraction(value)

    def distance(each: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(each)) - exact), int(each.view(np.uint32)) & 1

    return min(finite, key=distance)


def of_type(values: list[Decimal | None], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


@QUICK
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1), st.integers(-30, 38))
def test_any_digits_at_any_scale(digits: list[int], scale: int) -> None:
    whole = pa.array([D(each) for each in digits], pa.decimal128(38, 0))
    array = pa.Array.from_buffers(pa.decimal128(38, scale), len(whole), whole.buffers())
    values = [D(each).scaleb(-scale) for each in digits]
    assert nearest(array, pa.float64()).to_pylist() == [float(value) for value in values]
    if scale >= 0:
        got = nearest(array, pa.float32()).to_pylist()
        assert got == [float(nearest_float32(value)) for value in values]


@QUICK
@given(st.lists(st.one_of(st.none(), DECIMALS), min_size=1))
def test_whatever_type_the_decimals_have(values: list[Decimal | None]) -> None:
    wanted = [None if value is None else float(value) for value in values]
    short = [None if value is None else float(nearest_float32(value)) for value in values]
    array = pa.array(values, pa.decimal256(76, 38))
    assert nearest(array, pa.float64()).to_pylist() == wanted
    assert nearest(array, pa.float32()).to_pylist() == short
    assert nearest(array[1:], pa.float64()).to_pylist() == wanted[1:]


def test_a_real_is_rounded_once() -> None:
    # As a DOUBLE this lies in the middle of two REALs, but it is more than that.
    value = D("1.00000005960464477540000000000000001")
    array = pa.array([value, D("0.5"), None])
    assert float(np.float32(float(value))) == 1.0
    assert nearest(array, pa.float32()).to_pylist() == [1.0000001192092896, 0.5, None]
    middle = pa.array([D(2**24 + 1), D(2**24 + 3)])
    assert nearest(middle, pa.float32()).to_pylist() == [2.0**24, 2.0**24 + 4]


@pytest.mark.parametrize("kind", [pa.decimal32(8, 3), pa.decimal64(18, 3), pa.decimal256(40, 3)])
def test_short_and_long_decimal_types(kind: pa.DataType) -> None:
    values = [D(number) / 1000 for number in range(-500, 500)]
    array = pa.array(values, kind)
    assert nearest(array[3:], pa.float64()).to_pylist() == [float(value) for value in values[3:]]


def test_decimals_within_nested_values() -> None:
    row = {"a": [D("0.3"), None], "b": {"c": D("1.1")}}
    array = pa.array([row, None])
    target = make_column("v", "STRUCT(a DOUBLE[], b STRUCT(c REAL))").type.arrow
    c = float(np.float32(1.1))
    assert nearest_within(array, target).to_pylist() == [{"a": [0.3, None], "b": {"c": c}}, None]
    column = make_column("v", "STRUCT(a DOUBLE[], b STRUCT(c REAL))")
    cast = Caster(connection).cast_column(array, column)
    assert cast.array.to_pylist() == [{"a": [0.3, None], "b": {"c": c}}, None]
    assert not cast.failures


def test_too_large_for_a_real() -> None:
    for array in (pa.array([D(10) ** 37, D(10) ** 39]), pa.array([[D(10) ** 37], [D(10) ** 39]])):
        kind = "REAL[]" if pa.types.is_list(array.type) else "REAL"
        result = Caster(connection).cast_column(array, make_column("v", kind))
        assert list(result.failures) == [1]
        assert "too large" in result.failures[1]


@QUICK
@given(st.lists(DECIMALS, min_size=1, max_size=5))
def test_all_ways_in_agree(values: list[Decimal]) -> None:
    table = make_table(make_column("x", "DOUBLE"), make_column("y", "REAL"))
    ts = "2024-01-01"
    rows = [{"ts": ts, "x": value, "y": value} for value in values]
    as_text = [{"ts": ts, "x": str(value), "y": str(value)} for value in values]
    wanted = [(float(value), float(nearest_float32(value))) for value in values]
    for given_rows in (rows, as_text, pa.Table.from_pylist(rows)):
        assert [(row["x"], row["y"]) for row in stored(given_rows, table)] == wanted
