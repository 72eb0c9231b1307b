"""Tasks of partition-wise queries: DuckDB over some files of a table, inside a Spark worker.

A task gets SQL that reads one name, the files behind that name, the values of parameters and the
reference tables it joins, all by value; it answers rows as Arrow. What it runs is the very SQL that
the local route would run over the same rows, so both give the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa

from tidemill.config import DUCKDB_CLOSED
from tidemill.errors import QueryError
from tidemill.federation.duck import REFERENCE, translated
from tidemill.federation.template import Template
from tidemill.history.checking import Reads
from tidemill.history.storage import Storage
from tidemill.permissions import spill_folder
from tidemill.threads import PerThread
from tidemill.types import literal, quote


@dataclass(frozen=True)
class PartialTask:
    """``template`` reads ``source``, which stands for ``files_sql``; ``references`` are tables by
    their name in the reference database, as Arrow IPC."""

    template: Template
    source: str
    files_sql: str
    storage: Storage
    values: Mapping[str, object] = field(default_factory=dict)
    references: Mapping[str, bytes] = field(default_factory=dict)
    tables: Mapping[str, bytes] = field(default_factory=dict)  # others that the query names
    reads: Reads | None = None

    @property
    def files(self) -> int:
        return 0 if self.reads is None else len(self.reads.files)


@dataclass(frozen=True)
class PartialResult:
    """Rows as Arrow IPC."""

    stream: bytes
    rows: int

    @classmethod
    def of(cls, table: pa.Table) -> PartialResult:
        return cls(to_ipc(table), table.num_rows)

    def table(self) -> pa.Table:
        return from_ipc(self.stream)


def run_partial(task: PartialTask) -> PartialResult:
    """Run a task's SQL; called in workers, and for hot rows in the owner."""
    connection = _connections.get()
    task.storage.prepare(connection)
    if task.reads is not None:
        task.reads.check()
    text = task.template.filled({task.source: f"({task.files_sql})"})
    try:
        with Brought(connection, task.references, task.tables):
            values = dict(task.values) or None
            return PartialResult.of(connection.sql(text, params=values).to_arrow_table())
    except duckdb.Error as error:
        raise translated(error) from error
    except (pa.ArrowException, OverflowError) as error:
        raise QueryError("the query failed", detail=str(error)) from error


class Brought:
    """Tables that a query reads beside its scan, for its time: reference tables in a database of
    their own name, others by theirs."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        tables: Mapping[str, bytes],
        others: Mapping[str, bytes],
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._others = others

    def __enter__(self) -> None:
        for name, stream in self._others.items():
            self._connection.register(name, from_ipc(stream))
        if not self._tables:
            return
        self._connection.execute(f"ATTACH ':memory:' AS {REFERENCE}")
        for name, stream in self._tables.items():
            tm_rows = from_ipc(stream)  # noqa: F841  (DuckDB finds it by name)
            target = f"{REFERENCE}.main.{quote(name)}"
            self._connection.execute(f"CREATE TABLE {target} AS FROM tm_rows")

    def __exit__(self, *_: object) -> None:
        for name in self._others:
            self._connection.unregister(name)
        if self._tables:
            self._connection.execute(f"DETACH {REFERENCE}")


def connect() -> duckdb.DuckDBPyConnection:
    """A DuckDB for tasks, with the types and the meaning of the owner's."""
    connection = duckdb.connect(":memory:", config={**DUCKDB_CLOSED})
    for setting in (
        "TimeZone = 'UTC'",
        "threads = 1",
        "arrow_lossless_conversion = true",
        "parquet_metadata_cache = true",
        f"temp_directory = {literal(spill_folder())}",
    ):
        connection.execute(f"SET {setting}")
    return connection


_connections = PerThread(connect)  # kept for a thread's next task


def to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(memoryview(sink.getvalue()))


def from_ipc(stream: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_all()
