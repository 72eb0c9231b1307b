"""Slots: which place in the arrays of a dense state a packed key has.

Two tables, both exact and both without a loop over rows in Python:

- ``Addressed`` has an entry for every packed key there may be: one look;
- ``Hashed`` probes. 1. Every key looks at the place its hash says. 2. Keys that found another
  look at the next place, again and again; they become few quickly, because at most half of the
  places are taken. 3. Keys that found a free place are new.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tidemill.digests.arrays import Array, NotPackable

GROUPS_MAX = 2**31 - 2
# No key given to a hashed table is this one: packed keys are not negative, floats have no -0.0,
# texts have no such first byte, and whole numbers of full range keep it apart.
FREE = np.int64(-(2**63))

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_BITS_MIN = 10
_PART_MIN = 1 << 16


class Slots(Protocol):
    count: int

    def find(self, keys: Array) -> tuple[Array, Array]:
        """The slot of every key, and rows that hold one new key each, in the order of slots."""

    def load(self, keys: Array) -> None:
        """Give the first slots to distinct keys, in their order; the table is still empty."""

    @property
    def nbytes(self) -> int: ...


class Addressed:
    """One entry for every packed key below ``size``."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self._slots = np.full(size, -1, np.int32)

    def find(self, keys: Array) -> tuple[Array, Array]:
        found = self._slots[keys]
        if found.size == 0 or found.min() >= 0:
            return found.astype(np.intp), _NONE
        missing = np.flatnonzero(found < 0)
        wanted = keys[missing]
        marks = np.arange(len(missing), dtype=np.int32)
        self._slots[wanted[::-1]] = marks[::-1]  # of equal keys the first is written last
        firsts = np.flatnonzero(self._slots[wanted] == marks)
        _check_count(self.count + len(firsts))
        new = np.arange(self.count, self.count + len(firsts), dtype=np.int32)
        self._slots[wanted[firsts]] = new
        self.count += len(firsts)
        found[missing] = self._slots[wanted]
        return found.astype(np.intp), missing[firsts]

    def load(self, keys: Array) -> None:
        self._slots[keys] = np.arange(len(keys), dtype=np.int32)
        self.count = len(keys)

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes


class Hashed:
    """Open addressing over keys of 64 bits; at most half of the places are taken."""

    def __init__(self) -> None:
        self.count = 0
        self._make(_BITS_MIN)

    def _make(self, bits: int) -> None:
        self._bits = bits
        self._keys = np.full(1 << bits, FREE, np.int64)
        self._slots = np.full(1 << bits, -1, np.int32)

    def find(self, keys: Array) -> tuple[Array, Array]:
        keys = np.ascontiguousarray(keys)
        found = self._look(keys)
        if found.size == 0 or found.min() >= 0:
            return found.astype(np.intp), _NONE
        missing = np.flatnonzero(found < 0)
        new: list[Array] = []
        while missing.size:  # in parts, since a part has as many new keys as it has rows, at most
            part, missing = np.split(missing, [max(_PART_MIN, self.count)])
            found[part], firsts = self._add(keys[part])
            new.append(part[firsts])
            if missing.size:
                found[missing] = self._look(keys[missing])
                missing = missing[found[missing] < 0]
        return found.astype(np.intp), np.concatenate(new)

    def _add(self, keys: Array) -> tuple[Array, Array]:
        """Put in keys that are not there yet; some may be equal. Of those that want one free place
        the last is placed, those equal to it have its slot, and the others go on."""
        _check_count(self.count + len(keys))
        self._reserve(self.count + len(keys))
        mask = len(self._keys) - 1
        marks = np.arange(self.count, self.count + len(keys), dtype=np.int32)
        is_first = np.zeros(len(keys), np.bool_)
        places = self._home(keys)
        rows = np.arange(len(keys))
        while rows.size:
            at = places[rows]
            free = rows[self._slots[at] < 0]
            self._slots[places[free]] = marks[free]
            placed = free[self._slots[places[free]] == marks[free]]
            self._keys[places[placed]] = keys[placed]
            is_first[placed] = True
            rows = rows[self._keys[at] != keys[rows]]
            places[rows] = (places[rows] + 1) & mask
        firsts = np.flatnonzero(is_first)
        self._slots[places[firsts]] = marks[: len(firsts)]
        self.count += len(firsts)
        return self._slots[places], firsts

    def load(self, keys: Array) -> None:
        keys = np.ascontiguousarray(keys)
        self._reserve(len(keys))
        self._place(keys, np.arange(len(keys), dtype=np.int32))
        self.count = len(keys)

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._slots.nbytes

    def growth(self, count: int) -> int:
        """The bytes that so many new keys may take: a larger table takes the old one's place, at
        the latest when keys are packed anew."""
        after = 12 << (4 * (self.count + count) - 1).bit_length()
        return max(after - self.nbytes, 0)

    def _home(self, keys: Array) -> Array:
        mixed = keys.view(np.uint64) * _MULTIPLIER
        return (mixed >> np.uint64(64 - self._bits)).view(np.int64)

    def _look(self, keys: Array) -> Array:
        at = self._home(keys)
        found = self._slots[at]
        hit = self._keys[at] == keys
        if hit.all():
            return found
        mask = len(self._keys) - 1
        rows = np.flatnonzero(~hit)
        slots = found[rows]
        found[rows] = -1
        at, keys = at[rows], keys[rows]
        while True:
            taken = np.flatnonzero(slots >= 0)
            if not taken.size:
                return found
            rows, keys, at = rows[taken], keys[taken], (at[taken] + 1) & mask
            slots = self._slots[at]
            hit = self._keys[at] == keys
            found[rows[hit]] = slots[hit]
            rest = np.flatnonzero(~hit)
            rows, keys, at, slots = rows[rest], keys[rest], at[rest], slots[rest]

    def _reserve(self, count: int) -> None:
        if 2 * count <= len(self._keys):
            return
        old = np.flatnonzero(self._slots >= 0)
        keys, slots = self._keys[old], self._slots[old]
        self._make((4 * count - 1).bit_length())
        self._place(keys, slots)

    def _place(self, keys: Array, slots: Array) -> None:
        """Put in distinct keys that are not there yet; where two want one place, one goes on."""
        mask = len(self._keys) - 1
        at = self._home(keys)
        while keys.size:
            free = self._slots[at] < 0
            self._slots[at[free]] = slots[free]
            placed = self._slots[at] == slots
            self._keys[at[placed]] = keys[placed]
            rest = np.flatnonzero(~placed)
            keys, slots, at = keys[rest], slots[rest], (at[rest] + 1) & mask


_NONE = np.zeros(0, np.intp)


def _check_count(count: int) -> None:
    if count > GROUPS_MAX:
        raise NotPackable(f"more than {GROUPS_MAX} groups")
