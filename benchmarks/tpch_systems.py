"""The workers of the TPC-H stream benchmark: line items poured in while a query is kept answered.

One thread inserts batches as fast as it can, each durable before the next; another one asks for the
answer once a second. The clock stops when an answer holds all rows. After that some more batches
come one by one, and the refresh after each is timed on an otherwise idle system.

- Tidemill has a materialized view and reads it.
- DuckDB inserts into a table and runs the whole query (deferred recomputation); on disk, and once
  more in memory, where nothing is durable.
- Spark (``tpch_spark``) is given files and has a streaming query with a trigger each second;
  deferred recomputation in Spark is slower and there for those who ask for it by name.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa

import tidemill
from benchmarks import lineitem, tpch_data
from benchmarks.pouring import quiet
from benchmarks.systems.base import Row, plain_rows
from benchmarks.tpch_questions import StreamQuestion

AFTER_BATCHES = 5
REFRESH_S = 1.0


@dataclass(frozen=True)
class Poured:
    """One run: ``during`` are the seconds of the refreshes meanwhile, ``after`` of those after."""

    rows: int
    seconds: float
    during: tuple[float, ...]
    after: tuple[float, ...]
    answer: list[Row]
    remark: str = ""


class Watch(Protocol):
    """Refreshes while rows are poured: when that began, and the seconds of each."""

    began: float
    taken: list[float]

    def stop(self) -> None: ...


class Stream:
    """A system with the tables that do not change; ``rows`` line items are at hand to be poured."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.lines = tpch_data.lines(rows)
        self.open(tpch_data.tables(rows))

    def open(self, tables: Any) -> None:
        raise NotImplementedError

    def settings(self) -> dict[str, str]:
        raise NotImplementedError

    def begin(self, question: StreamQuestion) -> None:
        """An empty stream, and the query over it."""
        raise NotImplementedError

    def insert(self, batch: pa.Table) -> None:
        raise NotImplementedError

    def refresh(self) -> pa.Table:
        """The answer over all rows that were inserted before; called by one thread at a time."""
        raise NotImplementedError

    def end(self) -> str:
        """Remove the stream; answers a remark."""
        raise NotImplementedError

    def watch(self) -> Watch:
        """Begin to refresh once a second."""
        return _Reader(self.refresh)

    def pour(self, question: StreamQuestion, batches: int | None = None) -> Poured:
        """All line items, or the first batches."""
        given = self.lines[:batches]
        poured, rest = given[:-AFTER_BATCHES], given[-AFTER_BATCHES:]
        self.begin(question)
        os.sync()  # what others left for the disk to do is done before
        with quiet():
            reader = self.watch()
            for batch in poured:
                self.insert(batch)
            reader.stop()
            self.refresh()
            seconds = time.perf_counter() - reader.began
            after = []
            for batch in rest:
                self.insert(batch)
                began = time.perf_counter()
                answer = self.refresh()
                after.append(time.perf_counter() - began)
        rows = sum(batch.num_rows for batch in poured)
        found = sorted(plain_rows(answer))
        return Poured(rows, seconds, tuple(reader.taken), tuple(after), found, self.end())

    def close(self) -> None:
        raise NotImplementedError


class _Reader:
    """A thread that refreshes at every whole second; moments that were missed are left out."""

    def __init__(self, refresh: Any) -> None:
        self.taken: list[float] = []
        self._failed: BaseException | None = None
        self._refresh = refresh
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.began = time.perf_counter()
        self._thread.start()

    def _run(self) -> None:
        due = self.began + REFRESH_S
        while not self._stop.wait(max(due - time.perf_counter(), 0)):
            began = time.perf_counter()
            try:
                self._refresh()
            except BaseException as error:
                self._failed = error
                return
            now = time.perf_counter()
            self.taken.append(now - began)
            due = max(due + REFRESH_S, now)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed


class TideStream(Stream):
    def open(self, tables: Any) -> None:
        self.db = tidemill.open(self.folder / "warehouse")
        for name, rows in tables.items():
            self.db.sql(f"CREATE TABLE {name} ({tpch_data.SQL[name]})")
            self.db.append(name, rows)

    def settings(self) -> dict[str, str]:
        return {
            "version": tidemill.__version__,
            "durability": "sync: fdatasync of the log before each append returns",
            "stream": "time l_shipdate, partition = '30 days', all rows stay in memory",
            "query": "CREATE MATERIALIZED VIEW, read with SELECT *",
        }

    def begin(self, question: StreamQuestion) -> None:
        self.db.sql(
            f"CREATE STREAMING TABLE lineitem ({lineitem.COLUMNS_SQL}, "
            "WATERMARK FOR l_shipdate AS l_shipdate - INTERVAL '5' SECOND) "
            "WITH (clock = 'event', partition = '30 days', memory = '8 GB', move = 'manual')"
        )
        self.db.sql(f"CREATE MATERIALIZED VIEW answer AS {question.sql}")

    def insert(self, batch: pa.Table) -> None:
        self.db.append("lineitem", batch)

    def refresh(self) -> pa.Table:
        return self.db.sql("SELECT * FROM answer").arrow()

    def end(self) -> str:
        asked = "SELECT state, groups, state_bytes FROM tidemill.views WHERE view_name = 'answer'"
        state, groups, size = self.db.sql(asked).fetchall()[0]
        self.db.sql("DROP MATERIALIZED VIEW answer")
        self.db.sql("DROP TABLE lineitem")
        return f"{state}; {groups:,} groups, {size:,} bytes"

    def close(self) -> None:
        self.db.close()


class DuckStream(Stream):
    """Deferred recomputation: rows are kept, the query runs whole when it is asked."""

    place = "duck.db"

    def open(self, tables: Any) -> None:
        place = self.place if self.place == ":memory:" else str(self.folder / self.place)
        self.connection = duckdb.connect(place)
        for name, rows in tables.items():
            self.connection.register("given", rows)
            self.connection.execute(f"CREATE TABLE {name} ({tpch_data.SQL[name]})")
            self.connection.execute(f"INSERT INTO {name} SELECT * FROM given")
            self.connection.unregister("given")
        self.reader = self.connection.cursor()

    def settings(self) -> dict[str, str]:
        threads = self.connection.execute("SELECT current_setting('threads')").fetchall()[0][0]
        durability = "one commit a batch, write-ahead log synced (DuckDB's default)"
        return {
            "version": duckdb.__version__,
            "threads": str(threads),
            "durability": durability if self.place != ":memory:" else "none: in memory",
            "query": "run whole at each refresh",
        }

    def begin(self, question: StreamQuestion) -> None:
        self.connection.execute(f"CREATE TABLE lineitem ({lineitem.COLUMNS_SQL})")
        self.sql = question.sql

    def insert(self, batch: pa.Table) -> None:
        self.connection.execute("INSERT INTO lineitem SELECT * FROM batch")

    def refresh(self) -> pa.Table:
        return self.reader.sql(self.sql).to_arrow_table()

    def end(self) -> str:
        self.connection.execute("DROP TABLE lineitem")
        return ""

    def close(self) -> None:
        self.reader.close()
        self.connection.close()


class DuckMemoryStream(DuckStream):
    place = ":memory:"


SYSTEMS = {
    "tidemill": "benchmarks.tpch_systems:TideStream",
    "duckdb": "benchmarks.tpch_systems:DuckStream",
    "duckdb-memory": "benchmarks.tpch_systems:DuckMemoryStream",
    "spark": "benchmarks.tpch_spark:SparkStream",
    "spark-recompute": "benchmarks.tpch_spark:SparkFiles",
}
ONLY_BY_NAME = ("spark-recompute",)
