"""Cells: one array of a dense state each, updated in place by the rows of a batch.

``numpy``'s indexed loops (``add.at`` and its like) need one to six nanoseconds a row at any
number of groups; no other way measured does as well at all sizes
(docs/design/20261116-view-kernels.md).

A sum or an extreme of no values is NULL. Which groups have seen one is noted only from the first
NULL argument on: before that, every group with rows has.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidemill.digests.arrays import (
    Array,
    Growing,
    NotPackable,
    column_of,
    decimal_of,
    dtype_of,
)
from tidemill.types import SqlType

_SUM_MAX = 1 << 62
_DIGITS_MAX = 10**18 - 1  # what a decimal of 64 bits may hold
_BIGINT = SqlType("BIGINT")


class Cell(Protocol):
    def admit(self, values: Array) -> None:
        """Raise NotPackable if these values may not fit; nothing is absorbed yet."""

    def absorb(self, slots: Array, values: Array, touched: Array | int | None) -> None:
        """Take in one value for each slot. ``touched`` is given when some rows of the batch had
        no value: the groups with rows before it, as a mask or as their number."""

    def grow(self, groups: int) -> None: ...

    def column(self) -> pa.Array: ...

    @property
    def nbytes(self) -> int: ...


def cell_for(function: str, kind: SqlType) -> Cell:
    if function == "count":
        return Count()
    if function == "sum":
        return Sum(kind)
    return Least(kind) if function == "min" else Greatest(kind)


class Count:
    """The sum of counts; rows count one each."""

    def __init__(self) -> None:
        self._counts = Growing(np.int64)

    def admit(self, values: Array) -> None:
        """Counts always fit."""

    def absorb(self, slots: Array, values: Array, touched: Array | int | None) -> None:
        np.add.at(self._counts.array, slots, values.astype(np.int64, copy=False))

    def grow(self, groups: int) -> None:
        self._counts.grow(groups)

    def column(self) -> pa.Array:
        return column_of(_BIGINT, self._counts.array, None)

    @property
    def nbytes(self) -> int:
        return self._counts.nbytes


class _Valued:
    """What sums and extremes share: the array, and which groups have seen a value."""

    def __init__(self, kind: SqlType, fill: Any) -> None:
        self._kind = kind
        self._values = Growing(dtype_of(kind), fill)
        self._seen: Growing | None = None

    def admit(self, values: Array) -> None:
        """Extremes always fit."""

    def _see(self, slots: Array, touched: Array | int | None) -> None:
        if touched is not None and self._seen is None:
            self._seen = Growing(np.bool_, False)
            self._seen.grow(len(self._values.array))
            size = touched if isinstance(touched, int) else len(touched)
            self._seen.array[:size] = True if isinstance(touched, int) else touched
        if self._seen is not None:
            self._seen.array[slots] = True

    def grow(self, groups: int) -> None:
        self._values.grow(groups)
        if self._seen is not None:
            self._seen.grow(groups)

    def column(self) -> pa.Array:
        seen = None if self._seen is None else self._seen.array
        return column_of(self._kind, self._values.array, seen)

    @property
    def nbytes(self) -> int:
        return self._values.nbytes + (self._seen.nbytes if self._seen else 0)


class Sum(_Valued):
    """A sum; exact ones in 64 bits, with a bound on what any group's may have become."""

    def __init__(self, kind: SqlType) -> None:
        super().__init__(kind, 0)
        self._is_exact = self._values.array.dtype == np.int64
        self._limit = _SUM_MAX if decimal_of(kind) is None else _DIGITS_MAX
        self._bound = 0

    def admit(self, values: Array) -> None:
        if not self._is_exact or not len(values):
            return
        more = _greatest(values) * len(values)
        if self._bound + more > self._limit:
            self._bound = _greatest(self._values.array) if len(self._values.array) else 0
        if self._bound + more > self._limit:
            raise NotPackable("a sum that may pass 64 bits")
        self._bound += more

    def absorb(self, slots: Array, values: Array, touched: Array | int | None) -> None:
        array = self._values.array
        np.add.at(array, slots, values.astype(array.dtype, copy=False))
        self._see(slots, touched)


class Least(_Valued):
    """A minimum. NaN is greater than all numbers: it is left only among its like."""

    def __init__(self, kind: SqlType) -> None:
        dtype = dtype_of(kind)
        self._is_float = dtype.kind == "f"
        super().__init__(kind, np.nan if self._is_float else np.iinfo(dtype).max)

    def absorb(self, slots: Array, values: Array, touched: Array | int | None) -> None:
        array = self._values.array
        least = np.fmin if self._is_float else np.minimum
        least.at(array, slots, values.astype(array.dtype, copy=False))
        self._see(slots, touched)


class Greatest(_Valued):
    """A maximum; NaN is greater than all numbers."""

    def __init__(self, kind: SqlType) -> None:
        dtype = dtype_of(kind)
        super().__init__(kind, -np.inf if dtype.kind == "f" else np.iinfo(dtype).min)

    def absorb(self, slots: Array, values: Array, touched: Array | int | None) -> None:
        array = self._values.array
        np.maximum.at(array, slots, values.astype(array.dtype, copy=False))
        self._see(slots, touched)


def _greatest(values: Array) -> int:
    """A bound of absolute values: of the type when it is small, else of the values."""
    if values.dtype.itemsize <= 4:
        return 1 << 31 if values.dtype.kind == "i" else 1 << 32
    return max(int(values.max()), -int(values.min()), 0)
