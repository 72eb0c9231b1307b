"""Arrow columns as numpy arrays and back, without a copy wherever the layouts agree.

What a dense state computes with are plain numbers: a date is its days, a timestamp its
microseconds, a decimal its digits without the point. ``numbers_of`` takes them out of an Arrow
column; ``column_of`` makes a column of them again, over the same memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.types import SqlType

Array = npt.NDArray[Any]
_WIDE_DIGITS_MAX = 18  # decimals of more digits do not fit into 64 bits


class NotPackable(Exception):
    """Rows that a dense state cannot hold exactly; nothing of them was absorbed.

    A signal between a state and its owner, not an error: the owner goes on with levels."""


@dataclass(frozen=True)
class Numbers:
    """The values of a column, and which of them are not NULL (None: all)."""

    values: Array
    valid: Array | None = None

    def slice(self, start: int, size: int) -> Numbers:
        if start == 0 and size >= len(self.values):
            return self
        rows = slice(start, start + size)
        return Numbers(self.values[rows], None if self.valid is None else self.valid[rows])

    @cached_property
    def known(self) -> Array:
        """The values that are not NULL."""
        return self.values if self.valid is None else self.values[self.valid]


class Growing:
    """An array that doubles when it is full; ``array`` is the part in use.

    What was handed out before stays as it was then, at its old place, when the array moves."""

    def __init__(self, dtype: npt.DTypeLike, fill: Any = 0) -> None:
        self._fill = fill
        self._room: Array = np.full(0, fill, dtype)
        self.array: Array = self._room

    def grow(self, size: int) -> None:
        if size > len(self._room):
            wanted, used = max(size, 2 * len(self._room), 64), len(self.array)
            if self._fill == 0:  # pages that nobody has touched yet cost nothing
                room = np.zeros(wanted, self._room.dtype)
            else:
                room = np.full(wanted, self._fill, self._room.dtype)
            room[:used] = self.array
            self._room = room
        self.array = self._room[:size]

    def reserve(self, size: int) -> None:
        """Have room for so many entries, so that growing up to there moves nothing."""
        used = len(self.array)
        self.grow(max(size, used))
        self.array = self._room[:used]

    def append(self, values: Array) -> None:
        used = len(self.array)
        self.grow(used + len(values))
        self.array[used:] = values

    @property
    def nbytes(self) -> int:
        return int(self._room.nbytes)


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece, as what lies below an extension type."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # of no chunks
            column = pa.array([], column.type)
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type) and column.dictionary.null_count:
        return column.dictionary_decode()
    return column


def valid_of(array: pa.Array) -> Array | None:
    """Which entries are not NULL; None for all of them."""
    if array.null_count == 0:
        return None
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    if pa.types.is_dictionary(array.type):
        array = array.is_valid().cast(pa.int8())
        return np.asarray(array).view(np.bool_)
    bits = array.buffers()[0]
    return _bits(bits, array.offset, len(array)).view(np.bool_)


def numbers_of(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """The numbers of a column of one of the types that dense states hold."""
    array = whole(column)
    kind = array.type
    valid = valid_of(array)
    size, offset = len(array), array.offset
    if pa.types.is_null(kind) or size == 0:
        dtype = np.dtype(np.int64) if pa.types.is_null(kind) else _dtype_of(kind)
        return Numbers(np.zeros(size, dtype), valid)
    data = array.buffers()[1]
    if pa.types.is_boolean(kind):
        return Numbers(_bits(data, offset, size).view(np.int8), valid)
    if kind in _PAIRS or pa.types.is_decimal128(kind):
        pairs = np.frombuffer(data, np.int64)[2 * offset : 2 * (offset + size)]
        return Numbers(_narrowed(pairs, valid), valid)
    return Numbers(np.frombuffer(data, _dtype_of(kind))[offset : offset + size], valid)


_PAIRS = (pa.binary(16),)


def _bits(buffer: pa.Buffer, offset: int, size: int) -> Array:
    first = offset // 8
    octets = np.frombuffer(buffer, np.uint8)[first : (offset + size + 7) // 8]
    shift = offset - 8 * first
    return np.unpackbits(octets, count=shift + size, bitorder="little")[shift:]


def _narrowed(pairs: Array, valid: Array | None) -> Array:
    """128-bit integers in 64 bits."""
    low, high = np.ascontiguousarray(pairs[::2]), pairs[1::2]
    fits = high == (low >> 63)
    if valid is not None:
        fits |= ~valid
    if not fits.all():
        raise NotPackable("a number of more than 64 bits")
    return low


def _dtype_of(kind: pa.DataType) -> np.dtype[Any]:
    if pa.types.is_decimal128(kind) or kind in _PAIRS:
        return np.dtype(np.int64)
    if pa.types.is_boolean(kind):
        return np.dtype(np.int8)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    if kind.bit_width in (32, 64):  # dates, times, timestamps, small decimals
        return np.dtype(np.int32 if kind.bit_width == 32 else np.int64)
    raise NotPackable(f"a column of type {kind}")


def decimal_of(kind: SqlType) -> tuple[int, int] | None:
    """Digits and scale of a DECIMAL type.

    >>> decimal_of(SqlType.parse("decimal(9, 2)"))
    (9, 2)
    """
    arrow = kind.arrow
    return (arrow.precision, arrow.scale) if pa.types.is_decimal(arrow) else None


def layout_of(kind: SqlType) -> pa.DataType:
    """The Arrow type that lies over a dense array of a SQL type and reads as that type."""
    decimal = decimal_of(kind)
    if decimal is not None:
        return pa.decimal64(min(decimal[0], _WIDE_DIGITS_MAX), decimal[1])
    if kind.name == "HUGEINT":
        return pa.int64()
    return pa.int8() if kind.name == "BOOLEAN" else kind.arrow


def dtype_of(kind: SqlType) -> np.dtype[Any]:
    """The numpy type of a dense array of a SQL type."""
    return _dtype_of(layout_of(kind))


def column_of(kind: SqlType, values: Array, valid: Array | None) -> pa.Array:
    """Numbers as an Arrow column over the same memory; a bitmap is made for NULLs only."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    array = pa.Array.from_buffers(
        layout_of(kind), len(values), [bitmap, pa.py_buffer(values)], -1 if bitmap else 0
    )
    if kind.name == "BOOLEAN":
        return pa.ExtensionArray.from_storage(pa.bool8(), array)
    return array
