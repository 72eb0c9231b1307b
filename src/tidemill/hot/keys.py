"""Keys as numbers: how column values are ordered, hashed and compared by the indices.

An index may select too much (the query's own predicate is applied to what it selects) but never
too little. So whenever a constant's comparison with a column could round or convert, ``probe``
answers None and the index is not used.
"""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.clock import to_us

UInt64s = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_PRIME = np.uint64(0x100000001B3)
_FLOAT_EXACT_MAX = 2**53


def storage(column: pa.Array) -> pa.Array:
    """The plain array under an extension array (UUID)."""
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def is_indexable(kind: pa.DataType) -> bool:
    """Whether a value index can hold the type: everything with an order of its own."""
    return bool(is_numeric(kind) or _is_bytes(kind) or pa.types.is_decimal(kind))


def is_numeric(kind: pa.DataType) -> bool:
    """Types whose values are one machine word that orders as the SQL type does."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_time(kind)
        or pa.types.is_timestamp(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or kind == pa.uuid())


def words(column: pa.Array) -> npt.NDArray[Any]:
    """A numeric column as a numpy array of machine words; NULL slots hold anything."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_date(kind):
        column = column.view(pa.int32())
    elif pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    if column.null_count == 0:
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    dtype = column.type.to_pandas_dtype()
    return np.frombuffer(column.buffers()[1], dtype)[column.offset : column.offset + len(column)]


def array_of(words: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Machine words as a column, without a copy (and without pyarrow looking for pandas)."""
    return pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words)])


def row_numbers(rows: npt.NDArray[Any]) -> pa.Array:
    """Row numbers as Arrow takes them."""
    return array_of(np.ascontiguousarray(rows, dtype=np.int64), pa.int64())


def plain_words(column: pa.Array) -> npt.NDArray[Any] | None:
    """The words of a column that numpy can index without a copy or a mask, or None."""
    is_plain = is_numeric(column.type) and not pa.types.is_boolean(column.type)
    return words(column) if is_plain and column.null_count == 0 else None


def hashes(columns: list[pa.Array]) -> UInt64s:
    """One 64-bit hash a row over several columns. NULLs hash alike; callers leave them out."""
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        total = (total ^ _hash_one(storage(column))) * _GOLDEN + _PRIME
    return total


def _hash_one(column: pa.Array) -> UInt64s:
    if is_numeric(column.type):
        values = words(column)
        if values.dtype.kind == "f":
            values = values.astype(np.float64) + 0.0  # -0.0 equals 0.0
            values = np.where(np.isnan(values), np.nan, values).view(np.uint64)
        return _mix(values.astype(np.uint64, copy=False))
    if pa.types.is_decimal(column.type):
        halves = np.frombuffer(column.buffers()[1], np.uint64).reshape(-1, 2)
        halves = halves[column.offset : column.offset + len(column)]
        return _mix(halves[:, 0] ^ _mix(halves[:, 1].copy()))
    return _hash_bytes(column)


def _mix(values: UInt64s) -> UInt64s:
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def _hash_bytes(column: pa.Array) -> UInt64s:
    """A polynomial over the bytes of each value, so that equal values hash alike everywhere."""
    column = pc.fill_null(column.cast(pa.large_binary()), b"")
    offsets = np.frombuffer(column.buffers()[1], np.int64)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    lengths = np.diff(offsets)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets[:-1] - offsets[0]
    within = np.arange(len(data), dtype=np.int64) - np.repeat(starts, lengths)
    powers = _powers(int(lengths.max(initial=0)))
    terms = (data.astype(np.uint64) + np.uint64(1)) * powers[within]
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)))
    return _mix(sums[starts + lengths] - sums[starts])


def _powers(count: int) -> UInt64s:
    powers = np.full(count + 1, _PRIME, dtype=np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)


def probe(kind: pa.DataType, value: object) -> Any | None:
    """The constant as the index compares it, or None when the comparison is not exactly ours.

    >>> probe(pa.int64(), 7), probe(pa.int64(), "7"), probe(pa.string(), "7")
    (7, None, '7')
    """
    if isinstance(value, bool):
        return int(value) if pa.types.is_boolean(kind) else None
    if pa.types.is_integer(kind):
        return _whole(value)
    if pa.types.is_float64(kind):
        return _float(value)
    if pa.types.is_date(kind):
        is_date = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
        return (value - _EPOCH_DAY).days if is_date else None  # type: ignore[operator]
    if pa.types.is_timestamp(kind):
        return _timestamp(kind, value)
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else None
    if kind == pa.uuid():
        return value.bytes if isinstance(value, uuid.UUID) else None
    if pa.types.is_binary(kind):
        return value if isinstance(value, bytes) else None
    if pa.types.is_decimal(kind):
        is_exact = isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite())
        return Decimal(value) if is_exact else None  # type: ignore[arg-type]
    return None


def _whole(value: object) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return int(value)
    return None


def _float(value: object) -> float | None:
    if isinstance(value, float):
        return None if value != value else value
    if isinstance(value, int | Decimal) and -_FLOAT_EXACT_MAX <= value <= _FLOAT_EXACT_MAX:
        return float(value)
    return None


def _timestamp(kind: pa.DataType, value: object) -> int | None:
    if isinstance(value, dt.datetime):
        return to_us(value) if (value.tzinfo is None) == (kind.tz is None) else None
    if isinstance(value, dt.date):
        return to_us(dt.datetime.combine(value, dt.time())) if kind.tz is None else None
    return None


_EPOCH_DAY = dt.date(1970, 1, 1)
