"""Reading: which files a query can need, and how DuckDB names them.

``prune`` looks only at what the catalog knows of the files: partitions, times, sequence numbers
and the ranges of indexed columns. It may keep too much and never drops what an answer needs,
because the query's own predicates are applied to what is read. Inside the files that are left,
DuckDB skips row groups by their statistics. Which rows of them count, ``stream`` knows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from tidemill.catalog.model import FILE_ROWS, DataFile, History, NewFile
from tidemill.history.ranges import FileAlternatives, RangeCondition, may_hold_any, may_hold_in
from tidemill.history.storage import Storage
from tidemill.types import literal

SHELVES_MAX = 32


@dataclass(frozen=True)
class Pruned:
    """The files of rows that a query can need, how much there was, and how many files each
    condition ruled out."""

    files: tuple[DataFile, ...]
    total_files: int
    total_bytes: int
    reasons: Mapping[str, int]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def prune(
    history: History,
    low_us: int | None = None,
    high_us: int | None = None,
    conditions: Sequence[RangeCondition] = (),
    alternatives: Sequence[FileAlternatives] = (),
) -> Pruned:
    """The files that can hold rows of a span of time (both ends included), of conditions, and of
    one branch at least of all alternatives."""
    shelf = _shelf_of(history)
    kept = shelf.between(low_us, high_us)
    reasons: dict[str, int] = {}
    if len(kept) < len(shelf.rows):
        reasons["time"] = len(shelf.rows) - len(kept)
    tests = [(c.column, partial(may_hold_in, condition=c)) for c in conditions]
    tests += [(_names(each), partial(may_hold_any, either=each)) for each in alternatives]
    for name, may_hold in tests:
        before = len(kept)
        kept = [file for file in kept if may_hold(file)]
        if len(kept) < before:
            reasons[name] = reasons.get(name, 0) + before - len(kept)
    return Pruned(tuple(kept), len(shelf.rows), history.bytes, reasons)


def _names(either: FileAlternatives) -> str:
    names = (name for branch in either for name in branch.columns("time"))
    return " or ".join(dict.fromkeys(names))


@dataclass(frozen=True)
class _Shelf:
    """The files of rows of one history by the begin of their partition, and the length of the
    longest partition: a span of time is found by two binary searches."""

    rows: tuple[DataFile, ...]
    longest_us: int
    oldest_us: int
    newest_us: int

    @classmethod
    def of(cls, history: History) -> _Shelf:
        rows = sorted((f for f in history.files if f.kind == FILE_ROWS), key=_BEGIN)
        longest_us = max((file.hi_us - file.lo_us for file in rows), default=0)
        oldest_us = min((file.time_min_us for file in rows), default=1)
        newest_us = max((file.time_max_us for file in rows), default=0)
        return cls(tuple(rows), longest_us, oldest_us, newest_us)

    def between(self, low_us: int | None, high_us: int | None) -> list[DataFile]:
        start, end = 0, len(self.rows)
        if low_us is not None:
            start = bisect_left(self.rows, low_us - self.longest_us, key=_BEGIN)
        if high_us is not None:
            end = bisect_right(self.rows, high_us, key=_BEGIN)
        kept = self.rows[start:end]
        return [
            file
            for file in kept
            if (low_us is None or file.time_max_us >= low_us)
            and (high_us is None or file.time_min_us <= high_us)
        ]


def file_span(history: History) -> tuple[int, int]:
    """The oldest and the newest time of rows in files; a span the wrong way round if there are
    none."""
    shelf = _shelf_of(history)
    return shelf.oldest_us, shelf.newest_us


_BEGIN = attrgetter("lo_us")
_shelves: dict[int, tuple[History, _Shelf]] = {}


def _shelf_of(history: History) -> _Shelf:
    """The shelf of a history, which many queries ask before the next commit changes it."""
    held = _shelves.get(id(history))
    if held is not None and held[0] is history:
        return held[1]
    shelf = _Shelf.of(history)
    if len(_shelves) >= SHELVES_MAX:
        _shelves.clear()
    _shelves[id(history)] = history, shelf
    return shelf


def read_files(storage: Storage, files: Sequence[NewFile]) -> str:
    """The table function that reads some files."""
    names = ", ".join(literal(storage.pattern(file.path)) for file in files)
    return f"read_parquet([{names}], hive_partitioning = false, union_by_name = false)"
