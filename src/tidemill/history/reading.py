"""Reading: which files a query can need, and the SELECT with which DuckDB reads them.

``prune`` looks only at what the catalog knows of the files: partitions, times, sequence numbers
and the ranges of indexed columns. It may keep too much and never drops what an answer needs,
because the query's own predicates are applied to what is read. Inside the files that are left,
DuckDB skips row groups by their statistics; ``scan_sql`` reads columns as they stand wherever it
can, so that filters and projections reach the files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import Protocol, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from tidemill.catalog.model import FILE_DELETES, FILE_ROWS, DataFile, History, NewFile, Table
from tidemill.history.checking import check_files
from tidemill.history.encoding import read_expression
from tidemill.history.ordering import words_of
from tidemill.history.ranges import FileAlternatives, RangeCondition, may_hold_any, may_hold_in
from tidemill.history.storage import Storage
from tidemill.history.writing import SEQ, WriteSpec
from tidemill.types import Column, literal, quote

BURIED_INLINE_MAX = 50
SHELVES_MAX = 32

_File = TypeVar("_File", bound=NewFile)


class HasColumns(Protocol):
    """A ``WriteSpec`` or a ``Table``."""

    @property
    def columns(self) -> tuple[Column, ...]: ...


@dataclass(frozen=True)
class Since:
    """Rows from a time on, by the table's time column."""

    column: Column
    time_us: int

    def test(self) -> str:
        zone = "" if self.column.type.name == "TIMESTAMP" else "tz"
        name = read_expression(self.column, "f." + quote(self.column.name))
        return f"{name} >= make_timestamp{zone}({self.time_us}::BIGINT)"


@dataclass(frozen=True)
class Pruned:
    """The files of rows that a query can need, the files of deletes that concern them, how much
    there was, and how many files each condition ruled out."""

    files: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
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
    deletes = tuple(_concerning(shelf.deletes, kept)) if kept else ()
    return Pruned(tuple(kept), deletes, len(shelf.rows), history.bytes, reasons)


def _names(either: FileAlternatives) -> str:
    names = (name for branch in either for name in branch.columns("time"))
    return " or ".join(dict.fromkeys(names))


@dataclass(frozen=True)
class _Shelf:
    """The files of one history by kind and by the begin of their partition, and the length of the
    longest partition: a span of time is found by two binary searches."""

    rows: tuple[DataFile, ...]
    deletes: tuple[DataFile, ...]
    longest_us: int

    @classmethod
    def of(cls, history: History) -> _Shelf:
        rows = sorted((f for f in history.files if f.kind == FILE_ROWS), key=_BEGIN)
        deletes = tuple(f for f in history.files if f.kind == FILE_DELETES)
        longest_us = max((file.hi_us - file.lo_us for file in rows), default=0)
        return cls(tuple(rows), deletes, longest_us)

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


def scan_sql(
    storage: Storage,
    table: HasColumns,
    files: Sequence[NewFile],
    deletes: Sequence[NewFile] = (),
    columns: Sequence[str] | None = None,
    with_seq: bool = False,
    buried: Iterable[int] = (),
    seq_range: tuple[int, int] | None = None,
    since: Since | None = None,
) -> str:
    """A SELECT of the files' rows: the table's columns in order and with their types (those named,
    or all), then ``_seq`` if wanted. ``buried`` are sequence numbers of rows to leave out besides
    those in ``deletes``; ``seq_range`` keeps rows of a range of sequence numbers, ends included;
    ``since`` leaves older rows out."""
    wanted = _wanted(table, columns)
    if seq_range is not None:
        files = [f for f in files if f.seq_min <= seq_range[1] and f.seq_max >= seq_range[0]]
    if since is not None:
        files = [file for file in files if file.time_max_us >= since.time_us]
    if not files:
        return _no_rows(wanted, with_seq)
    if since is not None:
        cut = [file for file in files if file.time_min_us < since.time_us]
        rest = [file for file in files if file.time_min_us >= since.time_us]
    else:
        cut, rest = [], list(files)
    gone = sorted(buried)
    spans = _spans([*deletes, *([] if not gone else [(gone[0], gone[-1])])])
    parts = []
    for some, tests in ((rest, []), (cut, [since.test()] if since is not None else [])):
        touched = [file for file in some if _overlaps(spans, file)]
        untouched = [file for file in some if not _overlaps(spans, file)]
        if untouched:
            parts.append(_select(storage, wanted, with_seq, untouched, seq_range, "", *tests))
        if touched:
            clean = _without(storage, touched, deletes, gone)
            parts.append(_select(storage, wanted, with_seq, touched, seq_range, *clean, *tests))
    return " UNION ALL ".join(parts)


def side_sql(storage: Storage, table: Table, kind: str, files: Sequence[NewFile]) -> str:
    """A SELECT of rows set aside: the columns of ``<table>$late`` or ``<table>$rejected``."""
    return scan_sql(storage, WriteSpec.of_side(table, kind), files)


