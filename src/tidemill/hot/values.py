"""Value indices (document 002 §VI-C): from a key to the rows of a block that hold it.

The paper links all tuples of one value in a ring of pointers that can jump from block to block.
Over Arrow the same work is done by a *directory* per block:

1. ``rows`` is the permutation of the block's row numbers that sorts them by key, arrival order
   within one key;
2. ``keys`` holds each distinct key once, sorted, and ``starts`` where its run in ``rows`` begins;
3. a lookup is a binary search in ``keys``; the run it finds is exactly the rows with that key.

An *ordered* directory sorts by value and answers equality and ranges; a *hash* directory sorts by
a 64-bit hash of one or more columns and answers equality. NULL is in no directory, because no
comparison finds it. Building is one sort; a block that leaves memory takes its directories along.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.hot import keys

Rows = npt.NDArray[np.uint32]
_NO_ROWS: Rows = np.empty(0, dtype=np.uint32)
SLICED_RUNS_MAX = 100  # up to here it is faster to put slices together than to index all at once


@dataclass(frozen=True)
class Range:
    """A condition on one column's value: bounds that may be open; equal bounds mean equality."""

    low: Any | None = None
    low_included: bool = True
    high: Any | None = None
    high_included: bool = True


@dataclass(frozen=True)
class Directory:
    """The sorted keys of one block, where their runs start, and the rows in key order."""

    keys: Sequence[Any] | npt.NDArray[Any]
    starts: Rows
    rows: Rows
    nbytes: int

    def equal(self, value: Any) -> Rows:
        at = self._search(value, left=True)
        if at == len(self.keys) or self.keys[at] != value:
            return _NO_ROWS
        return self.rows[self.starts[at] : self.starts[at + 1]]

    def between(self, bounds: Range) -> Rows:
        first = 0 if bounds.low is None else self._search(bounds.low, bounds.low_included)
        last = len(self.keys)
        if bounds.high is not None:
            last = self._search(bounds.high, not bounds.high_included)
        if first >= last:
            return _NO_ROWS
        return self.rows[self.starts[first] : self.starts[last]]

    def runs(self, wanted: npt.NDArray[Any]) -> tuple[Rows, Rows]:
        """Where in ``rows`` the runs of keys begin and end; the keys are words of this directory's
        own type, each once and in order, and those that no row has are left out."""
        assert isinstance(self.keys, np.ndarray)
        at = self.keys.searchsorted(wanted)
        at = at[: int(np.count_nonzero(at < len(self.keys)))]
        at = at[self.keys[at] == wanted[: len(at)]]
        return self.starts[at], self.starts[at + 1]

    def gathered(self, starts: Rows, ends: Rows) -> Rows:
        """The rows of several runs, one after the other."""
        if len(starts) <= SLICED_RUNS_MAX:
            pairs = zip(starts.tolist(), ends.tolist(), strict=True)
            return np.concatenate([_NO_ROWS, *(self.rows[first:last] for first, last in pairs)])
        counts = (ends - starts).astype(np.int64)
        before = np.cumsum(counts) - counts
        return self.rows[np.repeat(starts - before, counts) + np.arange(int(counts.sum()))]

    def _search(self, value: Any, left: bool) -> int:
        if isinstance(self.keys, np.ndarray):
            return _search_words(self.keys, value, left)
        return (bisect_left if left else bisect_right)(self.keys, value)


