"""Spark in the TPC-H stream benchmark: files that are put into a folder, and a query over them.

``SparkStream`` is Structured Streaming: a trigger every second in complete mode, which keeps the
groups in Spark's state store; what is above the groups runs in ``foreachBatch``. ``SparkFiles``
reads all files again at every refresh.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from benchmarks import lineitem, tpch_data
from benchmarks.systems import plain_spark
from benchmarks.tpch_questions import StreamQuestion
from benchmarks.tpch_systems import Stream, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_BATCHES = 10  # Spark gets larger files: small ones only cost it time
_TIME = re.compile(r"TIMESTAMP '([^']*)'")


class SparkFiles(Stream):
    """Deferred recomputation in Spark: Parquet files, synced, and the whole query over them."""

    query = "run whole at each refresh over read.parquet"

    def open(self, tables: Any) -> None:
        self.session = plain_spark.start(self.folder / "spark")
        for name, rows in tables.items():
            path = self.folder / f"{name}.parquet"
            pa.parquet.write_table(rows, path)
            frame = self.session.read.parquet(str(path)).cache()
            frame.count()
            frame.createOrReplaceTempView(name)
        path = self.folder / "empty.parquet"
        pa.parquet.write_table(lineitem.SCHEMA.empty_table(), path)
        self.schema = self.session.read.parquet(str(path)).schema
        self._runs = 0

    def settings(self) -> dict[str, str]:
        rows = FILE_BATCHES * tpch_data.BATCH_ROWS
        return {
            **plain_spark.settings(self.session),
            "durability": f"Parquet files of {rows:,} rows, each synced before the next",
            "query": self.query,
        }

    def begin(self, question: StreamQuestion) -> None:
        self._runs += 1
        self.place = self.folder / f"run-{self._runs}"
        self.rows = self.place / "rows"
        self.rows.mkdir(parents=True)
        self._lock = threading.Lock()
        self._waiting: list[pa.Table] = []
        self._files = 0
        self.question = question

    def insert(self, batch: pa.Table) -> None:
        with self._lock:
            self._waiting.append(batch)
            if len(self._waiting) == FILE_BATCHES:
                self._write()

    def _write(self) -> None:
        """What waits becomes a file, all at once."""
        self._files += 1
        draft, path = self.place / "draft", self.rows / f"{self._files:05}.parquet"
        with draft.open("wb") as file:
            pa.parquet.write_table(pa.concat_tables(self._waiting), file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        self._waiting = []

    def write_rest(self) -> None:
        with self._lock:
            if self._waiting:
                self._write()

    def refresh(self) -> pa.Table:
        self.write_rest()
        frame = self.session.read.schema(self.schema).parquet(str(self.rows))
        frame.createOrReplaceTempView("lineitem")
        return self.session.sql(_spelled(self.question.sql)).toArrow()

    def end(self) -> str:
        shutil.rmtree(self.place, ignore_errors=True)
        return ""

    def close(self) -> None:
        plain_spark.stop(self.session)


class SparkStream(SparkFiles):
    """Structured Streaming over the same files: refreshes come from its trigger."""

    query = "readStream.parquet, complete mode, trigger every second, foreachBatch"

    def begin(self, question: StreamQuestion) -> None:
        super().begin(question)
        self._answer: pa.Table | None = None
        source = self.session.readStream.schema(self.schema).parquet(str(self.rows))
        source.createOrReplaceTempView("lineitem")
        grouped = self.session.sql(_spelled(question.grouped))
        above = None if question.above is None else _spelled(question.above)

        def keep(frame: DataFrame, _: int) -> None:
            if above is not None:
                frame.createOrReplaceTempView("grouped")
                frame = frame.sparkSession.sql(above)
            self._answer = frame.toArrow()

        self._query = (
            grouped.writeStream.outputMode("complete")
            .option("checkpointLocation", str(self.place / "checkpoint"))
            .trigger(processingTime="1 second")
            .foreachBatch(keep)
            .start()
        )

    def watch(self) -> Watch:
        return _Triggers(self._query)

    def refresh(self) -> pa.Table:
        self.write_rest()
        self._query.processAllAvailable()
        return self._answer

    def end(self) -> str:
        self._query.stop()
        return super().end()


class _Triggers:
    """The refreshes of a streaming query while rows are poured."""

    def __init__(self, query: Any) -> None:
        self.taken: list[float] = []
        self._query = query
        self.began = time.perf_counter()

    def stop(self) -> None:
        told = [one for one in self._query.recentProgress if one["numInputRows"]]
        self.taken += [one["durationMs"]["triggerExecution"] / 1_000 for one in told]


def _spelled(sql: str) -> str:
    """The columns' own type, so that filters reach the files."""
    return _TIME.sub(r"TIMESTAMP_NTZ '\1'", sql)
