"""Patching: rows as Arrow, with what changes make of them.

``Touched`` names rows by their numbers: those that are deleted, and for each column the rows that
get a new value. Columns that nothing is set of are handed on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Seqs = npt.NDArray[np.int64]
NO_SEQS: Seqs = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class NewValues:
    """The new values of one column: of the rows with these numbers, which are in order."""

    seqs: Seqs
    values: pa.Array


@dataclass(frozen=True, eq=False)
class Touched:
    """The rows that changes touch, by their numbers, in order."""

    deleted: Seqs = field(default_factory=lambda: NO_SEQS)
    columns: Mapping[str, NewValues] = field(default_factory=dict)

    @property
    def seqs(self) -> Seqs:
        """All of them."""
        parts = [self.deleted, *(new.seqs for new in self.columns.values())]
        return np.unique(np.concatenate(parts))

    def __bool__(self) -> bool:
        return bool(len(self.deleted) or any(len(new.seqs) for new in self.columns.values()))

    def within(self, first_seq: int, last_seq: int) -> Touched:
        """Those of a span of numbers, both ends included."""
        columns = {}
        for name, new in self.columns.items():
            low, high = _span(new.seqs, first_seq, last_seq)
            if low < high:
                columns[name] = NewValues(new.seqs[low:high], new.values.slice(low, high - low))
        low, high = _span(self.deleted, first_seq, last_seq)
        return Touched(self.deleted[low:high], columns)


def _span(seqs: Seqs, first: int, last: int) -> tuple[int, int]:
    low, high = np.searchsorted(seqs, (first, last + 1))
    return int(low), int(high)


def patched(batch: pa.RecordBatch, seqs: Seqs, touched: Touched) -> pa.RecordBatch:
    """Rows with their new values; deleted ones are still there. ``seqs`` are the rows' numbers, in
    order."""
    columns = list(batch.columns)
    for name, new in touched.columns.items():
        at = batch.schema.get_field_index(name)
        columns[at] = _with_values(columns[at], seqs, new)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _with_values(column: pa.Array, seqs: Seqs, new: NewValues) -> pa.Array:
    places = np.searchsorted(seqs, new.seqs)
    places[places == len(seqs)] = 0
    is_here = seqs[places] == new.seqs if len(seqs) else np.zeros(len(places), dtype=bool)
    if not is_here.any():
        return column
    if _is_plain(column) and _is_plain(new.values):
        words = column.view(_word(column.type)).to_numpy().copy()
        given = new.values.view(_word(column.type)).to_numpy()
        words[places[is_here]] = given[is_here]
        return pa.array(words).view(column.type)
    index = np.arange(len(column), dtype=np.int64)
    index[places[is_here]] = len(column) + np.flatnonzero(is_here)
    return pa.concat_arrays([column, new.values]).take(pa.array(index))


def _is_plain(column: pa.Array) -> bool:
    """Whether it is machine words of eight or four bytes and nothing else."""
    kind = column.type
    is_word = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind)
    return bool(is_word and column.null_count == 0 and kind.bit_width in (32, 64))


def _word(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if kind.bit_width == 64 else pa.int32()


def merged(parts: Sequence[Touched]) -> Touched:
    """What several make of the same rows, one after the other: the last value of each counts."""
    if len(parts) == 1:
        return parts[0]
    deleted = np.unique(np.concatenate([part.deleted for part in parts])) if parts else NO_SEQS
    names = dict.fromkeys(name for part in parts for name in part.columns)
    columns = {
        name: _last([part.columns[name] for part in parts if name in part.columns])
        for name in names
    }
    return Touched(deleted, columns)


def _last(parts: Sequence[NewValues]) -> NewValues:
    if len(parts) == 1:
        return parts[0]
    seqs = np.concatenate([part.seqs for part in parts])
    values = pa.concat_arrays([part.values for part in parts])
    # np.unique gives the first of equal ones: look from the end
    found, places = np.unique(seqs[::-1], return_index=True)
    return NewValues(found, values.take(pa.array(len(seqs) - 1 - places)))