class _Values(Sequence[Any]):
    """A sorted Arrow array that bisect can read without turning it into Python objects."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, at: Any) -> Any:
        return self._array[at].as_py()


def _search_words(words: npt.NDArray[Any], value: Any, left: bool) -> int:
    """Binary search for a Python number, which may lie outside the type of the words."""
    if not len(words) or value < words[0]:
        return 0
    if value > words[-1]:
        return len(words)
    return int(words.searchsorted(words.dtype.type(value), "left" if left else "right"))


def build_ordered(column: pa.Array) -> Directory:
    """The directory of one column by value."""
    column = keys.storage(column)
    rows = _valid_rows([column])
    if rows is not None:
        column = column.take(pa.array(rows))
    if keys.is_numeric(column.type):
        return _build(keys.words(column), rows)
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.empty(len(order), dtype=np.uint32)
    ranks[order.to_numpy()] = np.arange(len(order), dtype=np.uint32)
    directory = _build(ranks[encoded.indices.to_numpy()], rows)
    values = encoded.dictionary.take(order)
    size = values.nbytes + directory.starts.nbytes + directory.rows.nbytes
    return Directory(_Values(values), directory.starts, directory.rows, size)


def build_hash(columns: list[pa.Array]) -> Directory:
    """The directory of one or more columns by their 64-bit hash."""
    rows = _valid_rows(columns)
    if rows is not None:
        chosen = pa.array(rows)
        columns = [column.take(chosen) for column in columns]
    return _build(keys.hashes(columns), rows)


def hash_key(kinds: Sequence[pa.DataType], values: Sequence[Any]) -> np.uint64 | None:
    """The hash under which ``build_hash`` files a row with these values, as ``keys.probe`` gives
    them; None for values that no row can have (300 in a TINYINT, 1.234 in a DECIMAL(10, 2))."""
    try:
        arrays = [_one(kind, value) for kind, value in zip(kinds, values, strict=True)]
    except (pa.ArrowInvalid, OverflowError):
        return None
    return np.uint64(keys.hashes(arrays)[0])


def hash_keys(kinds: Sequence[pa.DataType], rows: Sequence[Sequence[Any]]) -> keys.UInt64s:
    """The hashes of several keys; those that no row can have are left out."""
    if not rows:
        return np.empty(0, dtype=np.uint64)
    try:
        arrays = [_many(kind, [row[at] for row in rows]) for at, kind in enumerate(kinds)]
    except (pa.ArrowInvalid, OverflowError):
        found = (hash_key(kinds, row) for row in rows)
        return np.array([key for key in found if key is not None], dtype=np.uint64)
    return keys.hashes(arrays)


def _many(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.array([*map(bool, values)] if pa.types.is_boolean(kind) else values, kind)


def _one(kind: pa.DataType, value: Any) -> pa.Array:
    return _many(kind, [value])


def _valid_rows(columns: list[pa.Array]) -> Rows | None:
    """The rows without NULL in any column, or None when that is all of them."""
    if not any(column.null_count for column in columns):
        return None
    valid = columns[0].is_valid()
    for column in columns[1:]:
        valid = pc.and_(valid, column.is_valid())
    return np.flatnonzero(valid.to_numpy(zero_copy_only=False)).astype(np.uint32)


def _build(words: npt.NDArray[Any], rows: Rows | None) -> Directory:
    order, ordered = _sort(words)
    firsts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = np.empty(len(firsts) + (2 if len(ordered) else 1), dtype=np.uint32)
    starts[0] = 0
    starts[1:-1] = firsts
    starts[-1] = len(ordered)
    distinct = np.ascontiguousarray(ordered[starts[:-1]])
    permutation = order if rows is None else rows[order]
    size = distinct.nbytes + starts.nbytes + permutation.nbytes
    return Directory(distinct, starts, permutation, size)


def _sort(words: npt.NDArray[Any]) -> tuple[Rows, npt.NDArray[Any]]:
    """The stable order of the words, and the words in it.

    Integers of a narrow enough range are sorted together with their row numbers in one machine
    word, which is several times faster than a stable argsort.
    """
    count = len(words)
    bits = max(count - 1, 1).bit_length()
    if count and words.dtype.kind in "iu":
        low, high = int(words.min()), int(words.max())
        if (high - low).bit_length() + bits <= 63:
            shift = np.int64(bits)
            base = words.dtype.type(low)
            packed = (words - base).astype(np.int64) if low >= 0 else words.astype(np.int64) - low
            packed = np.sort((packed << shift) | np.arange(count, dtype=np.int64))
            order = (packed & np.int64((1 << bits) - 1)).astype(np.uint32)
            return order, words[order]
    order = np.argsort(words, kind="stable").astype(np.uint32)
    return order, words[order]
