"""Tidemill with the six AIM queries as materialized views, as a user would write them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import tidemill
from benchmarks.aim_data import Calls
from benchmarks.aim_questions import QUESTIONS, WEEK
from benchmarks.systems.views import ViewSystem

COLUMNS_SQL = (
    "ts TIMESTAMP, entity_id BIGINT, duration INTEGER, cost DOUBLE, long_distance BOOLEAN, "
    "local_calls INTEGER, local_cost DOUBLE, long_distance_cost DOUBLE"
)
CUSTOMERS_SQL = (
    "id BIGINT PRIMARY KEY, city_zip INTEGER, region_id INTEGER, type INTEGER, "
    "category INTEGER, value_type INTEGER"
)


class TideViews(ViewSystem):
    def __init__(self, folder: Path, calls: Calls) -> None:
        super().__init__(folder, calls)
        self.db = tidemill.open(folder / "warehouse")
        self.db.sql(f"CREATE TABLE customers ({CUSTOMERS_SQL})")
        self.db.append("customers", calls.customer_table())
        self.db.sql(
            f"CREATE STREAMING TABLE events ({COLUMNS_SQL}, "
            "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
            "WITH (durability = 'sync', memory = '8 GB', move = 'manual')"
        )
        for name, text in QUESTIONS.items():
            self.db.sql(f"CREATE MATERIALIZED VIEW {name} AS {text.format(week=WEEK)}")

    def settings(self) -> dict[str, str]:
        return {
            "version": tidemill.__version__,
            "views": "six materialized views, fresh at every read",
            "durability": "sync: fdatasync of the log before each append returns",
        }

    def prepare(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def insert(self, prepared: pa.RecordBatch) -> None:
        self.db.append("events", prepared)

    def read(self, question: str) -> pa.Table:
        return self.db.sql(f"SELECT * FROM {question}").arrow()

    def explain(self, question: str) -> list[str]:
        """Tidemill's own account of how it keeps a view."""
        rows = self.db.sql(f"EXPLAIN SELECT * FROM {question}").fetchall()
        return [str(row[0]) for row in rows]

    def close(self) -> None:
        self.db.close()
