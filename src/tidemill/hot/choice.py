"""Choosing: which index finds the rows of a block, or that reading the whole block is cheaper.

1. Each index that the conditions of a scan can use is a *way* to its rows. So is an OR, if every
   branch of it has ways or bounds of time: its rows are those of all branches.
2. In each block, a way says how many rows it would give. The directory knows that from where its
   runs begin and end, before any row is touched.
3. The way with the fewest rows is taken. If they are more than a share of the block, or if asking
   for so many keys costs more than reading the block, the block is handed over whole.

A way may give too many rows and never too few: the query's own predicates are applied to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model import Index, Table
from tidemill.hot import keys
from tidemill.hot.block import Block
from tidemill.hot.values import Directory, Range, hash_keys
from tidemill.hot.wanted import Alternatives, Condition

# Above this share of a block, passing the whole block on is cheaper than picking rows.
PICK_SHARE_MAX = 0.25
# A key that is looked up costs as much as reading so many rows does: one among many numbers that
# are searched for in one go, or one that is searched for by itself.
KEY_ROWS = 128
LONE_KEY_ROWS = 4_000
LONE_KEYS = 16  # from here on, numbers are searched for in one go
FEW_ROWS = 64  # with so few, no other index is asked

RowNumbers = npt.NDArray[Any]
_NO_ROWS: RowNumbers = np.empty(0, dtype=np.uint32)


class Runs:
    """Rows of a block, counted before they are put together."""

    __slots__ = ("_made", "count")

    def __init__(self, count: int, made: RowNumbers | Callable[[], RowNumbers]) -> None:
        """``made`` are the rows in ascending order, or makes them."""
        self.count = count
        self._made = made

    def take(self) -> RowNumbers:
        """The rows, each once and in ascending order."""
        return self._made if isinstance(self._made, np.ndarray) else self._made()


NOTHING = Runs(0, _NO_ROWS)


@dataclass(frozen=True, eq=False)
class IndexWay:
    """An index, and what it is asked for: hashed keys, or ranges of its first column. ``words`` are
    the keys, if they are many numbers: in order, to be searched for in one go."""

    index: Index
    conditions: tuple[Condition, ...]
    hashed: tuple[np.uint64, ...] = ()
    ranges: tuple[Range, ...] = ()
    words: npt.NDArray[Any] | None = None

    @property
    def name(self) -> str:
        return self.index.name

    @cached_property
    def key_count(self) -> int:
        """How many keys or ranges it is asked for."""
        return len(self.hashed) + len(self.ranges)

    @cached_property
    def is_equality(self) -> bool:
        return not self.ranges or all(r.low is not None and r.low == r.high for r in self.ranges)

    @cached_property
    def only_key(self) -> Any | None:
        """The key, if it is asked for one alone."""
        if self.key_count != 1 or not self.is_equality:
            return None
        return self.hashed[0] if self.hashed else self.ranges[0].low

    def find(self, block: Block) -> Runs | None:
        """Its rows in a block; None if the block has no directory of it, or too few rows for so
        many keys."""
        directory = block.directories.get(self.index.index_id)
        if directory is None:
            return None
        if self.only_key is not None:
            rows = directory.equal(self.only_key)
            return Runs(len(rows), rows)
        cost = KEY_ROWS if self.words is not None else LONE_KEY_ROWS
        if self.key_count > LONE_KEYS and self.key_count * cost > block.rows:
            return None
        if self.words is not None:
            return _runs_of(directory, self.words)
        return self._one_by_one(directory)

    def _one_by_one(self, directory: Directory) -> Runs:
        runs = [directory.equal(key) for key in self.hashed]
        for r in self.ranges:
            is_equal = r.low is not None and r.low == r.high
            runs.append(directory.equal(r.low) if is_equal else directory.between(r))
        runs = [run for run in runs if len(run)]
        if not runs:
            return NOTHING
        if len(runs) == 1:
            return Runs(len(runs[0]), lambda: np.sort(runs[0]))
        return Runs(sum(map(len, runs)), lambda: np.unique(np.concatenate(runs)))


@dataclass(frozen=True, eq=False)
class BranchWay:
    """The ways of one branch of an OR, and its span of time."""

    low_us: int | None
    high_us: int | None
    ways: tuple[Way, ...]

    @property
    def is_open(self) -> bool:
        """Whether any row may be in it."""
        return not self.ways and self.low_us is None and self.high_us is None

    def find(self, block: Block) -> Runs | None:
        if not block.reaches(self.low_us, self.high_us):
            return NOTHING
        low, high = block.cut(self.low_us, self.high_us)
        best = fewest(self.ways, block)
        found = None if best is None else best[1]
        if (low is None and high is None) or (found is not None and found.count <= FEW_ROWS):
            return found if found is None else _within(found, block, low, high)
        inside = _inside(block, low, high)
        if found is None or inside.count <= found.count:
            return inside
        named = found
        return Runs(named.count, lambda: _within(named, block, low, high).take())


@dataclass(frozen=True, eq=False)
class EitherWay:
    """An OR: the rows of all its branches."""

    branches: tuple[BranchWay, ...]

    @property
    def name(self) -> str:
        names = [way.name for branch in self.branches for way in branch.ways]
        return " or ".join(dict.fromkeys(names))

    def find(self, block: Block) -> Runs | None:
        found: list[Runs] = []
        for branch in self.branches:
            runs = branch.find(block)
            if runs is None:
                return None
            if runs.count:
                found.append(runs)
        if len(found) <= 1:
            return found[0] if found else NOTHING
        total = sum(runs.count for runs in found)
        return Runs(total, lambda: np.unique(np.concatenate([runs.take() for runs in found])))


Way = IndexWay | EitherWay


def ways_of(
    table: Table, conditions: Sequence[Condition], alternatives: Sequence[Alternatives] = ()
) -> tuple[Way, ...]:
    """The ways to the rows that satisfy conditions, those first that promise most."""
    by_column = {condition.column: condition for condition in conditions}
    indices = [_index_way(table, index, by_column) for index in table.indexes]
    ways: list[Way] = [*sorted((way for way in indices if way is not None), key=_promise)]
    for either in alternatives:
        branches = tuple(
            BranchWay(b.low_us, b.high_us, ways_of(table, b.conditions, b.alternatives))
            for b in either
        )
        if not any(branch.is_open for branch in branches):
            ways.append(EitherWay(branches))
    return tuple(ways)


def fewest(
    ways: Sequence[Way], block: Block, note: Callable[[Way, Runs | None], None] | None = None
) -> tuple[Way, Runs] | None:
    """The way that names the fewest rows of a block; ``note`` is told what each one asked says."""
    best: tuple[Way, Runs] | None = None
    for way in ways:
        runs = way.find(block)
        if note is not None:
            note(way, runs)
        if runs is None or (best is not None and runs.count >= best[1].count):
            continue
        best = way, runs
        if runs.count <= FEW_ROWS:
            break
    return best


def is_long_list(condition: Condition) -> bool:
    """Whether a condition is a list of so many values that they are searched for in one go."""
    return len(condition.ranges) > LONE_KEYS and condition.is_equality


def points_of(condition: Condition, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The numbers of a list in order, as words; no word is equal to those outside of its type."""
    values: list[Any] = [r.low for r in condition.ranges]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = [value for value in values if info.min <= value <= info.max]
    return np.unique(np.array(values, dtype=dtype))


