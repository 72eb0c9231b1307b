"""Views of a table: what a reader holds, and how it selects from it.

A view is a tuple of references to immutable things, taken under the table's lock in constant time.
Writers go on; memory is freed when the last view lets go. ``select`` chooses the rows a query can
need: the interval index names the blocks, the value directories name their rows, and what a block
does not hold is never touched. It may select too much and never too little, since the query's own
predicates are applied to the selection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.changes.pending import NOTHING_PENDING, Pending
from tidemill.hot import keys
from tidemill.hot.block import Block
from tidemill.hot.choice import fewest, ways_of
from tidemill.hot.gather import SEQ_FIELD, gather
from tidemill.hot.interval import IntervalIndex
from tidemill.hot.picking import Picker, Use
from tidemill.hot.piece import Piece, rows_up_to
from tidemill.hot.wanted import Condition as Condition
from tidemill.hot.wanted import Wanted as Wanted

BEFORE_ALL_US, AFTER_ALL_US = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Selection:
    """The rows selected, and how: EXPLAIN prints this. ``index`` is the one that was used in most
    blocks."""

    table: pa.Table
    index: str | None
    blocks: int
    blocks_in_span: int
    blocks_read: int
    rows: int
    rows_read: int
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True, eq=False)
class HotView:
    """One table at one moment."""

    table: Table
    blocks: tuple[Block, ...]
    interval: IntervalIndex
    tail: tuple[Piece, ...]
    published_seq: int
    moved_seq: int = 0
    removed: frozenset[int] = frozenset()  # rows of history that rows held here replaced
    gone: Mapping[int, int] = field(default_factory=dict)  # replaced, up to which number visible
    shown_rows: int = 0  # that were published since the start
    expired_rows: int = 0  # that retention took from memory since then
    expired_us: int = BEFORE_ALL_US  # no row of them is newer
    changes: Pending = NOTHING_PENDING  # which rows in files may need; those here have them
    last_change: int = 0  # the number of the last change that rows here have
    waiting: Pending = NOTHING_PENDING  # which they lack, and its reader does not need

    def after(self, moved_seq: int) -> HotView:
        """The view without rows that a newer snapshot of the catalog finds in history."""
        if moved_seq <= self.moved_seq:
            return self
        dropped = [block for block in self.blocks if block.first_seq <= moved_seq]
        cut = [block.after(moved_seq, ()) for block in dropped]
        added = [block for block in cut if block is not None]
        kept = [block for block in self.blocks if block.first_seq > moved_seq]
        rest = [piece.after(moved_seq) for piece in self.tail]
        return replace(
            self,
            blocks=(*added, *kept),
            interval=self.interval.changed(added, dropped),
            tail=tuple(piece for piece in rest if piece is not None),
            moved_seq=moved_seq,
            removed=self.removed | self._removed_by(moved_seq),
        )

    def _removed_by(self, moved_seq: int) -> set[int]:
        """Rows that this view does not hold any more, and that a move may have written."""
        gone = list(self.gone.items())  # it may grow meanwhile
        return {seq for seq, by in gone if seq <= moved_seq and by <= self.published_seq}

    @cached_property
    def rows(self) -> int:
        return sum(b.rows for b in self.blocks) + sum(p.rows for p in self.tail)

    def whole(self, with_seq: bool) -> pa.Table:
        """All rows, without a copy; the sequence numbers, if wanted, are made for the occasion."""
        if not with_seq:
            return self._whole
        held: tuple[Block | Piece, ...] = (*self.blocks, *self.tail)
        parts = [_with_seq(part, part.batch) for part in held]
        return pa.Table.from_batches(parts, self.schema(with_seq))

    def arrived_after(
        self, seq: int, with_seq: bool = False, rows_max: int | None = None
    ) -> tuple[pa.Table, int]:
        """The rows behind a sequence number, in the order of arrival and without a copy, and the
        number up to which they go. Beyond ``rows_max`` no further block is begun."""
        parts: list[pa.RecordBatch] = []
        count, upto = 0, max(seq, self.published_seq)
        held: tuple[Block | Piece, ...] = (*self.blocks, *self.tail)
        for part in held:
            if part.last_seq <= seq:
                continue
            if rows_max is not None and count >= rows_max:
                upto = part.first_seq - 1
                break
            skip = rows_up_to(part, seq)
            batch = part.batch.slice(skip)
            if with_seq:
                columns = [*batch.columns, pa.array(part.seq_column()[skip:])]
                batch = pa.RecordBatch.from_arrays(columns, schema=self.schema(True))
            parts.append(batch)
            count += batch.num_rows
        return pa.Table.from_batches(parts, self.schema(with_seq)), upto

    def rows_behind(self, seq: int) -> int:
        """How many rows have a greater sequence number."""
        held: tuple[Block | Piece, ...] = (*self.blocks, *self.tail)
        return sum(part.rows - rows_up_to(part, seq) for part in held if part.last_seq > seq)

    def oldest_behind(self, seq: int) -> int | None:
        """The least time of rows with a greater sequence number; None if there is none."""
        blocks = [block for block in self.blocks if block.last_seq > seq]
        pieces = [piece for piece in self.tail if piece.last_seq > seq]
        whole = [block.time_min_us for block in blocks if block.first_seq > seq]
        parts = [
            block.times[rows_up_to(block, seq) :] for block in blocks if block.first_seq <= seq
        ]
        for piece in pieces:
            times = keys.words(piece.batch.column(self.table.time_column))
            parts.append(times[rows_up_to(piece, seq) :])
        return min([*whole, *(int(part.min()) for part in parts if len(part))], default=None)

    def rows_since(self, horizon_us: int | None) -> int:
        """How many rows may be seen, with the oldest time that may be."""
        if horizon_us is None or horizon_us <= self.span_us[0]:
            return self.rows
        tails = [keys.words(piece.batch.column(self.table.time_column)) for piece in self.tail]
        parts = [*(block.times for block in self.blocks), *tails]
        return sum(int(np.count_nonzero(times >= horizon_us)) for times in parts)

    @cached_property
    def _whole(self) -> pa.Table:
        batches = [block.batch for block in self.blocks] + [piece.batch for piece in self.tail]
        return pa.Table.from_batches(batches, self.table.schema)

    def schema(self, with_seq: bool) -> pa.Schema:
        return self.table.schema.append(SEQ_FIELD) if with_seq else self.table.schema

    @cached_property
    def span_us(self) -> tuple[int, int]:
        """The oldest and the newest time held; a span the wrong way round when there is none."""
        name = self.table.time_column
        tails = [keys.words(piece.batch.column(name)) for piece in self.tail]
        lows = [b.time_min_us for b in self.blocks] + [int(t.min()) for t in tails if len(t)]
        highs = [b.time_max_us for b in self.blocks] + [int(t.max()) for t in tails if len(t)]
        return min(lows, default=1), max(highs, default=0)

    def select(self, wanted: Wanted) -> Selection:
        """The rows that can matter to a scan."""
        if wanted.newest is not None:
            wanted = self.newest_only(wanted)
        ways = ways_of(self.table, wanted.conditions, wanted.alternatives)
        if not ways and self._is_inside(wanted):
            count = len(self.blocks)
            whole = self.whole(wanted.with_seq)
            return Selection(whole, None, count, count, count, self.rows, self.rows)
        picker = Picker(wanted, ways)
        blocks: Sequence[Block] = self.blocks
        if wanted.low_us is not None or wanted.high_us is not None:
            blocks = self.interval.find(wanted.low_us, wanted.high_us)
        parts = [picker.pick_block(block) for block in blocks]
        blocks_read = sum(part is not None for part in parts)
        time_column = self.table.time_column or ""
        parts += [picker.pick_piece(piece, time_column) for piece in self.tail]
        schema = self.schema(wanted.with_seq)
        table = pa.Table.from_batches(gather([p for p in parts if p], schema), schema)
        return Selection(
            table,
            picker.index,
            len(self.blocks),
            len(blocks),
            blocks_read,
            self.rows,
            table.num_rows,
            picker.uses,
        )

    def estimate(self, wanted: Wanted) -> int:
        """About how many rows ``select`` would give, without collecting them."""
        ways = ways_of(self.table, wanted.conditions, wanted.alternatives)
        total = sum(piece.rows for piece in self.tail)
        for block in self.interval.find(wanted.low_us, wanted.high_us):
            low, high = block.cut(wanted.low_us, wanted.high_us)
            first, last = block.bounds(low, high) if block.is_ordered else (0, block.rows)
            best = fewest(ways, block)
            inside = max(last - first, 0)
            total += inside if best is None else min(inside, best[1].count)
        return total

    def newest_only(self, wanted: Wanted) -> Wanted:
        """The same with a later begin of the span, if so many rows as are wanted lie behind it. No
        older row can be among the newest, here or anywhere else."""
        low_us = self._low_of_newest(wanted)
        if low_us is None or (wanted.low_us is not None and low_us <= wanted.low_us):
            return wanted
        return replace(wanted, low_us=low_us)

    def _is_inside(self, wanted: Wanted) -> bool:
        """Whether everything held lies in the span wanted."""
        low, high = self.span_us if self.rows else (0, 0)
        return (wanted.low_us is None or wanted.low_us <= low) and (
            wanted.high_us is None or wanted.high_us >= high
        )

    def _low_of_newest(self, wanted: Wanted) -> int | None:
        """A time that at least ``newest`` rows of the span reach, looking at the youngest first."""
        assert wanted.newest is not None
        if wanted.newest > self.rows:
            return wanted.low_us
        name, high = self.table.time_column, wanted.high_us
        parts = [(b.time_max_us, b.times) for b in self.interval.find(wanted.low_us, high)]
        tails = [keys.words(piece.batch.column(name)) for piece in self.tail]
        parts += [(int(times.max()), times) for times in tails if len(times)]
        kept: list[npt.NDArray[np.int64]] = []
        low_us: int | None = None
        for newest_us, times in sorted(parts, key=lambda part: -part[0]):
            if low_us is not None and newest_us < low_us:
                break
            kept.append(times if high is None else times[times <= high])
            if sum(map(len, kept)) >= max(wanted.newest, 1):
                kept = [_greatest(np.concatenate(kept), max(wanted.newest, 1))]
                low_us = int(kept[0].min())
        return wanted.low_us if low_us is None else low_us


def _greatest(times: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """The latest times, so many of them, in any order."""
    return times if len(times) <= count else np.partition(times, len(times) - count)[-count:]


def _with_seq(part: Block | Piece, batch: pa.RecordBatch) -> pa.RecordBatch:
    seqs = pa.array(part.seq_column())
    schema = batch.schema.append(SEQ_FIELD)
    return pa.RecordBatch.from_arrays([*batch.columns, seqs], schema=schema)
