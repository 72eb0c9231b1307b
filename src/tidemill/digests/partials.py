"""Partials of a digest: made of rows, written to files, read back, and merged.

Whatever brings rows into a stream's history writes their partials beside them:

1. rows are cut where the stream's partition changes (``cut_rows``), before anything is grouped, so
   that a file of partials belongs to one partition and retention can drop both together;
2. the partials of each part become one file (``write_partials``), in the digest's folder, with the
   partition, the times and the sequence numbers of the rows that they sum up;
3. whoever needs them reads the files of all partitions (``read_partials``) and merges them.

Queries here need a connection whose Arrow tables keep DuckDB's types (``Storage.connect``, or the
exact cursors of the engine).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from tidemill.catalog.model import FILE_DIGEST, NewFile
from tidemill.digests.definition import Digest
from tidemill.digests.encoding import packed, read_select, stored_select, unpacked
from tidemill.history.checking import check_files
from tidemill.history.open_file import failing_as_ours, finished
from tidemill.history.ordering import sort_by, words_of
from tidemill.history.parquet import layout_of, write_parquet
from tidemill.history.partitions import folder_name, partition_numbers, partition_of
from tidemill.history.slices import group_ends
from tidemill.history.storage import Storage
from tidemill.types import SEQ, literal, quote

ROW_GROUP_ROWS = 122_880  # files of partials are read whole

Rows = Sequence[pa.RecordBatch | pa.Table]


@dataclass(frozen=True)
class Cut:
    """Rows of one partition of the stream, with their sequence numbers."""

    lo_us: int
    hi_us: int
    rows: pa.Table


@dataclass(frozen=True)
class Origin:
    """Where files of partials come from, and what the catalog is told of the rows behind them."""

    kind: str
    lo_us: int
    hi_us: int
    time_us: tuple[int, int]
    seqs: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FailedPartials(NewFile):
    """Stands for partials that could not be computed, and says why; there is no such file."""

    error: str = ""


@contextmanager
def failing_alone(digest: Digest, origin: str, found: list[NewFile]) -> Iterator[None]:
    """Around the computing of partials: where the view's expressions fail, ``found`` says so in
    place of files. What is wrong with the machine (disk, memory of the process) is raised."""
    try:
        yield
    except (duckdb.InterruptException, duckdb.IOException, duckdb.FatalException):
        raise
    except (duckdb.Error, pa.ArrowException, OverflowError) as error:
        text = str(error).strip() or type(error).__name__
        path = f"{digest.table_id}/failed"
        nothing = (0,) * 9
        found[:] = [FailedPartials(path, FILE_DIGEST, *nothing, origin=origin, error=text)]


def failure_of(files: Iterable[NewFile]) -> str | None:
    """Why partials could not be computed, if some could not."""
    return next((file.error for file in files if isinstance(file, FailedPartials)), None)


# -- queries


def partials_of(
    connection: duckdb.DuckDBPyConnection,
    digest: Digest,
    batches: Rows,
) -> pa.Table:
    """The partials of rows of the stream."""
    tm_rows = _seen_rows(digest, batches)  # noqa: F841  (DuckDB finds it by name)
    return connection.sql(_typed(digest, digest.partial)).to_arrow_table()


def partials_of_scan(
    connection: duckdb.DuckDBPyConnection,
    digest: Digest,
    scan: str,
) -> pa.Table:
    """The partials of what a SELECT gives, which DuckDB reads bit by bit."""
    query = f"WITH tm_rows AS ({scan}) SELECT * FROM ({digest.partial})"
    return connection.sql(_typed(digest, query)).to_arrow_table()


def merge_partials(
    connection: duckdb.DuckDBPyConnection, digest: Digest, tables: Sequence[pa.Table]
) -> pa.Table:
    """Partials of any rows as partials of all of them: one row for each key."""
    tm_partials = _joined(tables)  # noqa: F841  (DuckDB finds it by name)
    return connection.sql(_typed(digest, digest.merge)).to_arrow_table()


def _seen_rows(digest: Digest, batches: Rows) -> pa.Table:
    """The rows as a partial sees them: with their numbers only if it asks for them."""
    rows = _joined(batches)
    return rows if digest.with_seq or SEQ not in rows.column_names else rows.drop_columns([SEQ])


def _joined(parts: Rows) -> pa.Table:
    """Rows one below the other, without a copy; what is NOT NULL in one may be NULL in another."""
    tables = [p if isinstance(p, pa.Table) else pa.Table.from_batches([p]) for p in parts]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")


def _typed(digest: Digest, query: str) -> str:
    """The columns of the digest's table with their very types; nothing is cast that has its own."""
    names = [(quote(column.name), column.type.name) for column in digest.columns]
    given = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in names)
    return f"SELECT {given} FROM ({query})"


