"""Plays the generator's traffic into the application's tables, in step with the clock.

``live`` starts it; ``live_answers`` asks it when a second's rows arrived. A world begins a few
minutes back: those are poured in at once, so that the road has a past when the first picture is
drawn. From then on every second's rows are handed over when their second comes; a world that
falls behind hands over up to half a minute at a time until it is abreast again.

The past's tolls are made for the vehicles that are about to ask for them: a world goes on for as
long as anybody watches, and who will ask in the end nobody knows.

Seconds are counted from the application's ``START``, as ``feed`` counts them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.linear_road import generator
from benchmarks.linear_road.fields import EXPENDITURE, REPORT, REPORT_SECONDS
from benchmarks.linear_road.traffic import Plan
from examples.linear_road import application
from tidemill.engine import Database
from tidemill.errors import BackpressureError, TidemillError

MINUTE_S = 60
TICK_S = 0.05
RATES_HELD_S = 60
ARRIVALS_HELD_S = 900
# Between two worlds in one warehouse: no car of the first is still on a trip in the second (R2).
PAUSE_S = 2 * MINUTE_S


@dataclass(frozen=True)
class World:
    """A plan and its place in time: the plan's second 0 is ``base_s``, at a whole minute."""

    plan: Plan
    base_s: int
    live_s: int  # what is older is poured in at once
    rate: float = 1.0

    @classmethod
    def around(
        cls, plan: Plan, now_s: int, *, past_minutes: int, rate: float, newest_s: int | None
    ) -> World:
        """A world whose past ends now, or as soon as an earlier world's rows allow."""
        first_s = now_s - now_s % MINUTE_S - past_minutes * MINUTE_S
        if newest_s is not None and first_s < newest_s + PAUSE_S:
            first_s = -(-(newest_s + PAUSE_S) // MINUTE_S) * MINUTE_S
        live_s = max(now_s, first_s + past_minutes * MINUTE_S)
        return cls(plan, first_s - plan.from_minute * MINUTE_S, live_s, rate)


@dataclass
class Counters:
    """What was handed over. Only the player writes; readers may be a moment behind."""

    reports: int = 0
    requests: int = 0
    cars: int = 0  # that report in the present half minute
    newest_s: int = 0
    is_live: bool = False
    per_second: deque[int] = field(default_factory=lambda: deque(maxlen=RATES_HELD_S))


class Player(threading.Thread):
    """A thread that lets ``rate`` seconds of a world pass in each real one, until stopped."""

    def __init__(self, database: Database, world: World) -> None:
        super().__init__(name="linear-road-player", daemon=True)
        self.counters = Counters(newest_s=world.base_s + world.plan.from_minute * MINUTE_S)
        self.error: TidemillError | None = None
        self._database = database
        self._world = world
        self._due_s = 0
        self._pieces = self._cut()
        self._arrivals: dict[int, float] = {}
        self._ending = threading.Event()

    def stop(self) -> None:
        """Ends the thread after the rows in hand."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        try:
            self.play_past()
            self._play_until_stopped()
        except TidemillError as error:
            self.error = error

    def arrived_at(self, second: int) -> float | None:
        """When a second's rows were handed over (``time.monotonic``); None if they belong to the
        past that was poured in, or came long ago."""
        return self._arrivals.get(second)

    def play_past(self) -> None:
        """Everything before the world goes live, and every answer to it."""
        self.play_to(self._world.live_s)
        if not self._ending.is_set():
            self._database.sql("REFRESH MATERIALIZED VIEW entries")  # with all it depends on
            self.counters.is_live = True

    def play_to(self, second: int) -> None:
        """Hand over every second up to this one that was not yet."""
        self._due_s = second
        for piece in self._pieces:
            if piece is None or self._ending.is_set():
                return
            self._hand_over(piece)

    def _play_until_stopped(self) -> None:
        started = counted = time.monotonic()
        reports_then = self.counters.reports
        while not self._ending.wait(TICK_S):
            now = time.monotonic()
            self.play_to(self._world.live_s + int((now - started) * self._world.rate))
            if now - counted >= 1:
                self.counters.per_second.append(self.counters.reports - reports_then)
                reports_then, counted = self.counters.reports, counted + 1

    def _hand_over(self, piece: pa.RecordBatch) -> None:
        if self.counters.is_live:
            self._note_arrival(piece)
        # The source makes a second try harmless: what the first one stored is not stored again.
        source = f"linear road from {self._world.base_s}"
        self._patiently(lambda: application.feed(self._database, piece, source))
        reports = int(np.count_nonzero(piece.column("type").to_numpy() == REPORT))
        self.counters.reports += reports
        self.counters.requests += piece.num_rows - reports
        self.counters.newest_s = piece.column("time")[-1].as_py()

    def _note_arrival(self, piece: pa.RecordBatch) -> None:
        now = time.monotonic()
        for second in pc.unique(piece.column("time")).to_pylist():
            self._arrivals[second] = now
        while len(self._arrivals) > ARRIVALS_HELD_S:
            del self._arrivals[next(iter(self._arrivals))]

    def _cut(self) -> Iterator[pa.RecordBatch | None]:
        """The world's rows in pieces that are due; None whenever none is, and after the end."""
        for chunk in generator.batches(self._world.plan, REPORT_SECONDS):
            rows = self._placed(chunk)
            self.counters.cars = pc.count_distinct(rows.column("vid")).as_py()
            self._bring_tolls(rows)
            seconds, done = rows.column("time").to_numpy(), 0
            while done < rows.num_rows:
                due = int(np.searchsorted(seconds, self._due_s, side="right"))
                if due > done:
                    yield rows.slice(done, due - done)
                else:
                    yield None
                done = due
        while True:
            yield None

    def _placed(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        """The plan's rows at their place in time."""
        at = chunk.schema.get_field_index("time")
        moved = pa.array(chunk.column(at).to_numpy() + np.int32(self._world.base_s))
        return chunk.set_column(at, chunk.schema.field(at), moved)

    def _bring_tolls(self, rows: pa.RecordBatch) -> None:
        """The past of the vehicles that ask for it in these rows, unless it is there."""
        asking = rows.column("vid").to_numpy()[rows.column("type").to_numpy() == EXPENDITURE]
        known = self._database.sql("SELECT DISTINCT vid FROM daily_tolls").arrow().column("vid")
        news = np.setdiff1d(asking, known.to_numpy()).astype(np.int32)
        for tolls in generator.daily_tolls(self._world.plan.seed, news):
            self._database.append("daily_tolls", tolls)

    def _patiently(self, append: Callable[[], None]) -> None:
        """Append; where memory is full until rows have moved, wait as a sensor would."""
        while not self._ending.is_set():
            try:
                append()
                return
            except BackpressureError:
                continue
