"""Pours the simulated traffic into the warehouse, in step with the clock."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from tidemill.cli.demo.traffic import Reports, Traffic
from tidemill.cli.session import Database
from tidemill.errors import BackpressureError, TidemillError

TABLE = "pos_reports"
TICK_S = 0.25
# Where the warehouse is slower than the simulated world, the world waits: no backlog grows.
BEHIND_S_MAX = 2.0
ADVANCE_S_MAX = 120
HISTORY_S = 50


@dataclass
class Counters:
    """What was poured. Only the producer writes; readers may be a moment behind."""

    rows_in: int = 0
    stored: int = 0
    late: int = 0
    rejected: int = 0
    waits: int = 0
    simulated_us: int = 0
    per_second: deque[int] = field(default_factory=lambda: deque(maxlen=HISTORY_S))


class Producer(threading.Thread):
    """A thread that lets ``rate`` simulated seconds pass in each real one, until stopped."""

    def __init__(self, database: Database, traffic: Traffic, rate: float) -> None:
        super().__init__(name="tidemill-demo-producer", daemon=True)
        self.counters = Counters(simulated_us=traffic.now_us)
        self.error: TidemillError | None = None
        self._database = database
        self._traffic = traffic
        self._rate = rate
        self._ending = threading.Event()

    def stop(self) -> None:
        """Ends the thread after the batch in hand."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        try:
            self._pour_until_stopped()
        except TidemillError as error:
            self.error = error

    def _pour_until_stopped(self) -> None:
        owed_s = 1.0
        last = second = time.monotonic()
        rows_then = 0
        while not self._ending.is_set():
            whole_s = min(int(owed_s), ADVANCE_S_MAX)
            if whole_s:
                owed_s -= whole_s
                self.pour(self._traffic.advance(whole_s))
            now = time.monotonic()
            owed_s = min(owed_s + (now - last) * self._rate, BEHIND_S_MAX * self._rate + 1)
            last = now
            if now - second >= 1:
                self.counters.per_second.append(self.counters.rows_in - rows_then)
                rows_then, second = self.counters.rows_in, second + 1
            wait_s = TICK_S if self._rate >= 1 else max(TICK_S, (1 - owed_s) / self._rate)
            self._ending.wait(min(wait_s, 1.0))

    def pour(self, reports: Reports) -> None:
        """Appends what arrived, and counts what became of it."""
        for rows in (reports.rows, reports.overdue, reports.wrong):
            if len(rows):
                self._append(rows)
        self.counters.simulated_us = self._traffic.now_us

    def _append(self, rows: object) -> None:
        while True:
            try:
                result = self._database.append(TABLE, rows)
                break
            except (
                BackpressureError
            ):  # memory is full until old rows expire: wait, as a sensor would
                self.counters.waits += 1
                if self._ending.is_set():
                    return
        counters = self.counters
        counters.rows_in += result.rows_in
        counters.stored += result.stored
        counters.late += result.late
        counters.rejected += result.rejected
