"""Picking: the rows of blocks and pieces that one selection takes, and how they were found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tidemill.hot.block import Block
from tidemill.hot.choice import (
    PICK_SHARE_MAX,
    RowNumbers,
    Runs,
    Way,
    fewest,
    in_span,
    is_long_list,
    points_of,
)
from tidemill.hot.gather import Picked
from tidemill.hot.piece import Piece
from tidemill.hot.values import Range
from tidemill.hot.wanted import Alternatives, Condition, Wanted

Mask: TypeAlias = npt.NDArray[np.bool_]

# Of an index that names a large share of a block, and so many times the rows of the span, the rows
# are not looked at one by one: those of the span are handed over.
OUTSIDE_MAX = 4


@dataclass(frozen=True)
class Use:
    """What one way to the rows was asked: in how many blocks it named how many rows, in how many
    of them these were taken, and in how many it was not asked because that would cost more."""

    way: Way
    asked: int
    rows: int
    taken: int
    unasked: int


@dataclass(slots=True)
class _Count:
    asked: int = 0
    rows: int = 0
    taken: int = 0
    unasked: int = 0


class Picker:
    """Picks for one selection. It may pick too many rows and never too few, except that no row
    older than the horizon is ever picked."""

    def __init__(self, wanted: Wanted, ways: tuple[Way, ...]) -> None:
        self._wanted = wanted
        self._ways = ways
        self._has_span = wanted.low_us is not None or wanted.high_us is not None
        self._counts = {id(way): _Count() for way in ways}
        self._only = ways[0] if len(ways) == 1 else None
        self._only_count = self._counts[id(ways[0])] if ways else _Count()

    @property
    def uses(self) -> tuple[Use, ...]:
        pairs = ((way, self._counts[id(way)]) for way in self._ways)
        return tuple(Use(way, c.asked, c.rows, c.taken, c.unasked) for way, c in pairs)

    @property
    def index(self) -> str | None:
        """The index that was used in most blocks."""
        most = max(self._ways, key=lambda way: self._counts[id(way)].taken, default=None)
        return None if most is None else most.name

    def _note(self, way: Way, runs: Runs | None) -> None:
        count = self._counts[id(way)]
        if runs is None:
            count.unasked += 1
        else:
            count.asked += 1
            count.rows += runs.count

    def pick_block(self, block: Block) -> Picked | None:
        wanted = self._wanted
        low = high = None
        if self._has_span:
            low, high = block.cut(wanted.low_us, wanted.high_us)
        if self._ways:
            rows = self._found(block, low, high)
            if rows is not None:
                return Picked(block, rows=rows) if len(rows) else None
        horizon_us = wanted.horizon_us
        if block.is_ordered:
            first, last = block.bounds(low, high)
            return Picked(block, first, last - first) if first < last else None
        if horizon_us is not None and horizon_us > block.time_min_us:
            return _picked_rows(block, np.flatnonzero(in_span(block.times, low, high)))
        return Picked(block, 0, block.rows)

    def _found(self, block: Block, low_us: int | None, high_us: int | None) -> RowNumbers | None:
        """The rows that the best way names; None if it is better to read the block."""
        if self._only is None:
            best = fewest(self._ways, block, self._note)
            if best is None:
                return None
            count, runs = self._counts[id(best[0])], best[1]
        else:  # as most lookups are: without the detour
            found = self._only.find(block)
            if found is None:
                self._note(self._only, None)
                return None
            count, runs = self._only_count, found
            count.asked += 1
            count.rows += runs.count
        rows = _rows_of(block, runs, low_us, high_us)
        if rows is not None:
            count.taken += 1
        return rows

    def pick_piece(self, piece: Piece, time_column: str) -> Picked | None:
        """The tail has no directories: test its few rows one column at a time."""
        times = _words(piece, time_column)
        wanted = self._wanted
        masks = []
        if self._has_span:
            masks.append(in_span(times, wanted.low_us, wanted.high_us))
        if self._ways:
            masks += _held(piece, times, wanted.conditions, wanted.alternatives)
        if not masks:
            return Picked(piece, 0, piece.rows)
        return _picked_rows(piece, np.flatnonzero(_all_of(masks)))


def _rows_of(
    block: Block, runs: Runs, low_us: int | None, high_us: int | None
) -> RowNumbers | None:
    """The rows that a way names, in the span; None if they are too many to pick them."""
    most = PICK_SHARE_MAX * block.rows
    is_cut = low_us is not None or high_us is not None
    if runs.count > most:
        if not is_cut:
            return None
        first, last = block.bounds(low_us, high_us) if block.is_ordered else (0, block.rows)
        if runs.count > OUTSIDE_MAX * (last - first):
            return None
    rows = runs.take()
    if is_cut and len(rows):
        rows = rows[in_span(block.times[rows], low_us, high_us)]
    return rows if len(rows) <= most else None


def _held(
    piece: Piece,
    times: npt.NDArray[np.int64],
    conditions: tuple[Condition, ...],
    alternatives: tuple[Alternatives, ...],
) -> list[Mask]:
    """Of each condition, which rows of a piece may satisfy it; some types are not tested."""
    masks = []
    for condition in conditions:
        words = piece.words(piece.batch.schema.get_field_index(condition.column))
        if words is not None and words.dtype.kind != "f":
            masks.append(matches(words, condition))
    for either in alternatives:
        some = np.zeros(piece.rows, dtype=bool)
        for branch in either:
            inside = in_span(times, branch.low_us, branch.high_us)
            some |= _all_of([inside, *_held(piece, times, branch.conditions, branch.alternatives)])
        masks.append(some)
    return masks


def _words(piece: Piece, column: str) -> npt.NDArray[np.int64]:
    """The times of a piece: never NULL."""
    words = piece.words(piece.batch.schema.get_field_index(column))
    assert words is not None
    return words


def _all_of(masks: Sequence[Mask]) -> Mask:
    first, *others = masks
    for mask in others:
        first &= mask
    return first


def _picked_rows(part: Block | Piece, rows: RowNumbers) -> Picked | None:
    if len(rows) == part.rows:
        return Picked(part, 0, part.rows)
    return Picked(part, rows=rows) if len(rows) else None


def matches(words: npt.NDArray[Any], condition: Condition) -> npt.NDArray[np.bool_]:
    """Which words of a column (not a floating point one) satisfy a condition."""
    if is_long_list(condition):
        return np.isin(words, points_of(condition, words.dtype))
    masks = [_in_range(words, r) for r in condition.ranges]
    if not masks:
        return np.zeros(len(words), dtype=bool)
    first, *others = masks
    for mask in others:
        first |= mask
    return first


def _in_range(words: npt.NDArray[Any], bounds: Range) -> Mask:
    if bounds.low is None and bounds.high is None:
        return np.ones(len(words), dtype=bool)
    if bounds.low == bounds.high and bounds.low_included and bounds.high_included:
        return np.asarray(words == bounds.low)
    masks = []
    if bounds.low is not None:
        masks.append((words >= bounds.low) if bounds.low_included else (words > bounds.low))
    if bounds.high is not None:
        masks.append((words <= bounds.high) if bounds.high_included else (words < bounds.high))
    return _all_of(masks)
