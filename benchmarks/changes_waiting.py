"""What changes that wait cost: Tidemill alone.

The latency of a query by the number of changes that wait, if they concern it and if they do not;
how many statements and corrections a second one client makes; a month of history that is deleted.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidemill
from benchmarks.changes_data import readings_of, time_of, times_of
from benchmarks.harness import Options, Worker, WorkerError, console, progress
from benchmarks.pouring import quiet
from benchmarks.report import OURS, Report
from benchmarks.systems.changing import COLUMNS_SQL
from benchmarks.systems.tide import wait_for_jobs, wait_for_spark

COUNTS = (0, 1, 10, 100, 1_000, 10_000, 100_000)
ROWS = 10_000_000
HISTORY_ROWS = 3_000_000
STATEMENTS = 60_000
BATCH = 10_000
BATCHES = 100
UNCONCERNED = "A query that changes which wait do not concern"
CONCERNED = "The first query that they concern"
RATES = "Changes a second, one client, durability = 'batch'"
MONTH = "A month of history"
QUERY = "SELECT count(*), sum(v1), avg(v3) FROM readings WHERE v2 > 500"
OTHER = "SELECT count(*), sum(v6), avg(v3) FROM readings WHERE v5 > 500"
STATEMENTS_GOAL, CORRECTIONS_GOAL = 20_000, 500_000
UNCONCERNED_GOAL_MS, CONCERNED_GOAL, MONTH_GOAL_MS = 1.0, 1.5, 10.0


def add_waiting(report: Report, options: Options, folder: Path) -> None:
    """Measure, and set the goals."""
    if not options.wants(OURS):
        return
    rows = options.smaller(ROWS, 200_000)
    target = "benchmarks.changes_waiting:Waiting"
    try:
        with (
            progress(len(COUNTS) + 3, "changes that wait") as advance,
            Worker(target, folder / "waiting", rows) as worker,
        ):
            for count in COUNTS:
                advance(f"{count:,} changes", 1)
                if count > rows:
                    continue
                other, first = worker.call("latencies", count, options.smaller(40, 5))
                report.add(UNCONCERNED, f"{count:,} wait", OURS, "ms", other)
                report.add(CONCERNED, f"{count:,} wait", OURS, "ms", first)
            advance("statements", 1)
            statements = worker.call("statements", options.smaller(STATEMENTS, 2_000))
            report.add(RATES, "UPDATE of one row, parameters", OURS, "statements/s", statements)
            advance("corrections", 1)
            corrections = worker.call("corrections", options.smaller(BATCHES, 5))
            report.add(RATES, f"batches of {BATCH:,}", OURS, "corrections/s", corrections)
            advance("a month of history", 1)
            took_ms, after_ms, left = worker.call("month", options.smaller(HISTORY_ROWS, 100_000))
            report.add(MONTH, "DELETE returns", OURS, "ms", took_ms)
            report.add(MONTH, "count(*) right after", OURS, "ms", after_ms)
            report.check(OURS, "no row of a deleted month is seen", left == 0, f"{left} rows")
    except WorkerError as error:
        report.missing[OURS] = f"failed: {error}"
        console.print(f"[red]failed[/]: {error}")
        return
    _set_goals(report)


def _set_goals(report: Report) -> None:
    def median(group: str, what: str) -> float | None:
        found = report.find(group, what, OURS)
        return None if found is None else found.summary.median

    with_many, without = (median(UNCONCERNED, f"{n:,} wait") for n in (10_000, 0))
    more = with_many - without if with_many is not None and without is not None else None
    text = f"10,000 changes cost a query they do not concern ≤ {UNCONCERNED_GOAL_MS:g} ms"
    report.goal_at_most(text, more, UNCONCERNED_GOAL_MS, "ms")
    with_many, without = (median(CONCERNED, f"{n:,} wait") for n in (10_000, 0))
    ratio = with_many / without if with_many and without else None
    text = f"10,000 corrections cost a filter-aggregate over hot rows ≤ {CONCERNED_GOAL:g} ×"
    report.goal_at_most(text, ratio, CONCERNED_GOAL, "×")
    statements = median(RATES, "UPDATE of one row, parameters")
    text = f"≥ {STATEMENTS_GOAL:,} UPDATE statements a second"
    report.goal_at_least(text, statements, STATEMENTS_GOAL, "statements/s")
    corrections = median(RATES, f"batches of {BATCH:,}")
    text = f"≥ {CORRECTIONS_GOAL:,} corrections a second by batch"
    report.goal_at_least(text, corrections, CORRECTIONS_GOAL, "corrections/s")
    text = f"a delete of a month of history returns in ≤ {MONTH_GOAL_MS:g} ms"
    report.goal_at_most(text, median(MONTH, "DELETE returns"), MONTH_GOAL_MS, "ms")


class Waiting:
    """A warehouse whose rows are in memory."""

    def __init__(self, folder: Path, rows: int) -> None:
        folder.mkdir(parents=True)
        self.rng = np.random.default_rng(11)
        self.rows = rows
        self.db = tidemill.open(folder / "warehouse", lifetime="long")
        wait_for_spark(self.db)
        settings = "memory = '12 GB', durability = 'batch', move = 'manual'"
        self.db.sql(f"CREATE STREAMING TABLE readings ({COLUMNS_SQL}) WITH ({settings})")
        self.db.sql("CREATE INDEX ON readings (id)")
        for begin in range(0, rows, 500_000):
            self.db.append("readings", readings_of(begin, min(500_000, rows - begin)))

    def _correct(self, count: int) -> None:
        ids = self.rng.choice(self.rows, count, replace=False).astype(np.int64)
        values = pa.array(self.rng.integers(0, 1_000, count).astype(np.float64))
        columns = {"ts": times_of(ids), "id": pa.array(ids), "v1": values}
        self.db.update("readings", pa.table(columns), key=("id", "ts"))

    def latencies(self, count: int, repeat: int) -> tuple[list[float], list[float]]:
        """Milliseconds of a query that they do not concern, and of the first one that they do."""
        other, first = [], []
        self.db.sql(QUERY).fetchall()
        with quiet():
            for turn in range(repeat):
                if count:
                    self._correct(count)
                for _ in range(3 if turn else 10):
                    began = time.perf_counter()
                    self.db.sql(OTHER).fetchall()
                    other.append((time.perf_counter() - began) * 1_000)
                began = time.perf_counter()
                self.db.sql(QUERY).fetchall()
                first.append((time.perf_counter() - began) * 1_000)
        return other, first

    def statements(self, count: int) -> list[float]:
        """UPDATEs of one row a second."""
        ids = self.rng.integers(0, self.rows, count).tolist()
        values = self.rng.integers(0, 1_000, count).astype(np.float64).tolist()
        given = [[v, i, time_of(i)] for i, v in zip(ids, values, strict=True)]
        text = "UPDATE readings SET v1 = ? WHERE id = ? AND ts = ?"
        rates = []
        with quiet():
            for begin in range(0, count, max(count // 5, 1)):
                part = given[begin : begin + max(count // 5, 1)]
                began = time.perf_counter()
                for params in part:
                    self.db.sql(text, params)
                rates.append(len(part) / (time.perf_counter() - began))
        self.db.sql(QUERY).fetchall()
        return rates

    def corrections(self, batches: int) -> list[float]:
        """Corrections a second, in batches."""
        made = []
        for _ in range(batches):
            ids = self.rng.integers(0, self.rows, BATCH).astype(np.int64)
            values = pa.array(self.rng.integers(0, 1_000, BATCH).astype(np.float64))
            columns = {"ts": times_of(ids), "id": pa.array(ids), "v1": values}
            made.append(pa.table(columns))
        rates = []
        with quiet():
            for begin in range(0, batches, max(batches // 5, 1)):
                part = made[begin : begin + max(batches // 5, 1)]
                began = time.perf_counter()
                for batch in part:
                    self.db.update("readings", batch, key=("id", "ts"))
                rates.append(len(part) * BATCH / (time.perf_counter() - began))
        self.db.sql(QUERY).fetchall()
        return rates

    def month(self, rows: int) -> tuple[list[float], list[float], int]:
        """A month of history that is deleted: the statement, a count right after it, the rows that
        are still seen."""
        self.db.sql("CREATE STREAMING TABLE past (ts TIMESTAMP, id BIGINT, v DOUBLE)")
        months = 3
        for month in range(1, months + 1):
            times = np.datetime64(f"2025-0{month}-01", "us") + np.linspace(
                0, 27 * 86_400e6, rows // months
            ).astype("timedelta64[us]")
            ids = np.arange(len(times))
            columns = {"ts": times, "id": ids, "v": ids.astype(np.float64)}
            self.db.append("past", pa.table(columns))
        self.db.sql("FLUSH past")
        wait_for_jobs(self.db)
        took, after, left = [], [], 0
        for month in range(1, months + 1):
            where = f"ts >= '2025-0{month}-01' AND ts < '2025-0{month + 1}-01'"
            began = time.perf_counter()
            self.db.sql(f"DELETE FROM past WHERE {where}")
            ended = time.perf_counter()
            ((count,),) = self.db.sql(f"SELECT count(*) FROM past WHERE {where}").fetchall()
            took.append((ended - began) * 1_000)
            after.append((time.perf_counter() - ended) * 1_000)
            left += count
        return took, after, left

    def close(self) -> None:
        self.db.close()
