"""DuckDB in three shapes: on disk (ingest), in memory and over Arrow tables (questions)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.systems.base import TABLE, System, spelled
from benchmarks.systems.tide import COLUMNS_SQL


class DuckOnDisk(System):
    """Every insert is a transaction of its own; its commit forces the write-ahead log to disk."""

    place = "duck.db"

    def __init__(self, folder: Path, is_read: bool) -> None:
        super().__init__(folder, is_read)
        place = self.place if self.place == ":memory:" else str(folder / self.place)
        self.connection = duckdb.connect(place)
        self._create()

    def _create(self) -> None:
        self.connection.execute(f"CREATE TABLE {TABLE} ({COLUMNS_SQL})")
        if not self.is_read:
            self.connection.execute(f"CREATE INDEX by_vid ON {TABLE} (vid)")

    def settings(self) -> dict[str, str]:
        names = ("threads", "checkpoint_threshold")
        asked = ", ".join(f"current_setting('{name}')" for name in names)
        found = self.connection.execute(f"SELECT {asked}").fetchall()[0]
        told = {name: str(value) for name, value in zip(names, found, strict=True)}
        return {
            "version": duckdb.__version__,
            "durability": "one commit a batch, write-ahead log synced (DuckDB's default)",
            "index": "ART on vid",
            **told,
        }

    def insert(self, prepared: pa.Table) -> None:
        self.connection.execute(f"INSERT INTO {TABLE} SELECT * FROM prepared")

    def load(self, batches: Iterator[pa.RecordBatch], cars: pa.Table) -> None:
        for batch in batches:
            self.insert(self.prepare(batch))
        self.connection.execute(f"CREATE INDEX by_vid ON {TABLE} (vid)")
        self.connection.execute("CREATE TABLE cars (vid BIGINT PRIMARY KEY, kind VARCHAR)")
        given = cars
        self.connection.execute("INSERT INTO cars SELECT * FROM given")
        del given

    def ask(self, sql: str, values: Mapping[str, Any]) -> pa.Table:
        text = spelled(sql, "$name")
        return self.connection.sql(text, params=dict(values) or None).to_arrow_table()

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def close(self) -> None:
        self.connection.close()


class DuckInMemory(DuckOnDisk):
    """DuckDB's own table in memory, compressed and indexed as DuckDB likes it."""

    place = ":memory:"

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "durability": "none: in memory"}


class DuckOnArrow(DuckInMemory):
    """DuckDB over an Arrow table as it came: what Tidemill would be without its own work."""

    def _create(self) -> None:
        pass

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "index": "none", "rows": "as batches of 10,000"}

    def load(self, batches: Iterator[pa.RecordBatch], cars: pa.Table) -> None:
        self.connection.register(TABLE, pa.Table.from_batches(batches))
        self.connection.register("cars", cars)
