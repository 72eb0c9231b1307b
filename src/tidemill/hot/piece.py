"""Pieces: the young end of a table, before its rows become a block.

Small appends would leave thousands of tiny batches, and scanning those costs more than the rows
themselves. So neighbours are merged as in a binary counter: a piece joins its left neighbour while
that is not much larger, which copies every row only a logarithmic number of times.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.changes.patching import Touched, patched
from tidemill.hot import keys

MERGE_ROWS_MAX = 8_192
# A piece of many bytes stays by itself: a scan does not notice the seam, while to copy it costs as
# much as all else that is done to its rows.
MERGE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows from ``first_seq``; ``seqs`` is set once some of them were replaced."""

    first_seq: int
    last_seq: int
    batch: pa.RecordBatch
    seqs: npt.NDArray[np.int64] | None = None

    def words(self, at: int) -> npt.NDArray[Any] | None:
        """A column as machine words, if it is one without NULL."""
        known = self._words
        if at not in known:
            known[at] = keys.plain_words(self.batch.column(at))
        return known[at]

    @cached_property
    def _words(self) -> dict[int, npt.NDArray[Any] | None]:
        return {}

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def nbytes(self) -> int:
        return int(self.batch.nbytes)

    @property
    def is_large(self) -> bool:
        return self.nbytes >= MERGE_BYTES_MAX

    def seq_column(self) -> npt.NDArray[np.int64]:
        if self.seqs is not None:
            return self.seqs
        return np.arange(self.first_seq, self.first_seq + self.rows, dtype=np.int64)

    def after(self, seq: int) -> Piece | None:
        """The rows behind a sequence number, or None if there are none."""
        if self.last_seq <= seq:
            return None
        skip = rows_up_to(self, seq)
        if not skip:
            return self
        if skip == self.rows:  # those behind were replaced
            return None
        seqs = None if self.seqs is None else self.seqs[skip:]
        first = self.first_seq + skip if seqs is None else int(seqs[0])
        return Piece(first, self.last_seq, self.batch.slice(skip), seqs)

    def without_rows(self, seqs: set[int]) -> Piece:
        own = self.seq_column()
        kept = np.flatnonzero(~np.isin(own, np.fromiter(seqs, np.int64, len(seqs))))
        return Piece(self.first_seq, self.last_seq, self.batch.take(pa.array(kept)), own[kept])

    def patched(self, touched: Touched) -> Piece:
        """The rows with what changes make of them."""
        rest = replace(self, batch=patched(self.batch, self.seq_column(), touched))
        gone = touched.deleted
        return rest.without_rows(set(gone.tolist())) if len(gone) else rest


class HasSpan(Protocol):
    """A block or a piece: rows of a span of sequence numbers."""

    @property
    def first_seq(self) -> int: ...

    @property
    def last_seq(self) -> int: ...


class HasSeqs(Protocol):
    """Rows with ascending sequence numbers: a block or a piece."""

    @property
    def first_seq(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def seqs(self) -> npt.NDArray[np.int64] | None: ...


def rows_up_to(part: HasSeqs, seq: int) -> int:
    """How many rows have a sequence number up to this one."""
    if part.seqs is not None:
        return int(np.searchsorted(part.seqs, seq, "right"))
    return min(max(seq - part.first_seq + 1, 0), part.rows)


def within(ordered: list[int], part: HasSpan) -> set[int]:
    """Those of some sorted sequence numbers that lie in the span of a block or a piece."""
    first = bisect_left(ordered, part.first_seq)
    return set(ordered[first : bisect_right(ordered, part.last_seq)])


def merge(pieces: list[Piece]) -> Piece:
    """One piece with the rows of several neighbours."""
    if len(pieces) == 1:
        return pieces[0]
    seqs = None
    has_gaps = any(b.first_seq != a.last_seq + 1 for a, b in pairwise(pieces))
    if has_gaps or any(piece.seqs is not None for piece in pieces):
        seqs = np.concatenate([piece.seq_column() for piece in pieces])
    batch = pa.concat_batches([piece.batch for piece in pieces])
    return Piece(pieces[0].first_seq, pieces[-1].last_seq, batch, seqs)


def add(pieces: tuple[Piece, ...], newcomer: Piece) -> tuple[Piece, ...]:
    """The pieces with one more at the end, neighbours merged where that pays."""
    start, rows = len(pieces), newcomer.rows
    while start and rows < MERGE_ROWS_MAX and pieces[start - 1].rows <= 2 * rows:
        if newcomer.is_large or pieces[start - 1].is_large:
            break
        start -= 1
        rows += pieces[start].rows
    return (*pieces[:start], merge([*pieces[start:], newcomer]))
