"""The tail: the newest rows of a table, before they become a block.

A few pieces (``piece``), and behind them rows that came one by one, which wait as Python tuples
until a reader comes or a thousand have gathered: to make an Arrow batch of one row costs more than
all else on its way. ``Published`` holds the tail under its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from tidemill.hot.piece import Piece, add, within
from tidemill.hot.unit import Unit
from tidemill.plain_rows import batch_of_rows

ROWS_PENDING_MAX = 1_024


class Tail:
    """``waiting`` are the rows that are not Arrow yet; ``rows`` counts them, ``piece_bytes`` leaves
    them out. These are attributes, since every append looks at them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.rows = 0
        self.pieces: tuple[Piece, ...] = ()
        self.piece_bytes = 0
        self.waiting: list[tuple[object, ...]] = []
        self._waiting_first_seq = 0

    def add(self, unit: Unit) -> None:
        """Put the rows of a unit at the end."""
        if unit.rows:
            self._wait(unit)
        if unit.batches:
            self.gather()
            seq = unit.first_seq
            for batch in unit.batches:
                self._add_piece(Piece(seq, seq + batch.num_rows - 1, batch))
                seq += batch.num_rows

    def _wait(self, unit: Unit) -> None:
        if self.waiting and unit.first_seq != self._waiting_first_seq + len(self.waiting):
            self.gather()
        if not self.waiting:
            self._waiting_first_seq = unit.first_seq
        self.waiting.extend(unit.rows)
        self.rows += len(unit.rows)
        if len(self.waiting) >= ROWS_PENDING_MAX:
            self.gather()

    def _add_piece(self, piece: Piece) -> None:
        self.pieces = add(self.pieces, piece)
        self.rows += piece.rows
        self.piece_bytes += piece.nbytes

    def gather(self) -> None:
        """Turn the rows that came one by one into a piece."""
        if self.waiting:
            batch = batch_of_rows(self.waiting, self._schema)
            self.rows -= len(self.waiting)
            self.waiting = []
            first = self._waiting_first_seq
            self._add_piece(Piece(first, first + batch.num_rows - 1, batch))

    def drop_first(self, count: int) -> None:
        """Let go of the oldest pieces: they are blocks now."""
        self._set(self.pieces[count:])

    def release(self, moved_seq: int) -> None:
        """Let go of the rows up to a sequence number; the waiting ones were gathered before."""
        rest = (piece.after(moved_seq) for piece in self.pieces)
        self._set(piece for piece in rest if piece is not None)

    def remove(self, gone: set[int]) -> set[int]:
        """Take replaced rows out of the pieces; answers which of them were there."""
        ordered, taken = sorted(gone), set()
        pieces = []
        for piece in self.pieces if gone else ():
            hit = within(ordered, piece)
            taken |= hit
            rest = piece.without_rows(hit) if hit else piece
            pieces += [rest] if rest.rows else []
        if taken:
            self._set(pieces)
        return taken

    def patch(self, patched: Callable[[Piece], Piece | None]) -> None:
        """Put what changes make of the pieces in their place."""
        rest = map(patched, self.pieces)
        self._set(piece for piece in rest if piece is not None)

    def may_wait(self, following: int) -> bool:
        """Whether a row that waits has a sequence number below this one."""
        return bool(self.waiting) and following > self._waiting_first_seq

    def _set(self, pieces: Iterable[Piece]) -> None:
        self.pieces = tuple(pieces)
        self.rows = sum(piece.rows for piece in self.pieces) + len(self.waiting)
        self.piece_bytes = sum(piece.nbytes for piece in self.pieces)
