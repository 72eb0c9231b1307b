"""Carrying changes (UPDATE, DELETE) out in rows that are held still: what a view becomes by them.

This takes as long as the rows that the changes may touch are many, so it is done without a lock:

1. ``Published`` gives the view and the changes that its rows do not have yet;
2. ``carry_out`` finds the rows that these touch, and makes the blocks and pieces anew that hold
   some. Whoever waited for this reads the view that results;
3. ``Published.settle`` puts the new parts in the place of the old ones. Rows may have been appended
   meanwhile: no change before them concerns these. What has become another part meanwhile (a tail
   that was sealed, a block that was cut) gets the same lines by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from tidemill.catalog.model import Index
from tidemill.changes.model import Change
from tidemill.changes.patching import Touched
from tidemill.changes.pending import NOTHING_PENDING
from tidemill.changes.resolving import resolve
from tidemill.hot.block import Block
from tidemill.hot.piece import Piece
from tidemill.hot.values import Range
from tidemill.hot.view import Condition, HotView, Wanted

POINTS_MAX = 10_000  # of changes that ask an index; more are cheaper to compare with all rows
Part = TypeVar("Part", Block, Piece)


@dataclass(frozen=True, eq=False)
class Uncarried:
    """A view, and the changes that came before it and that its rows do not have."""

    view: HotView
    changes: tuple[Change, ...]
    indexes: tuple[Index, ...]


@dataclass(frozen=True, eq=False)
class Carried:
    """What changes made of a view: the parts that they touched, by what these were before (None: no
    row is left)."""

    view: HotView
    changes: tuple[Change, ...]
    indexes: tuple[Index, ...]
    touched: Touched = field(default_factory=Touched)
    blocks: Mapping[Block, Block | None] = field(default_factory=dict)
    pieces: Mapping[Piece, Piece | None] = field(default_factory=dict)

    def block(self, block: Block, indexes: tuple[Index, ...]) -> Block | None:
        """What becomes of a block, of the view or of later ones."""
        if block in self.blocks and indexes == self.indexes:
            return self.blocks[block]
        return _patched_block(block, self.touched, indexes)

    def piece(self, piece: Piece) -> Piece | None:
        """What becomes of a piece, of the view or of later ones."""
        return self.pieces[piece] if piece in self.pieces else _patched_piece(piece, self.touched)


def carry_out(found: Uncarried) -> Carried:
    """A view whose rows have all changes."""
    view, changes, indexes = found.view, found.changes, found.indexes
    pending, last = view.changes.added(changes), changes[-1].number
    touched = _touched(view, changes)
    if not touched:
        settled = replace(view, changes=pending, last_change=last, waiting=NOTHING_PENDING)
        return Carried(settled, changes, indexes)
    blocks = {old: _patched_block(old, touched, indexes) for old in view.blocks}
    blocks = {old: block for old, block in blocks.items() if block is not old}
    pieces = {old: _patched_piece(old, touched) for old in view.tail}
    pieces = {old: piece for old, piece in pieces.items() if piece is not old}
    made = [block for block in blocks.values() if block is not None]
    settled = replace(
        view,
        blocks=tuple(_replaced(view.blocks, blocks)),
        interval=view.interval.changed(made, blocks),
        tail=tuple(_replaced(view.tail, pieces)),
        changes=pending,
        last_change=last,
        waiting=NOTHING_PENDING,
    )
    return Carried(settled, changes, indexes, touched, blocks, pieces)


def _replaced(parts: Sequence[Part], made: Mapping[Part, Part | None]) -> Iterable[Part]:
    for part in parts:
        found = made.get(part, part)
        if found is not None:
            yield found


def _touched(view: HotView, changes: Sequence[Change]) -> Touched:
    """What changes make of the rows of a view."""
    parts: tuple[Block | Piece, ...] = (*view.blocks, *view.tail)
    last_seq = max(change.upto_seq for change in changes)
    if all(part.first_seq > last_seq for part in parts):
        return Touched()
    low_us = min(change.low_us for change in changes)
    high_us = max(change.high_us for change in changes)
    conditions = _by_index(view, changes)
    rows = view.select(Wanted(low_us, high_us, conditions, with_seq=True)).table
    return resolve(view.table, rows, changes) if rows.num_rows else Touched()


def _by_index(view: HotView, changes: Sequence[Change]) -> tuple[Condition, ...]:
    """What all changes ask of one column that has an index: the first of them that touches a row
    finds its value there. Nothing if they are many, or name rows in other ways."""
    if sum(change.count for change in changes) > POINTS_MAX:
        return ()
    for index in view.table.indexes:
        name = index.columns[0]
        points: set[object] = set()
        for change in changes:
            slot = dict(change.form.keys).get(name)
            if slot is None or len(index.columns) > 1:
                break
            kind = view.table.get_column(name).type.arrow
            if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
                break
            if change.batch is not None:
                points.update(change.batch.column(slot).to_pylist())
            else:
                points.update(row[slot] for row in change.rows)
        else:
            points.discard(None)
            ranges = tuple(Range(value, True, value, True) for value in points)
            return (Condition(name, ranges),) if ranges else ()
    return ()


def _patched_block(block: Block, touched: Touched, indexes: tuple[Index, ...]) -> Block | None:
    own = touched.within(block.first_seq, block.last_seq)
    return block.patched(own, indexes) if own else block


def _patched_piece(piece: Piece, touched: Touched) -> Piece | None:
    own = touched.within(piece.first_seq, piece.last_seq)
    if not own:
        return piece
    rest = piece.patched(own)
    return rest if rest.rows else None
