"""Rewriting: files that are written anew as others, by tasks of compactions and of changes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import duckdb
import pyarrow as pa

from tidemill.catalog.model import NewFile, Table
from tidemill.changes.values import Named, registered
from tidemill.history.checking import check_files
from tidemill.history.memory import held_bytes
from tidemill.history.storage import Storage
from tidemill.history.window import Window
from tidemill.history.writing import PORTION_BYTES_MAX, WriteSpec, write_in_time, write_rows
from tidemill.pipeline.job import Outcome
from tidemill.stream.relation import FileScan
from tidemill.types import quote

SAMPLE_ROWS = 10_000  # read for a better estimate of a row's size


@dataclass(frozen=True)
class RewriteTask:
    """Files that become one set of files, for one range of time; ``origin`` says why."""

    job_id: str
    number: int
    table: Table
    storage: Storage
    lo_us: int
    hi_us: int
    scan: FileScan
    origin: str = "compact"

    @property
    def files(self) -> tuple[NewFile, ...]:
        return self.scan.files

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@dataclass(frozen=True)
class Rewritten:
    """Files that take the place of others, which go by their ids."""

    files: tuple[NewFile, ...]
    dropped: tuple[int, ...]
    detail: str
    changed: int = 0  # the files have all changes up to this number

    @property
    def outcome(self) -> Outcome[None]:
        rows, size = sum(file.rows for file in self.files), sum(file.bytes for file in self.files)
        return Outcome(None, rows, size, len(self.files), self.detail)


def rewrite_files(task: RewriteTask) -> tuple[NewFile, ...]:
    """Read files, leave removed rows out, write them arranged; runs in Spark's workers."""
    check_files(task.storage, task.table.name, task.scan.all_files)
    named = Named()
    query = task.scan.sql(task.storage, task.table, with_seq=True, named=named)
    with task.storage.connect() as connection, registered(connection, named):
        spec = replace(WriteSpec.of(task.table), bounds=(task.lo_us, task.hi_us))
        label = f"{task.job_id}-{task.number}-{uuid.uuid4().hex[:6]}"
        nbytes = task.rows * _row_bytes(connection, query)
        portions = -(-nbytes // held_bytes(PORTION_BYTES_MAX))
        if portions <= 1:
            read = connection.sql(query).to_arrow_table  # what it gives belongs to the writer
            return tuple(write_rows(task.storage, spec, read().to_batches(), label, 0, task.origin))
        given = _in_time(connection, query, spec, portions)
        made = write_in_time(task.storage, spec, given, task.rows, nbytes, label, task.origin)
        return tuple(made)


def _row_bytes(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    """About how large a row is in memory."""
    some = connection.sql(f"SELECT * FROM ({query}) LIMIT {SAMPLE_ROWS}").to_arrow_table()
    return -(-int(some.nbytes) // max(int(some.num_rows), 1))


def _in_time(
    connection: duckdb.DuckDBPyConnection, query: str, spec: WriteSpec, portions: int
) -> Iterator[list[pa.RecordBatch]]:
    """The rows of a query in about so many portions of equal size, the oldest first."""
    column = next(column for column in spec.columns if column.name == spec.time_column)
    shares = [at / portions for at in range(1, portions)]
    time = f"epoch_us({quote(column.name)})"
    cuts = connection.sql(f"SELECT approx_quantile({time}, {shares}) FROM ({query})").fetchall()
    ends = [int(end_us) for end_us in cuts[0][0] or ()]
    for begin_us, end_us in pairwise([None, *sorted(set(ends)), None]):
        low_us = None if begin_us is None else begin_us + 1
        tests = Window(column, low_us, end_us).tests()
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        yield connection.sql(f"SELECT * FROM ({query}){where}").to_arrow_table().to_batches()
