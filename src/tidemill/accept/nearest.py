"""Decimals as the nearest floating point numbers, rounded once.

Arrow's own cast multiplies by a rounded power of ten and so often stores a neighbour: 0.3 becomes
0.30000000000000004. Two exact ways lead from a decimal to the nearest number:

1. a whole number below 2**53 divided by (or multiplied with) a power of ten up to 10**22 is
   rounded once, because both are exact. The DOUBLE is rounded to a REAL, which is a second
   rounding only where it lies in the middle between two;
2. everything else, and those in the middle, is written as text and read again: Arrow's reader of
   numbers rounds rightly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_EXACT_POWER_MAX = 22  # 10**22 is the last power of ten that is a DOUBLE
_EXACT_INT_MAX = 2**53

Doubles = npt.NDArray[np.float64]


def nearest(decimals: pa.Array, target: pa.DataType) -> pa.Array:
    """The number of type ``target``, DOUBLE or REAL, nearest to each decimal; infinite where the
    decimal is too large for the type."""
    kind = decimals.type
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        decimals = decimals.cast(pa.decimal128(38, kind.scale))
    if not pa.types.is_decimal128(decimals.type) or abs(kind.scale) > _EXACT_POWER_MAX:
        return _by_text(decimals, target)
    numbers, sure = _divided(decimals, target)
    unsure = np.flatnonzero(~sure)
    if len(unsure):
        texts = _by_text(decimals.take(pa.array(unsure)), target)
        numbers[unsure] = pc.fill_null(texts, 0).to_numpy()
    mask = decimals.is_null().to_numpy(zero_copy_only=False) if decimals.null_count else None
    return pa.array(numbers, target, mask=mask)


def nearest_within(nested: pa.Array, target: pa.DataType) -> pa.Array:
    """A nested value whose decimals became numbers where the target has numbers."""
    texts = _with_leaves(nested.type, target, as_text=True)
    if texts == nested.type:
        return nested
    return nested.cast(texts).cast(_with_leaves(nested.type, target, as_text=False))


def any_infinite(array: pa.Array) -> bool:
    """Whether an infinite number is in an array, however deep."""
    return any(bool(pc.any(pc.is_inf(leaf)).as_py()) for leaf in _float_leaves(array))


def _divided(decimals: pa.Array, target: pa.DataType) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The quotients, and which of them are surely nearest."""
    words = np.frombuffer(decimals.buffers()[1] or b"", "<i8")
    low, high = words.reshape(-1, 2)[decimals.offset : decimals.offset + len(decimals)].T
    sure = (high == low >> 63) & (low <= _EXACT_INT_MAX) & (low >= -_EXACT_INT_MAX)
    if decimals.null_count:
        sure |= decimals.is_null().to_numpy(zero_copy_only=False)
    scale = decimals.type.scale
    doubles = low / 10.0**scale if scale >= 0 else low * 10.0**-scale
    if pa.types.is_float64(target):
        return doubles, sure
    with np.errstate(over="ignore"):
        floats = doubles.astype(target.to_pandas_dtype())
    return floats, sure & ~_in_the_middle(doubles, floats)


def _in_the_middle(doubles: Doubles, floats: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a DOUBLE lies in the middle between two numbers of the shorter type."""
    away = np.where(doubles > floats, np.inf, -np.inf).astype(floats.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        other = np.nextafter(floats, away).astype(np.float64)
        rounded = floats.astype(np.float64)
        is_middle = (doubles != rounded) & (doubles - rounded == other - doubles)
    return np.asarray(is_middle | np.isinf(floats))


def _by_text(decimals: pa.Array, target: pa.DataType) -> pa.Array:
    return decimals.cast(pa.string()).cast(target)


def _with_leaves(given: pa.DataType, target: pa.DataType, as_text: bool) -> pa.DataType:
    """The given type, with text (or the target's numbers) for decimals that are to be numbers."""
    if pa.types.is_decimal(given) and pa.types.is_floating(target):
        return pa.string() if as_text else target
    if pa.types.is_struct(given) and pa.types.is_struct(target):
        wanted = {field.name.lower(): field.type for field in target}
        fields = [
            field.with_type(
                _with_leaves(field.type, wanted.get(field.name.lower(), field.type), as_text)
            )
            for field in given
        ]
        return pa.struct(fields)
    if pa.types.is_map(given) and pa.types.is_map(target):
        key = _with_leaves(given.key_type, target.key_type, as_text)
        item = _with_leaves(given.item_type, target.item_type, as_text)
        is_same = (key, item) == (given.key_type, given.item_type)
        return given if is_same else pa.map_(key, item)
    if _is_list(given) and _is_list(target):
        value = _with_leaves(given.value_type, target.value_type, as_text)
        if pa.types.is_fixed_size_list(given):
            return pa.list_(given.value_field.with_type(value), given.list_size)
        is_large = pa.types.is_large_list(given)
        return (pa.large_list if is_large else pa.list_)(given.value_field.with_type(value))
    return given


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def _float_leaves(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_floating(kind):
        yield array
    elif pa.types.is_map(kind):
        yield from _float_leaves(array.keys)
        yield from _float_leaves(array.items)
    elif _is_list(kind):
        yield from _float_leaves(array.flatten())
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            yield from _float_leaves(child)
