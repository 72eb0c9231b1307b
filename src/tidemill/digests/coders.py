"""Coders: the keys of one column as small whole numbers, from which packed keys are made.

Code 0 is NULL; every other key of the column has a code of its own below ``span``. Keys are equal
as GROUP BY has it: NULL to NULL, NaN to NaN, -0.0 to 0.0.

- ``NumberCoder``: the distance from a base, in strides (weeks of a timestamp are neighbours);
  numbers too far apart are coded in the order they come;
- ``FloatCoder``, ``TextCoder``: in the order they come. A text is looked up by eight bytes: its
  own when it has fewer, else a hash of it, and then the text found is compared.

A coder also keeps the key of every slot, for answers and for packing anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.digests.arrays import (
    Array,
    Growing,
    NotPackable,
    column_of,
    dtype_of,
    numbers_of,
    valid_of,
    whole,
)
from tidemill.digests.slots import FREE, Hashed
from tidemill.types import SqlType

_SPAN_MAX = 1 << 62
_SPAN_MIN = 16
_ROWS_PER_TEXT = 8  # from there on a batch is encoded before its texts are looked up


@dataclass(frozen=True)
class Keys:
    """Keys of one column: as they are stored, and with their ends, where known."""

    values: Array
    valid: Array | None = None
    low: int | None = None
    high: int | None = None
    is_all_null: bool = False


class Coder(Protocol):
    span: int

    def read(self, column: pa.ChunkedArray | pa.Array) -> Keys:
        """The keys of a batch."""

    def widen(self, keys: Keys) -> bool:
        """Make codes for these keys; True if the span grew, or keys have other codes now."""

    def codes(self, keys: Keys) -> Array | int:
        """The code of every key; one number if it is the same for all."""

    def append(self, keys: Keys, rows: Array) -> None:
        """Keep the keys of new slots."""

    def stored(self) -> Keys:
        """The keys of all slots."""

    def column(self) -> pa.Array: ...

    @property
    def nbytes(self) -> int: ...
    @property
    def places(self) -> Hashed | None:
        """The table by which codes are found, if there is one."""
        ...


def coder_for(kind: SqlType) -> Coder:
    if kind.name == "VARCHAR":
        return TextCoder()
    return FloatCoder(kind) if kind.name in ("FLOAT", "DOUBLE") else NumberCoder(kind)


class _Stored:
    """The keys of all slots: values, and which are NULL once there is one."""

    def __init__(self, dtype: Any) -> None:
        self.values = Growing(dtype)
        self.valid: Growing | None = None

    def append(self, keys: Keys, rows: Array) -> None:
        before = len(self.values.array)
        self.values.append(keys.values[rows])
        if keys.valid is not None and self.valid is None and not keys.valid[rows].all():
            self.valid = Growing(np.bool_, True)
            self.valid.grow(before)
        if self.valid is not None:
            new = np.ones(len(rows), np.bool_) if keys.valid is None else keys.valid[rows]
            self.valid.append(new)

    @property
    def mask(self) -> Array | None:
        return None if self.valid is None else self.valid.array

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + (self.valid.nbytes if self.valid else 0)


class NumberCoder:
    """Whole numbers: ``(number - base) / stride + 1``."""

    def __init__(self, kind: SqlType) -> None:
        self._kind = kind
        self._dtype = dtype_of(kind)
        self._has_stride = kind.is_time or kind.name == "TIME"
        self.span = 1
        self._base = 0
        self._stride = 0 if self._has_stride else 1  # 0: one value only, so far
        self._wide: Hashed | None = None
        self._slots = _Stored(self._dtype)

    def read(self, column: pa.ChunkedArray | pa.Array) -> Keys:
        numbers = numbers_of(column)
        return self._keys(numbers.values.astype(self._dtype, copy=False), numbers.valid)

    def _keys(self, values: Array, valid: Array | None) -> Keys:
        known = values if valid is None else values[valid]
        if not len(known):
            return Keys(values, valid, is_all_null=True)
        return Keys(values, valid, int(known.min()), int(known.max()))

    def widen(self, keys: Keys) -> bool:
        if keys.is_all_null:
            return False
        assert keys.low is not None
        assert keys.high is not None
        if self._wide is not None:
            return self._widen_wide(keys)
        is_first = self.span == 1
        stride = 1 if self._stride == 1 else self._common_stride(keys, is_first)
        low, high = self._ends()
        is_inside = low <= keys.low and keys.high <= high
        if not is_first and is_inside and stride == self._stride:
            return False
        self._stretch(keys.low, keys.high, low, high, stride, is_first)
        if self.span > _SPAN_MAX:
            self._wide = Hashed()
            self._widen_wide(self.stored())
            self._widen_wide(keys)
        return True

    def _ends(self) -> tuple[int, int]:
        return self._base, self._base + (self.span - 2) * max(self._stride, 1)

    def _common_stride(self, keys: Keys, is_first: bool) -> int:
        """The greatest number of which all distances are multiples; 0 if all keys are equal."""
        assert keys.low is not None
        base = keys.low if is_first else self._base
        if keys.low == keys.high:
            return math.gcd(self._stride, keys.low - base)
        assert keys.high is not None
        if max(keys.high, base) - min(keys.low, base) > _SPAN_MAX:
            return 1  # infinity
        values = keys.values if keys.valid is None else keys.values[keys.valid]
        far = values - np.int64(base)
        stride = self._stride or int(np.gcd.reduce(far[:64])) or int(np.gcd.reduce(far))
        if stride == 1 or not (far % stride).any():
            return stride
        return math.gcd(self._stride, int(np.gcd.reduce(far)))

    def _stretch(
        self, low: int, high: int, low_now: int, high_now: int, stride: int, is_first: bool
    ) -> None:
        """Cover both ranges, and a quarter more on the side where keys came from outside."""
        step = max(stride, 1)
        if is_first:
            low_now = high_now = low
        more = max(_SPAN_MIN, (max(high, high_now) - min(low, low_now)) // step // 4) * step
        if is_first and stride == 0:
            more = 0
        if low < low_now:
            low_now -= -(-(low_now - low) // step) * step + more
        if high > high_now:
            high_now = high + more
        ends = np.iinfo(np.uint64 if self._dtype == np.uint64 else np.int64)
        if low_now < ends.min:
            low_now += -(-(ends.min - low_now) // step) * step
        self._base, self._stride = low_now, stride
        self.span = (min(high_now, int(ends.max)) - low_now) // step + 2

    def codes(self, keys: Keys) -> Array | int:
        if keys.is_all_null:
            return 0
        if self._wide is not None:
            return _masked(self._wide_codes(keys.values), keys.valid)
        assert keys.low is not None
        step = max(self._stride, 1)
        if keys.low == keys.high and keys.valid is None:
            return (keys.low - self._base) // step + 1
        if self._dtype == np.uint64:
            codes = (keys.values - np.uint64(self._base)).view(np.int64)
        else:
            codes = np.subtract(keys.values, np.int64(self._base), dtype=np.int64)
        if step > 1:
            codes //= step
        codes += 1
        return _masked(codes, keys.valid)

    # Numbers too far apart for their distance to be a code.

    def _widen_wide(self, keys: Keys) -> bool:
        assert self._wide is not None
        known = keys.values if keys.valid is None else keys.values[keys.valid]
        self._wide.find(self._apart(known))
        return _cover(self, self._wide.count + 1)

    def _wide_codes(self, values: Array) -> Array:
        assert self._wide is not None
        whole_numbers = np.ascontiguousarray(values).view(np.int64)
        codes = self._wide.find(self._apart(values))[0] + 2
        codes[whole_numbers == FREE] = 1
        return codes

    def _apart(self, values: Array) -> Array:
        """Without the one number that marks free places; it has code 1."""
        whole_numbers = np.ascontiguousarray(values).view(np.int64)
        is_free = whole_numbers == FREE
        return np.where(is_free, 0, whole_numbers) if is_free.any() else whole_numbers

    @property
    def only(self) -> int | None:
        """The one time that all slots have, if it is one."""
        is_one = self._has_stride and self._stride == 0 and self._slots.mask is None
        return (
            int(self._slots.values.array[0]) if is_one and len(self._slots.values.array) else None
        )

    def append(self, keys: Keys, rows: Array) -> None:
        self._slots.append(keys, rows)

    def stored(self) -> Keys:
        return self._keys(self._slots.values.array, self._slots.mask)

    def column(self) -> pa.Array:
        return column_of(self._kind, self._slots.values.array, self._slots.mask)

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes + (self._wide.nbytes if self._wide else 0)

    @property
    def places(self) -> Hashed | None:
        return None


class FloatCoder:
    """Floats by their bits, with one NaN and one zero."""

    def __init__(self, kind: SqlType) -> None:
        self._kind = kind
        self._dtype = dtype_of(kind)
        self.span = 1
        self._known = Hashed()
        self._slots = _Stored(self._dtype)

    def read(self, column: pa.ChunkedArray | pa.Array) -> Keys:
        numbers = numbers_of(column)
        values = numbers.values.astype(self._dtype, copy=False) + self._dtype.type(0)
        return Keys(values, numbers.valid)

    def widen(self, keys: Keys) -> bool:
        self._known.find(_bits_of(keys.values))
        return _cover(self, self._known.count)

    def codes(self, keys: Keys) -> Array | int:
        return _masked(self._known.find(_bits_of(keys.values))[0] + 1, keys.valid)

    def append(self, keys: Keys, rows: Array) -> None:
        self._slots.append(keys, rows)

    def stored(self) -> Keys:
        return Keys(self._slots.values.array, self._slots.mask)

    def column(self) -> pa.Array:
        return column_of(self._kind, self._slots.values.array, self._slots.mask)

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes + self._known.nbytes

    @property
    def places(self) -> Hashed | None:
        return self._known


class TextCoder:
    """Texts; what is kept of a slot is the text's code, an index into a dictionary."""

    def __init__(self) -> None:
        self.span = 1
        self._known = Hashed()
        self._texts = _Texts()
        self._slots = _Stored(np.int32)

    def read(self, column: pa.ChunkedArray | pa.Array) -> Keys:
        array = whole(column)
        valid = valid_of(array)
        if len(array) > _ROWS_PER_TEXT * self._known.count and _has_offsets(array.type):
            array = array.dictionary_encode()
        if pa.types.is_dictionary(array.type):
            codes = self._codes_of(whole(array.dictionary))
            places = array.indices.fill_null(0) if array.null_count else array.indices
            values = codes[np.asarray(places)] if len(codes) else np.zeros(len(array), np.int32)
            return Keys(values, valid)
        return Keys(self._codes_of(array), valid)

    def _codes_of(self, array: pa.Array) -> Array:
        """The place of every text in the dictionary, where new ones are added; any for NULL."""
        if not _has_offsets(array.type):
            array = array.cast(pa.large_string())
        words, is_long = _words(array)
        codes, firsts = self._known.find(words)
        if len(firsts):
            self._texts.append(array.take(pa.array(firsts)).cast(pa.large_string()))
        if is_long.any():
            rows = pa.array(np.flatnonzero(is_long))
            given = array.take(rows).cast(pa.large_string())
            same = pc.equal(given, self._texts.array().take(pa.array(codes[is_long])))
            if not pc.all(same, min_count=0).as_py():
                raise NotPackable("two texts of one hash")
        return codes.astype(np.int32)

    def widen(self, keys: Keys) -> bool:
        return _cover(self, self._known.count)

    def codes(self, keys: Keys) -> Array | int:
        return _masked(keys.values.astype(np.int64) + 1, keys.valid)

    def append(self, keys: Keys, rows: Array) -> None:
        self._slots.append(keys, rows)

    def stored(self) -> Keys:
        return Keys(self._slots.values.array, self._slots.mask)

    def column(self) -> pa.Array:
        mask = self._slots.mask
        bitmap = None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))
        values = self._slots.values.array
        places = pa.Array.from_buffers(pa.int32(), len(values), [bitmap, pa.py_buffer(values)])
        return pa.DictionaryArray.from_arrays(places, self._texts.array())

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes + self._known.nbytes + self._texts.nbytes

    @property
    def places(self) -> Hashed | None:
        return self._known


