"""Writing: batches of rows become Parquet files, one partition after the other.

1. Batches are taken together up to ``PORTION_BYTES_MAX``, so memory has a bound.
2. The rows are cut where the partition changes; rows that come in another order are brought
   together first, by one stable sort of their partitions.
3. A partition's rows are arranged in slices of time, by the first index within each
   (``arranging``), and cut between row groups into files of at most ``FILE_ROWS_MAX`` rows.
4. Each file is written at its final place (``parquet`` says how), and all are made durable at the
   end. They exist for nobody until the catalog names them; VACUUM removes what failed jobs leave.

Compaction gives the rows of one partition in portions of growing time (``write_in_time``): they
go to one file, which then may be larger than memory.

The figures behind the constants are in docs/design/20261115-history-files.md and
docs/design/20261118-time-order.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

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
from tidemill.history.arranging import Arranged, Arranger
from tidemill.history.encoding import stored_expression, stored_type
from tidemill.history.open_file import OpenFile, failing_as_ours, finished
from tidemill.history.ordering import sort_by, words_of
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
from tidemill.history.slices import GROUP_ROWS_MAX, group_ends
from tidemill.history.storage import Storage
from tidemill.types import SEQ, Column, SqlType, quote

AT = "_at"
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
    row_group_rows: int = GROUP_ROWS_MAX
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
        """The columns that order a slice before time does: the first index, or the primary key."""
        first = self.indexes[0] if self.indexes else self.primary_key
        return tuple(name for name in first if name != self.time_column)

    def arranger(self) -> Arranger:
        """What brings rows into the order of files."""
        last = self.time_column, SEQ
        return Arranger(self.cluster, last, self.partition_us, self.row_group_rows)

    @property
    def ranged(self) -> tuple[str, ...]:
        """The columns whose ranges the catalog keeps."""
        names = [name for index in (*self.indexes, self.primary_key) for name in index]
        return tuple(dict.fromkeys(name for name in names if name != self.time_column))

    @property
    def filtered(self) -> frozenset[str]:
        """The columns that need bloom filters: indexed, and not what orders a slice."""
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
    with (
        storage.connect() if is_needed else nullcontext(connection) as duck,
        _Writer(storage, spec, job_id, origin, duck, first_number) as writer,
    ):
        for portion in _portions(held):
            writer.write(portion)
    return finished(storage, writer.files)


def write_in_time(
    storage: Storage,
    spec: WriteSpec,
    portions: Iterable[Sequence[pa.RecordBatch]],
    rows: int,
    nbytes: int,
    job_id: str,
    origin: str,
) -> list[NewFile]:
    """Write rows of one partition, ``spec.bounds``, that come in portions, each later than the one
    before it. There are about ``rows`` of ``nbytes``: they become as many files as they need."""
    assert spec.bounds is not None, "rows of one partition"
    schema = spec.schema
    with storage.connect() if spec.odd else nullcontext() as duck:
        limit = _rows_a_file(rows, nbytes, spec)
        with _Writer(storage, spec, job_id, origin, duck, 0) as writer:
            for batches in portions:
                held = deque(_conformed(batch, schema) for batch in batches if batch.num_rows)
                del batches
                for portion in _portions(held):
                    writer.add(*spec.bounds, portion, limit, is_whole=False)
    return finished(storage, writer.files)


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
    ends = tuple(group_ends([batch.num_rows], spec.row_group_rows))
    with failing_as_ours(path), storage.create(path) as sink:
        write_parquet(sink, batch, layout_of(batch, (), ends), ends)
    file = NewFile(
        path=path,
        kind=FILE_DELETES,
        lo_us=lo_us,
        hi_us=hi_us,
        rows=batch.num_rows,
        bytes=0,
        row_groups=len(ends),
        time_min_us=lo_us,
        time_max_us=hi_us - 1,
        seq_min=int(ordered[0]),
        seq_max=int(ordered[-1]),
        origin=origin,
        checksums=sink.checksums,
    )
    return finished(storage, [file])[0]


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
    _open: OpenFile | None = None
    _arranger: Arranger | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows of any partitions, to files of their own."""
        for lo_us, hi_us, part in _partitioned(rows, self.spec):
            self.add(lo_us, hi_us, part, _rows_a_file(part.num_rows, part.nbytes, self.spec))
            self.close()

    def add(
        self, lo_us: int, hi_us: int, rows: pa.RecordBatch, limit: int, is_whole: bool = True
    ) -> None:
        """Write rows of one partition, to the file that is open as far as it has room; if they are
        not ``is_whole``, others may follow."""
        if self._arranger is None:
            self._arranger = self.spec.arranger()
        for part in self._arranger.arrange(rows).cut(
            limit, 0 if self._open is None else self._open.rows
        ):
            if self._open is not None and self._open.rows + part.rows.num_rows > limit:
                self.close()
            self._put(lo_us, hi_us, part, is_whole)

    def close(self) -> None:
        """End the file that is open."""
        if self._open is not None:
            self.files.append(self._open.close())
            self._open = None
            self.number += 1

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        elif self._open is not None:
            self._open.abandon()

    def _put(self, lo_us: int, hi_us: int, part: Arranged, is_whole: bool) -> None:
        spec, rows = self.spec, self._stored(part.rows)
        path = _path(spec, lo_us, self.job_id, self.number)
        if self._open is None:
            key = spec.cluster[0] if spec.cluster else None
            layout = layout_of(rows, spec.filtered, part.ends, key, is_whole)
            self._open = OpenFile(self.storage, path, rows.schema, layout)
        self._open.add(rows, part.ends, self._told(path, lo_us, hi_us, part))

    def _told(self, path: str, lo_us: int, hi_us: int, part: Arranged) -> NewFile:
        spec, rows = self.spec, part.rows
        times, seqs = words_of(rows.column(spec.time_column)), words_of(rows.column(SEQ))
        return NewFile(
            path=path,
            kind=spec.kind,
            lo_us=lo_us,
            hi_us=hi_us,
            rows=rows.num_rows,
            bytes=0,
            row_groups=len(part.ends),
            time_min_us=int(times.min()),
            time_max_us=int(times.max()),
            seq_min=int(seqs.min()),
            seq_max=int(seqs.max()),
            origin=self.origin,
            ranges=_ranges(rows, spec),
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


def _rows_a_file(rows: int, nbytes: int, spec: WriteSpec) -> int:
    """How many rows go to a file, so that all are of about equal size and none is too large."""
    files = max(-(-rows // spec.file_rows_max), -(-nbytes // FILE_ARROW_BYTES_MAX), 1)
    return min(-(-rows // files) + spec.row_group_rows, spec.file_rows_max)


def _ranges(rows: pa.RecordBatch, spec: WriteSpec) -> dict[str, tuple[Bound, ...]]:
    found = {name: range_of(rows.column(name)) for name in spec.ranged}
    return {name: bounds for name, bounds in found.items() if bounds is not None}
