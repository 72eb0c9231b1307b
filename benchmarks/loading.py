"""The workers of the load benchmark: each brings the same packages into one kind of storage.

All have the same face: ``load(pattern)`` stores every file once, in an empty place, and answers
the seconds, the bytes written, the count and sums found there afterwards, and a remark. Sessions
are up before the clock starts; the clock stops when the rows can be read.
"""

from __future__ import annotations

import glob
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset

import tidemill
from benchmarks.data import SCHEMA
from benchmarks.sources import bytes_of
from benchmarks.systems import plain_spark
from benchmarks.systems.base import Row
from benchmarks.systems.tide import create_table
from benchmarks.traffic import totals_sql

SCHEMA_SPARK = "ts TIMESTAMP, vid BIGINT, spd INT, xway INT, lane INT, dir INT, seg INT, pos INT"
HOT_ROWS = 1_000
SPARK_POLL_S = 0.05
ASK_PAUSE_S = 0.01


@dataclass(frozen=True)
class Loaded:
    seconds: float
    bytes: int
    totals: Row
    remark: str = ""


def wait_for_spark(db: tidemill.Database) -> None:
    """Until Spark runs or has failed to start."""
    while db.sql("SELECT state FROM tidemill.spark").fetchall()[0][0] in ("off", "starting"):
        time.sleep(SPARK_POLL_S)


class LoadTide:
    """``COPY t FROM`` many files: a job on Spark that ends with one commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = tidemill.open(folder, spark_master="local[*]", lifetime="long")
        wait_for_spark(self.db)  # or files of a few megabytes would be appended instead
        self._tables = 0

    def settings(self) -> dict[str, str]:
        return {
            "version": tidemill.__version__,
            "load": "COPY t FROM 'folder/*.csv.gz', spark_master = 'local[*]'",
            "table": "partition = '1 hour', index on vid: files are sorted by vid, ts and synced",
        }

    def load(self, pattern: str) -> Loaded:
        self._tables += 1
        name = f"t{self._tables}"
        create_table(self.db, name)
        before = _parquet_bytes(self.folder)
        began = time.perf_counter()
        self.db.sql(f"COPY {name} FROM '{pattern}'")
        seconds = time.perf_counter() - began
        written = _parquet_bytes(self.folder) - before
        found = self.db.sql(f"SELECT {totals_sql()} FROM {name}").fetchall()[0]
        remark = job_remark(self.db, name)
        self.db.sql(f"DROP TABLE {name}")
        return Loaded(seconds, written, tuple(int(value) for value in found), remark)

    def fill(self, pattern: str) -> None:
        """A warehouse with rows in files and in memory, for a later start."""
        create_table(self.db, "kept")
        self.db.sql(f"COPY kept FROM '{pattern}'")
        self.db.sql("FLUSH kept")
        first = pa.csv.read_csv(glob.glob(pattern)[0]).slice(0, HOT_ROWS)
        self.db.append("kept", first)

    def close(self) -> None:
        self.db.close()


class StartTide:
    """A warehouse opened anew: how soon its first Spark job is done, and whether SQL waits for
    it. Queries over ``kept`` (files and hot rows) are asked all the while."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db: tidemill.Database | None = None

    def first_job(self, pattern: str) -> dict[str, Any]:
        began = time.perf_counter()
        self.db = db = tidemill.open(self.folder, spark_master="local[*]")
        create_table(db, "first")
        failed: list[BaseException] = []

        def copy() -> None:
            try:
                db.sql(f"COPY first FROM '{pattern}'")
                db.sql("FLUSH first")  # of few files the COPY is an append, and this the job
            except BaseException as error:
                failed.append(error)

        job = threading.Thread(target=copy)
        job.start()
        taken, answers = [], set()
        while job.is_alive():
            asked = time.perf_counter()
            answers.add(db.sql("SELECT count(*), sum(spd) FROM kept").fetchall()[0])
            taken.append(time.perf_counter() - asked)
            job.join(ASK_PAUSE_S)
        seconds = time.perf_counter() - began
        if failed:
            raise failed[0]
        rows = db.sql("SELECT count(*) FROM first").fetchall()[0][0]
        remark = job_remark(db, "first")
        return {
            "seconds": seconds,
            "queries": taken,
            "answers": answers,
            "rows": rows,
            "remark": remark,
        }

    def close(self) -> None:
        if self.db is not None:
            self.db.close()


