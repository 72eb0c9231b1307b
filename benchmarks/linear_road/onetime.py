"""One-time queries over past reports, while the road is live: the second plus of L++.

Each asks for the reports of one segment of one expressway in a span of whole minutes, so long that
about 10,000, 30,000 or 60,000 rows come back (document 002, §VII). The spans are chosen from the
counts of the input; so the right number of rows is known, and every answer is checked by it.
Moments are drawn from the seed, evenly over the run; of several loads each has a part of it, one
after the other. A query that is due while all askers are busy
waits, and its waiting counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.linear_road.staging import Counts
from examples.linear_road.application import moments_of
from tidemill.engine import Database
from tidemill.errors import TidemillError

SIZES = (10_000, 30_000, 60_000)
SHARE_MIN = 0.8  # of the rows wanted: a span that has fewer is chosen only if there is none better
TRIES_MAX = 50
ASKERS = 2  # queries at once
QUERY = (
    "SELECT ts, vid, spd, lane, dir, pos FROM reports "
    "WHERE xway = ? AND seg = ? AND ts >= ? AND ts < ?"
)


@dataclass(frozen=True)
class Span:
    """What a query asks for: minutes ``low`` to ``high`` (not with it) and the rows there."""

    xway: int
    seg: int
    low: int
    high: int
    rows: int


@dataclass(frozen=True)
class Asked:
    """One query: how many there were a minute, the rows aimed at, when it was due, began and was
    answered, in seconds from the start; ``fault`` says what was wrong, if anything."""

    per_minute: float
    size: int
    due: float
    began: float
    ended: float
    rows: int
    fault: str | None = None

    @property
    def latency_s(self) -> float:
        return self.ended - self.due


class Past:
    """The reports that one-time queries may ask for, counted by minute, expressway, segment."""

    def __init__(self, counts: Counts, first_minute: int) -> None:
        none = np.zeros((1, *counts.shape[1:]), np.int64)
        self._until = np.concatenate([none, np.cumsum(counts, axis=0)])
        self._first_minute = first_minute
        self._used = np.argwhere(counts.sum(axis=0) > 0)

    def choose(self, chance: np.random.Generator, size: int, minute: int) -> Span:
        """A span with about ``size`` rows, before ``minute``; the best of some if none has."""
        best = None
        for _ in range(TRIES_MAX):
            span = self._draw(chance, size, minute - self._first_minute)
            if best is None or abs(span.rows - size) < abs(best.rows - size):
                best = span
            if SHARE_MIN * size <= span.rows <= size / SHARE_MIN:
                break
        assert best is not None
        return best

    def _draw(self, chance: np.random.Generator, size: int, known: int) -> Span:
        """A span that ends in any minute of a segment and reaches as far back as it must."""
        xway, seg = (int(each) for each in self._used[chance.integers(len(self._used))])
        until = self._until[:, xway, seg]
        high = int(chance.integers(0, min(known, len(until) - 1) + 1))
        low = int(np.searchsorted(until, until[high] - size, side="right")) - 1
        low = max(0, min(low, high))
        first = self._first_minute
        return Span(xway, seg, first + low, first + high, int(until[high] - until[low]))


class Askers:
    """Threads that ask. ``known_minute`` tells which minute is not complete yet."""

    def __init__(
        self,
        db: Database,
        past: Past,
        loads: Sequence[float],
        seconds: float,
        seed: int,
        known_minute: Callable[[], int],
    ) -> None:
        self._db, self._past, self._known_minute = db, past, known_minute
        self._chance = np.random.default_rng([seed, 7])
        part = seconds / len(loads)
        self._due: list[tuple[float, float]] = []  # the moment, and how many a minute then
        for at, load in enumerate(loads):
            moments = self._chance.uniform(at * part, (at + 1) * part, round(load * part / 60))
            self._due += [(float(due), load) for due in np.sort(moments)]
        self._next = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._origin = 0.0
        self._asked: list[Asked] = []
        self._threads = [
            threading.Thread(target=self._run, name=f"asker-{number}") for number in range(ASKERS)
        ]

    def start(self, origin: float) -> None:
        self._origin = origin
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[Asked]:
        """Stop after the queries in progress; what was asked."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return sorted(self._asked, key=lambda one: one.due)

    def _run(self) -> None:
        while (drawn := self._draw()) is not None:
            (due, load), size, chance = drawn
            if self._stop.wait(max(0.0, self._origin + due - time.perf_counter())):
                return
            span = self._past.choose(chance, size, self._known_minute())
            asked = self._ask(load, size, due, span)
            with self._lock:
                self._asked.append(asked)

    def _draw(self) -> tuple[tuple[float, float], int, np.random.Generator] | None:
        with self._lock:
            if self._next == len(self._due):
                return None
            number = self._next
            self._next += 1
        return self._due[number], SIZES[number % len(SIZES)], np.random.default_rng(number)

    def _ask(self, load: float, size: int, due: float, span: Span) -> Asked:
        low, high = moments_of(np.array([span.low, span.high], np.int32) * 60).to_pylist()
        began, rows, fault = time.perf_counter() - self._origin, 0, None
        try:
            rows = self._db.sql(QUERY, [span.xway, span.seg, low, high]).arrow().num_rows
        except TidemillError as error:
            fault = str(error)
        ended = time.perf_counter() - self._origin
        if fault is None and rows != span.rows:
            fault = f"{rows:,} rows instead of {span.rows:,} for {span}"
        return Asked(load, size, due, began, ended, rows, fault)
