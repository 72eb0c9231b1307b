"""Watches the application answer: what came, how long after its rows, and what the road is like.

Beside ``live_traffic``, which plays the rows in. Two things, in turn, on one thread:

1. The answers are read as they come, ten times a second. An answer has the second of the row that
   called for it, and the player knows when that row arrived: the difference is the response time.
2. Once a second the warehouse is asked what the board shows, in plain SQL, as anybody may ask it
   from a second terminal.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.linear_road.fields import EXIT_LANE
from examples.linear_road.application import Answers
from tidemill.engine import Database
from tidemill.errors import TidemillError

READ_EVERY_S = 0.1
ASK_EVERY_S = 1.0
METER_S = 60
RATE_OVER_S = 5
NOTICES_SHOWN = 4
JOBS_SHOWN = 4
NOTICES_LOOKED_AT = 2_000

# The segments as they are for this minute: R4, R5 and R7 of docs/linear-road.md.
ROAD = """\
SELECT s.xway, s.dir, s.seg, s.lav, a.accident,
       CASE WHEN s.lav < 40 AND s.cars > 50 AND a.accident IS NULL
            THEN 2 * (s.cars - 50) * (s.cars - 50) ELSE 0 END AS toll
FROM conditions AS s
LEFT JOIN ahead AS a ON a.ts = s.ts AND a.xway = s.xway AND a.dir = s.dir AND a.seg = s.seg
WHERE s.ts = (SELECT max(ts) FROM conditions)"""
NOTICES = f"""\
SELECT vid, xway, seg, lav, toll, accident FROM entries
WHERE lane <> 4 AND (toll > 0 OR accident IS NOT NULL)
  AND _seq > (SELECT max(_seq) FROM entries) - {NOTICES_LOOKED_AT}
ORDER BY _seq DESC LIMIT {NOTICES_SHOWN}"""
HELD = """\
SELECT t.hot_rows, t.bytes, t.history_rows, max(p.time_max) AS upto
FROM tidemill.tables AS t LEFT JOIN tidemill.partitions AS p ON p.table_name = t.table_name
WHERE t.table_name = 'reports' GROUP BY ALL"""
# The pipeline's newest jobs, those that run first.
JOBS = f"""\
SELECT kind, table_name, state, rows, ran_on, epoch(elapsed), coalesce(error, detail) AS detail
FROM tidemill.jobs WHERE tasks > 0 OR state IN ('running', 'failed')
ORDER BY state = 'running' DESC, coalesce(ended_at, planned_at) DESC LIMIT {JOBS_SHOWN}"""
JOBS_DONE = """\
SELECT kind, count(*), CAST(sum(rows) AS BIGINT), count(*) FILTER (state = 'failed')
FROM tidemill.jobs WHERE tasks > 0 GROUP BY kind ORDER BY kind"""
QUESTIONS = {
    "road": ROAD,
    "notices": NOTICES,
    "held": HELD,
    "jobs": JOBS,
    "jobs_done": JOBS_DONE,
    "spark": "SELECT state, last_error FROM tidemill.spark",
}


@dataclass(frozen=True)
class Answer:
    """The newest answer to a question."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    elapsed_s: float = 0.0
    error: TidemillError | None = None


@dataclass
class Second:
    """What was answered in one second, and after how long."""

    number: int
    answers: int = 0
    waited_s: float = 0.0  # of all of them
    longest_s: float = 0.0


