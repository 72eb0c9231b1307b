"""DuckDB, which runs every query: one in-memory instance, the reference tables attached to it.

Arrow data is handed over by name: DuckDB looks an unknown table up among the variables of the
Python frame that calls it, and that frame here holds nothing but the sources of the query. This
costs a third of registering a view and leaves nothing behind.

After a fatal error DuckDB refuses everything until its instance is made anew. The statement that
met it fails; the next one waits until the others have left, closes the old instance, which frees
the reference file, and connects again. What was committed is in that file and its log.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.accept.cast import FATAL
from tidemill.config import DUCKDB_CLOSED
from tidemill.errors import (
    DamagedFileError,
    DiskFullError,
    DuplicateKeyError,
    QueryError,
    RowsRejectedError,
    SqlSyntaxError,
    TidemillError,
    UnknownNameError,
)
from tidemill.federation.interrupting import Interruptible
from tidemill.federation.reference_log import ReferenceLog
from tidemill.permissions import make_folder, make_private
from tidemill.threads import PerThread
from tidemill.types import literal

REFERENCE = "reference"
SPILL_FOLDER = "spill"
_WHOLE = pa.decimal128(38, 0)
_HUGE = frozenset({"HUGEINT", "UHUGEINT"})
BATCH_ROWS = 65_536
_KINDS = {"Io": "IO", "Http": "HTTP"}
_RUN = compile("tm_out = tm_cursor.sql(tm_query, params=tm_params)", "<query>", "exec")
# A reference table's name in its file, which means nothing to users.
_PHYSICAL = re.compile(r' on table "t\d+"|\bt\d+\.')
_WINDOW_CALL = re.compile(r"Function with name (tumble|hop|session)\b", re.IGNORECASE)
# Types that are the same Arrow, exact or not.
_PLAIN = re.compile(
    r"(U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|VARCHAR|DATE|TIMESTAMP|DECIMAL\(\d+,\d+\))$"
)
_DAMAGE = re.compile(
    r"Corrupt database file|match stored checksum|not a valid DuckDB database file"
)
_CANDIDATES = re.compile(r"Candidate (?:bindings|functions|tables)?:?\s*(.*)", re.DOTALL)


class Duck:
    """The instance. Cursors are one per thread: DuckDB runs one query at a time on each."""

    def __init__(
        self,
        reference_path: Path,
        threads: int,
        memory_bytes: int,
        prepare: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
    ) -> None:
        """``prepare`` lets the instance reach the storage of history."""
        self._prepare = prepare
        self.memory_max = memory_bytes
        self._settings = {
            "TimeZone": "'UTC'",
            "memory_limit": f"'{memory_bytes}B'",
            "parquet_metadata_cache": "true",  # our files are written once
            "temp_directory": literal(str(reference_path.parent / SPILL_FOLDER)),
        }
        make_folder(reference_path.parent / SPILL_FOLDER)
        if threads:
            self._settings["threads"] = str(threads)
        self._reference_path = reference_path
        self.reference_log = ReferenceLog(reference_path)
        self._gate = threading.Condition()
        self._users = 0
        self._is_broken = False
        self._connect()

    def keep_private(self) -> None:
        """Close DuckDB's own files to other users: it creates them as the umask says, and the
        log of changes again after every checkpoint."""
        for path in (self._reference_path, f"{self._reference_path}.wal"):
            make_private(path)

    def _connect(self) -> None:
        self._plain = PerThread(self._new_cursor)
        self._exact = PerThread(self._new_exact_cursor)
        self._cursors: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()
        self.reference_log.check()
        self._connection = duckdb.connect(":memory:", config={**DUCKDB_CLOSED})
        try:
            for name, value in self._settings.items():
                self._connection.execute(f"SET GLOBAL {name} = {value}")  # for cursors too
            path = literal(str(self._reference_path))
            self._connection.execute(f"ATTACH {path} AS {REFERENCE}")
            self.keep_private()
            if self._prepare is not None:
                self._prepare(self._connection)
        except duckdb.Error as error:
            self._connection.close()
            raise _unattached(self._reference_path, error) from error

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keep the instance for a statement; make it anew first, if an earlier one broke it."""
        with self._gate:
            self._gate.wait_for(lambda: not self._is_broken or not self._users)
            if self._is_broken:
                self._disconnect()
                self._connect()
                self._is_broken = False
            self._users += 1
        try:
            yield
        except FATAL as error:
            self._is_broken = True
            if _is_damage(error):
                raise _damaged(self._reference_path, error) from error
            raise QueryError(
                "DuckDB failed within the statement and was started again",
                detail=_lower(str(error).partition("\n")[0]),
                hint="what was committed is kept; if the statement fails again, write it otherwise",
            ) from error
        except duckdb.Error as error:
            if _is_damage(error):
                raise _damaged(self._reference_path, error) from error
            raise translated(error) from error
        finally:
            with self._gate:
                self._users -= 1
                self._gate.notify_all()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        return self._plain.get()

    def exact_cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor whose Arrow tables DuckDB reads again with the very types it gave them."""
        return self._exact.get()

    def _new_exact_cursor(self) -> duckdb.DuckDBPyConnection:
        cursor = self._new_cursor()
        cursor.execute("SET SESSION arrow_lossless_conversion = true")
        return cursor

    def _new_cursor(self) -> duckdb.DuckDBPyConnection:
        cursor = self._connection.cursor()
        self._cursors.add(cursor)
        return cursor

    def query(
        self,
        sql: str,
        params: Mapping[str, object],
        sources: Mapping[str, pa.Table],
        *,
        exact: bool = False,
        bounded: bool = False,
    ) -> tuple[pa.Table, list[str]]:
        """Run a query over named Arrow tables; answers the rows and their SQL types.

        Users get types that every library knows (UUID as text); ``exact`` is for ourselves. An
        answer that is ``bounded`` takes no more memory than a query may: it is counted while it
        comes, which costs a short query a tenth of its time."""
        try:
            with self._in_use():
                cursor = self.exact_cursor() if exact else self.cursor()
                with Interruptible(cursor):
                    relation = relation_of(cursor, sql, params, sources)
                    if relation is None:
                        return pa.table({}), []
                    types = [str(kind) for kind in relation.types]
                    if bounded:
                        table = bounded_table(relation.to_arrow_reader(BATCH_ROWS), self.memory_max)
                    else:
                        table = relation.to_arrow_table()
            if not exact and _HUGE.intersection(types):
                table = _with_whole_numbers(table, types)
            return table, types
        except (pa.ArrowException, OverflowError, RuntimeError) as error:
            raise QueryError("the query failed", detail=str(error)) from error

    def shown(self, table: pa.Table, types: list[str]) -> tuple[pa.Table, list[str]]:
        """Rows of an exact query as users get them."""
        if not all(kind == "HUGEINT" or _PLAIN.match(kind) for kind in types):
            return self.query("SELECT * FROM tm_answer", {}, {"tm_answer": table})
        for at, kind in enumerate(types):
            if kind == "HUGEINT":  # a decimal of 38 digits is the same sixteen bytes
                name, chunks = table.field(at).name, table.column(at).chunks
                decimals = pa.chunked_array([_as_decimals(chunk) for chunk in chunks], _WHOLE)
                table = table.set_column(at, name, decimals)
        return _with_whole_numbers(table, types), types

    @contextmanager
    def lent(self, *, exact: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """This thread's cursor, for queries that others write."""
        try:
            with self._in_use():
                cursor = self.exact_cursor() if exact else self.cursor()
                with Interruptible(cursor):
                    yield cursor
        except (pa.ArrowException, OverflowError) as error:
            raise QueryError("the query failed", detail=str(error)) from error

    def execute(self, sql: str, params: Mapping[str, object] | None = None) -> list[Any]:
        """Run a statement for its effect."""
        with self._in_use():
            return self.cursor().execute(sql, dict(params) if params else None).fetchall()

    def close(self) -> None:
        with self._gate:
            self._disconnect()

    def _disconnect(self) -> None:
        """Close all there is: one open cursor would keep the instance, and it the file."""
        for cursor in (*self._cursors, self._connection):
            cursor.close()


