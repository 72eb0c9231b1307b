"""Shipping: rows of memory travel to a task, where the whole query runs over them and the files.

For a query that is not the sum of its parts (document 000 §III-C: "for more complicated
computations, we collect the corresponding, partial rowset from the stream buffer and send it … to
the database"): the smaller part travels to the larger one. The task runs the very SQL that the
local route would run, in DuckDB, so the answer is the same; what it needs comes by value:

1. the rows in memory that the indices selected, without the columns that the query does not read;
2. rows of other tables that the query names: reference tables, answers of views, keys;
3. the names of the files.

The answer comes back with DuckDB's own types, and is bounded by ``query_memory`` in the task.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tidemill.accept.cast import FATAL
from tidemill.errors import QueryError
from tidemill.federation.duck import BATCH_ROWS, bounded_table, relation_of, translated
from tidemill.federation.partial import Brought, connect, from_ipc, to_ipc
from tidemill.federation.planner import HOT
from tidemill.federation.runner import Filled, Selected
from tidemill.history.checking import Reads
from tidemill.history.storage import Storage
from tidemill.threads import PerThread
from tidemill.types import SEQ

SHIPPED_BYTES_MAX = 256 * 1024 * 1024


def shipping_refusal(filled: Filled) -> str | None:
    """Why the rows of memory stay here; None if they may travel."""
    if filled.plan.files:
        return "the query reads files of its own"
    files = sum(chosen.past.rows for chosen in filled.selected if chosen.past is not None)
    if sum(rows.num_rows for rows in filled.sources.values()) >= files:
        return "most of its rows are in memory"
    if sum(rows.nbytes for rows in travelling(filled).values()) > SHIPPED_BYTES_MAX:
        return f"its rows in memory are more than the {SHIPPED_BYTES_MAX:,} bytes that may travel"
    return None


def travelling(filled: Filled) -> dict[str, pa.Table]:
    """The rows that go along, by the names that the query has for them."""
    sources = dict(filled.sources)
    for chosen in filled.selected:
        sources[chosen.scan.source] = _narrow(chosen)
    return sources


def _narrow(chosen: Selected) -> pa.Table:
    """A scan's rows, with nothing in the columns that the query does not read."""
    scan, rows = chosen.scan, chosen.table
    if scan.kind != HOT or scan.columns is None:
        return rows
    wanted = {name.lower() for name in scan.columns}
    for at, field in enumerate(rows.schema):
        if field.name.lower() not in wanted and field.name != SEQ:
            rows = rows.set_column(at, field.name, pa.nulls(rows.num_rows))
    return rows


@dataclass(frozen=True)
class WholeTask:
    """``sql`` reads files by their paths, and the rows brought along by their names."""

    sql: str
    storage: Storage
    values: Mapping[str, object]
    references: Mapping[str, bytes]
    tables: Mapping[str, bytes]
    reads: tuple[Reads, ...]
    memory_bytes: int
    threads: int

    @classmethod
    def of(
        cls,
        filled: Filled,
        storage: Storage,
        references: Mapping[str, bytes],
        memory_bytes: int,
        threads: int,
    ) -> WholeTask:
        tables = {name: to_ipc(rows) for name, rows in travelling(filled).items()}
        reads = tuple(
            chosen.reads
            for chosen in filled.selected
            if chosen.reads is not None and chosen.files_sql is not None
        )
        values = filled.values
        return cls(filled.text, storage, values, references, tables, reads, memory_bytes, threads)


@dataclass(frozen=True)
class WholeResult:
    """An answer as Arrow IPC, with its SQL types."""

    stream: bytes
    types: tuple[str, ...]

    def table(self) -> pa.Table:
        return from_ipc(self.stream)


def run_whole(task: WholeTask) -> WholeResult:
    """Run a query; called in a worker."""
    connection = _connections.get()
    task.storage.prepare(connection)
    for reads in task.reads:
        reads.check()
    threads = max(min(task.threads, os.cpu_count() or 1), 1)
    try:
        connection.execute(f"SET threads = {threads}")
        connection.execute(f"SET memory_limit = '{task.memory_bytes}B'")
        tables = {name: from_ipc(stream) for name, stream in task.tables.items()}
        with Brought(connection, task.references, {}):
            relation = relation_of(connection, task.sql, task.values, tables)
            assert relation is not None
            types = tuple(str(kind) for kind in relation.types)
            rows = bounded_table(relation.to_arrow_reader(BATCH_ROWS), task.memory_bytes)
            return WholeResult(to_ipc(rows), types)
    except FATAL as error:
        _connections.forget()  # DuckDB refuses everything until it is made anew
        raise translated(error) from error
    except duckdb.Error as error:
        raise translated(error) from error
    except (pa.ArrowException, OverflowError, RuntimeError) as error:
        raise QueryError("the query failed", detail=str(error)) from error


_connections = PerThread(connect)  # kept for a thread's next task
