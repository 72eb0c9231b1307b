"""PostgreSQL: a real server with fsync and synchronous commit on, fed by binary COPY.

The server is the one the tests use, kept durable, with memory and checkpoints set as one would
for loading. The bytes of a COPY are made beforehand, so its clock measures the server's work.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.data import BASE_US, SCHEMA
from benchmarks.harness import ROOT
from benchmarks.systems.base import TABLE, Row, System, spelled
from benchmarks.systems.tide import COLUMNS_SQL

sys.path.insert(0, str(ROOT / "tests"))

from postgres import PostgresServer  # type: ignore[import-not-found]  # no package

_TUNED = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "maintenance_work_mem": "512MB",
    "work_mem": "128MB",
}
_SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", *_TUNED)
_HEADER = b"PGCOPY\n\xff\r\n\0" + b"\0" * 8
_TRAILER = b"\xff\xff"
_PG_EPOCH_US = 946_684_800_000_000  # 2000-01-01
_WIDTHS = {pa.timestamp("us"): 8, pa.int64(): 8, pa.int32(): 4}


class Server(PostgresServer):  # type: ignore[misc]
    """The durable server, tuned and started again."""

    def __init__(self, folder: Path) -> None:
        # In the run's own folder, so that nothing stays even if this process is ended; the server
        # may run as another user, who must get there.
        for place in (folder, folder.parent):
            place.chmod(0o711)
        tempfile.tempdir = str(folder)
        super().__init__(durable=True)
        try:
            for name, value in _TUNED.items():
                self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            log = str(self.folder / "log")
            self._run("pg_ctl", "restart", "-w", "-D", str(self.data), "-l", log)
        except BaseException:
            self.stop()
            raise


class Postgres(System):
    micros = f"(extract(epoch FROM ts) * 1000000)::bigint - {BASE_US}"

    def __init__(self, folder: Path, is_read: bool, synchronous_commit: str = "on") -> None:
        super().__init__(folder, is_read)
        self.server = Server(folder)
        try:
            self.connection = psycopg.connect(self.server.url(), autocommit=True)
            self.connection.execute(f"SET synchronous_commit = {synchronous_commit}")
            kind = "UNLOGGED TABLE" if is_read else "TABLE"
            self.connection.execute(f"CREATE {kind} {TABLE} ({COLUMNS_SQL})")
            if not is_read:
                self.connection.execute(f"CREATE INDEX by_vid ON {TABLE} (vid)")
        except BaseException:
            self.server.stop()
            raise

    def settings(self) -> dict[str, str]:
        told = {}
        for name in _SHOWN:
            found = self.connection.execute(f"SHOW {name}").fetchone()
            assert found is not None
            told[name] = str(found[0])
        how = "unlogged table (read test)" if self.is_read else "one COPY a batch, each a commit"
        return {
            "version": str(self.connection.info.server_version // 10_000),
            "durability": how,
            "index": f"B-tree on {'(vid, ts) and (ts)' if self.is_read else '(vid)'}",
            **told,
        }

    def prepare(self, batch: pa.RecordBatch) -> bytes:
        return _HEADER + encode(batch) + _TRAILER

    def insert(self, prepared: bytes) -> None:
        with (
            self.connection.cursor() as cursor,
            cursor.copy(f"COPY {TABLE} FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.write(prepared)

    def load(self, batches: Iterator[pa.RecordBatch], cars: pa.Table) -> None:
        with (
            self.connection.cursor() as cursor,
            cursor.copy(f"COPY {TABLE} FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.write(_HEADER)
            for batch in batches:
                copy.write(encode(batch))
            copy.write(_TRAILER)
        for columns in ("vid, ts", "ts"):
            self.connection.execute(f"CREATE INDEX ON {TABLE} ({columns})")
        self.connection.execute("CREATE TABLE cars (vid BIGINT PRIMARY KEY, kind TEXT)")
        with (
            self.connection.cursor() as cursor,
            cursor.copy("COPY cars FROM STDIN") as copy,
        ):
            for row in zip(*(column.to_pylist() for column in cars.columns), strict=True):
                copy.write_row(row)
        self.connection.execute(f"VACUUM ANALYZE {TABLE}")
        self.connection.execute("VACUUM ANALYZE cars")

    def ask(self, sql: str, values: Mapping[str, Any]) -> list[Row]:
        text = spelled(sql, "%(name)s") if values else sql
        return self.connection.execute(text, dict(values) or None).fetchall()

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def close(self) -> None:
        self.connection.close()
        self.server.stop()


def encode(batch: pa.RecordBatch) -> bytes:
    """The rows of a batch in PostgreSQL's binary COPY format, without header and trailer."""
    fields: list[tuple[str, str]] = [("count", ">i2")]
    for field in SCHEMA:
        fields += [(f"{field.name}_len", ">i4"), (field.name, f">i{_WIDTHS[field.type]}")]
    rows = np.empty(batch.num_rows, dtype=np.dtype(fields))
    rows["count"] = len(SCHEMA)
    for field, column in zip(SCHEMA, batch.columns, strict=True):
        rows[f"{field.name}_len"] = _WIDTHS[field.type]
        rows[field.name] = _words(column)
    return rows.tobytes()


def _words(column: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_timestamp(column.type):
        column = pc.subtract(column.view(pa.int64()), _PG_EPOCH_US)
    return column.to_numpy()  # type: ignore[no-any-return]
