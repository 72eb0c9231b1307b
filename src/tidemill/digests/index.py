"""The index of a dense state: rows of key columns in, slots out.

1. Each column's coder gives every key a code below the column's span.
2. The codes are packed into one number, as digits of a mixed radix. Where that would pass 62 bits,
   what was packed so far is itself coded in the order it comes, and packing goes on with that.
3. A table answers the slot of the packed number: one entry for every number there can be while
   they are few enough, else a hash table.

When a coder needs a wider span, codes change: the keys of all slots are packed anew, into the
same slots. Spans grow by a part of themselves, so that happens seldom.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidemill.digests.arrays import Array
from tidemill.digests.coders import Coder, Keys, NumberCoder, coder_for
from tidemill.digests.slots import GROUPS_MAX, Addressed, Hashed, Slots
from tidemill.types import SqlType

_PACKED_MAX = 1 << 62
_ADDRESSED_ALWAYS = 1 << 20
_ADDRESSED_MAX = 1 << 25
_ENTRIES_PER_GROUP_MAX = 16


class KeyIndex:
    """Slots of keys, numbered from zero as keys come; without columns there is one slot."""

    def __init__(self, types: Sequence[SqlType]) -> None:
        self._coders: list[Coder] = [coder_for(kind) for kind in types]
        self._narrow: dict[tuple[int, bool], Hashed] = {}
        self._size = 1
        self._table: Slots = Addressed(1)
        if not self._coders:
            self._table.load(np.zeros(1, np.int64))

    @property
    def groups(self) -> int:
        return self._table.count

    @property
    def nbytes(self) -> int:
        tables = self._table.nbytes + sum(table.nbytes for table in self._narrow.values())
        return tables + sum(coder.nbytes for coder in self._coders)

    def growth(self, count: int) -> int:
        """The bytes that tables of places take more, if so many new groups come."""
        tables = [self._table, *self._narrow.values(), *(coder.places for coder in self._coders)]
        return sum(table.growth(count) for table in tables if isinstance(table, Hashed))

    def slots(self, columns: Sequence[pa.ChunkedArray | pa.Array], rows: int) -> Array:
        """The slot of every row; keys that are new get the next ones."""
        if not self._coders:
            return np.zeros(rows, np.intp)
        keys = [coder.read(column) for coder, column in zip(self._coders, columns, strict=True)]
        changes = [coder.widen(part) for coder, part in zip(self._coders, keys, strict=True)]
        if any(changes) or self._is_dense_now():
            self._repack(rows)
        slots, firsts = self._table.find(self._pack(keys, rows))
        if len(firsts):
            for coder, part in zip(self._coders, keys, strict=True):
                coder.append(part, firsts)
        return slots

    def columns(self) -> list[pa.Array]:
        """The keys of all slots, one column each."""
        return [coder.column() for coder in self._coders]

    def only(self) -> dict[int, int]:
        """Times that are the same in all slots, by the place of their column."""
        times = {at: c.only for at, c in enumerate(self._coders) if isinstance(c, NumberCoder)}
        return {at: time for at, time in times.items() if time is not None}

    def describe(self) -> str:
        """How slots are found, for people."""
        return "addressed" if isinstance(self._table, Addressed) else "hashed"

    # Packing.

    def _pack(self, keys: Sequence[Keys], rows: int) -> Array:
        codes = [coder.codes(part) for coder, part in zip(self._coders, keys, strict=True)]
        packed, size = codes[0], self._coders[0].span
        for at, coder in enumerate(self._coders[1:], 1):
            code, span = codes[at], coder.span
            if size * span > _PACKED_MAX:
                packed, size = self._coded(at, True, packed, rows), GROUPS_MAX + 1
            if size * span > _PACKED_MAX:
                code, span = self._coded(at, False, code, rows), GROUPS_MAX + 1
            packed, size = packed * span + code, size * span
        self._size = size
        return packed if isinstance(packed, np.ndarray) else np.full(rows, packed, np.int64)

    def _coded(self, at: int, is_left: bool, codes: Array | int, rows: int) -> Array:
        if not isinstance(codes, np.ndarray):
            codes = np.full(rows, codes, np.int64)
        if (at, is_left) not in self._narrow:
            self._narrow[at, is_left] = Hashed()
        return self._narrow[at, is_left].find(codes)[0]

    def _repack(self, coming: int) -> None:
        """Choose the table by how many numbers there can be, and put all slots in again."""
        groups = self.groups
        self._narrow = {}
        packed = self._pack([coder.stored() for coder in self._coders], groups)
        is_addressed = self._is_addressable(groups + coming // 2)
        self._table = Addressed(self._size) if is_addressed else Hashed()
        self._table.load(packed)

    def _is_addressable(self, groups: int) -> bool:
        return self._size <= _ADDRESSED_ALWAYS or (
            self._size <= _ADDRESSED_MAX and self._size <= _ENTRIES_PER_GROUP_MAX * groups
        )

    def _is_dense_now(self) -> bool:
        return isinstance(self._table, Hashed) and self._is_addressable(self.groups)
