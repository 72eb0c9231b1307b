"""chdb, ClickHouse inside the process: a MergeTree ordered by car and time, parts synced."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.data import BASE_US
from benchmarks.peers import FOLDER
from benchmarks.systems.base import TABLE, System, to_time

sys.path.append(str(FOLDER))

import chdb  # type: ignore[import-not-found]  # in a folder of its own
from chdb.session import Session  # type: ignore[import-not-found]

_DURABLE = {
    "fsync_after_insert": "1",
    "fsync_part_directory": "1",
    "min_rows_to_fsync_after_merge": "1",
}
_TIME = "DateTime64(6, 'UTC')"
_LOAD_ROWS = 1_000_000


class Chdb(System):
    micros = f"toUnixTimestamp64Micro(ts) - {BASE_US}"

    def __init__(self, folder: Path, is_read: bool) -> None:
        super().__init__(folder, is_read)
        self.session = Session(str(folder / "chdb"))
        self.session.query("CREATE DATABASE IF NOT EXISTS bench ENGINE = Atomic")
        self.session.query("USE bench")
        numbers = ", ".join(
            f"{name} Int32" for name in ("spd", "xway", "lane", "dir", "seg", "pos")
        )
        durable = ", ".join(f"{name} = {value}" for name, value in _DURABLE.items())
        self.session.query(
            f"CREATE TABLE {TABLE} (ts {_TIME}, vid Int64, {numbers}) ENGINE = MergeTree "
            f"ORDER BY (vid, ts)" + ("" if is_read else f" SETTINGS {durable}")
        )

    def settings(self) -> dict[str, str]:
        made = str(self.session.query(f"SHOW CREATE TABLE {TABLE}", "TSVRaw"))
        durable = [f"{name} = {value}" for name, value in _DURABLE.items() if name in made]
        return {
            "version": f"{chdb.__version__} (engine {chdb.engine_version})",
            "durability": ", ".join(durable) or "none (read test)",
            "index": "ORDER BY (vid, ts)",
        }

    def insert(self, prepared: pa.Table) -> None:
        self.session.query(f"INSERT INTO {TABLE} SELECT * FROM Python(prepared)")

    def load(self, batches: Iterator[pa.RecordBatch], cars: pa.Table) -> None:
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(b.num_rows for b in held) >= _LOAD_ROWS:
                self.insert(pa.Table.from_batches(held))
                held = []
        if held:
            self.insert(pa.Table.from_batches(held))
        self.session.query(f"OPTIMIZE TABLE {TABLE} FINAL")
        self.session.query(
            "CREATE TABLE cars (vid Int64, kind String) ENGINE = MergeTree ORDER BY vid"
        )
        self.session.query("INSERT INTO cars SELECT * FROM Python(cars)")

    def ask(self, sql: str, values: Mapping[str, Any]) -> pa.Table:
        for name, value in values.items():
            kind = _TIME if hasattr(value, "year") else "Int64"
            sql = sql.replace(f":{name}", f"{{{name}:{kind}}}")
        given = {name: str(value) for name, value in values.items()}
        return self.session.query(sql, "ArrowTable", params=given or None)

    def execute(self, sql: str) -> None:
        self.session.query(sql)

    def time_literal(self, us: int) -> str:
        return f"toDateTime64('{to_time(us)}', 6, 'UTC')"

    def close(self) -> None:
        self.session.close()
