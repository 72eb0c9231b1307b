"""The worker of the small view benchmarks: one warehouse, a fresh stream for every run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import tidemill
from benchmarks import views_data
from benchmarks.pouring import quiet
from benchmarks.systems.base import Row

SMALL_ROWS = 100
SMALL_UNTIL = 50_000  # rows that come in small batches, where the state grows
LAG_PAUSE_S = 0.01
DRAIN_S = 60.0
AGGREGATES = ("sum(b)", "sum(c)", "min(d)", "max(e)", "avg(f)", "count(*)")
"""Over the columns that are not the key; a view has the first one, two, four or all six."""

Grouped = tuple[str, str]  # a view's key and what it sums: columns, with + in between


@dataclass(frozen=True)
class Memory:
    """Of a view: (rows so far, bytes of its state, groups), and what its answer says in the end."""

    samples: list[tuple[int, int, int]]
    state: str
    rows_counted: int


@dataclass(frozen=True)
class Lag:
    """``samples`` are rows not absorbed yet, while rows came; then how long it took to absorb
    the rest without any reader."""

    samples: list[int]
    seconds: float
    drain_s: float
    left: int


@dataclass(frozen=True)
class Attached:
    """A run with some views: the seconds until every view was read, of the clock and of all
    processors; those that reading took at its end; those of absorbing, as Tidemill counts them."""

    seconds: float
    cpu_s: float
    read_s: float
    absorb_s: float
    totals: Row
    state: str


class Views:
    def __init__(self, folder: Path) -> None:
        self.db = tidemill.open(folder)
        self._views: list[str] = []
        self._made: dict[tuple[int, int, int], list[pa.RecordBatch]] = {}

    def settings(self) -> dict[str, str]:
        return {
            "version": tidemill.__version__,
            "stream": "a time and six integers; durability = 'sync', all rows stay in memory",
        }

    # -- the three measurements

    def memory(self, rows: int, keys: int, aggregates: int) -> Memory:
        """Rows into one view; its state is looked at whenever all rows have been absorbed."""
        listed = ", ".join(AGGREGATES[:aggregates])
        self._begin([f"SELECT a, {listed} FROM t GROUP BY a"], "none")
        given = list(views_data.batches(min(rows, SMALL_UNTIL), keys, SMALL_ROWS))
        rest = views_data.batches(rows, keys, 10_000)
        given += list(rest)[len(given) * SMALL_ROWS // 10_000 :]
        samples, so_far = [], 0
        for batch in given:
            self.db.append("t", batch)
            so_far += batch.num_rows
            self._read(0)
            asked = "SELECT state_bytes, groups FROM tidemill.views WHERE view_name = 'v0'"
            samples.append((so_far, *self.db.sql(asked).fetchall()[0]))
        counted = self.db.sql("SELECT count(*) FROM t").fetchall()[0][0]
        return Memory(samples, self._end(), counted)

    def lag(self, rows: int, keys: int, threads: int, size: int) -> Lag:
        """Insert only: nobody reads, several threads write."""
        self._begin(["SELECT a, sum(b) FROM t GROUP BY a"])
        given = self._batches(rows, keys, size)
        samples: list[int] = []
        with quiet():
            began = time.perf_counter()
            with ThreadPoolExecutor(threads) as pool:
                writers = self._write(pool, [given[at::threads] for at in range(threads)])
                while wait(writers, LAG_PAUSE_S).not_done:
                    samples.append(self._lag_rows())
            _finish(writers)
            seconds = time.perf_counter() - began
            left = self._lag_rows()
            while left and time.perf_counter() - began < seconds + DRAIN_S:
                threading.Event().wait(LAG_PAUSE_S)
                left = self._lag_rows()
            drained = time.perf_counter() - began - seconds
        self._end()
        return Lag(samples, seconds, drained, left)

    def attached(
        self,
        rows: int,
        keys: int,
        size: int,
        views: Sequence[Grouped],
        threads: int = 1,
        durability: str = "sync",
    ) -> Attached:
        """Rows into a stream with views, which are all read once at the end."""
        given = self._batches(rows, keys, size)
        queries = [f"SELECT {k}, sum({v}) AS total FROM t GROUP BY {k}" for k, v in views]
        self._begin(queries, durability)
        os.sync()
        with quiet():
            began, began_cpu = time.perf_counter(), time.process_time()
            with ThreadPoolExecutor(threads) as pool:
                _finish(self._write(pool, [given[at::threads] for at in range(threads)]))
            written = time.perf_counter()
            for number in range(len(views)):
                self._read(number)
            ended, ended_cpu = time.perf_counter(), time.process_time()
        sums = [f"(SELECT sum(total) FROM v{number})" for number in range(len(views))]
        totals = self.db.sql(f"SELECT {', '.join(sums)}").fetchall()[0] if views else ()
        return Attached(
            ended - began,
            ended_cpu - began_cpu,
            ended - written,
            self._absorb_s(rows),
            tuple(int(value) for value in totals),
            self._end(),
        )

    def _absorb_s(self, rows: int) -> float:
        """Views that are fed together tell the very same number: it counts once."""
        asked = "SELECT DISTINCT insert_ns_row FROM tidemill.views"
        told: list[float] = [row[0] for row in self.db.sql(asked).fetchall()]
        return sum(told) * rows / 1e9

    # -- how

    def _batches(self, rows: int, keys: int, size: int) -> list[pa.RecordBatch]:
        """Made once and kept for the runs to come; of another kind, made anew."""
        if (rows, keys, size) not in self._made:
            self._made = {(rows, keys, size): list(views_data.batches(rows, keys, size))}
        return self._made[rows, keys, size]

    def _begin(self, queries: Sequence[str], durability: str = "sync") -> None:
        self.db.sql(
            f"CREATE STREAMING TABLE t ({views_data.COLUMNS_SQL}, "
            "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (clock = 'event', "
            f"durability = '{durability}', memory = '8 GB', move = 'manual')"
        )
        self._views = [f"v{number}" for number in range(len(queries))]
        for name, query in zip(self._views, queries, strict=True):
            self.db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")

    def _read(self, number: int) -> pa.Table:
        return self.db.sql(f"SELECT * FROM v{number}").arrow()

    def _lag_rows(self) -> int:
        asked = "SELECT max(lag_rows) FROM tidemill.views"
        found: int = self.db.sql(asked).fetchall()[0][0]
        return found

    def _write(self, pool: Executor, shares: list[list[pa.RecordBatch]]) -> list[Future[None]]:
        append = self.db.append

        def pour(share: list[pa.RecordBatch]) -> None:
            for batch in share:
                append("t", batch)

        return [pool.submit(pour, share) for share in shares]

    def _end(self) -> str:
        states = self.db.sql("SELECT state FROM tidemill.views ORDER BY view_name").fetchall()
        for name in self._views:
            self.db.sql(f"DROP MATERIALIZED VIEW {name}")
        self.db.sql("DROP TABLE t")
        return "; ".join(dict.fromkeys(row[0] for row in states))

    def close(self) -> None:
        self.db.close()


def _finish(writers: Sequence[Future[None]]) -> None:
    for writer in writers:
        writer.result()


def added(with_views: Sequence[float], without: Sequence[float], inserts: int) -> list[float]:
    """What views added to one insert, in milliseconds: each run against that of the same turn.

    >>> added([3.0, 4.0], [1.0, 1.0], 10)
    [200.0, 300.0]
    """
    pairs = zip(with_views, without, strict=True)
    return [(seconds - base) * 1_000 / inserts for seconds, base in pairs]


def column_sums(rows: int, keys: int, size: int) -> dict[str, int]:
    """The sums of all columns of these rows, by numpy."""
    sums = dict.fromkeys(views_data.COLUMNS, 0)
    for batch in views_data.batches(rows, keys, size):
        for name in sums:
            sums[name] += int(batch.column(name).to_numpy().sum(dtype="int64"))
    return sums