def in_span(
    times: npt.NDArray[np.int64], low_us: int | None, high_us: int | None
) -> npt.NDArray[np.bool_]:
    """Which times lie between two others, both included."""
    mask = np.ones(len(times), dtype=bool)
    if low_us is not None:
        mask &= times >= low_us
    if high_us is not None:
        mask &= times <= high_us
    return mask


def _promise(way: IndexWay) -> tuple[bool, int]:
    return not way.is_equality, -len(way.conditions)


def _index_way(table: Table, index: Index, by_column: dict[str, Condition]) -> IndexWay | None:
    asked = tuple(by_column[name] for name in index.columns if name in by_column)
    if index.method == "hash":
        return _hash_way(table, index, asked)
    if not asked or asked[0].column != index.columns[0]:
        return None
    words = _words(table.schema.field(index.columns[0]).type, asked[0])
    return IndexWay(index, asked[:1], ranges=asked[0].ranges, words=words)


def _words(kind: pa.DataType, condition: Condition) -> npt.NDArray[Any] | None:
    if not is_long_list(condition) or not keys.is_numeric(kind):
        return None
    return points_of(condition, keys.words(pa.array([], kind)).dtype)


def _hash_way(table: Table, index: Index, asked: tuple[Condition, ...]) -> IndexWay | None:
    """A hash index answers when every column is asked for equality, and at most one for a list."""
    if len(asked) < len(index.columns) or not all(c.is_equality for c in asked):
        return None
    if sum(len(condition.ranges) > 1 for condition in asked) > 1:
        return None
    kinds = [table.schema.field(name).type for name in index.columns]
    combined: list[tuple[object, ...]] = [()]
    for condition in asked:
        combined = [(*head, r.low) for head in combined for r in condition.ranges]
    hashed = np.unique(hash_keys(kinds, combined))
    words = hashed if len(hashed) > LONE_KEYS else None
    return IndexWay(index, asked, hashed=tuple(hashed), words=words)


def _runs_of(directory: Directory, words: npt.NDArray[Any]) -> Runs:
    starts, ends = directory.runs(words)
    count = int((ends - starts).sum())
    return Runs(count, lambda: np.sort(directory.gathered(starts, ends))) if count else NOTHING


def _inside(block: Block, low_us: int | None, high_us: int | None) -> Runs:
    """The rows of a block in a span of time."""
    if block.is_ordered:
        first, last = block.bounds(low_us, high_us)
        return Runs(max(last - first, 0), lambda: np.arange(first, last, dtype=np.uint32))
    rows = np.flatnonzero(in_span(block.times, low_us, high_us))
    return Runs(len(rows), rows)


def _within(found: Runs, block: Block, low_us: int | None, high_us: int | None) -> Runs:
    """Those of a few rows that lie in a span of time."""
    if not found.count or (low_us is None and high_us is None):
        return found
    rows = found.take()
    rows = rows[in_span(block.times[rows], low_us, high_us)]
    return Runs(len(rows), rows)
