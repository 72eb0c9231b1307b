"""What a contender of the AIM benchmark must be able to do: keep six views over a stream of calls.

As with ``base.System``: ``prepare`` is outside of the time that is measured, ``insert`` stores one
batch durably. ``refresh`` does what a system needs before a view shows all rows inserted (nothing,
where views are fresh by themselves), ``read`` brings one view's answer here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.aim_data import Calls
from benchmarks.aim_questions import QUESTIONS

# name: where the class lives; a module is imported only in the worker that runs it
SYSTEMS = {
    "tidemill": "benchmarks.systems.tide_views:TideViews",
    "spark": "benchmarks.systems.spark_stream:SparkStream",
    "chdb": "benchmarks.systems.clickhouse_views:ChdbViews",
    "postgres-triggers": "benchmarks.systems.postgres_views:PostgresTriggers",
    "postgres-refresh": "benchmarks.systems.postgres_views:PostgresRefresh",
}


class ViewSystem:
    """A contender in a folder of its own, with all customers in it and the views defined."""

    is_concurrent = True  # whether rows may be inserted while another thread reads

    def __init__(self, folder: Path, calls: Calls) -> None:
        self.folder = folder
        self.calls = calls

    def settings(self) -> dict[str, str]:
        """Version, how views are kept, and all that bears on durability."""
        raise NotImplementedError

    def prepare(self, batch: pa.RecordBatch) -> Any:
        return pa.Table.from_batches([batch])

    def insert(self, prepared: Any) -> None:
        raise NotImplementedError

    def refresh(self, question: str) -> None:
        """Bring a view up to date with everything that was inserted."""

    def read(self, question: str) -> Any:
        """The answer of a view, whole, in the system's usual form."""
        raise NotImplementedError

    def absorb(self) -> None:
        """Return when every view has absorbed everything: here, one read of each."""
        for question in QUESTIONS:
            self.refresh(question)
            self.read(question)

    def close(self) -> None:
        raise NotImplementedError
