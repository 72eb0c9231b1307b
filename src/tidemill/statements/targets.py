"""Targets: what accepts rows for a table, made once for each definition of it."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tidemill.accept.cast import FATAL, Caster
from tidemill.accept.defaults import Defaults
from tidemill.accept.rows import Acceptor
from tidemill.accept.single import RowReader
from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.config import DUCKDB_CLOSED
from tidemill.errors import TidemillError, UnsupportedError
from tidemill.federation.duck import translated
from tidemill.sql import statements as st
from tidemill.statements.naming import check_writable
from tidemill.threads import PerThread

TARGETS_MAX = 10_000


@dataclass(frozen=True)
class Target:
    """What accepts rows for one table, as one snapshot of the catalog describes it."""

    table: Table
    acceptor: Acceptor
    reader: RowReader


class Targets:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._casting = PerThread(_new_connection)
        self._known: dict[str, Target] = {}

    def get(self, name: str) -> Target:
        """The target of that name; an error if there is none, or if it cannot be written."""
        table = self._catalog.snapshot().find(name)
        known = self._known.get(name)
        if known is not None and known.table is table:
            return known
        self.refuse_system(name)
        table = self._catalog.snapshot().get(name)
        if table.is_view or table.is_digest:
            raise UnsupportedError(
                f'view "{table.name}" can be read but not written',
                hint="append to the streams that it reads",
            )
        defaults = Defaults(self._evaluate)
        target = Target(
            table,
            Acceptor(table, Caster(self._cast_connection, self._forget_connection), defaults),
            RowReader(table, defaults),
        )
        is_full = len(self._known) >= TARGETS_MAX
        self._known = {name: target} if is_full else {**self._known, name: target}
        return target

    def at(self, name: str, statement: st.Statement) -> Target:
        """The target that a statement names, for rows of others than kept queries."""
        try:
            target = self.get(name)
            check_writable(target.table)
            return target
        except TidemillError as error:
            error.position = error.position or statement.position
            raise

    def refuse_system(self, name: str) -> None:
        if self._catalog.snapshot().find(name) is None and ("$" in name or "." in name):
            raise UnsupportedError(
                f'"{name}" can be read but not written',
                hint="side tables and system tables are filled by Tidemill itself",
            )

    def _evaluate(self, sql: str) -> pa.Table:
        try:
            return self._cast_connection().sql(sql).to_arrow_table()
        except FATAL as error:
            self._forget_connection()
            raise translated(error) from error

    def _cast_connection(self) -> duckdb.DuckDBPyConnection:
        """A small DuckDB of this thread, whose Arrow output keeps every type as it is."""
        return self._casting.get()

    def _forget_connection(self) -> None:
        """After a fatal error DuckDB refuses everything; the next cast gets a new connection."""
        self._casting.forget()


def _new_connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={**DUCKDB_CLOSED})
    for setting in ("arrow_lossless_conversion = true", "TimeZone = 'UTC'", "threads = 1"):
        connection.execute(f"SET {setting}")
    return connection
