"""The rows that ``newest`` holds, by place, and the chain that leads from each key's newest row to
the one before it, and so on.

1. Rows lie in pieces. A piece that is no smaller than half of the one before is joined to it, so
   there are few, and a row is copied a few times only.
2. ``before`` has, for each place, that of the row before in the order of ``(time, _seq)`` of its
   key, or ``NONE``; ``head`` has the place of each key's newest row.
3. Thinning keeps the k newest rows of each key: those from which k steps forward along the chain
   leave it. Such steps are doubled, not walked.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.digests.arrays import Growing
from tidemill.hot import keys
from tidemill.sql.calls import SEQ

Numbers = npt.NDArray[np.int64]
NONE = -1


class HeldRows:
    def __init__(self, time: str) -> None:
        self._time = time
        self._pieces: list[pa.Table] = []
        self.codes = Growing(np.int64)
        self.times = Growing(np.int64)
        self.seqs = Growing(np.int64)
        self.before = Growing(np.int64, NONE)
        self.head = Growing(np.int64, NONE)
        self.left = 0  # rows that the last thinning left, at the first places

    def __len__(self) -> int:
        return len(self.codes.array)

    def append(self, rows: pa.Table, codes: Numbers) -> None:
        """Add rows at the next places; the chain does not know them yet."""
        self._pieces.append(rows)
        while len(self._pieces) > 1 and 2 * len(self._pieces[-1]) >= len(self._pieces[-2]):
            last = self._pieces.pop()
            self._pieces[-1] = pa.concat_tables([self._pieces[-1], last]).combine_chunks()
        self.codes.append(codes)
        self.times.append(numbers(rows, self._time))
        self.seqs.append(numbers(rows, SEQ))
        self.before.append(np.full(len(codes), NONE, np.int64))
        if len(codes):
            self.head.grow(max(len(self.head.array), int(codes.max()) + 1))

    def link(self, places: Numbers, is_first: npt.NDArray[np.bool_]) -> None:
        """Chain places that stand by key, time and arrival; those of a key in one go, its first
        one marked. What a first one led to stays."""
        after = np.flatnonzero(~is_first)
        self.before.array[places[after]] = places[after - 1]
        is_last = np.ones(len(places), dtype=bool)
        is_last[:-1] = is_first[1:]
        newest = places[is_last]
        self.head.array[self.codes.array[newest]] = newest

    def chain(self, codes: Numbers, count: int) -> tuple[Numbers, Numbers]:
        """Up to ``count`` newest places of each key, the oldest first, one key after another; and
        how many each has."""
        found, owners = [], []
        places, owner = self.head.array[codes], np.arange(len(codes))
        for _ in range(count):
            is_there = places != NONE
            places, owner = places[is_there], owner[is_there]
            if not len(places):
                break
            found.append(places)
            owners.append(owner)
            places = self.before.array[places]
        if not found:
            return np.zeros(0, np.int64), np.zeros(len(codes), np.int64)
        flat, of = np.concatenate(found[::-1]), np.concatenate(owners[::-1])
        return flat[np.argsort(of, kind="stable")], np.bincount(of, minlength=len(codes))

    def take(self, places: Numbers) -> pa.Table:
        """Rows by place, in that order."""
        if len(self._pieces) == 1:
            return self._pieces[0].take(keys.row_numbers(places))
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        ends = np.cumsum([len(piece) for piece in self._pieces])
        cuts = np.searchsorted(ordered, ends)
        parts, low, base = [], 0, 0
        for piece, cut, end in zip(self._pieces, cuts, ends, strict=True):
            if cut > low:
                parts.append(piece.take(keys.row_numbers(ordered[low:cut] - base)))
            low, base = int(cut), int(end)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables(parts).combine_chunks().take(keys.row_numbers(back))

    def thin(self, count: int) -> None:
        """Keep the ``count`` newest rows of each key."""
        size = len(self)
        ahead = np.full(size + 1, size, np.int64)  # the row after; behind the newest, the end
        is_linked = np.flatnonzero(self.before.array != NONE)
        ahead[self.before.array[is_linked]] = is_linked
        kept = np.flatnonzero(_steps(ahead, count)[:size] == size)
        rows = self.take(kept).combine_chunks()
        place = np.full(size + 1, NONE, np.int64)  # NONE is the last entry, and stays NONE
        place[kept] = np.arange(len(kept))
        self._pieces = [rows]
        self.before = _growing(place[self.before.array[kept]], NONE)
        self.codes = _growing(self.codes.array[kept])
        self.times = _growing(self.times.array[kept])
        self.seqs = _growing(self.seqs.array[kept])
        self.head.array[:] = place[self.head.array]
        self.left = len(kept)


def _growing(values: Numbers, fill: int = 0) -> Growing:
    made = Growing(np.int64, fill)
    made.append(values)
    return made


def _steps(ahead: Numbers, count: int) -> Numbers:
    """Where ``count`` steps lead from each place."""
    at = np.arange(len(ahead))
    while count:
        if count & 1:
            at = ahead[at]
        ahead = ahead[ahead]
        count >>= 1
    return at


def numbers(table: pa.Table, name: str) -> Numbers:
    """A column of whole numbers or times."""
    column = table.column(name)
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return np.asarray(keys.words(chunk), dtype=np.int64)
