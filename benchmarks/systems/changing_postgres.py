"""PostgreSQL under readings and their corrections: COPY for readings, a statement a change."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import csv

from benchmarks.changes_data import reference_tables, time_of
from benchmarks.systems.changing import ChangingSystem
from benchmarks.systems.postgres import Server

_TYPES = {"int32": "INTEGER", "int64": "BIGINT", "double": "DOUBLE PRECISION"}


class Postgres(ChangingSystem):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = Server(folder)
        try:
            self.connection = psycopg.connect(self.server.url(), autocommit=True)
            values = ", ".join(f"v{at} DOUBLE PRECISION" for at in range(1, 7))
            self.connection.execute(
                f"CREATE TABLE readings (ts TIMESTAMP, id BIGINT, sensor INTEGER, {values})"
            )
            self.connection.execute("CREATE INDEX by_id ON readings (id)")
            self.connection.execute("CREATE INDEX by_ts ON readings (ts)")
            for name, rows in reference_tables().items():
                columns = ", ".join(f"{f.name} {_TYPES[str(f.type)]}" for f in rows.schema)
                self.connection.execute(f"CREATE TABLE {name} ({columns})")
                self._copy(name, rows)
        except BaseException:
            self.server.stop()
            raise

    def settings(self) -> dict[str, str]:
        return {
            "version": str(self.connection.info.server_version),
            "durability": "fsync and synchronous_commit on",
            "index": "B-trees on id and ts",
            "changes": "as they come, prepared statements",
        }

    def _copy(self, name: str, rows: pa.Table | pa.RecordBatch) -> None:
        sink = io.BytesIO()
        csv.write_csv(rows, sink, csv.WriteOptions(include_header=False))
        with (
            self.connection.cursor() as cursor,
            cursor.copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy,
        ):
            copy.write(sink.getvalue())

    def insert(self, readings: pa.RecordBatch) -> None:
        self._copy("readings", readings)

    def update(self, number: int, v1: float, v2: float) -> None:
        self.connection.execute(
            "UPDATE readings SET v1 = %s, v2 = %s WHERE id = %s AND ts = %s",
            (v1, v2, number, time_of(number)),
            prepare=True,
        )

    def delete(self, number: int) -> None:
        self.connection.execute(
            "DELETE FROM readings WHERE id = %s AND ts = %s",
            (number, time_of(number)),
            prepare=True,
        )

    def ask(self, text: str, since: int | None = None) -> list[tuple[Any, ...]]:
        params = None if since is None else {"since": time_of(since)}
        text = text.replace("%", "%%") if params else text
        text = text.replace(":since", "%(since)s")
        return self.connection.execute(text, params).fetchall()  # type: ignore[arg-type]

    def settle(self) -> None:
        self.connection.execute("VACUUM ANALYZE readings")

    def close(self) -> None:
        self.connection.close()
        self.server.stop()
