"""Tables, a caster and an acceptor for the tests of accepting rows."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import HealthCheck, settings

from tidemill.accept.cast import Caster
from tidemill.accept.defaults import Defaults
from tidemill.accept.rows import Acceptor, Checked, read
from tidemill.catalog.model import Table
from tidemill.threads import PerThread
from tidemill.types import Column, SqlType

QUICK = settings(
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _connect() -> duckdb.DuckDBPyConnection:
    """A DuckDB, set as the engine sets its own."""
    made = duckdb.connect(":memory:")
    for setting in ("arrow_lossless_conversion = true", "TimeZone = 'UTC'", "threads = 1"):
        made.execute(f"SET {setting}")
    return made


_connections = PerThread(_connect)


def connection() -> duckdb.DuckDBPyConnection:
    return _connections.get()


def evaluate(sql: str) -> pa.Table:
    return connection().sql(sql).to_arrow_table()


def make_column(name: str, kind: str, nullable: bool = True, default: str | None = None) -> Column:
    return Column(name, SqlType.parse(kind), nullable, default)


def make_table(*columns: Column, given: dict[str, str] | None = None) -> Table:
    ts = Column("ts", SqlType("TIMESTAMP"), nullable=False)
    return Table(1, "t", "streaming", (ts, *columns), (), "ts", None, given or {}, (), 0)


def acceptor(table: Table) -> Acceptor:
    return Acceptor(table, Caster(connection), Defaults(evaluate))


def accept(rows: Any, table: Table) -> Checked:
    return acceptor(table).accept(read(rows, table))


def stored(rows: Any, table: Table) -> list[dict[str, Any]]:
    """What the table would hold, as Python has it."""
    checked = accept(rows, table)
    return [row for batch in checked.batches for row in batch.to_pylist()]
