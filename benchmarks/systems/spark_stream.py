"""Spark Structured Streaming with the aggregates of the six AIM queries.

Spark does not aggregate what a streaming query has aggregated (in update mode), so the answers
themselves cannot be kept by it. What can is the state below them: one streaming query, all
aggregates of a customer in one row of its state store, as document 004 does it for Flink. It reads
Parquet files, a million rows to a micro-batch, and writes nothing but its state and checkpoints; a
read takes the state of the last checkpoint and computes the rest of the question from it.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.aim_data import EVENTS, PIECE_ROWS, Calls
from benchmarks.systems.plain_spark import CONF, settings
from benchmarks.systems.views import ViewSystem
from tidemill.pipeline.java import STDERR_VARIABLE, find_java, wrap_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MICRO_BATCH_ROWS = 1_000_000
STORES = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
STORE = "memory"
_SCHEMA = (
    "ts TIMESTAMP_NTZ, entity_id BIGINT, duration INT, cost DOUBLE, long_distance BOOLEAN, "
    "local_calls INT, local_cost DOUBLE, long_distance_cost DOUBLE"
)
_WEEK = "ts >= date_trunc('week', current_timestamp())"
# state: how it is aggregated, and its type in the store, where all sums are just called "sum"
_STATES = {
    "n_local": ("count(local_calls)", "BIGINT"),
    "t_duration": ("sum(duration)", "BIGINT"),
    "max_cost": ("max(cost)", "DOUBLE"),
    "num_calls": ("count(*)", "BIGINT"),
    "t_cost": ("sum(cost)", "DOUBLE"),
    "near_calls": ("count_if(NOT long_distance)", "BIGINT"),
    "near_duration": ("sum(CASE WHEN NOT long_distance THEN duration END)", "BIGINT"),
    "cost_long": ("sum(long_distance_cost)", "DOUBLE"),
    "cost_local": ("sum(local_cost)", "DOUBLE"),
}
_STORED = ", ".join(f"{name}: {kind}" for name, (_, kind) in _STATES.items())
_READS = {
    "q1": "SELECT avg(t_duration) FROM kept WHERE n_local > 2",
    "q2": "SELECT max(max_cost) FROM kept WHERE num_calls > 2",
    "q3": "SELECT sum(t_cost) / sum(t_duration) FROM kept GROUP BY num_calls LIMIT 100",
    "q4": (
        "SELECT city_zip, avg(near_calls), sum(near_duration) FROM kept JOIN customers "
        "ON entity_id = id WHERE near_calls > 4 AND near_duration > 25 GROUP BY city_zip"
    ),
    "q5": (
        "SELECT region_id, sum(cost_long), sum(cost_local) FROM kept JOIN customers "
        "ON entity_id = id WHERE type = 2 AND category = 1 GROUP BY region_id"
    ),
    "q7": (
        "SELECT sum(t_cost) / sum(t_duration) FROM kept JOIN customers ON entity_id = id "
        "WHERE value_type = 2"
    ),
}


class SparkStream(ViewSystem):
    is_concurrent = False

    def __init__(self, folder: Path, calls: Calls) -> None:
        super().__init__(folder, calls)
        self._files = itertools.count()
        self._source, self._made = folder / "source", folder / "made"
        for place in (self._source, self._made):
            place.mkdir()
        self._checkpoint = folder / "checkpoint"
        self.spark = start(folder / "spark")
        try:
            self._start()
        except BaseException:
            self.spark.stop()
            raise

    def _start(self) -> None:
        from pyspark.sql.functions import expr

        place = self.folder / "customers.parquet"
        pq.write_table(self.calls.customer_table(), place)
        customers = self.spark.read.parquet(str(place)).cache()
        customers.createOrReplaceTempView("customers")
        customers.count()
        events = (
            self.spark.readStream.schema(_SCHEMA)
            .option("maxFilesPerTrigger", MICRO_BATCH_ROWS // PIECE_ROWS)
            .parquet(str(self._source))
        )
        states = [expr(text).alias(name) for name, (text, _) in _STATES.items()]
        self._query = (
            events.where(_WEEK)
            .groupBy("entity_id")
            .agg(*states)
            .writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", str(self._checkpoint))
            .start()
        )

    def settings(self) -> dict[str, str]:
        return {
            **settings(self.spark),
            "views": "all aggregates of a customer in one state; questions computed when asked",
            "state store": STORE,
            "durability": "a checkpoint of offsets and state for each micro-batch",
            "micro-batch": f"up to {MICRO_BATCH_ROWS // PIECE_ROWS} files of {PIECE_ROWS:,} rows",
        }

    def prepare(self, batch: pa.RecordBatch) -> Path:
        path = self._made / f"{next(self._files):06}.parquet"
        pq.write_table(pa.Table.from_batches([batch], EVENTS), path)
        return path

    def insert(self, prepared: Path) -> None:
        os.replace(prepared, self._source / prepared.name)

    def refresh(self, question: str) -> None:
        self._query.processAllAvailable()

    def absorb(self) -> None:
        self._query.processAllAvailable()

    def read(self, question: str) -> pa.Table:
        state = self.spark.read.format("statestore").load(str(self._checkpoint))
        kept = state.selectExpr("key.entity_id", f"CAST(value AS STRUCT<{_STORED}>) AS v")
        kept.select("entity_id", "v.*").createOrReplaceTempView("kept")
        return self.spark.sql(_READS[question]).toArrow()

    def close(self) -> None:
        self._query.stop()
        self.spark.stop()


def start(folder: Path) -> SparkSession:
    """A session like ``plain_spark``'s, at the priority of everyone else: it is what is measured,
    and nothing that should stay in the background."""
    from pyspark.sql import SparkSession

    folder.mkdir(parents=True, exist_ok=True)
    home = wrap_java(find_java(), folder / "java", niceness=0)
    os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ[STDERR_VARIABLE] = str(folder / "spark.log")
    builder = SparkSession.builder.master("local[*]").appName("benchmark")
    own = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": (folder / "tables").as_uri(),
        "spark.sql.streaming.stateStore.providerClass": STORES[STORE],
        "spark.sql.streaming.metricsEnabled": "false",
    }
    for name, value in {**CONF, **own}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