def relation_of(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    params: Mapping[str, object],
    sources: Mapping[str, pa.Table],
) -> duckdb.DuckDBPyRelation | None:
    """What a query gives over named Arrow tables; None for a statement that gives nothing."""
    space: dict[str, Any] = {
        **sources,
        "tm_query": sql,
        "tm_params": dict(params) if params else None,
        "tm_cursor": cursor,
    }
    exec(_RUN, space)
    relation: duckdb.DuckDBPyRelation | None = space["tm_out"]
    return relation


def bounded_table(reader: pa.RecordBatchReader, bytes_max: int) -> pa.Table:
    """The rows of a reader, unless they take more memory than they may."""
    batches: list[pa.RecordBatch] = []
    rows = held = 0
    try:
        for batch in reader:
            rows += batch.num_rows
            held += batch.nbytes
            if held > bytes_max:
                raise QueryError(
                    "the answer takes more memory than query_memory allows",
                    detail=f"{held:,} bytes after {rows:,} rows; query_memory is {bytes_max:,}",
                    hint="ask for less (LIMIT), write it to a file (COPY (SELECT …) TO 'file'), or "
                    "raise the setting query_memory",
                )
            batches.append(batch)
    except OSError as error:  # what DuckDB says once rows are coming
        raise _error_of(str(error)) from error
    finally:
        reader.close()
    return pa.Table.from_batches(batches, reader.schema)


def _error_of(text: str) -> duckdb.Error:
    """DuckDB's error, of which Arrow has kept the text."""
    word = text.partition(" Error:")[0].title().replace(" ", "")
    kind = getattr(duckdb, f"{_KINDS.get(word, word)}Exception", duckdb.Error)
    found: duckdb.Error = kind(text)
    return found


def _as_decimals(column: pa.ExtensionArray) -> pa.Array:
    plain = column.storage
    return pa.Array.from_buffers(_WHOLE, len(plain), plain.buffers(), offset=plain.offset)


