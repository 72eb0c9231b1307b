"""The rows that ``newest`` holds, and the chain that leads from each key's newest row to the one
before it, and so on.

1. Every row held has a place in some arrays. ``before`` has the place of the row before it, in the
   order of ``(time, _seq)`` of its key, or ``NONE``; ``head`` has that of each key's newest row.
2. Of a key only so many rows are held; older ones are dropped when newer ones come, and their
   places are given to others. So a batch costs what its own rows and one piece cost, at most.
3. The rows themselves lie in pieces, which are not changed. One of which most rows were dropped is
   written anew without them, and so are small ones that stand side by side; a row is copied a few
   times only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.digests.arrays import Growing
from tidemill.hot import keys
from tidemill.types import SEQ

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NONE = -1
# A piece is written anew at once, and queries wait for it.
PIECE_ROWS = 1 << 19


@dataclass(eq=False)
class _Piece:
    """Rows with the numbers from ``first`` on, and the place that each was given."""

    first: int
    rows: pa.Table
    places: Numbers
    held: int  # so many of them

    def __len__(self) -> int:
        return len(self.places)

    @property
    def numbers(self) -> Numbers:
        return np.arange(self.first, self.first + len(self))


class HeldRows:
    def __init__(self, time: str, most: int) -> None:
        """``most`` rows of a key are held."""
        self._time = time
        self._most = most
        self.codes = Growing(np.int64)  # NONE where nothing is held
        self.times = Growing(np.int64)
        self.seqs = Growing(np.int64)
        self._before = Growing(np.int64)
        self._numbers = Growing(np.int64)
        self._head = Growing(np.int64, NONE)
        self.has_lost = Growing(np.bool_, False)  # keys of which rows are there no more
        self._free = np.zeros(0, np.int64)
        self._pieces: list[_Piece] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self.codes.array) - len(self._free)

    def append(self, rows: pa.Table, codes: Numbers) -> Numbers:
        """Give places to rows; the chain does not know them yet."""
        places = self._new_places(len(codes))
        self.codes.array[places] = codes
        self.times.array[places] = numbers(rows, self._time)
        self.seqs.array[places] = numbers(rows, SEQ)
        size = len(codes) if self._pieces else max(len(codes), 1)  # an empty one, at first
        for start in range(0, size, PIECE_ROWS):
            part = slice(start, start + PIECE_ROWS)
            self._store(rows.slice(start, PIECE_ROWS), places[part])
        self._join_small()
        if len(codes):
            keys_known = max(len(self._head.array), int(codes.max()) + 1)
            self._head.grow(keys_known)
            self.has_lost.grow(keys_known)
        return places

    def reserve(self) -> None:
        """Make room for as many rows and keys again: to grow takes long when there are many, and
        the first rows that arrive would have to wait for it."""
        for each in (self.codes, self.times, self.seqs, self._before, self._numbers):
            each.reserve(2 * len(each.array))
        for of_keys in (self._head, self.has_lost):
            of_keys.reserve(2 * len(of_keys.array))

    def link(self, places: Numbers, is_first: Mask) -> None:
        """Chain places that stand by key, time and arrival; those of a key in one go, its first
        one marked."""
        after = np.flatnonzero(~is_first)
        self._before.array[places[after]] = places[after - 1]
        self._before.array[places[is_first]] = NONE
        newest = places[_lasts(is_first)]
        self._head.array[self.codes.array[newest]] = newest

    def trim(self, places: Numbers, is_first: Mask) -> None:
        """Drop the oldest rows of keys that have too many; all rows of a key are given."""
        ends = np.flatnonzero(_lasts(is_first))
        newer = ends[np.cumsum(is_first) - 1] - np.arange(len(places))
        oldest = places[newer == self._most - 1]
        dropped = places[newer >= self._most]
        self._before.array[oldest] = NONE
        if len(dropped):
            self.has_lost.array[self.codes.array[dropped]] = True
            self._drop(dropped)

    def chain(self, codes: Numbers) -> tuple[Numbers, Numbers]:
        """The places of each key that the chain knows, the oldest first, one key after another;
        and how many each has."""
        found: list[tuple[Numbers, Numbers]] = []
        lengths = np.zeros(len(codes), np.int64)
        places, owners = self._head.array[codes], np.arange(len(codes))
        while True:
            is_there = places != NONE
            places, owners = places[is_there], owners[is_there]
            if not len(places):
                break
            found.append((places, owners))
            lengths[owners] = len(found)
            places = self._before.array[places]
        flat = np.empty(lengths.sum(), np.int64)
        last = np.cumsum(lengths) - 1
        for newer, (places, owners) in enumerate(found):
            flat[last[owners] - newer] = places
        return flat, lengths

    def of_keys(self, codes: Numbers) -> Numbers:
        """All places of some keys, in any order."""
        return np.flatnonzero(np.isin(self.codes.array, codes))

    def all(self) -> Numbers:
        return np.flatnonzero(self.codes.array != NONE)

    def take(self, places: Numbers) -> pa.Table:
        """Rows by place, in that order."""
        if not len(places):
            return self._pieces[0].rows.slice(0, 0)
        wanted = self._numbers.array[places]
        if len(self._pieces) == 1:
            (piece,) = self._pieces
            return piece.rows.take(keys.row_numbers(wanted - piece.first))
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order]
        cuts = np.searchsorted(ordered, [piece.first for piece in self._pieces])
        parts = [
            piece.rows.take(keys.row_numbers(ordered[low:high] - piece.first))
            for piece, low, high in zip(self._pieces, cuts, [*cuts[1:], len(order)], strict=True)
            if high > low
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables(parts).combine_chunks().take(keys.row_numbers(back))

    # -- places

    def _new_places(self, count: int) -> Numbers:
        left = max(len(self._free) - count, 0)
        given, self._free = self._free[left:], self._free[:left]
        size = len(self.codes.array)
        grown = size + count - len(given)
        for each in (self.codes, self.times, self.seqs, self._before, self._numbers):
            each.grow(grown)
        return np.concatenate([given, np.arange(size, grown)])

    def _drop(self, places: Numbers) -> None:
        firsts = [piece.first for piece in self._pieces]
        of = np.searchsorted(firsts, self._numbers.array[places], side="right") - 1
        for at, count in enumerate(np.bincount(of, minlength=len(firsts))):
            self._pieces[at].held -= int(count)
        self._numbers.array[places] = NONE
        self.codes.array[places] = NONE
        self._free = np.concatenate([self._free, places])
        emptiest = min(self._pieces, key=lambda piece: 2 * piece.held - len(piece))
        if 2 * emptiest.held < len(emptiest):
            self._write_anew([emptiest])

    # -- pieces

    def _store(self, rows: pa.Table, places: Numbers) -> None:
        piece = _Piece(self._next, rows.combine_chunks(), places, len(places))
        self._next += len(places)
        self._numbers.array[places] = piece.numbers
        self._pieces.append(piece)

    def _join_small(self) -> None:
        while len(self._pieces) > 1:
            before, last = self._pieces[-2:]
            if 2 * len(last) < len(before) or len(before) + len(last) > PIECE_ROWS:
                return
            self._write_anew([before, last])

    def _write_anew(self, pieces: Sequence[_Piece]) -> None:
        """Put what is held of some pieces into one."""
        rows, places = [], []
        for piece in pieces:
            is_held = self._numbers.array[piece.places] == piece.numbers
            chosen = np.flatnonzero(is_held)
            is_whole = len(chosen) == len(piece)
            rows.append(piece.rows if is_whole else piece.rows.take(keys.row_numbers(chosen)))
            places.append(piece.places[chosen])
        self._pieces = [piece for piece in self._pieces if piece not in pieces]
        if sum(map(len, places)) or not self._pieces:  # the last one tells what rows are like
            self._store(pa.concat_tables(rows), np.concatenate(places))


def _lasts(is_first: Mask) -> Mask:
    """Where stretches end, by where they begin."""
    is_last = np.ones(len(is_first), dtype=bool)
    is_last[:-1] = is_first[1:]
    return is_last


def numbers(table: pa.Table, name: str) -> Numbers:
    """A column of whole numbers or times."""
    column = table.column(name)
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return np.asarray(keys.words(chunk), dtype=np.int64)
