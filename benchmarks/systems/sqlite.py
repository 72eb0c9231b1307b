"""SQLite: one transaction a batch, write-ahead log, synchronous = FULL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.data import BASE_US
from benchmarks.systems.base import TABLE, Row, System
from benchmarks.systems.tide import COLUMNS_SQL

INSERT = f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_LEVELS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


class Sqlite(System):
    """Times are stored as whole microseconds: SQLite has no type for them."""

    micros = f"ts - {BASE_US}"

    def __init__(self, folder: Path, is_read: bool, synchronous: str = "FULL") -> None:
        super().__init__(folder, is_read)
        self.connection = sqlite3.connect(folder / "sqlite.db", isolation_level=None)
        for pragma in (
            "journal_mode = WAL",
            f"synchronous = {'OFF' if is_read else synchronous}",
            "cache_size = -1000000",
        ):
            self.connection.execute(f"PRAGMA {pragma}")
        self.connection.execute(f"CREATE TABLE {TABLE} ({COLUMNS_SQL})")
        if not is_read:
            self.connection.execute(f"CREATE INDEX by_vid ON {TABLE} (vid)")

    def settings(self) -> dict[str, str]:
        level = self.connection.execute("PRAGMA synchronous").fetchone()[0]
        mode = self.connection.execute("PRAGMA journal_mode").fetchone()[0]
        index = "(vid, ts) and (ts)" if self.is_read else "(vid)"
        return {
            "version": sqlite3.sqlite_version,
            "durability": f"synchronous = {_LEVELS[level]}, journal_mode = {mode}, "
            "one transaction a batch",
            "index": f"B-tree on {index}",
            "cache": "1 GB",
        }

    def prepare(self, batch: pa.RecordBatch) -> list[Row]:
        columns = [batch.column(0).view(pa.int64()), *batch.columns[1:]]
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def insert(self, prepared: list[Row]) -> None:
        self.connection.execute("BEGIN")
        self.connection.executemany(INSERT, prepared)
        self.connection.execute("COMMIT")

    def load(self, batches: Iterator[pa.RecordBatch], cars: pa.Table) -> None:
        for batch in batches:
            self.insert(self.prepare(batch))
        for columns in ("vid, ts", "ts"):
            name = "by_" + columns.replace(", ", "_")
            self.connection.execute(f"CREATE INDEX {name} ON {TABLE} ({columns})")
        self.connection.execute("CREATE TABLE cars (vid INTEGER PRIMARY KEY, kind TEXT)")
        rows = zip(*(column.to_pylist() for column in cars.columns), strict=True)
        self.connection.execute("BEGIN")
        self.connection.executemany("INSERT INTO cars VALUES (?, ?)", rows)
        self.connection.execute("COMMIT")
        self.connection.execute("ANALYZE")

    def ask(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        return self.connection.execute(sql, dict(values)).fetchall()

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def time(self, us: int) -> int:
        return us

    def time_literal(self, us: int) -> str:
        return str(us)

    def close(self) -> None:
        self.connection.close()
