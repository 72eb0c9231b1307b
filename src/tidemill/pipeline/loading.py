"""Loading, inside a task: packages in, Parquet files out (document 003 §4.2).

For each package of the task, in order:

1. it is brought within reach and its digest taken; what is loaded already is skipped, and what
   changed after it was loaded is set aside;
2. it is read and checked by the very code of the hot path, first strictly, then as text, so that
   it means the same whichever way it comes;
3. its rows get the sequence numbers set apart for it, and wait on the *shelf* with those of the
   packages before it;
4. a full shelf is written: rows are collated by time into partitions, one file for each, so many
   small packages do not become many small files; partials of the table's digests go beside them.

A package is taken whole or not at all. One that is larger than the shelf goes to files of its own,
which are removed if its end turns out bad. Memory is bounded by the shelf, whatever the packages.
"""

from __future__ import annotations

import csv
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.accept.cast import FATAL, Caster
from tidemill.accept.defaults import Defaults
from tidemill.accept.files import read_file
from tidemill.accept.rows import Acceptor, Checked, divert_hint
from tidemill.catalog.model import FILE_REJECTED, NewFile, Package, Table
from tidemill.errors import (
    FileFormatError,
    QueryError,
    RowsRejectedError,
    TidemillError,
    UnknownNameError,
)
from tidemill.history.memory import held_bytes
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_rows, write_side
from tidemill.hot.side import rejected_batch
from tidemill.pipeline.digesting import DigestWork, digest_rows
from tidemill.pipeline.packages import Fetched, Listed, PackageChangedError, fetched

SHELF_BYTES_MAX = 256 << 20
PACKAGE_ROWS_MAX = 1 << 30
REASON_CHARS_MAX = 1_000
REJECT_BYTES = 120  # what a rejected row costs besides its text

LOADED, SET_ASIDE, KNOWN, CHANGED = "loaded", "set_aside", "known", "changed"
ORIGIN = "load"


@dataclass(frozen=True)
class TaskPackage:
    """A package to load: where its sequence numbers begin, and what is known of its name."""

    listed: Listed
    first_seq: int
    known: tuple[Package, ...] = ()


@dataclass(frozen=True)
class LoadTask:
    """What one task loads. ``apart`` keeps the packages' rows in different files; ``strict`` makes
    the first bad package fail the job."""

    job_id: str
    number: int
    table: Table
    storage: Storage
    form: str
    columns: tuple[str, ...] | None
    options: Mapping[str, str]
    reach: Mapping[str, str]
    packages: tuple[TaskPackage, ...]
    at_us: int
    apart: bool = False
    strict: bool = False
    digests: tuple[DigestWork, ...] = ()


@dataclass(frozen=True)
class Taken:
    """What became of a package; ``state`` is one of the words above. One that changed while it was
    read, or could not be reached, is not done with: a later look may find it whole. ``span_us`` is
    the first and the last time of its rows; ``replaced`` is known at commit: rows that gave way to
    them."""

    listed: Listed
    state: str
    digest: str = ""
    rows: int = 0
    rejected: int = 0
    first_seq: int = 0
    span_us: tuple[int, int] | None = None
    error: TidemillError | None = None
    replaced: int = 0

    @property
    def reason(self) -> str | None:
        return None if self.error is None else reason_of(self.error)


@dataclass(frozen=True)
class LoadedTask:
    """What a task did: its packages, and the files that hold their rows, with those of digests."""

    packages: tuple[Taken, ...]
    files: tuple[NewFile, ...]


@dataclass(frozen=True)
class Read:
    """What packages hold: their rows without sequence numbers, and (row, reason) of bad ones."""

    packages: tuple[Taken, ...]
    rows: tuple[pa.RecordBatch, ...]
    rejects: tuple[tuple[str, str], ...]


class TooLargeError(Exception):
    """Packages hold more than was to be read into memory; the pipeline loads them."""


def load_packages(task: LoadTask) -> LoadedTask:
    """Run a task; what it wrote is removed again if it fails."""
    with task.storage.connect() as connection:
        shelf = _Shelf(task, connection)
        loader = _Loader(task, shelf, connection)
        try:
            taken = tuple(loader.take(package) for package in task.packages)
            shelf.flush()
        except BaseException:
            shelf.remove(shelf.files)
            raise
    return LoadedTask(taken, tuple(shelf.files))


def read_packages(task: LoadTask) -> Read:
    """Read a task's packages into memory instead of files, for an append."""
    with task.storage.connect() as connection:
        shelf = _MemoryShelf(task, connection)
        loader = _Loader(task, shelf, connection)
        taken = tuple(loader.take(package) for package in task.packages)
    columns = [column.name for column in task.table.columns]
    heap = shelf.heap
    rows = tuple(batch.select(columns) for batch in heap.rows)
    return Read(taken, rows, tuple(pair for _, pairs in heap.rejects for pair in pairs))


