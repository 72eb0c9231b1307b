"""Relation: what a scan reads of a table's files, and the SQL that reads it.

This is the only place that builds scans of files of rows. A ``FileScan`` is some files of one
snapshot and which of their rows count: without removed rows, of a range of sequence numbers, inside
the retention. A ``HistoryScan`` is all that one scan reads of history. The local route puts its SQL
beside the rows in memory; tasks on Spark, back-fills, compactions and the comparison of keys run
the same SQL over their share of the files.

Columns are read as they stand wherever that is possible, so that filters and projections reach the
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tidemill.catalog.model import FILE_ROWS, DataFile, History, NewFile, Table
from tidemill.changes.files import changed_files
from tidemill.changes.model import Change
from tidemill.changes.rewriting import HasColumns as HasColumns
from tidemill.changes.rewriting import rewritten
from tidemill.changes.values import Named
from tidemill.history.deletes import concerning
from tidemill.history.encoding import read_expression
from tidemill.history.reading import Pruned, prune, read_files
from tidemill.history.storage import Storage
from tidemill.history.window import Window
from tidemill.history.writing import WriteSpec
from tidemill.hot.view import Wanted
from tidemill.hot.wanted import without_columns
from tidemill.stream.file_ranges import alternatives_of, ranges_of
from tidemill.stream.pins import Pin
from tidemill.stream.removed import NOTHING, Removed
from tidemill.types import SEQ, Column, quote

SeqRange = tuple[int, int]
"""Sequence numbers, both ends included."""


@dataclass(frozen=True)
class TimeRange:
    """Rows from a time on (``low_us``), or before another (``high_us``), by a column."""

    column: Column
    low_us: int | None = None
    high_us: int | None = None

    def has_some(self, file: NewFile) -> bool:
        """Whether a file may hold such rows."""
        return (self.low_us is None or file.time_max_us >= self.low_us) and (
            self.high_us is None or file.time_min_us < self.high_us
        )

    def has_all(self, file: NewFile) -> bool:
        """Whether a file holds nothing else."""
        return (self.low_us is None or file.time_min_us >= self.low_us) and (
            self.high_us is None or file.time_max_us < self.high_us
        )

    def tests(self) -> Iterator[str]:
        name = read_expression(self.column, "f." + quote(self.column.name))
        zone = "" if self.column.type.name == "TIMESTAMP" else "tz"
        if self.low_us is not None:
            yield f"{name} >= make_timestamp{zone}({self.low_us}::BIGINT)"
        if self.high_us is not None:
            # of an infinite time there are no microseconds
            yield f"coalesce(epoch_us({name}) < {self.high_us}, {name} < TIMESTAMP 'epoch')"


@dataclass(frozen=True)
class FileScan:
    """Files of rows, and which of their rows count: not those ``removed``; of ``seq_range`` only;
    none of ``except_ranges``; of ``times`` only. Rows outside the ``window`` are not needed, but
    may come. ``changes`` (UPDATE, DELETE) are carried out in the rows of files that do not have
    them. ``pruned`` says what was ruled out before."""

    files: tuple[NewFile, ...]
    removed: Removed = NOTHING
    seq_range: SeqRange | None = None
    except_ranges: tuple[SeqRange, ...] = ()
    times: TimeRange | None = None
    window: Window | None = None
    pruned: Pruned | None = None
    changes: tuple[Change, ...] = ()

    def sql(
        self,
        storage: Storage,
        table: HasColumns,
        columns: Sequence[str] | None = None,
        with_seq: bool = False,
        named: Named | None = None,
    ) -> str:
        """A SELECT of the rows: the table's columns in order and with their types (those named,
        or all), then ``_seq`` if wanted. Tables that it reads besides are put to those ``named``,
        which a scan with changes needs."""
        wanted = _wanted(table, columns)
        files = self.needed
        if not files:
            return _no_rows(wanted, with_seq)
        if not self.changes:
            return self._rows(storage, wanted, with_seq, files)
        parts = []
        for some, changes in changed_files(files, self.changes):
            if changes:
                assert named is not None, "changes may need tables of their own"
                what = (some, changes, named)
                parts.append(self._changed(storage, table, wanted, with_seq, *what))
            else:
                parts.append(self._rows(storage, wanted, with_seq, some))
        return " UNION ALL ".join(parts) if parts else _no_rows(wanted, with_seq)

    def _changed(
        self,
        storage: Storage,
        table: HasColumns,
        wanted: Sequence[Column],
        with_seq: bool,
        files: Sequence[NewFile],
        changes: Sequence[Change],
        named: Named,
    ) -> str:
        """The rows of files with what changes make of them."""

        def rows(names: Sequence[str], low_us: int | None, high_us: int | None) -> str:
            reached = [
                file
                for file in files
                if (low_us is None or file.time_max_us >= low_us)
                and (high_us is None or file.time_min_us <= high_us)
            ]
            columns = [column for column in table.columns if column.name in names]
            return self._rows(storage, columns, True, reached or files)

        names = [column.name for column in wanted]
        last = max(file.seq_max for file in files)
        text = rewritten(rows, table, names, changes, last, named)
        given = [*map(quote, names), *([SEQ] if with_seq else [])]
        return f"SELECT {', '.join(given)} FROM ({text})"

    def _rows(
        self,
        storage: Storage,
        wanted: Sequence[Column],
        with_seq: bool,
        files: Sequence[NewFile],
    ) -> str:
        """The rows of files as they stand there."""
        window = self.window
        within = window.tests("f.") if window and any(map(window.cuts, files)) else []
        times = None if within and self._is_within(window) else self.times
        whole = [file for file in files if times is None or times.has_all(file)]
        cut = [file for file in files if times is not None and not times.has_all(file)]
        parts = []
        for some, is_cut in ((whole, False), (cut, True)):
            tests = [*within, *(times.tests() if is_cut and times is not None else ())]
            touched = [file for file in some if self.removed.touches(file)]
            untouched = [file for file in some if not self.removed.touches(file)]
            if untouched:
                parts.append(self._select(storage, wanted, with_seq, untouched, "", tests))
            if touched:
                clause = self.removed.concerning(touched).clause(storage)
                given = [*clause.tests, *tests]
                parts.append(self._select(storage, wanted, with_seq, touched, clause.join, given))
        return " UNION ALL ".join(parts)

    def _is_within(self, window: Window | None) -> bool:
        """Whether the window leaves out all that the range of time does."""
        times = self.times
        if window is None or times is None or times.high_us is not None:
            return False
        return times.low_us is None or window.is_since(times.low_us)

    def describe_removed(self) -> list[str]:
        """What takes rows away, for EXPLAIN."""
        return self.removed.describe()

    @property
    def changed_by(self) -> tuple[Change, ...]:
        """The changes that are carried out while rows are read."""
        if not self.changes:
            return ()
        found = (change for _, some in changed_files(self.needed, self.changes) for change in some)
        return tuple({change.number: change for change in found}.values())

    @property
    def all_files(self) -> tuple[NewFile, ...]:
        """Files of rows, and files of deletes beside them."""
        return (*self.files, *self.removed.deletes)

    @property
    def needed(self) -> list[NewFile]:
        """The files that can hold such rows."""
        found = list(self.files)
        if self.seq_range is not None:
            first, last = self.seq_range
            found = [file for file in found if file.seq_min <= last and file.seq_max >= first]
        if self.times is not None:
            found = [file for file in found if self.times.has_some(file)]
        return found

    def _select(
        self,
        storage: Storage,
        wanted: Sequence[Column],
        with_seq: bool,
        files: Sequence[NewFile],
        join: str,
        tests: Sequence[str],
    ) -> str:
        given = [
            f"{read_expression(column, 'f.' + quote(column.name))} AS {quote(column.name)}"
            for column in wanted
        ]
        if with_seq:
            given.append(f"f.{SEQ}")
        conditions = [*tests, *self._seq_tests(files)]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {', '.join(given)} FROM {read_files(storage, files)} AS f{join}{where}"

    def _seq_tests(self, files: Sequence[NewFile]) -> Iterator[str]:
        if self.seq_range is not None:
            first, last = self.seq_range
            if not all(first <= file.seq_min and file.seq_max <= last for file in files):
                yield f"f.{SEQ} BETWEEN {first} AND {last}"
        for first, last in self.except_ranges:
            if any(file.seq_min <= last and file.seq_max >= first for file in files):
                yield f"f.{SEQ} NOT BETWEEN {first} AND {last}"


@dataclass(frozen=True)
class HistoryScan:
    """What a scan reads of history; ``files_total`` is what it would read without pruning."""

    parts: tuple[FileScan, ...]
    files_total: int
    pin: Pin | None = None

    @property
    def files(self) -> list[NewFile]:
        return [file for part in self.parts for file in part.files]

    @property
    def all_files(self) -> tuple[NewFile, ...]:
        """Files of rows and files of deletes, each once."""
        found = (file for part in self.parts for file in part.all_files)
        return tuple({file.path: file for file in found}.values())

    @property
    def removed(self) -> Removed:
        """What takes rows away from any of the parts."""
        deletes = {file.path: file for part in self.parts for file in part.removed.deletes}
        seqs = {seq for part in self.parts for seq in part.removed.seqs}
        return Removed.of(deletes.values(), seqs)

    @property
    def changed_by(self) -> tuple[Change, ...]:
        """The changes that are carried out while rows are read."""
        found = {change.number: change for part in self.parts for change in part.changed_by}
        return tuple(found[number] for number in sorted(found))

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def window(self) -> Window | None:
        """What all parts read no more than."""
        windows = {part.window for part in self.parts}
        return windows.pop() if len(windows) == 1 else None

    def sql(self, storage: Storage, table: Table, with_seq: bool, named: Named) -> str | None:
        """A SELECT of the table's columns, or None if there is nothing to read. Tables that it
        reads besides are put to those ``named``."""
        found = [
            f"({part.sql(storage, table, with_seq=with_seq, named=named)})"
            for part in self.parts
            if part.files
        ]
        return " UNION ALL ".join(found) if found else None

    def split(self, groups: int) -> list[HistoryScan]:
        """The same in groups of files of about equal size, neighbours in time together."""
        pieces = [
            (replace(part, files=(file,)), file.bytes) for part in self.parts for file in part.files
        ]
        wanted = max(sum(size for _, size in pieces) / max(groups, 1), 1)
        found: list[HistoryScan] = []
        held: list[FileScan] = []
        filled = 0
        for piece, size in pieces:
            held.append(piece)
            filled += size
            if filled >= wanted:
                found.append(replace(self, parts=_joined(held)))
                held, filled = [], 0
        if held:
            found.append(replace(self, parts=_joined(held)))
        return found


NO_FILES = HistoryScan((), 0)


def _joined(parts: Sequence[FileScan]) -> tuple[FileScan, ...]:
    """Neighbouring parts that differ in their files only become one."""
    joined: list[FileScan] = []
    for part in parts:
        if joined and replace(joined[-1], files=part.files) == part:
            joined[-1] = replace(part, files=(*joined[-1].files, *part.files))
        else:
            joined.append(part)
    return tuple(joined)


def scan_of(
    history: History,
    files: Sequence[DataFile],
    times: TimeRange | None = None,
    changes: Sequence[Change] = (),
) -> FileScan:
    """The rows of some files of a history that count: for jobs that read them file by file."""
    removed = Removed.of(concerning(history, files))
    return FileScan(tuple(files), removed, times=times, changes=tuple(changes))


def scan_without(files: Sequence[NewFile], seqs: Iterable[int]) -> FileScan:
    """The rows of files that the catalog does not name yet, without some."""
    return FileScan(tuple(files), Removed.of((), seqs))


def pruned_scan(
    history: History,
    wanted: Wanted,
    removed: Removed = NOTHING,
    changes: Sequence[Change] = (),
) -> FileScan:
    """The files of a history that can hold what a scan wants, without the rows that are removed:
    those that its files of deletes name, and others. Columns that ``changes`` set rule no file out
    by the values that it holds."""
    wanted = without_columns(wanted, {name for c in changes for name in c.form.writes})
    pruned = prune(
        history,
        wanted.low_us,
        wanted.high_us,
        ranges_of(wanted.conditions),
        alternatives_of(wanted.alternatives),
    )
    gone = Removed((*history.deletes, *removed.deletes), removed.seqs)
    held = gone.concerning(pruned.files)
    return FileScan(pruned.files, held, pruned=pruned, changes=tuple(changes))


def retained(table: Table, horizon_us: int | None) -> TimeRange | None:
    """The rows that a retention shows; None if all."""
    if horizon_us is None or table.time_column is None:
        return None
    return TimeRange(table.get_column(table.time_column), low_us=horizon_us)


def row_files(history: History) -> list[DataFile]:
    return [file for part in history.partitions for file in part.files if file.kind == FILE_ROWS]


def side_sql(storage: Storage, table: Table, kind: str, files: Sequence[NewFile]) -> str:
    """A SELECT of rows set aside: the columns of ``<table>$late`` or ``<table>$rejected``."""
    return FileScan(tuple(files)).sql(storage, WriteSpec.of_side(table, kind))


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