class Meter:
    """Answers and response times of the last minute, second by second."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=METER_S)

    def advance(self, now: float) -> None:
        """Begin the seconds that have come; from the first answer on, one without any is a 0."""
        if self._seconds:
            newest = self._seconds[-1].number
            missing = range(max(newest, int(now) - METER_S) + 1, int(now) + 1)
            self._seconds.extend(Second(number) for number in missing)

    def note(self, now: float, answers: int, waited_s: float) -> None:
        """So many answers came now, each so long after the row that called for it."""
        self.advance(now)
        if not self._seconds:
            self._seconds.append(Second(int(now)))
        second = self._seconds[-1]
        second.answers += answers
        second.waited_s += answers * waited_s
        second.longest_s = max(second.longest_s, waited_s)

    @property
    def rate(self) -> float:
        """Answers a second, over the last few; the one that still runs is left out."""
        newest = list(self._seconds)[-1 - RATE_OVER_S : -1]
        return sum(second.answers for second in newest) / len(newest) if newest else 0.0

    @property
    def longest_each_s(self) -> list[float]:
        """The longest response time of each second that had answers."""
        return [second.longest_s for second in list(self._seconds) if second.answers]

    @property
    def mean_s(self) -> float:
        seconds = list(self._seconds)
        answers = sum(second.answers for second in seconds)
        return sum(second.waited_s for second in seconds) / answers if answers else 0.0

    @property
    def longest_s(self) -> float:
        return max((second.longest_s for second in list(self._seconds)), default=0.0)


@dataclass
class Counts:
    """The answers since the start. Only the watcher writes."""

    tolls: int = 0  # notifications, also of nothing to pay
    tolled: int = 0  # of them: with something to pay
    accidents: int = 0
    balances: int = 0
    expenditures: int = 0
    balance_highest: int = 0


class Watcher(threading.Thread):
    """A thread that reads the answers as they come and keeps the newest view of the road."""

    def __init__(self, database: Database, arrived_at: Callable[[int], float | None]) -> None:
        super().__init__(name="linear-road-watcher", daemon=True)
        self.meter = Meter()  # of all answers
        self.notified = Meter()  # of tolls and accidents
        self.counts = Counts()
        self.answers = {name: Answer() for name in QUESTIONS}
        self.error: TidemillError | None = None
        self._database = database
        self._arrived_at = arrived_at
        self._unread = Answers(database)
        self._unread.read()  # an earlier run's
        self._ending = threading.Event()

    def stop(self) -> None:
        """Ends the thread after the question in hand."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        try:
            self._watch_until_stopped()
        except TidemillError as error:
            self.error = error

    def _watch_until_stopped(self) -> None:
        asked = 0.0
        while not self._ending.wait(READ_EVERY_S):
            self.read_on()
            if time.monotonic() - asked >= ASK_EVERY_S:
                asked = time.monotonic()
                self.ask_all()

    def read_on(self) -> None:
        """Count the answers that are new, and measure those to rows that arrived live."""
        for meter in (self.meter, self.notified):
            meter.advance(time.monotonic())
        for name, answers in self._unread.read().items():
            now = time.monotonic()
            meters = [self.meter, self.notified] if name == "entries" else [self.meter]
            for second, count in self._count(name, answers).items():
                if (arrived := self._arrived_at(second)) is not None:
                    for meter in meters:
                        meter.note(now, count, now - arrived)

    def ask_all(self) -> None:
        """Ask everything once."""
        for name, text in QUESTIONS.items():
            started = time.perf_counter()
            try:
                rows = self._database.sql(text).fetchall()
                self.answers[name] = Answer(rows, time.perf_counter() - started)
            except TidemillError as error:
                self.answers[name] = Answer(error=error)

    def _count(self, name: str, answers: pa.Table) -> dict[int, int]:
        """Add answers to the counts; says how many there are of each second."""
        counts = self.counts
        if name == "entries":
            tolls = answers.filter(pc.not_equal(answers.column("lane"), EXIT_LANE))
            accidents = tolls.filter(pc.is_valid(tolls.column("accident")))
            counts.tolls += tolls.num_rows
            counts.tolled += pc.sum(pc.greater(tolls.column("toll"), 0)).as_py() or 0
            counts.accidents += accidents.num_rows
            answers = pa.concat_tables([tolls, accidents])  # a notification each
        elif name == "balances":
            counts.balances += answers.num_rows
            highest = pc.max(answers.column("balance")).as_py()
            counts.balance_highest = max(counts.balance_highest, highest)
        else:
            counts.expenditures += answers.num_rows
        found = pc.value_counts(answers.column("time")).to_pylist()
        return {pair["values"]: pair["counts"] for pair in found}
