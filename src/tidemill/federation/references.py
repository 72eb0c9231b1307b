"""Reference tables: updatable, durable, held in DuckDB's own storage inside the warehouse.

The catalog says which exist; the file ``reference.duckdb`` holds their rows under a name made of
the table's id. A table is made in the file before the catalog names it and removed after the
catalog forgot it, so after a crash the file may hold too much, never too little; ``clean`` removes
the rest at the next start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.errors import CatalogError
from tidemill.federation.duck import REFERENCE, Duck
from tidemill.types import Column, quote


def physical_name(table_id: int) -> str:
    return f"t{table_id}"


def place_of(table_id: int) -> str:
    """A reference table as queries name it."""
    return f"{REFERENCE}.main.{quote(physical_name(table_id))}"


class References:
    def __init__(self, duck: Duck) -> None:
        self._duck = duck
        self.changes = 0  # whoever keeps what was read compares it; odd while one is made
        self._write_lock = threading.Lock()

    def create(self, table: Table) -> None:
        parts = [_column(column) for column in table.columns]
        if table.primary_key:
            parts.append(f"PRIMARY KEY ({', '.join(quote(name) for name in table.primary_key)})")
        parts += table.constraints
        target = f"{REFERENCE}.{physical_name(table.table_id)}"
        self.write(f"CREATE OR REPLACE TABLE {target} ({', '.join(parts)})")

    def drop(self, table_id: int) -> None:
        self.write(f"DROP TABLE IF EXISTS {REFERENCE}.{physical_name(table_id)}")

    def write(
        self,
        sql: str,
        params: Mapping[str, object] | None = None,
        sources: Mapping[str, pa.Table] | None = None,
    ) -> tuple[pa.Table, list[str]]:
        """Run a change; changes take turns, so none fails because of another."""
        with self._write_lock:
            self.changes += 1
            try:
                return self._duck.query(sql, params or {}, sources or {})
            finally:
                self._duck.reference_log.record()
                self.changes += 1
                self._duck.keep_private()

    def clean(self, tables: Iterable[Table]) -> None:
        """Drop what the catalog does not know; complain about what is missing."""
        wanted = {physical_name(table.table_id): table for table in tables}
        query = f"SELECT table_name FROM duckdb_tables() WHERE database_name = '{REFERENCE}'"
        held = {name for (name,) in self._duck.execute(query)}
        for name in held - set(wanted):
            self.write(f"DROP TABLE {REFERENCE}.{quote(name)}")
        for name in set(wanted) - held:
            raise CatalogError(
                f'the rows of reference table "{wanted[name].name}" are missing',
                hint="restore reference.duckdb from the same backup as the catalog",
            )

    def check(self, tables: Iterable[Table]) -> None:
        """Read all rows of reference tables; DuckDB checks each block that it fetches."""
        for table in tables:
            self._duck.execute(f"SELECT max(hash(tm)) FROM {place_of(table.table_id)} AS tm")

    def row_count(self, table_id: int) -> int:
        query = f"SELECT count(*) FROM {REFERENCE}.{physical_name(table_id)}"
        return int(self._duck.execute(query)[0][0])


def _column(column: Column) -> str:
    text = f"{quote(column.name)} {column.type}"
    if not column.nullable:
        text += " NOT NULL"
    if column.default is not None:
        text += f" DEFAULT ({column.default})"
    return text