def _with_whole_numbers(table: pa.Table, types: list[str]) -> pa.Table:
    """Whole numbers of more than 38 digits as text: DuckDB gives them as decimals of 38 digits.

    That concerns every UHUGEINT column, so that its form does not depend on its values."""
    for at, kind in enumerate(types):
        column = table.column(at)
        if kind == "UHUGEINT" or (kind == "HUGEINT" and _has_39_digits(column)):
            wrap = 2**128 if kind == "UHUGEINT" else None
            numbers = [None if value is None else int(value) for value in column.to_pylist()]
            texts = [None if n is None else str(n % wrap if wrap else n) for n in numbers]
            table = table.set_column(at, table.field(at).name, pa.array(texts, pa.string()))
    return table


def _has_39_digits(column: pa.ChunkedArray) -> bool:
    bounds = pc.min_max(column).as_py()
    return any(bound is not None and abs(bound) >= 10**38 for bound in bounds.values())


def _is_damage(error: Exception) -> bool:
    """Whether DuckDB found that a block of its file is not what it wrote."""
    return bool(_DAMAGE.search(str(error)))


def _damaged(path: Path, error: Exception) -> DamagedFileError:
    return DamagedFileError(
        f'the file of the reference tables, "{path}", is damaged',
        detail=_lower(str(error).partition("\n")[0]),
        hint="restore it from the same backup as the catalog",
    )


def _unattached(path: Path, error: duckdb.Error) -> TidemillError:
    """Why the reference tables cannot be opened: locked, not readable, or else damaged."""
    text = str(error)
    words = ("Could not set lock", "Permission denied", "No space left", "No such file")
    if not _is_damage(error) and any(each in text for each in words):
        return translated(error)
    return _damaged(path, error)


def translated(error: duckdb.Error) -> TidemillError:
    """DuckDB's error in our shape: what happened first, its suggestions as the hint."""
    text = public(str(error))
    kind, _, rest = text.partition(": ")
    message = (rest or kind).strip()
    head, _, tail = message.partition("\n")
    head = head.strip()
    hint = None
    found = _CANDIDATES.search(message)
    if found and "(" not in found[1].split("LINE ")[0]:  # a list of signatures is no hint
        names = " ".join(found[1].split("LINE ")[0].split()).lstrip(": ")
        known = [name for name in names.split(", ") if _HIDDEN_NAME not in name]
        hint = f"did you mean one of: {', '.join(known)}" if known else None
    hint = _window_hint(head) or _extension_hint(text) or hint
    if isinstance(error, duckdb.InterruptException):
        return QueryError("the statement was cancelled")
    if isinstance(error, duckdb.ConstraintException):
        kind_of = DuplicateKeyError if "duplicate key" in head.lower() else RowsRejectedError
        return kind_of(_lower(_PHYSICAL.sub("", head)), hint="nothing was changed")
    if isinstance(error, duckdb.ParserException):
        return SqlSyntaxError(_lower(head), hint=hint or "docs/sql.md shows every statement")
    if isinstance(error, duckdb.CatalogException):
        return UnknownNameError(_lower(head), hint=hint)
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryError(
            "the query needs more memory than it may have",
            detail=_lower(head),
            hint="raise the setting query_memory, or ask for less at once",
        )
    if "No space left" in text:
        return DiskFullError("no space left on the disk", detail=_lower(head))
    if "INSTALL " in tail:  # DuckDB's advice, which nobody can follow here
        tail = ""
    return QueryError(_lower(head), detail=_detail(tail), hint=hint)


_PARAMETER = re.compile(r"\$?\btidemill_p(\d+)")
_QUALIFIER = re.compile(r'"?\btm_\w+"?\.')
_MADE = re.compile(r'"?\btm_(prev)?\w+"?')
_HIDDEN_NAME = "the query's own part"


def public(text: str) -> str:
    """A message without the names that we gave things in the query.

    >>> public('no column "tm_scan_0"."x" for $tidemill_p2')
    'no column "x" for $2'
    """
    text = _QUALIFIER.sub("", _PARAMETER.sub(r"$\1", text))
    return _MADE.sub(lambda found: "PREV" if found[1] else _HIDDEN_NAME, text)


def _extension_hint(text: str) -> str | None:
    if "extension" not in text or "INSTALL " not in text:
        return None
    return (
        "a warehouse uses what DuckDB has built in; COPY t FROM 'url' reads files of other places "
        "into a table"
    )


def _window_hint(head: str) -> str | None:
    """Windows over streams are tables here, where other systems group by functions."""
    found = _WINDOW_CALL.search(head)
    if found is None:
        return None
    return f"windows stand in FROM: SELECT … FROM {found[1].upper()}(t, ts, INTERVAL '1' MINUTE)"


def _detail(tail: str) -> str | None:
    lines = [line for line in tail.splitlines() if line.strip() and _HIDDEN_NAME not in line]
    kept = [line for line in lines if not line.strip().startswith(("LINE", "^", "Candidate"))]
    return " ".join(" ".join(kept).split()) or None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
