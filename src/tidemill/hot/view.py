"""Views of a table: what a reader holds, and how it selects from it.

A view is a tuple of references to immutable things, taken under the table's lock in constant time.
Writers go on; memory is freed when the last view lets go. ``select`` chooses the rows a query can
need: the interval index names the blocks, the value directories name their rows, and what a block
does not hold is never touched. It may select too much and never too little, since the query's own
predicates are applied to the selection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model import Index, Table
from tidemill.hot import keys
from tidemill.hot.block import Block
from tidemill.hot.gather import SEQ_FIELD, Picked, gather
from tidemill.hot.interval import IntervalIndex
from tidemill.hot.piece import Piece, rows_up_to
from tidemill.hot.values import Range, hash_key

TIME_US_MIN, TIME_US_MAX = -(2**63), 2**63 - 1
# Above this share of a block, passing the whole block on is cheaper than picking rows.
PICK_SHARE_MAX = 0.25

RowNumbers = npt.NDArray[Any]
_NO_ROWS: RowNumbers = np.empty(0, dtype=np.uint32)


@dataclass(frozen=True)
class Condition:
    """What a query surely asks of one column: any of the ranges (an equality is a range)."""

    column: str
    ranges: tuple[Range, ...]

    @property
    def is_equality(self) -> bool:
        return all(r.low is not None and r.low == r.high for r in self.ranges)


@dataclass(frozen=True)
class Wanted:
    """What a scan can need: a span of time (both ends included) and conditions on columns.

    ``newest`` is set when only so many of the newest rows of the span matter (and no condition
    is asked besides). ``horizon_us`` is the oldest time that may be seen at all: while the rest
    may select too much, no older row is ever selected."""

    low_us: int | None = None
    high_us: int | None = None
    conditions: tuple[Condition, ...] = ()
    with_seq: bool = False
    newest: int | None = None
    horizon_us: int | None = None

    def within(self, horizon_us: int | None) -> Wanted:
        """The same, of rows that may be seen."""
        if horizon_us is None:
            return self
        low_us = horizon_us if self.low_us is None else max(self.low_us, horizon_us)
        return replace(self, low_us=low_us, horizon_us=horizon_us)


@dataclass(frozen=True)
class Selection:
    """The rows selected, and how: EXPLAIN prints this."""

    table: pa.Table
    index: str | None
    blocks: int
    blocks_in_span: int
    blocks_read: int
    rows: int
    rows_read: int


@dataclass(frozen=True, eq=False)
class View:
    """One table at one moment."""

    table: Table
    blocks: tuple[Block, ...]
    interval: IntervalIndex
    tail: tuple[Piece, ...]
    published_seq: int
    moved_seq: int = 0
    buried: frozenset[int] = frozenset()  # rows of history that rows held here replaced
    dead: Mapping[int, int] = field(default_factory=dict)  # replaced, up to which number visible
    shown_rows: int = 0  # that were published since the start
    expired_rows: int = 0  # that retention took from memory since then
    expired_us: int = TIME_US_MIN  # no row of them is newer

    def after(self, moved_seq: int) -> View:
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
            buried=self.buried | self._died(moved_seq),
        )

    def _died(self, moved_seq: int) -> set[int]:
        """Rows that this view does not hold any more, and that a move may have written."""
        dead = list(self.dead.items())  # it may grow meanwhile
        return {seq for seq, by in dead if seq <= moved_seq and by <= self.published_seq}

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

    def since(
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
        wanted = self.narrowed(wanted)
        chosen = _choose(self.table, wanted.conditions)
        if chosen is None and self._is_inside(wanted):
            count = len(self.blocks)
            whole = self.whole(wanted.with_seq)
            return Selection(whole, None, count, count, count, self.rows, self.rows)
        blocks = self.interval.find(wanted.low_us, wanted.high_us)
        parts = [_pick_block(block, wanted, chosen) for block in blocks]
        blocks_read = sum(part is not None for part in parts)
        time_column = self.table.time_column or ""
        parts += [_pick_piece(piece, wanted, chosen, time_column) for piece in self.tail]
        schema = self.schema(wanted.with_seq)
        table = pa.Table.from_batches(gather([p for p in parts if p], schema), schema)
        name = None if chosen is None else chosen.index.name
        return Selection(
            table, name, len(self.blocks), len(blocks), blocks_read, self.rows, table.num_rows
        )

    def narrowed(self, wanted: Wanted) -> Wanted:
        """The same from the time on that the newest rows wanted reach back to, if so many are
        held here: no older row can be one of them, wherever it lies."""
        if wanted.newest is None:
            return wanted
        return replace(wanted, low_us=self._low_of_newest(wanted)).within(wanted.horizon_us)

    def _is_inside(self, wanted: Wanted) -> bool:
        """Whether everything held lies in the span wanted."""
        low, high = self.span_us if self.rows else (0, 0)
        return (wanted.low_us is None or wanted.low_us <= low) and (
            wanted.high_us is None or wanted.high_us >= high
        )

    def _low_of_newest(self, wanted: Wanted) -> int | None:
        """A time that at least ``newest`` rows of the span reach, looking at the youngest first."""
        assert wanted.newest is not None
        if wanted.newest >= self.rows:
            return wanted.low_us
        name, high = self.table.time_column, wanted.high_us
        parts = [(b.time_max_us, b.times) for b in self.interval.find(wanted.low_us, high)]
        tails = [keys.words(piece.batch.column(name)) for piece in self.tail]
        parts += [(int(times.max()), times) for times in tails if len(times)]
        kept = np.empty(0, dtype=np.int64)
        for newest_us, times in sorted(parts, key=lambda part: -part[0]):
            if len(kept) and len(kept) >= wanted.newest and newest_us < kept[0]:
                break
            times = times if high is None else times[times <= high]
            kept = np.sort(np.concatenate((kept, times)))[-max(wanted.newest, 1) :]
        return int(kept[0]) if len(kept) >= wanted.newest and len(kept) else wanted.low_us


@dataclass(frozen=True)
class _Chosen:
    """The index that will be asked, and for what: hashed keys, or ranges of its first column."""

    index: Index
    hashed: tuple[np.uint64, ...] = ()
    ranges: tuple[Range, ...] = ()

    def rows_of(self, block: Block) -> RowNumbers:
        directory = block.directories[self.index.index_id]
        runs = [directory.equal(key) for key in self.hashed]
        for r in self.ranges:
            is_equal = r.low is not None and r.low == r.high
            runs.append(directory.equal(r.low) if is_equal else directory.between(r))
        if not runs:
            return _NO_ROWS
        return runs[0] if len(runs) == 1 else np.unique(np.concatenate(runs))


def _choose(table: Table, conditions: tuple[Condition, ...]) -> _Chosen | None:
    """A hash over the most columns first, then an ordered equality, then an ordered range."""
    by_column = {condition.column: condition for condition in conditions}
    best, best_score = None, 0
    for index in table.indexes:
        asked = [by_column[name] for name in index.columns if name in by_column]
        if index.method == "hash":
            chosen, score = _choose_hash(table, index, asked), 10 * len(asked)
        elif asked and asked[0].column == index.columns[0]:
            chosen, score = _Chosen(index, ranges=asked[0].ranges), 1 + 5 * asked[0].is_equality
        else:
            continue
        if chosen is not None and score > best_score:
            best, best_score = chosen, score
    return best


def _choose_hash(table: Table, index: Index, asked: list[Condition]) -> _Chosen | None:
    """A hash index answers when every column is asked for equality, and at most one for a list."""
    if len(asked) < len(index.columns) or not all(c.is_equality for c in asked):
        return None
    if sum(len(condition.ranges) > 1 for condition in asked) > 1:
        return None
    kinds = [table.schema.field(name).type for name in index.columns]
    combined: list[tuple[object, ...]] = [()]
    for condition in asked:
        combined = [(*head, r.low) for head in combined for r in condition.ranges]
    hashed = (hash_key(kinds, values) for values in combined)
    return _Chosen(index, hashed=tuple(key for key in hashed if key is not None))


def _pick_block(block: Block, wanted: Wanted, chosen: _Chosen | None) -> Picked | None:
    low, high = wanted.low_us, wanted.high_us
    low = None if low is not None and low <= block.time_min_us else low
    high = None if high is not None and high >= block.time_max_us else high
    if chosen is not None and chosen.index.index_id in block.directories:
        rows = chosen.rows_of(block)
        if len(rows) and (low is not None or high is not None):
            rows = rows[_in_span(block.times[rows], low, high)]
        if len(rows) <= PICK_SHARE_MAX * block.rows:
            return Picked(block, rows=np.sort(rows)) if len(rows) else None
    first, last = 0, block.rows
    if block.is_ordered:
        first = 0 if low is None else int(np.searchsorted(block.times, low, "left"))
        last = last if high is None else int(np.searchsorted(block.times, high, "right"))
    elif wanted.horizon_us is not None and wanted.horizon_us > block.time_min_us:
        return _picked_rows(block, np.flatnonzero(_in_span(block.times, low, high)))
    return Picked(block, first, last - first) if first < last else None


def _picked_rows(part: Block | Piece, rows: RowNumbers) -> Picked | None:
    if len(rows) == part.rows:
        return Picked(part, 0, part.rows)
    return Picked(part, rows=rows) if len(rows) else None


def _pick_piece(
    piece: Piece, wanted: Wanted, chosen: _Chosen | None, time_column: str
) -> Picked | None:
    """The tail has no directories: test its few rows one column at a time."""
    times = keys.words(piece.batch.column(time_column))
    mask = _in_span(times, wanted.low_us, wanted.high_us)
    for condition in wanted.conditions if chosen is not None else ():
        column = piece.batch.column(condition.column)
        is_plain = keys.is_numeric(column.type) and not pa.types.is_floating(column.type)
        if is_plain and column.null_count == 0:
            mask &= matches(keys.words(column), condition)
    return _picked_rows(piece, np.flatnonzero(mask))


def matches(words: npt.NDArray[Any], condition: Condition) -> npt.NDArray[np.bool_]:
    """Which words of a column (not a floating point one) satisfy a condition."""
    total = np.zeros(len(words), dtype=bool)
    for r in condition.ranges:
        mask = np.ones(len(words), dtype=bool)
        if r.low is not None:
            mask &= (words >= r.low) if r.low_included else (words > r.low)
        if r.high is not None:
            mask &= (words <= r.high) if r.high_included else (words < r.high)
        total |= mask
    return total


def _in_span(
    times: npt.NDArray[np.int64], low_us: int | None, high_us: int | None
) -> npt.NDArray[np.bool_]:
    mask = np.ones(len(times), dtype=bool)
    if low_us is not None:
        mask &= times >= low_us
    if high_us is not None:
        mask &= times <= high_us
    return mask


def _with_seq(part: Block | Piece, batch: pa.RecordBatch) -> pa.RecordBatch:
    seqs = pa.array(part.seq_column())
    schema = batch.schema.append(SEQ_FIELD)
    return pa.RecordBatch.from_arrays([*batch.columns, seqs], schema=schema)
