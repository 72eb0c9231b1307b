"""Alike: the changes of one form, side by side, so that rules look at all of them at once.

Each correction is a place. What the slots of all hold stands in lists that only grow: a set that
has more changes than another shares them and counts further. Corrections that came as Arrow are
one place a batch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.changes.domains import Domain, Span
from tidemill.changes.model import Change, ChangeForm

Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[Any]

LOOPED_MAX = 1_000  # values of a kind without words that are compared one by one
_WORDS = {"DOUBLE": np.float64, "TIMESTAMP": np.int64, "TIMESTAMP WITH TIME ZONE": np.int64}
_WHOLE = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
)


@dataclass
class _Store:
    """What grows: of every place its change, and of every slot its values."""

    form: ChangeForm
    owners: list[int] = field(default_factory=list)  # the change's place among all
    lows: list[int] = field(default_factory=list)
    highs: list[int] = field(default_factory=list)
    values: list[list[object]] = field(default_factory=list)
    batches: dict[int, pa.RecordBatch] = field(default_factory=dict)  # of places that are many
    index: dict[int, dict[object, list[int]]] = field(default_factory=dict)
    indexed: dict[int, int] = field(default_factory=dict)  # how many places, by slot
    lock: threading.Lock = field(default_factory=threading.Lock)  # of the index

    def add(self, change: Change, at: int) -> None:
        if change.batch is not None:
            self.batches[len(self.owners)] = change.batch
            rows: Sequence[tuple[object, ...]] = ((None,) * len(self.form.types),)
        else:
            rows = change.rows
        for row in rows:
            self.owners.append(at)
            self.lows.append(change.low_us)
            self.highs.append(change.high_us)
            for column, value in zip(self.values, row, strict=True):
                column.append(value)

    def places_of(self, slot: int, value: object) -> list[int]:
        """The places where a slot has a value."""
        with self.lock:
            known = self.index.setdefault(slot, {})
            values = self.values[slot]
            end = len(values)  # others may add more meanwhile
            for place in range(self.indexed.get(slot, 0), end):
                known.setdefault(values[place], []).append(place)
            self.indexed[slot] = end
            return list(known.get(value, ()))


class Alike:
    """The changes of one form, up to some number of places."""

    def __init__(self, form: ChangeForm, store: _Store | None = None) -> None:
        self.form = form
        self._store = store or _Store(form, values=[[] for _ in form.types])
        self.count = len(self._store.owners)
        self._words: dict[int, tuple[Words, Mask] | None] = {}
        self._arrays: tuple[Words, Words, Words] | None = None

    def with_more(self, changes: Sequence[tuple[int, Change]]) -> Alike:
        """These and later ones, with their places among all changes."""
        store = self._store
        if len(store.owners) != self.count:  # others went on from here
            store = _copied(store, self.count)
        for at, change in changes:
            store.add(change, at)
        return Alike(self.form, store)

    @property
    def owners(self) -> Words:
        """Whose each place is: the place of its change among all."""
        return self._spans[0]

    @property
    def lows(self) -> Words:
        return self._spans[1]

    @property
    def highs(self) -> Words:
        return self._spans[2]

    @property
    def _spans(self) -> tuple[Words, Words, Words]:
        if self._arrays is None:
            store, count = self._store, self.count
            columns = (store.owners, store.lows, store.highs)
            owners, lows, highs = (np.array(each[:count], dtype=np.int64) for each in columns)
            self._arrays = owners, lows, highs
        return self._arrays

    @property
    def has_batches(self) -> bool:
        """Whether a place may stand for many corrections."""
        return bool(self._store.batches)

    def every(self, is_so: bool = True) -> Mask:
        return np.full(self.count, is_so)

    def within(self, slot: int, domain: Domain) -> Mask:
        """Where a slot may have a value of a domain; NULL, which equals nothing, never has."""
        points = domain.points
        if points is not None and len(points) <= LOOPED_MAX:
            mask = self.every(False)
            for value in points:
                places = self._store.places_of(slot, value)
                mask[[place for place in places if place < self.count]] = True
        else:
            mask = self._in_ranges(slot, domain)
        for place, batch in list(self._store.batches.items()):
            if place < self.count:
                mask[place] = _has_some(batch.column(slot), domain)
        return mask

    def is_null(self, slot: int) -> Mask:
        """Where a slot may be NULL."""
        mask = self.every(False)
        values = self._store.values[slot]
        mask[[place for place in range(self.count) if values[place] is None]] = True
        for place, batch in list(self._store.batches.items()):
            if place < self.count:
                mask[place] = batch.column(slot).null_count > 0
        return mask

    def _in_ranges(self, slot: int, domain: Domain) -> Mask:
        words = self._words_of(slot)
        if words is not None:
            found, known = words
            mask = self.every(False)
            try:
                for span in domain.ranges:
                    mask |= _between(found, span)
            except (TypeError, OverflowError):
                return known
            return mask & known
        values = self._store.values[slot]
        if self.count > LOOPED_MAX:
            return self.every()
        held = (value is not None and domain.holds(value) for value in values[: self.count])
        return np.fromiter(held, dtype=bool, count=self.count)

    def _words_of(self, slot: int) -> tuple[Words, Mask] | None:
        """The values as machine words and where there are any; None for other types."""
        if slot not in self._words:
            kind = self.form.types[slot]
            dtype = np.int64 if kind in _WHOLE else _WORDS.get(kind)
            values = self._store.values[slot][: self.count]
            if dtype is None:
                self._words[slot] = None
            else:
                known = np.array([value is not None for value in values], dtype=bool)
                plain = [0 if value is None else value for value in values]
                self._words[slot] = np.array(plain, dtype=dtype), known
        return self._words[slot]


def _copied(store: _Store, count: int) -> _Store:
    return _Store(
        store.form,
        store.owners[:count],
        store.lows[:count],
        store.highs[:count],
        [values[:count] for values in store.values],
        {place: batch for place, batch in store.batches.items() if place < count},
    )


def _between(words: Words, span: Span) -> Mask:
    low, has_low, high, has_high = span
    mask = np.ones(len(words), dtype=bool)
    if low is not None:
        mask &= (words >= low) if has_low else (words > low)
    if high is not None:
        mask &= (words <= high) if has_high else (words < high)
    if words.dtype.kind == "f":
        mask |= np.isnan(words)
    return mask


def _has_some(column: pa.Array, domain: Domain) -> bool:
    """Whether an array may have a value of a domain."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    points = domain.points
    try:
        if points is not None and not pa.types.is_floating(column.type):  # 0.0 is -0.0
            wanted = pa.array(points, type=column.type)
            return bool(pc.any(pc.is_in(column, wanted)).as_py())
        return any(_has_between(column, span) for span in domain.ranges)
    except (pa.ArrowException, TypeError, OverflowError):
        return True


def _has_between(column: pa.Array, span: Span) -> bool:
    low, has_low, high, has_high = span
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return True
    mask = pc.is_valid(column)
    if low is not None:
        own = pa.scalar(low, type=column.type)
        mask = pc.and_(mask, (pc.greater_equal if has_low else pc.greater)(column, own))
    if high is not None:
        own = pa.scalar(high, type=column.type)
        mask = pc.and_(mask, (pc.less_equal if has_high else pc.less)(column, own))
    return bool(pc.any(mask).as_py())