class _Texts:
    """A column of texts that grows."""

    def __init__(self) -> None:
        self._ends = Growing(np.int64)
        self._ends.grow(1)
        self._data = Growing(np.uint8)

    def append(self, texts: pa.Array) -> None:
        """Add texts; a NULL becomes an empty one."""
        offsets = np.frombuffer(texts.buffers()[1], np.int64)
        offsets = offsets[texts.offset : texts.offset + len(texts) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        end = len(self._data.array)
        if last > first:
            self._data.append(np.frombuffer(texts.buffers()[2], np.uint8)[first:last])
        self._ends.append(offsets[1:] - first + end)

    def array(self) -> pa.Array:
        parts = [None, pa.py_buffer(self._ends.array), pa.py_buffer(self._data.array)]
        return pa.Array.from_buffers(pa.large_string(), len(self._ends.array) - 1, parts)

    @property
    def nbytes(self) -> int:
        return self._ends.nbytes + self._data.nbytes


def _has_offsets(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _cover(coder: Coder, count: int) -> bool:
    """Let ``count`` keys in the order they came have codes; room for as many again."""
    if count + 2 <= coder.span:
        return False
    coder.span = max(_SPAN_MIN, 2 * (count + 2))
    return True


def _masked(codes: Array, valid: Array | None) -> Array:
    if valid is not None:
        codes[~valid] = 0
    return codes


def _bits_of(values: Array) -> Array:
    """The bits of floats; every NaN has the same."""
    wide = values.astype(np.float64)
    wide[np.isnan(wide)] = np.nan
    return wide.view(np.int64)


_LOW_OCTETS = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def _words(array: pa.Array) -> tuple[Array, Array]:
    """Eight bytes for each text, and which of the texts they do not tell apart for sure.

    Up to seven bytes: the text, with its length as the first byte. More: a hash, after 0xFF."""
    size, start = len(array), array.offset
    if not size:
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    width = np.int32 if pa.types.is_string(array.type) else np.int64
    offsets = np.frombuffer(array.buffers()[1], width)[start : start + size + 1]
    begins, lengths = offsets[:-1], np.diff(offsets)
    if array.null_count:
        lengths = np.where(cast(Array, valid_of(array)), lengths, 0)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, np.uint8)
    if last > first:
        data[:-8] = np.frombuffer(array.buffers()[2], np.uint8)[first:last]
    eights: Array = np.ndarray(len(data) - 7, np.uint64, data.data, strides=(1,))
    at = begins.astype(np.int64) - first
    words = eights[at] & _LOW_OCTETS[np.minimum(lengths, 8)]
    is_long = lengths > 7
    short = words | (lengths.astype(np.uint64) << np.uint64(56))
    if is_long.any():
        rows = np.flatnonzero(is_long)
        short[rows] = _hashes(eights, at[rows], lengths[rows], words[rows])
    return short.view(np.int64), is_long


def _hashes(eights: Array, at: Array, lengths: Array, words: Array) -> Array:
    """A hash of texts of eight bytes and more: word after word, multiplied and folded."""
    hashes = (words ^ lengths.astype(np.uint64)) * _MIX
    rows: Array | slice = slice(None) if lengths.min() > 8 else np.flatnonzero(lengths > 8)
    done = 8
    while lengths[rows].size:
        left = np.minimum(lengths[rows] - done, 8)
        part = eights[at[rows] + done] & _LOW_OCTETS[left]
        mixed = hashes[rows]
        hashes[rows] = ((mixed ^ (mixed >> np.uint64(29))) + part) * _MIX
        done += 8
        if not (left == 8).all() or (lengths[rows] == done).any():
            rows = np.flatnonzero(lengths > done)
    hashes ^= hashes >> np.uint64(32)
    return hashes | np.uint64(0xFF << 56)