class LoadSpark:
    """What everybody writes: read.csv with a schema, a column for the hour, partitionBy, Parquet.
    With ``is_clustered`` the files also come out as Tidemill's: one set an hour, sorted by car."""

    def __init__(self, folder: Path, is_clustered: bool = False) -> None:
        self.folder = folder
        self.is_clustered = is_clustered
        self.session = plain_spark.start(folder / "spark")

    def settings(self) -> dict[str, str]:
        return {**plain_spark.settings(self.session), "compression": "snappy (Spark's default)"}

    def load(self, pattern: str) -> Loaded:
        from pyspark.sql import functions as f

        target = self.folder / "rows"
        began = time.perf_counter()
        frame = self.session.read.csv(pattern, schema=SCHEMA_SPARK, header=True)
        frame = frame.withColumn("hour", f.date_trunc("hour", "ts"))
        if self.is_clustered:
            frame = frame.repartition("hour").sortWithinPartitions("hour", "vid", "ts")
        frame.write.partitionBy("hour").parquet(str(target))
        seconds = time.perf_counter() - began
        return _found(target, seconds)

    def close(self) -> None:
        plain_spark.stop(self.session)


class LoadDelta:
    """deltalake's append of everything that Arrow reads from the files, partitioned by hour."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def settings(self) -> dict[str, str]:
        import deltalake

        return {
            "version": deltalake.__version__,
            "load": "one append, partition_by = hour, from a pyarrow.dataset of the CSV files",
        }

    def load(self, pattern: str) -> Loaded:
        import deltalake

        target = self.folder / "rows"
        target.parent.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        source = pa.dataset.dataset(
            sorted(glob.glob(pattern)),
            format=pa.dataset.CsvFileFormat(
                convert_options=pa.csv.ConvertOptions(column_types=SCHEMA)
            ),
        )
        hour = pa.compute.strftime(pa.compute.field("ts"), format="%Y-%m-%dT%H")
        columns = {name: pa.compute.field(name) for name in SCHEMA.names}
        reader = source.scanner(columns={**columns, "hour": hour}).to_reader()
        deltalake.write_deltalake(str(target), reader, mode="append", partition_by=["hour"])
        seconds = time.perf_counter() - began
        return _found(target, seconds)

    def close(self) -> None:
        pass


WORKERS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "tidemill": ("LoadTide", ()),
    "pyspark": ("LoadSpark", ()),
    "pyspark-clustered": ("LoadSpark", (True,)),
    "deltalake": ("LoadDelta", ()),
}


def job_remark(db: tidemill.Database, table: str) -> str:
    """What the newest job of a table did, as ``tidemill.jobs`` tells it."""
    found = db.sql(
        "SELECT kind, tasks, files, rows FROM tidemill.jobs WHERE table_name = :t "
        "ORDER BY planned_at DESC LIMIT 1",
        {"t": table},
    ).fetchall()
    if not found:
        return "no job"
    kind, tasks, files, rows = found[0]
    return f"{kind} job: {tasks} tasks, {files} files, {rows} rows"


def _parquet_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def _found(target: Path, seconds: float) -> Loaded:
    """What lies in a peer's folder, which is removed."""
    files = len(list(target.rglob("*.parquet")))
    source = f"read_parquet('{target}/**/*.parquet', hive_partitioning = false)"
    with duckdb.connect() as connection:
        totals = connection.execute(f"SELECT {totals_sql()} FROM {source}").fetchall()[0]
    written = bytes_of(target)
    shutil.rmtree(target)
    return Loaded(seconds, written, tuple(int(value) for value in totals), f"{files} files")