def find_keys(
    storage: Storage,
    connection: duckdb.DuckDBPyConnection,
    table: HasColumns,
    files: Sequence[NewFile],
    deletes: Sequence[NewFile],
    keys: pa.Table,
    time_column: str | None = None,
    name: str = "",
) -> pa.Table:
    """The rows that hold one of the keys: the key columns, as given, and ``_seq``. With the name
    of the time column among them, files of other times are not opened. ``name`` is the table's, for
    errors."""
    if time_column is not None and keys.num_rows:
        times = words_of(keys.column(time_column).combine_chunks())
        low_us, high_us = int(times.min()), int(times.max())
        files = [f for f in files if f.time_max_us >= low_us and f.time_min_us <= high_us]
    schema = keys.schema.append(pa.field(SEQ, pa.int64()))
    if not files or not keys.num_rows:
        return schema.empty_table()
    names = keys.column_names
    check_files(storage, name, [*files, *deletes], [*names, SEQ])
    numbers = pa.array(np.arange(keys.num_rows, dtype=np.int64))
    tm_keys = pa.table(  # noqa: F841  (DuckDB finds it by name)
        [*keys.columns, numbers], names=[*(f"k{at}" for at in range(len(names))), "n"]
    )
    scan = scan_sql(storage, table, files, deletes, names, with_seq=True)
    same = " AND ".join(f"k.k{at} = s.{quote(name)}" for at, name in enumerate(names))
    found = connection.sql(
        f"SELECT k.n, s.{SEQ} FROM tm_keys AS k JOIN ({scan}) AS s ON {same} ORDER BY k.n, s.{SEQ}"
    ).to_arrow_table()
    held = keys.take(found.column("n"))
    return pa.Table.from_arrays([*held.columns, found.column(SEQ)], schema=schema)


def deleted_seqs(
    storage: Storage,
    connection: duckdb.DuckDBPyConnection,
    deletes: Sequence[NewFile],
    table: str,
) -> list[int]:
    """The sequence numbers in a table's files of deletes, in order."""
    if not deletes:
        return []
    check_files(storage, table, deletes)
    found = connection.execute(f"SELECT DISTINCT {SEQ} FROM {_read(storage, deletes)} ORDER BY 1")
    return [seq for (seq,) in found.fetchall()]


def _concerning(deletes: Sequence[_File], files: Sequence[NewFile]) -> list[_File]:
    spans = _spans(files)
    return [file for file in deletes if _overlaps(spans, file)]


def _spans(parts: Iterable[NewFile | tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of sequence numbers, joined where they meet, in order."""
    ends = [(p.seq_min, p.seq_max) if isinstance(p, NewFile) else p for p in parts]
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ends):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _overlaps(spans: Sequence[tuple[int, int]], file: NewFile) -> bool:
    at = bisect_left(spans, file.seq_min, key=itemgetter(1))
    return at < len(spans) and spans[at][0] <= file.seq_max


def _wanted(table: HasColumns, names: Sequence[str] | None) -> list[Column]:
    """The columns named, in the table's order; one, if none is named, since rows must count."""
    if names is None:
        return list(table.columns)
    lower = {name.lower() for name in names}
    return [c for c in table.columns if c.name.lower() in lower] or [table.columns[0]]


def _no_rows(wanted: Sequence[Column], with_seq: bool) -> str:
    typed = [f"CAST(NULL AS {column.type.name}) AS {quote(column.name)}" for column in wanted]
    if with_seq:
        typed.append(f"CAST(NULL AS BIGINT) AS {SEQ}")
    return f"SELECT {', '.join(typed)} WHERE false"


def _select(
    storage: Storage,
    wanted: Sequence[Column],
    with_seq: bool,
    files: Sequence[NewFile],
    seq_range: tuple[int, int] | None,
    join: str = "",
    *conditions: str,
) -> str:
    given = [
        f"{read_expression(column, 'f.' + quote(column.name))} AS {quote(column.name)}"
        for column in wanted
    ]
    if with_seq:
        given.append(f"f.{SEQ}")
    tests = list(conditions)
    if seq_range is not None and not _is_inside(files, seq_range):
        tests.append(f"f.{SEQ} BETWEEN {seq_range[0]} AND {seq_range[1]}")
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    return f"SELECT {', '.join(given)} FROM {_read(storage, files)} AS f{join}{where}"


def _is_inside(files: Sequence[NewFile], seq_range: tuple[int, int]) -> bool:
    return all(seq_range[0] <= f.seq_min and f.seq_max <= seq_range[1] for f in files)


def _without(
    storage: Storage, files: Sequence[NewFile], deletes: Sequence[NewFile], gone: Sequence[int]
) -> list[str]:
    """The join and the conditions that leave out rows which are deleted or buried."""
    sources, tests = [], []
    if held := _concerning(deletes, files):
        sources.append(f"SELECT {SEQ} FROM {_read(storage, held)}")
    if gone and len(gone) <= BURIED_INLINE_MAX:
        tests.append(f"f.{SEQ} NOT IN ({', '.join(map(str, gone))})")
    elif gone:
        sources.append(f"SELECT unnest([{', '.join(map(str, gone))}]::BIGINT[]) AS {SEQ}")
    if not sources:
        return ["", *tests]
    return [f" ANTI JOIN ({' UNION ALL '.join(sources)}) AS d ON f.{SEQ} = d.{SEQ}", *tests]


def _read(storage: Storage, files: Sequence[NewFile]) -> str:
    names = ", ".join(literal(storage.pattern(file.path)) for file in files)
    return f"read_parquet([{names}], hive_partitioning = false, union_by_name = false)"
