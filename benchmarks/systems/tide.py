"""Tidemill, as a user would run it: defaults, one index, time of the rows as the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidemill
from benchmarks.systems.base import TABLE, System

COLUMNS_SQL = (
    "ts TIMESTAMP, vid BIGINT, spd INTEGER, xway INTEGER, lane INTEGER, dir INTEGER, "
    "seg INTEGER, pos INTEGER"
)


SPARK_WAIT_S = 180.0
JOBS_WAIT_S = 600.0
QUIET_S = 3.0


def create_table(db: tidemill.Database, name: str = TABLE, durability: str = "sync") -> None:
    """A streaming table of reports with an index on the car."""
    db.sql(
        f"CREATE STREAMING TABLE {name} ({COLUMNS_SQL}, "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
        f"WITH (clock = 'event', durability = '{durability}', memory = '8 GB', move = 'manual')"
    )
    db.sql(f"CREATE INDEX ON {name} (vid)")


def wait_for_spark(db: tidemill.Database) -> None:
    """Return once Spark runs, which a process that stays starts beside everything else: for some
    ten seconds it would take a processor from what is measured."""
    ends_s = time.monotonic() + SPARK_WAIT_S
    while db.sql("SELECT state FROM tidemill.spark").fetchall() != [("ready",)]:
        if time.monotonic() > ends_s:
            raise RuntimeError(f"Spark did not start within {SPARK_WAIT_S:g} seconds")
        time.sleep(0.2)


def wait_for_jobs(db: tidemill.Database) -> None:
    """Return once history is in order: no job has run for some looks of the one who keeps it, so
    that none runs beside what is measured."""
    ends_s, quiet_since_s = time.monotonic() + JOBS_WAIT_S, time.monotonic()
    asked = "SELECT count(*) FROM tidemill.jobs WHERE state IN ('queued', 'running')"
    while time.monotonic() < quiet_since_s + QUIET_S:
        if db.sql(asked).fetchall() != [(0,)]:
            quiet_since_s = time.monotonic()
        if time.monotonic() > ends_s:
            raise RuntimeError(f"jobs still ran after {JOBS_WAIT_S:g} seconds")
        time.sleep(0.1)


class Tide(System):
    def __init__(self, folder: Path, is_read: bool, durability: str = "sync") -> None:
        super().__init__(folder, is_read)
        # As a service has it that reads: Spark is up before the clock starts, and idle.
        lifetime = "long" if is_read else "auto"
        self.db = tidemill.open(folder / "warehouse", lifetime=lifetime)
        if is_read:
            wait_for_spark(self.db)
        create_table(self.db, durability=durability)

    def settings(self) -> dict[str, str]:
        return {
            "version": tidemill.__version__,
            "durability": "sync: fdatasync of the log before each append returns",
            "index": "interval index on ts (always there), value index on vid",
        }

    def prepare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def insert(self, prepared: pa.RecordBatch) -> None:
        self.db.append(TABLE, prepared)

    def load(self, batches: Iterator[pa.RecordBatch], cars: pa.Table) -> None:
        for batch in batches:
            self.db.append(TABLE, batch)
        self.db.sql("CREATE TABLE cars (vid BIGINT PRIMARY KEY, kind VARCHAR)")
        self.db.append("cars", cars)

    def ask(self, sql: str, values: Mapping[str, Any]) -> pa.Table:
        return self.db.sql(sql, dict(values) or None).arrow()

    def execute(self, sql: str) -> None:
        self.db.sql(sql)

    def held(self) -> dict[str, int]:
        """What Tidemill says of its own memory."""
        asked = f"SELECT memory_bytes, log_bytes FROM tidemill.ingest WHERE table_name = '{TABLE}'"
        memory, log = self.db.sql(asked).fetchall()[0]
        asked = f"SELECT sum(bytes) FROM tidemill.indexes WHERE table_name = '{TABLE}'"
        return {"memory": memory, "log": log, "index": int(self.db.sql(asked).fetchall()[0][0])}

    def close(self) -> None:
        self.db.close()