# -- files


def cut_rows(batches: Rows, time_column: str, partition_us: int) -> Iterator[Cut]:
    """Rows by the stream's partitions; rows of one stay in the order they came."""
    if not any(batch.num_rows for batch in batches):
        return
    rows = _joined(batches)
    times = np.concatenate([words_of(chunk) for chunk in rows.column(time_column).chunks])
    numbers = partition_numbers(times, partition_us)
    order = sort_by(numbers)
    if order is not None:
        rows, times, numbers = rows.take(pa.array(order)), times[order], numbers[order]
    start = 0
    for end in [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]:
        yield Cut(*partition_of(int(times[start]), partition_us), rows.slice(start, end - start))
        start = end


def write_partials(
    storage: Storage,
    connection: duckdb.DuckDBPyConnection,
    digest: Digest,
    cuts: Sequence[Cut],
    origin: str,
    label: str,
) -> list[NewFile]:
    """Write the partials of cut rows to files ``<label>-<number>.parquet``, one for each cut."""
    files: list[NewFile] = []
    for cut in cuts:
        if not cut.rows.num_rows:
            continue
        partials = partials_of(connection, digest, [cut.rows])
        times = _span(cut.rows.column(digest.time_column))
        about = Origin(origin, cut.lo_us, cut.hi_us, times, _span(cut.rows.column(SEQ)))
        if partials.num_rows:
            name = f"{label}-{len(files)}"
            files.append(_write(storage, connection, digest, partials, about, name))
    return finished(storage, files)


def write_file(
    storage: Storage,
    connection: duckdb.DuckDBPyConnection,
    digest: Digest,
    partials: pa.Table,
    origin: Origin,
    label: str,
) -> list[NewFile]:
    """Write partials that are at hand to a file; none if there are none."""
    if not partials.num_rows:
        return []
    return finished(storage, [_write(storage, connection, digest, partials, origin, label)])


def read_partials(
    storage: Storage,
    connection: duckdb.DuckDBPyConnection,
    digest: Digest,
    files: Sequence[NewFile],
) -> pa.Table:
    """All partials of some files of a digest, not merged."""
    names = ", ".join(literal(storage.pattern(file.path)) for file in files)
    empty = ", ".join(f"CAST(NULL AS {c.type.name}) AS {quote(c.name)}" for c in digest.columns)
    if not files:
        return connection.sql(f"SELECT {empty} WHERE false").to_arrow_table()
    check_files(storage, digest.name, files)
    source = f"read_parquet([{names}], hive_partitioning = false, union_by_name = false)"
    stored = connection.sql(read_select(digest.columns, source)).to_arrow_table()
    return unpacked(stored, digest.columns)


def _write(
    storage: Storage,
    connection: duckdb.DuckDBPyConnection,
    digest: Digest,
    partials: pa.Table,
    origin: Origin,
    label: str,
) -> NewFile:
    tm_found = partials  # noqa: F841  (DuckDB finds it by name)
    stored = connection.sql(stored_select(digest.columns, "tm_found")).to_arrow_table()
    rows = packed(stored).combine_chunks()
    batch = rows.to_batches()[0]
    path = f"{digest.table_id}/{folder_name(origin.lo_us)}/{label}.parquet"
    ends = tuple(group_ends([batch.num_rows], ROW_GROUP_ROWS))
    with failing_as_ours(path), storage.create(path) as file:
        write_parquet(file, batch, layout_of(batch, (), ends), ends)
    return NewFile(
        path=path,
        kind=FILE_DIGEST,
        lo_us=origin.lo_us,
        hi_us=origin.hi_us,
        rows=batch.num_rows,
        bytes=0,
        row_groups=len(ends),
        time_min_us=origin.time_us[0],
        time_max_us=origin.time_us[1],
        seq_min=origin.seqs[0],
        seq_max=origin.seqs[1],
        origin=origin.kind,
        checksums=file.checksums,
    )


def _span(column: pa.ChunkedArray) -> tuple[int, int]:
    """The least and the greatest of times or numbers."""
    words = [words_of(chunk) for chunk in column.chunks if len(chunk)]
    return min(int(each.min()) for each in words), max(int(each.max()) for each in words)
