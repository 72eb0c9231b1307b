"""chdb under readings and their corrections: a MergeTree, and a mutation a change, waited for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.changes_data import reference_tables, time_of
from benchmarks.peers import FOLDER
from benchmarks.systems.base import plain_rows
from benchmarks.systems.changing import ChangingSystem

sys.path.append(str(FOLDER))

import chdb  # type: ignore[import-not-found]  # in a folder of its own
from chdb.session import Session  # type: ignore[import-not-found]

_DURABLE = "fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1"
_TYPES = {"int32": "Int32", "int64": "Int64", "double": "Float64"}
_TIME = "DateTime64(6, 'UTC')"


class Chdb(ChangingSystem):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.session = Session(str(folder / "chdb"))
        self.session.query("CREATE DATABASE IF NOT EXISTS bench ENGINE = Atomic")
        self.session.query("USE bench")
        values = ", ".join(f"v{at} Float64" for at in range(1, 7))
        self.session.query(
            f"CREATE TABLE readings (ts {_TIME}, id Int64, sensor Int32, {values}) "
            f"ENGINE = MergeTree ORDER BY (ts, id) SETTINGS {_DURABLE}"
        )
        for name, rows in reference_tables().items():
            columns = ", ".join(f"{f.name} {_TYPES[str(f.type)]}" for f in rows.schema)
            order = rows.schema.names[0]
            self.session.query(
                f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY {order}"
            )
            given = rows
            self.session.query(f"INSERT INTO {name} SELECT * FROM Python(given)")
            del given

    def settings(self) -> dict[str, str]:
        return {
            "version": f"{chdb.__version__} (engine {chdb.engine_version})",
            "durability": _DURABLE,
            "index": "ORDER BY (ts, id)",
            "changes": "ALTER TABLE … UPDATE | DELETE with mutations_sync = 1, as they come",
        }

    def insert(self, readings: pa.RecordBatch) -> None:
        given = pa.Table.from_batches([readings])
        self.session.query("INSERT INTO readings SELECT * FROM Python(given)")
        del given

    def update(self, number: int, v1: float, v2: float) -> None:
        self.session.query(
            f"ALTER TABLE readings UPDATE v1 = {v1}, v2 = {v2} WHERE {_row(number)} "
            "SETTINGS mutations_sync = 1"
        )

    def delete(self, number: int) -> None:
        self.session.query(
            f"ALTER TABLE readings DELETE WHERE {_row(number)} SETTINGS mutations_sync = 1"
        )

    def ask(self, text: str, since: int | None = None) -> list[tuple[Any, ...]]:
        if since is not None:
            text = text.replace(":since", _time(since))
        return plain_rows(self.session.query(text, "ArrowTable"))

    def close(self) -> None:
        self.session.close()


def _time(number: int) -> str:
    return f"toDateTime64('{time_of(number)}', 6, 'UTC')"


def _row(number: int) -> str:
    return f"id = {number} AND ts = {_time(number)}"