def reason_of(error: TidemillError) -> str:
    """An error in one line, for people who look at what was set aside."""
    text = f"{error.message}: {error.detail}" if error.detail else error.message
    return text[:REASON_CHARS_MAX]


@dataclass
class _Heap:
    """Rows with their sequence numbers, and rejected rows, before they are written."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    rejects: list[tuple[int, list[tuple[str, str]]]] = field(default_factory=list)
    nbytes: int = 0

    def add(self, other: _Heap) -> None:
        self.rows += other.rows
        self.rejects += other.rejects
        self.nbytes += other.nbytes


class _Shelf:
    """Where the rows of whole packages wait to be written together."""

    def __init__(self, task: LoadTask, connection: duckdb.DuckDBPyConnection) -> None:
        self.files: list[NewFile] = []
        self.spec = WriteSpec.of(task.table)
        self._task = task
        self._connection = connection
        self._heap = _Heap()
        # A task may run twice; the two must not write to one file.
        self._stem = f"{task.job_id}-{task.number}-{secrets.token_hex(3)}"
        self._number = 0

    def put(self, heap: _Heap) -> None:
        if self._heap.nbytes + heap.nbytes > held_bytes(SHELF_BYTES_MAX):
            self.flush()
        self._heap.add(heap)
        if self._task.apart:
            self.flush()

    def flush(self) -> None:
        heap, self._heap = self._heap, _Heap()
        self.files += self.write(heap)

    def write(self, heap: _Heap) -> list[NewFile]:
        task = self._task
        files = write_rows(task.storage, self.spec, heap.rows, *self._next())
        self._number += len(files)
        if heap.rejects:
            batches = [rejected_batch(rows, task.at_us) for _, rows in heap.rejects]
            seqs = [seq for seq, _ in heap.rejects]
            aside = (task.storage, task.table, FILE_REJECTED, batches, seqs)
            rejected = write_side(*aside, *self._next())
            self._number += len(rejected)
            files += rejected
        return [*files, *self._digested(heap)]

    def _digested(self, heap: _Heap) -> list[NewFile]:
        task, label = self._task, f"{self._stem}-{self._number}"
        made = digest_rows(task.storage, self._connection, task.digests, heap.rows, ORIGIN, label)
        return [file for files in made.values() for file in files]

    def _next(self) -> tuple[str, int, str, duckdb.DuckDBPyConnection]:
        return self._stem, self._number, ORIGIN, self._connection

    def remove(self, files: list[NewFile]) -> None:
        for file in files:
            with suppress(Exception):  # VACUUM finds what is left
                self._task.storage.delete(file.path)


class _MemoryShelf(_Shelf):
    """Keeps what it is given, up to its bound."""

    @property
    def heap(self) -> _Heap:
        return self._heap

    def put(self, heap: _Heap) -> None:
        if self._heap.nbytes + heap.nbytes > SHELF_BYTES_MAX:
            raise TooLargeError("the packages are too large for memory")
        self._heap.add(heap)

    def flush(self) -> None:
        """What it has, it keeps."""

    def write(self, heap: _Heap) -> list[NewFile]:
        raise TooLargeError("a package is too large for memory")


class _Draft:
    """The rows of one package, which may yet turn out bad."""

    def __init__(self, shelf: _Shelf, first_seq: int) -> None:
        self._shelf = shelf
        self._first_seq = first_seq
        self._files: list[NewFile] = []
        self._clear()

    def _clear(self) -> None:
        self._heap = _Heap()
        self._spans: list[tuple[int, int]] = []
        self.count = self.rejected = 0

    @property
    def span_us(self) -> tuple[int, int] | None:
        """The first and the last time."""
        if not self._spans:
            return None
        return min(low for low, _ in self._spans), max(high for _, high in self._spans)

    def add(self, checked: Checked) -> None:
        for batch in checked.batches:
            self._add_rows(batch)
        if checked.rejects:
            self._heap.rejects.append((self._first_seq, list(checked.rejects)))
            self._heap.nbytes += sum(len(a) + len(b) + REJECT_BYTES for a, b in checked.rejects)
            self.rejected += len(checked.rejects)
        if self._heap.nbytes > held_bytes(SHELF_BYTES_MAX):
            self._shelf.flush()  # so that the files below hold nothing but this package
            heap, self._heap = self._heap, _Heap()
            self._files += self._shelf.write(heap)

    def keep(self) -> None:
        self._shelf.files += self._files
        self._shelf.put(self._heap)

    def drop(self) -> None:
        files, self._files = self._files, []
        self._shelf.remove(files)
        self._clear()

    def _add_rows(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        first = self._first_seq + self.count
        self.count += batch.num_rows
        if self.count > PACKAGE_ROWS_MAX:
            raise FileFormatError(
                f"the package has more than {PACKAGE_ROWS_MAX:,} rows", hint="divide it"
            )
        seqs = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
        rows = pa.RecordBatch.from_arrays([*batch.columns, seqs], schema=self._shelf.spec.schema)
        self._heap.rows.append(rows)
        self._heap.nbytes += rows.nbytes
        times = batch.column(self._shelf.spec.time_column).view(pa.int64())
        span = pc.min_max(times).as_py()
        self._spans.append((span["min"], span["max"]))


class _Loader:
    """Takes packages one by one."""

    def __init__(
        self, task: LoadTask, shelf: _Shelf, connection: duckdb.DuckDBPyConnection
    ) -> None:
        self._task = task
        self._shelf = shelf
        self._casting: duckdb.DuckDBPyConnection | None = connection
        caster = Caster(self._connect, self._forget)
        self._acceptor = Acceptor(task.table, caster, Defaults(self._evaluate))

    def take(self, package: TaskPackage) -> Taken:
        draft = _Draft(self._shelf, package.first_seq)
        listed, digest = package.listed, ""
        try:
            with fetched(listed, self._task.reach) as found:
                digest = found.digest
                if _is_known(package, found):
                    return Taken(listed, KNOWN, digest)
                self._read(found, draft)
        except (PackageChangedError, OSError) as error:
            draft.drop()
            return self._bad(Taken(listed, CHANGED, digest, error=_ours(error, listed)))
        except (*_UNREADABLE, FileFormatError, RowsRejectedError, UnknownNameError) as error:
            draft.drop()
            return self._bad(Taken(listed, SET_ASIDE, digest, error=_ours(error, listed)))
        draft.keep()
        counts = (draft.count, draft.rejected, package.first_seq, draft.span_us)
        return Taken(listed, LOADED, digest, *counts)

    def _bad(self, taken: Taken) -> Taken:
        error = taken.error
        if not self._task.strict or error is None:
            return taken
        name = f'"{taken.listed.name}"'
        message = error.message if name in error.message else f"{name}: {error.message}"
        raise type(error)(message, detail=error.detail, hint=error.hint)

    def _read(self, found: Fetched, draft: _Draft) -> None:
        try:
            self._read_as(found, draft, as_text=False)
        except (RowsRejectedError, FileFormatError):
            if self._task.form == "parquet":
                raise
            # As text some spellings are understood, and bad lines are known one by one.
            draft.drop()
            self._read_as(found, draft, as_text=True)

    def _read_as(self, found: Fetched, draft: _Draft, as_text: bool) -> None:
        task = self._task
        given = (found.path, task.form, task.table, task.columns, task.options)
        row = 1
        for part in read_file(*given, as_text=as_text):
            checked = Checked((), ())
            if part.rows.num_columns:
                checked = self._acceptor.accept(part.rows, row)
                row += part.rows.num_rows
            if part.rejects:
                self._check_rejects(part.rejects)
                checked = Checked(checked.batches, (*checked.rejects, *part.rejects))
            draft.add(checked)

    def _check_rejects(self, rejects: list[tuple[str, str]]) -> None:
        table = self._task.table
        if table.settings["rejected"] != "divert":
            raise RowsRejectedError(
                f'{len(rejects)} rows do not fit table "{table.name}"; nothing was stored',
                detail=f"for example: {rejects[0][1]}",
                hint=divert_hint(table),
            )

    def _connect(self) -> duckdb.DuckDBPyConnection:
        if self._casting is None:
            self._casting = self._task.storage.connect()
        return self._casting

    def _forget(self) -> None:
        """After a fatal error DuckDB refuses everything; casts go on with a new connection."""
        self._casting = None

    def _evaluate(self, sql: str) -> pa.Table:
        try:
            return self._connect().sql(sql).to_arrow_table()
        except duckdb.Error as error:
            if isinstance(error, FATAL):
                self._forget()
            raise QueryError("a column's DEFAULT failed", detail=str(error)) from error


_UNREADABLE = (csv.Error, pa.ArrowException, ValueError, OverflowError, RecursionError)


def _is_known(package: TaskPackage, found: Fetched) -> bool:
    """Whether the package is loaded, or set aside, as it is; raises if it was loaded otherwise."""
    same = [k for k in package.known if k.size == found.size and found.has_digest(k.digest)]
    if any(known.state == LOADED for known in same):
        return True
    if any(known.state == LOADED for known in package.known):
        raise FileFormatError(
            f'"{package.listed.name}" changed after it was loaded',
            hint="give changed data a name of its own",
        )
    return False


def _ours(error: BaseException, listed: Listed) -> TidemillError:
    if isinstance(error, TidemillError):
        return error
    kind = PackageChangedError if isinstance(error, OSError) else FileFormatError
    return kind(f'"{listed.name}" cannot be read', detail=f"{type(error).__name__}: {error}")
