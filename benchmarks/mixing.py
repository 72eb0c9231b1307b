"""The worker of the mixed benchmark: one table that is filled, asked and moved at the same time.

A writer appends batches of position reports, stamped with the moment at which they are due, at a
rate that changes (document 000, Fig. 21) or as fast as it can. Monitoring queries ask for the last
seconds and analytics for the last minutes, each at fixed moments: one that comes too late because
its predecessor was slow counts its waiting. Windows begin and end at batches that have been
acknowledged, so that the right count of every answer is known: a row missing or twice in the
middle of a move is found. Moves are what ``tidemill.jobs`` tells of them afterwards.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill
from benchmarks import traffic
from benchmarks.data import SCHEMA
from benchmarks.systems.base import TABLE, to_time
from benchmarks.systems.tide import COLUMNS_SQL

BATCH_ROWS = 2_000
PAST_S = 600.0  # the rows that are there before lie in the ten minutes before
MONITOR_WINDOWS_S = (1.0, 5.0, 10.0)
ANALYTICS_WINDOW_S = 300.0
WARM_S = 2.0  # after the start, while plans and caches fill; not counted
GRACE_S = 60.0
REASONS_MAX = 8
_MONITOR = (
    f"SELECT count(*), max(spd), avg(spd) FROM {TABLE} WHERE ts >= :low AND ts < :high AND seg >= 0"
)
_ANALYTICS = (
    f"SELECT xway, dir, seg, count(*), avg(spd), max(pos) FROM {TABLE} "
    "WHERE ts >= :low AND ts < :high GROUP BY xway, dir, seg"
)


@dataclass(frozen=True)
class Plan:
    """One run. ``rates`` are rows a second, one for each phase; none means as fast as it can."""

    settings: dict[str, str]
    rates: tuple[int | None, ...]
    phase_s: float
    monitors_a_s: float = 10.0
    analytics_a_s: float = 1.0
    past_rows: int = 2_000_000
    windows_s: tuple[float, ...] = MONITOR_WINDOWS_S

    @property
    def seconds(self) -> float:
        return self.phase_s * len(self.rates)


@dataclass(frozen=True)
class Asked:
    """One query: its kind (window in seconds, or 'analytics'), when it was due and answered."""

    kind: str
    due: float
    began: float
    ended: float
    rows: int = 0
    file_rows: int = 0  # of its window's rows, those in files when it began

    @property
    def latency_s(self) -> float:
        return self.ended - self.due

    @property
    def service_s(self) -> float:
        return self.ended - self.began


@dataclass
class Told:
    """What a run found; times are seconds since its start, moves are (start, end, rows)."""

    asked: list[Asked] = field(default_factory=list)
    appended: list[tuple[float, int]] = field(default_factory=list)
    moves: list[tuple[float, float, int]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)  # of a row, in ns, by place
    seconds: float = 0.0  # until the last row was acknowledged
    makespan_s: float = 0.0  # and until the last query was answered
    rows: int = 0
    append_s: list[float] = field(default_factory=list)

    def during(self, one: Asked) -> bool:
        return any(start < one.ended and end > one.began for start, end, _ in self.moves)


@dataclass(frozen=True)
class Span:
    """A window: its ends in time, and the numbers of the rows before it and up to its end."""

    low_us: int
    high_us: int
    before: int
    upto: int

    @property
    def rows(self) -> int:
        return self.upto - self.before

    def rows_up_to(self, number: int) -> int:
        """How many of its rows have a number up to this one."""
        return min(max(number - self.before, 0), self.rows)


class _Acknowledged:
    """Which rows are certainly there: the bounds of the batches and how many rows lie below."""

    def __init__(self, first_us: int) -> None:
        self._lock = threading.Lock()
        self._bounds_us, self._counts = [first_us], [0]

    @property
    def newest_us(self) -> int:
        return self._bounds_us[-1]

    def add(self, end_us: int, rows: int) -> None:
        """``rows`` more rows lie below ``end_us``."""
        with self._lock:
            self._bounds_us.append(end_us)
            self._counts.append(self._counts[-1] + rows)

    def window(self, length_us: int) -> Span:
        """The newest window of about that length."""
        with self._lock:
            bounds, counts = self._bounds_us, self._counts
            high = len(bounds) - 1
            low = bisect.bisect_left(bounds, bounds[high] - length_us)
            return Span(bounds[low], bounds[high], counts[low], counts[high])


class Mix:
    """A warehouse of its own, in a process of its own, for one run."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.db = tidemill.open(folder, spark_master="local[*]", lifetime="long")
        given = ", ".join(f"{name} = '{value}'" for name, value in settings.items())
        self.db.sql(
            f"CREATE STREAMING TABLE {TABLE} ({COLUMNS_SQL}, "
            "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
            f"WITH (clock = 'event', {given})"
        )
        self.db.sql(f"CREATE INDEX ON {TABLE} (vid)")
        self._pool = [_reports(number) for number in range(4)]

    def run(self, plan: Plan) -> Told:
        """Fill the past, flush it (which starts Spark, too), then run the plan."""
        told, stop = Told(), threading.Event()
        known = self._fill_past(plan)
        self._check_past(plan, told)
        epoch, origin = time.time(), time.perf_counter()
        known.add(max(round(epoch * 1e6), known.newest_us + 1), 0)
        period = 1 / plan.monitors_a_s
        threads = [threading.Thread(target=self._write, args=(plan, told, known, epoch, origin))]
        askers = [("monitor", period)]
        if plan.analytics_a_s:
            askers.append(("analytics", 1 / plan.analytics_a_s))
        for kind, every in askers:
            arguments = (kind, every, plan, told, known, origin, stop)
            threads.append(threading.Thread(target=self._ask, args=arguments))
        for thread in threads:
            thread.start()
        threads[0].join()
        told.seconds = time.perf_counter() - origin
        stop.set()
        for thread in threads[1:]:
            thread.join(GRACE_S)
        told.makespan_s = time.perf_counter() - origin
        self._finish(plan, told, epoch)
        return told

    # -- what is there before

    def _fill_past(self, plan: Plan) -> _Acknowledged:
        """Rows of the last minutes, moved into files before the run begins."""
        low_us = round((time.time() - PAST_S) * 1e6)
        step_us = PAST_S * 1e6 / max(plan.past_rows, 1)
        known = _Acknowledged(low_us)
        for number, count in enumerate(traffic.pieces(plan.past_rows)):
            first_us = low_us + round(number * traffic.PIECE_ROWS * step_us)
            times = first_us + (np.arange(count) * step_us).astype(np.int64)
            self.db.append(TABLE, _stamped(_reports(number).slice(0, count), times))
            for start in range(0, count, BATCH_ROWS):
                rows = min(BATCH_ROWS, count - start)
                known.add(int(times[start + rows - 1]) + 1, rows)
        self.db.sql(f"FLUSH {TABLE}")
        return known

    def _check_past(self, plan: Plan, told: Told) -> None:
        found = self.db.sql(f"SELECT count(*) FROM {TABLE}").fetchall()[0][0]
        if found != plan.past_rows:
            told.wrong.append(f"{found} rows of {plan.past_rows} are there before the run")

    # -- the writer

    def _write(
        self, plan: Plan, told: Told, known: _Acknowledged, epoch: float, origin: float
    ) -> None:
        try:
            for phase, rate in enumerate(plan.rates):
                self._write_phase(phase, rate, plan, told, known, epoch, origin)
        except Exception as error:
            told.errors.append(f"append: {type(error).__name__}: {error}")

    def _write_phase(
        self,
        phase: int,
        rate: int | None,
        plan: Plan,
        told: Told,
        known: _Acknowledged,
        epoch: float,
        origin: float,
    ) -> None:
        begin, end = phase * plan.phase_s, (phase + 1) * plan.phase_s
        due = begin
        while due < end:
            now = time.perf_counter() - origin
            if rate is None:
                due, until = now, max(now, due) + 1e-3
            else:
                until = due + BATCH_ROWS / rate
                if until > now:
                    time.sleep(until - now)  # a batch is there when its last report has come
            if now >= end:
                break
            high_us, count = known.newest_us, BATCH_ROWS
            end_us = max(round((epoch + until) * 1e6), high_us + count)
            times = high_us + (np.arange(count) * ((end_us - high_us) / count)).astype(np.int64)
            batch = _stamped(self._pool[told.rows // BATCH_ROWS % len(self._pool)], times, count)
            asked = time.perf_counter()
            self.db.append(TABLE, batch)
            done = time.perf_counter()
            known.add(end_us, count)
            told.append_s.append(done - asked)
            told.appended.append((done - origin, count))
            told.rows += count
            due = until

    # -- the queries

    def _ask(
        self,
        kind: str,
        every_s: float,
        plan: Plan,
        told: Told,
        known: _Acknowledged,
        origin: float,
        stop: threading.Event,
    ) -> None:
        due, number = every_s, 0
        while not stop.wait(max(0.0, due - (time.perf_counter() - origin))):
            length_s = ANALYTICS_WINDOW_S
            if kind == "monitor":
                length_s = plan.windows_s[number % len(plan.windows_s)]
            span = known.window(round(length_s * 1e6))
            values = {"low": to_time(span.low_us), "high": to_time(span.high_us)}
            file_rows = span.rows_up_to(self._moved_seq())
            sql = _MONITOR if kind == "monitor" else _ANALYTICS
            began = time.perf_counter() - origin
            try:
                rows = self.db.sql(sql, values).fetchall()
            except Exception as error:
                told.errors.append(f"{kind}: {type(error).__name__}: {error}")
                rows = None
            ended = time.perf_counter() - origin
            if rows is not None:
                found = rows[0][0] if kind == "monitor" else sum(row[3] for row in rows)
                if found != span.rows:
                    right = f"{found} rows, {span.rows} are right"
                    told.wrong.append(f"{kind} at {began:.2f} s: {right}")
                name = f"last {length_s:g} s" if kind == "monitor" else "analytics"
                if due > WARM_S:
                    told.asked.append(Asked(name, due, began, ended, span.rows, file_rows))
            due += every_s
            number += 1

    def _moved_seq(self) -> int:
        """Rows up to this number are in files. Their numbers are those in which they came."""
        snapshot = self.db.catalog.snapshot()
        moved: int = snapshot.history(snapshot.get(TABLE).table_id).moved_seq
        return moved

    # -- afterwards

    def _finish(self, plan: Plan, told: Told, epoch: float) -> None:
        """Count everything, and ask what was moved and why."""
        found = self.db.sql(f"SELECT count(*) FROM {TABLE}").fetchall()[0][0]
        if found != plan.past_rows + told.rows:
            told.wrong.append(f"{found} rows at the end, {plan.past_rows + told.rows} are right")
        asked = (
            "SELECT epoch_us(started_at), epoch_us(ended_at), rows, state FROM tidemill.jobs "
            "WHERE table_name = :t AND kind = 'move' AND started_at IS NOT NULL ORDER BY started_at"
        )
        for start_us, end_us, rows, state in self.db.sql(asked, {"t": TABLE}).fetchall():
            start = start_us / 1e6 - epoch
            end = told.seconds if end_us is None else end_us / 1e6 - epoch
            if end > 0:  # the flush of the past is not one of the run's
                told.moves.append((start, end, rows or 0))
            if state == "failed":
                told.errors.append(f"a move failed at {start:.1f} s")
        costs = "SELECT place, row_ns FROM tidemill.costs WHERE table_name = :t"
        told.costs = dict(self.db.sql(costs, {"t": TABLE}).fetchall())
        reasons = "SELECT strftime(at, '%H:%M:%S'), action, reason FROM tidemill.moves"
        told.reasons = [" ".join(row) for row in self.db.sql(reasons).fetchall()][:REASONS_MAX]

    def close(self) -> None:
        self.db.close()


def _reports(number: int) -> pa.RecordBatch:
    return traffic.table(number).combine_chunks().to_batches()[0]


def _stamped(reports: pa.RecordBatch, times: Any, count: int | None = None) -> pa.RecordBatch:
    """The same reports at other times."""
    part = reports if count is None else reports.slice(0, count)
    stamps = pa.array(times).cast(pa.timestamp("us"))
    return pa.RecordBatch.from_arrays([stamps, *part.columns[1:]], schema=SCHEMA)


def percentile(values: Sequence[float], share: float) -> float | None:
    """
    >>> percentile([1.0, 2.0, 3.0], 0.5), percentile([], 0.5)
    (2.0, None)
    """
    return float(np.quantile(np.array(values), share)) if values else None
