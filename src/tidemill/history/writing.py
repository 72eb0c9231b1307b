"""Writing: batches of rows become Parquet files, one partition after the other.

1. Batches are taken together up to ``PORTION_BYTES_MAX``, so memory has a bound.
2. The rows are cut where the partition changes; rows that come in another order are brought
   together first, by one stable sort of their partitions.
3. A partition's rows are ordered by the first index, then time, then ``_seq``, so that a key is
   found in one row group of a file, and a partition is cut into files of at most
   ``FILE_ROWS_MAX`` rows.
4. Each file is written at its final place (``parquet`` says how), and all are made durable at the
   end. They exist for nobody until the catalog names them; VACUUM removes what failed jobs leave.

The figures behind the constants are in docs/design/20261115-history-files.md.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import duckdb
import numpy as np
import pyarrow as pa

from tidemill.catalog.model import (
    FILE_DELETES,
    FILE_LATE,
    FILE_REJECTED,
    FILE_ROWS,
    Bound,
    NewFile,
    Table,
)
from tidemill.errors import DiskFullError, DurabilityError
from tidemill.history.encoding import stored_expression, stored_type
from tidemill.history.ordering import is_sortable, order_of, sort_by, words_of
from tidemill.history.parquet import layout_of, write_parquet
from tidemill.history.partitions import (
    DAY_US,
    RANGE_US_MAX,
    folder_name,
    partition_numbers,
    partition_of,
    suitable_us,
)
from tidemill.history.ranges import range_of
from tidemill.history.storage import Storage
from tidemill.types import Column, SqlType, quote

SEQ = "_seq"
AT = "_at"
ROW_GROUP_ROWS = 122_880
FILE_ROWS_MAX = 8_000_000
FILE_ARROW_BYTES_MAX = 512 * 2**20  # about 128 MB of Parquet
PORTION_BYTES_MAX = 2**30

RETENTION_SHARE = 10  # a range of joined partitions spans at most this part of the retention

_SIDE_TAIL = (Column("_reason", SqlType("VARCHAR")), Column(AT, SqlType("TIMESTAMP")))


@dataclass(frozen=True)
class WriteSpec:
    """All that a task must know of a table to write and to read its files. With ``bounds``, all
    rows belong to that one partition, whatever the length of the table's partitions. Up to
    ``range_us_max``, rows that are scattered over very many partitions go to longer ranges."""

    table_id: int
    columns: tuple[Column, ...]
    time_column: str
    partition_us: int
    indexes: tuple[tuple[str, ...], ...] = ()
    primary_key: tuple[str, ...] = ()
    kind: str = FILE_ROWS
    bounds: tuple[int, int] | None = None
    row_group_rows: int = ROW_GROUP_ROWS
    file_rows_max: int = FILE_ROWS_MAX
    range_us_max: int = 0

    @classmethod
    def of(cls, table: Table) -> WriteSpec:
        assert table.time_column is not None, "only streaming tables have a history"
        return cls(
            table.table_id,
            table.columns,
            table.get_column(table.time_column).name,
            table.settings["partition"],
            tuple(_spelled(table, index.columns) for index in table.indexes),
            _spelled(table, table.primary_key),
            range_us_max=range_us_max(table),
        )

    @classmethod
    def of_side(cls, table: Table, kind: str) -> WriteSpec:
        """The files of ``<table>$late`` or ``<table>$rejected``, by day."""
        assert kind in (FILE_LATE, FILE_REJECTED)
        rows = table.columns if kind == FILE_LATE else (Column("_row", SqlType("JSON")),)
        return cls(table.table_id, (*rows, *_SIDE_TAIL), AT, DAY_US, kind=kind)

    @property
    def cluster(self) -> tuple[str, ...]:
        """The columns that order a file before time does: the first index, or the primary key."""
        first = self.indexes[0] if self.indexes else self.primary_key
        return tuple(name for name in first if name != self.time_column)

    @property
    def ranged(self) -> tuple[str, ...]:
        """The columns whose ranges the catalog keeps."""
        names = [name for index in (*self.indexes, self.primary_key) for name in index]
        return tuple(dict.fromkeys(name for name in names if name != self.time_column))

    @property
    def filtered(self) -> frozenset[str]:
        """The columns that need bloom filters: indexed, and not what orders a file."""
        return frozenset(self.ranged) - set(self.cluster[:1])

    @property
    def odd(self) -> tuple[Column, ...]:
        """The columns that Parquet cannot hold as they are."""
        return tuple(c for c in self.columns if stored_type(c.type.name) != c.type.name)

    @property
    def schema(self) -> pa.Schema:
        """What batches to be written look like."""
        return pa.schema([*(column.field for column in self.columns), pa.field(SEQ, pa.int64())])


def range_us_max(table: Table) -> int:
    """How long a range of joined partitions may be, so that retention can drop it in time."""
    retention = table.settings["retention"]
    return RANGE_US_MAX if retention is None else int(retention) // RETENTION_SHARE


def write_rows(
    storage: Storage,
    spec: WriteSpec,
    batches: Sequence[pa.RecordBatch],
    job_id: str,
    first_number: int,
    origin: str,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> list[NewFile]:
    """Write batches of ``spec.schema`` to files ``<job_id>-<number>.parquet``, numbered from
    ``first_number`` on."""
    schema = spec.schema
    held = deque(_conformed(batch, schema) for batch in batches if batch.num_rows)
    del batches  # whoever gave them away lets go of them as they are joined
    if not held:
        return []
    is_needed = connection is None and bool(spec.odd)
    with storage.connect() if is_needed else nullcontext(connection) as duck:
        writer = _Writer(storage, spec, job_id, origin, duck, first_number)
        for portion in _portions(held):
            writer.write(portion)
    return _finished(storage, writer.files)


def write_side(
    storage: Storage,
    table: Table,
    kind: str,
    batches: Sequence[pa.RecordBatch],
    seqs: Sequence[int],
    job_id: str,
    first_number: int,
    origin: str,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> list[NewFile]:
    """Write late or rejected rows; ``seqs`` holds the sequence number of each batch."""
    spec = WriteSpec.of_side(table, kind)
    numbered = [
        pa.RecordBatch.from_arrays(
            [*batch.columns, pa.repeat(pa.scalar(seq, pa.int64()), batch.num_rows)],
            schema=spec.schema,
        )
        for batch, seq in zip(batches, seqs, strict=True)
    ]
    return write_rows(storage, spec, numbered, job_id, first_number, origin, connection)


def write_deletes(
    storage: Storage,
    spec: WriteSpec,
    lo_us: int,
    hi_us: int,
    seqs: Sequence[int],
    job_id: str,
    number: int,
    origin: str,
) -> NewFile:
    """Write the sequence numbers of rows of one partition that are gone."""
    ordered = np.unique(np.asarray(seqs, dtype=np.int64))
    batch = pa.RecordBatch.from_arrays([pa.array(ordered)], names=[SEQ])
    path = _path(spec, lo_us, job_id, number)
    checksums = _write_file(storage, path, batch, spec)
    file = NewFile(
        path=path,
        kind=FILE_DELETES,
        lo_us=lo_us,
        hi_us=hi_us,
        rows=batch.num_rows,
        bytes=0,
        row_groups=_groups(batch, spec),
        time_min_us=lo_us,
        time_max_us=hi_us - 1,
        seq_min=int(ordered[0]),
        seq_max=int(ordered[-1]),
        origin=origin,
        checksums=checksums,
    )
    return _finished(storage, [file])[0]


@dataclass
class _Writer:
    """Writes the files of one job's task, numbering them."""

    storage: Storage
    spec: WriteSpec
    job_id: str
    origin: str
    connection: duckdb.DuckDBPyConnection | None
    number: int
    files: list[NewFile] = field(default_factory=list)

    def write(self, rows: pa.RecordBatch) -> None:
        for lo_us, hi_us, part in _partitioned(rows, self.spec):
            for cut in _cut(_ordered(part, self.spec), self.spec):
                self.files.append(self._write_file(lo_us, hi_us, cut))
                self.number += 1

    def _write_file(self, lo_us: int, hi_us: int, rows: pa.RecordBatch) -> NewFile:
        spec = self.spec
        path = _path(spec, lo_us, self.job_id, self.number)
        checksums = _write_file(self.storage, path, self._stored(rows), spec)
        times, seqs = words_of(rows.column(spec.time_column)), words_of(rows.column(SEQ))
        return NewFile(
            path=path,
            kind=spec.kind,
            lo_us=lo_us,
            hi_us=hi_us,
            rows=rows.num_rows,
            bytes=0,
            row_groups=_groups(rows, spec),
            time_min_us=int(times.min()),
            time_max_us=int(times.max()),
            seq_min=int(seqs.min()),
            seq_max=int(seqs.max()),
            origin=self.origin,
            ranges=_ranges(rows, spec),
            checksums=checksums,
        )

    def _stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with columns that Parquet cannot hold as they are in the form in which it can."""
        odd = self.spec.odd
        if not odd:
            return rows
        assert self.connection is not None
        names = [quote(column.name) for column in odd]
        casts = [stored_expression(c, name) for c, name in zip(odd, names, strict=True)]
        tm_rows = pa.Table.from_batches([rows.select([c.name for c in odd])])  # noqa: F841
        texts = self.connection.sql(f"SELECT {', '.join(casts)} FROM tm_rows").to_arrow_table()
        for column, made in zip(odd, texts.columns, strict=True):
            at = rows.schema.get_field_index(column.name)
            rows = rows.set_column(at, column.name, made.combine_chunks())
        return rows


def _write_file(storage: Storage, path: str, rows: pa.RecordBatch, spec: WriteSpec) -> str:
    """Write a file; answers its checksums."""
    layout = layout_of(rows, spec.filtered, spec.row_group_rows)
    with _failing_as_ours(path), storage.create(path) as file:
        write_parquet(file, rows, layout, spec.row_group_rows)
    return file.checksums


def _finished(storage: Storage, files: Sequence[NewFile]) -> list[NewFile]:
    """The files, durable, with their sizes."""
    with _failing_as_ours(files[0].path):
        sizes = storage.finish_all([file.path for file in files])
    return [replace(file, bytes=size) for file, size in zip(files, sizes, strict=True)]


@contextmanager
def _failing_as_ours(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC or "No space left" in str(error):
            raise DiskFullError(f'no space left for "{path}"', detail=str(error)) from error
        raise DurabilityError(f'"{path}" could not be written', detail=str(error)) from error


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the table's very types: DuckDB exports booleans as bytes."""
    assert batch.schema.names == schema.names, f"columns {batch.schema.names}, not {schema.names}"
    if batch.schema.types == schema.types:
        return batch
    columns = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(batch.columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _groups(rows: pa.RecordBatch, spec: WriteSpec) -> int:
    return -(-int(rows.num_rows) // spec.row_group_rows)


def _spelled(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(table.get_column(name).name for name in names)


def _path(spec: WriteSpec, lo_us: int, job_id: str, number: int) -> str:
    return f"{spec.table_id}/{folder_name(lo_us)}/{job_id}-{number}.parquet"


def _portions(batches: deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches joined, as many at a time as memory may hold twice; they are taken away."""
    while batches:
        held = [batches.popleft()]
        size = held[0].nbytes
        while batches and size + batches[0].nbytes <= PORTION_BYTES_MAX:
            held.append(batches.popleft())
            size += held[-1].nbytes
        portion = pa.concat_batches(held) if len(held) > 1 else held[0]
        held = []
        yield portion


def _partitioned(
    rows: pa.RecordBatch, spec: WriteSpec
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The rows of each partition, in the order they came, with the partition's bounds."""
    column = rows.column(spec.time_column)
    assert not column.null_count, "the time column is never NULL"
    times = words_of(column)
    if spec.bounds is not None:
        lo_us, hi_us = spec.bounds
        assert lo_us <= times.min() <= times.max() <= hi_us, "rows of another partition"
        yield lo_us, hi_us, rows
        return
    size_us = suitable_us(times, spec.partition_us, spec.range_us_max)
    numbers = partition_numbers(times, size_us)
    order = sort_by(numbers)
    if order is not None:
        rows, times, numbers = rows.take(pa.array(order)), times[order], numbers[order]
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    start = 0
    for end in ends:
        lo_us, hi_us = partition_of(int(times[start]), size_us)
        yield lo_us, hi_us, rows.slice(start, end - start)
        start = end


def _ordered(rows: pa.RecordBatch, spec: WriteSpec) -> pa.RecordBatch:
    keys = [rows.column(name) for name in (*spec.cluster, spec.time_column, SEQ)]
    order = order_of([key for key in keys if is_sortable(key.type)])
    return rows if order is None else rows.take(pa.array(order))


def _cut(rows: pa.RecordBatch, spec: WriteSpec) -> Iterator[pa.RecordBatch]:
    """Pieces of equal size that are not too large for a file, whole row groups each."""
    count = rows.num_rows
    files = max(-(-count // spec.file_rows_max), -(-rows.nbytes // FILE_ARROW_BYTES_MAX))
    if files == 1:
        yield rows
        return
    groups = -(-count // (files * spec.row_group_rows))
    step = min(groups * spec.row_group_rows, max(spec.file_rows_max, 1))
    for start in range(0, count, step):
        yield rows.slice(start, step)


def _ranges(rows: pa.RecordBatch, spec: WriteSpec) -> dict[str, tuple[Bound, ...]]:
    found = {name: range_of(rows.column(name)) for name in spec.ranged}
    return {name: bounds for name, bounds in found.items() if bounds is not None}
