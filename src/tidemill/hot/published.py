"""What is published: the blocks, the tail and the side tables that readers see.

A circular list of blocks in arrival order (document 002 §VI-A): the newest rows join at the tail,
whole blocks leave at the head when retention no longer wants them. The tail (``tail``) becomes a
block once it is large enough.

Changes (UPDATE, DELETE) wait until the table is read: then all that came since the last read are
carried out in the blocks and pieces that they touch, in one go and without the lock (``carrying``).
They are kept for as long as rows in files may need them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from tidemill.catalog.model import Index, Table
from tidemill.changes.needed import Needed
from tidemill.changes.patching import Seqs
from tidemill.changes.pending import Pending
from tidemill.hot.block import BLOCK_ROWS, BLOCK_ROWS_MAX, Block, make_block
from tidemill.hot.carrying import Carried, Uncarried
from tidemill.hot.change_list import ChangeList
from tidemill.hot.interval import IntervalIndex
from tidemill.hot.loaded import LoadedNumbers
from tidemill.hot.piece import Piece, merge, within
from tidemill.hot.replacements import Replacements
from tidemill.hot.side import REJECTED_SCHEMA, SideTable, late_schema
from tidemill.hot.tail import Tail
from tidemill.hot.unit import ROW_BYTES_ESTIMATE, Unit
from tidemill.hot.view import BEFORE_ALL_US, HotView

SEQ_BYTES_ESTIMATE = 64  # of a number in a set
DIRECTORY_ROW_BYTES = 16  # of a row in a block's directory: its key, its place, its number
TAIL_SHARES = 16


class Published:
    """All methods but ``seal`` are short and take the lock; ``seal`` sorts outside of it and must
    not run twice at once (the table's publish lock sees to that)."""

    def __init__(self, table: Table, indexes: tuple[Index, ...]) -> None:
        assert table.time_column is not None
        self.lock = threading.RLock()
        self.table = table
        self.late = SideTable(late_schema(table.schema))
        self.rejected = SideTable(REJECTED_SCHEMA)
        self.last_seq = 0
        self.moved_seq = 0  # history holds the rows up to here
        # Replaced rows behind moved_seq, which no move may write; with the last number that was
        # visible when they were. Only added to: a release makes another one.
        self._gone: dict[int, int] = {}
        self._removed: set[int] = set()  # rows of history that rows in memory replaced
        self.replacements = Replacements()  # for followers
        self.loads = LoadedNumbers()
        self._indexes = indexes
        self._time_column = table.time_column
        self._next_block_id = 1
        self._blocks: tuple[Block, ...] = ()
        self._block_bytes = 0
        self._interval = IntervalIndex()
        self._tail = Tail(table.schema)
        self._replaced: set[int] = set()
        self._view: HotView | None = None
        self.shown_rows = 0
        self.expired_rows = 0
        self._expired_us = BEFORE_ALL_US
        self.changes = ChangeList()

    @property
    def nbytes(self) -> int:
        tail = self._tail
        held = self._block_bytes + tail.piece_bytes + self.late.nbytes + self.rejected.nbytes
        marked = len(self._gone) + len(self._removed)
        marks = marked * SEQ_BYTES_ESTIMATE + self.changes.nbytes
        return held + len(tail.waiting) * ROW_BYTES_ESTIMATE + marks

    @property
    def directory_bytes_to_come(self) -> int:
        """Of the directories that the tail will have as a block, about."""
        return self._tail.rows * len(self._indexes) * DIRECTORY_ROW_BYTES

    @property
    def directory_row_bytes(self) -> int:
        """What the indices add to a row, about."""
        return len(self._indexes) * DIRECTORY_ROW_BYTES

    @property
    def row_count(self) -> int:
        """Rows held, some of which may have been replaced; cheaper than a view."""
        with self.lock:
            return sum(b.rows for b in self._blocks) + self._tail.rows

    @property
    def is_due(self) -> bool:
        """Whether the tail is large enough to become a block, by rows or (since only blocks can
        leave memory) by its share of the table's memory."""
        tail = self._tail
        if tail.rows >= BLOCK_ROWS:
            return True
        return bool(tail.piece_bytes * TAIL_SHARES >= self.table.settings["memory"])

    def show(self, unit: Unit) -> None:
        """Let readers see a unit."""
        with self.lock:
            self._view = None
            self.changes.add(unit.changes)
            self._tail.add(unit)
            count = unit.row_count
            self.last_seq = unit.first_seq + count - 1
            self.shown_rows += count
            if unit.replaced:
                self.remove(unit.replaced)
                seen = (seq for seq in unit.replaced if seq < unit.first_seq)
                self.replacements.note(seen, self.last_seq)
            if unit.late is not None:
                self.late.add(unit.late, unit.first_seq)
            if unit.rejected is not None:
                self.rejected.add(unit.rejected, unit.first_seq)

    def remove(self, replaced: Iterable[int]) -> None:
        """Newer rows replaced these: those in memory leave it, those in files no longer count."""
        with self.lock:
            self._view = None
            for seq in replaced:
                if seq <= self.moved_seq or self.loads.holds(seq):
                    self._removed.add(seq)
                else:
                    self._gone[seq] = self.last_seq
                    self._replaced.add(seq)

    def uncarried(self) -> Uncarried:
        """What is published, and what is to be carried out in it."""
        with self.lock:
            return Uncarried(self.view(), tuple(self.changes.new), self._indexes)

    def settle(self, carried: Carried) -> Seqs:
        """Hold rows with changes that were carried out; answers the numbers of those deleted."""
        touched = carried.touched
        with self.lock:
            if touched:
                found = {block: carried.block(block, self._indexes) for block in self._blocks}
                dropped = [old for old, new in found.items() if new is not old]
                added = [block for block in map(found.get, dropped) if block is not None]
                if dropped:
                    kept = tuple(block for block in found.values() if block is not None)
                    self._set_blocks(kept, added, dropped)
                self._tail.patch(carried.piece)
            self.changes.settle(carried.changes, touched.deleted[touched.deleted > self.moved_seq])
            self._view = None
            return touched.deleted

    @property
    def first_seq(self) -> int:
        """The least number of a row held, or that a change deleted and the log still has; or the
        next one."""
        with self.lock:
            parts: tuple[Block | Piece, ...] = (*self._blocks, *self._tail.pieces)
            waiting = self.last_seq + 1 - len(self._tail.waiting)
            return min([waiting, *(part.first_seq for part in parts), *self.changes.firsts_deleted])

    def seal(self) -> int:
        """Turn the tail into blocks; answers the last sequence number in them."""
        with self.lock:
            self._tail.gather()
            # A reader who comes while we sort must find nothing to take out of these pieces.
            self._replaced -= self._tail.remove(self._replaced)
            pieces, indexes = self._tail.pieces, self._indexes
        if not pieces:
            return self.last_seq
        parts = [merge(group) for group in _groups(pieces, bool(indexes))]
        blocks = [block for part in parts for block in self._cut(part, indexes)]
        with self.lock:
            if self._indexes != indexes:  # an index was made or dropped meanwhile
                blocks = [_reindexed(block, self._indexes) for block in blocks]
            self._set_blocks((*self._blocks, *blocks), added=blocks)
            self._tail.drop_first(len(pieces))
            self._view = None
        return pieces[-1].last_seq

    def _cut(self, merged: Piece, indexes: tuple[Index, ...]) -> list[Block]:
        blocks = []
        step = BLOCK_ROWS if merged.rows > BLOCK_ROWS_MAX else merged.rows
        for start in range(0, merged.rows, step):
            part = merged.batch.slice(start, step)
            block = make_block(
                self._next_block_id, merged.first_seq + start, part, indexes, self._time_column
            )
            if merged.seqs is not None:
                seqs = merged.seqs[start : start + step]
                block = replace(block, first_seq=int(seqs[0]), last_seq=int(seqs[-1]), seqs=seqs)
            blocks.append(block)
            self._next_block_id += 1
        return blocks

    def _set_blocks(
        self, blocks: tuple[Block, ...], added: Iterable[Block] = (), dropped: Iterable[Block] = ()
    ) -> None:
        self._interval = self._interval.changed(added, dropped)
        self._blocks = blocks
        self._block_bytes = sum(block.nbytes for block in blocks)

    def view(self) -> HotView:
        """What is published now, held still."""
        with self.lock:
            if self._tail.waiting or self._replaced:
                self._tail.gather()
                self._apply_replaced()
                self._view = None
            if self._view is None:
                self._view = HotView(
                    self.table,
                    self._blocks,
                    self._interval.freeze(),
                    self._tail.pieces,
                    self.last_seq,
                    self.moved_seq,
                    frozenset(self._removed),
                    self._gone,
                    self.shown_rows,
                    self.expired_rows,
                    self._expired_us,
                    self.changes.pending,
                    self.changes.settled,
                    self.changes.waiting,
                )
            return self._view

    def settled(self, needed: Iterable[Needed] | None = None) -> HotView | None:
        """What is published now; None if changes wait to be carried out before, by those that
        concern what is ``needed`` (None: everything)."""
        with self.lock:
            if self.changes.new and (needed is None or self.changes.concern(needed)):
                return None
            return self.view()

    def every_change(self) -> Pending:
        """The changes that rows may need, in memory or in files."""
        with self.lock:
            return self.changes.pending.added(self.changes.new)

    def replaced_up_to(self, seq: int) -> frozenset[int]:
        """The rows up to a sequence number that were replaced and not moved."""
        with self.lock:
            return frozenset(each for each in self._gone if each <= seq)

    def release(self, moved_seq: int, left_out: frozenset[int], deleted: frozenset[int]) -> None:
        """History holds the rows up to a sequence number now: let go of them.

        ``left_out`` are the replaced rows that the move did not write: rows replaced since are in
        its files and are removed there. ``deleted`` are removed rows that its files delete."""
        with self.lock:
            if moved_seq <= self.moved_seq:
                return
            self._tail.gather()
            self._apply_replaced()
            self.moved_seq = moved_seq
            self.replacements.forget(moved_seq)
            self.loads.release(moved_seq)
            self._removed -= deleted
            moved = {seq for seq in self._gone if seq <= moved_seq}
            self._removed |= moved - left_out
            self._gone = {seq: by for seq, by in self._gone.items() if seq > moved_seq}
            self.changes.release(moved_seq)
            dropped = [block for block in self._blocks if block.first_seq <= moved_seq]
            cut = [block.after(moved_seq, self._indexes) for block in dropped]
            added = [block for block in cut if block is not None]
            kept = [block for block in self._blocks if block.first_seq > moved_seq]
            if dropped:
                self._set_blocks((*added, *kept), added, dropped)
            self._tail.release(moved_seq)
            self.late.release(moved_seq)
            self.rejected.release(moved_seq)
            self._view = None

    def blocks_between(self, low_us: int, high_us: int) -> tuple[list[Block], set[int]]:
        """Blocks, and the replaced rows that still stand in them, which a view would leave out."""
        with self.lock:
            return self._interval.find(low_us, high_us), self._replaced

    def settle_replaced(self) -> None:
        """Give the memory of replaced rows back without waiting for a reader."""
        with self.lock:
            if self._replaced:
                self._apply_replaced()
                self._view = None

    def _apply_replaced(self) -> None:
        """Take replaced rows out of blocks and tail: once per reader, not once per row."""
        gone, self._replaced = self._replaced, set()
        self._tail.remove(gone)
        ordered = sorted(gone)
        blocks, added, dropped = [], [], []
        for block in self._blocks if gone else ():
            hit = within(ordered, block)
            rest = block.without_rows(hit, self._indexes) if hit else block
            if rest is not None:
                blocks.append(rest)
            if rest is not block:
                dropped.append(block)
                added += [rest] if rest is not None else []
        if dropped:
            self._set_blocks(tuple(blocks), added, dropped)

    def set_table(self, table: Table, indexes: tuple[Index, ...]) -> None:
        """Follow the catalog: other settings, other indices."""
        with self.lock:
            self.table = table
            if indexes != self._indexes:
                self._indexes = indexes
                blocks = tuple(_reindexed(block, indexes) for block in self._blocks)
                self._set_blocks(blocks, added=blocks, dropped=self._blocks)
            self._view = None

    def expire(self, before_us: int, aside_before_us: int) -> int:
        """Drop whole blocks older than a time (a soft window: a block stays while any row is
        young enough), and rows set aside before another."""
        with self.lock:
            dropped = [block for block in self._blocks if block.time_max_us < before_us]
            if dropped:
                kept = tuple(block for block in self._blocks if block.time_max_us >= before_us)
                self._set_blocks(kept, dropped=dropped)
                self.expired_rows += sum(block.rows for block in dropped)
                newest = max(block.time_max_us for block in dropped)
                self._expired_us = max(self._expired_us, newest)
                self._view = None
            self.late.expire(aside_before_us)
            self.rejected.expire(aside_before_us)
            return len(dropped)

    def needs(self, first_seq: int, following: int) -> bool:
        """Whether a row with a sequence number in [first, following) is held, or may still be."""
        with self.lock:
            if following > self.last_seq:
                return True
            if self._tail.may_wait(following):
                return True
            aside = (self.late.first_seq, self.rejected.first_seq)
            if any(seq is not None and following >= seq for seq in aside):
                return True
            # Rows that were replaced and not moved: the past reads them. Where rows never move, it
            # begins with what memory holds.
            if self.moved_seq and any(first_seq <= seq < following for seq in self._gone):
                return True
            if self.changes.needs(first_seq, following):
                return True
            parts: tuple[Block | Piece, ...] = (*self._blocks, *self._tail.pieces)
            return any(p.first_seq < following and p.last_seq >= first_seq for p in parts)


def _groups(pieces: tuple[Piece, ...], is_indexed: bool) -> list[list[Piece]]:
    """Neighbours that become one block. Large pieces are blocks of their own, unless there are
    indices: each block more is a directory more to look into."""
    groups: list[list[Piece]] = []
    is_open = False
    for piece in pieces:
        is_large = piece.is_large and not is_indexed
        if is_open and not is_large:
            groups[-1].append(piece)
        else:
            groups.append([piece])
        is_open = not is_large
    return groups


def _reindexed(block: Block, indexes: tuple[Index, ...]) -> Block:
    wanted = {index.index_id for index in indexes}
    for index_id in set(block.directories) - wanted:
        block = block.without_index(index_id)
    for index in indexes:
        if index.index_id not in block.directories:
            block = block.with_index(index)
    return block
