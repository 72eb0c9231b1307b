"""The measured process: a warehouse with the application, fed by the clock and read as it answers.

It holds one warehouse and runs four kinds of threads beside the engine's own:

1. the *feeder* hands each second of the input to the application at its moment, never earlier: a
   second after the one before at real rate, a fraction of that when accelerated. At the rate
   ``max`` there are no moments: several seconds are handed over at once, and the next ones as soon
   as all of those are answered;
2. the *reader* asks for new answers every 50 ms and stamps them with the moment when it has them;
3. *askers* put one-time queries (``onetime``);
4. the *sampler* notes processor and memory (``sampling``).

The response time of an answer is from the arrival of its second to its stamp. A second arrives at
its moment, even if the feeder comes late because the warehouse made it wait: waiting counts.

``Driver`` is the object of a harness ``Worker``: made, started, asked for its progress, asked for
what it measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidemill
from benchmarks.linear_road.deliveries import Deliveries, write_answers
from benchmarks.linear_road.onetime import Asked, Askers, Past
from benchmarks.linear_road.sampling import Sample, Sampler
from benchmarks.linear_road.staging import Stage
from examples.linear_road import application
from tidemill.engine import Database

READ_EVERY_S = 0.05
MAX_RATE_SECONDS = 10  # of the input, handed over at once at the rate max
PATIENCE_S = 1.0  # at the rate max: what needs later rows to be answered gets them
SETTLE_S_MAX = 60.0  # without any answer, while some are due
GIVE_UP_S = 15.0  # a response time that a search does not wait beyond
_LAG = "SELECT view_name, lag_rows, last_error FROM tidemill.views"


@dataclass(frozen=True)
class Course:
    """How to run. ``rate`` is simulated seconds a second, or None for as fast as it goes."""

    stage: Stage
    folder: Path
    rate: float | None = 1.0
    otq_per_minute: tuple[float, ...] = ()
    seed: int = 1
    spark_master: str = "local[*]"
    gives_up: bool = False
    has_indices: bool = True

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    @property
    def answers(self) -> Path:
        return self.folder / "answers"


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    second: int
    answers: int
    slowest_s: float  # of the newest answers
    is_done: bool


@dataclass
class Measured:
    """What a run found; the answers lie in the folder. Times are seconds from the start."""

    seconds: float = 0.0
    fed_seconds: int = 0  # of the input
    late_feeds: int = 0  # seconds handed over more than 50 ms after their moment
    asked: list[Asked] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    moves: int = 0
    moved_rows: int = 0
    errors: list[str] = field(default_factory=list)
    gave_up: bool = False


class Loader:
    """Loads the history of a stage into a new warehouse, before the clock starts."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._db = _open(course)

    def load(self) -> int:
        """The rows that are there afterwards."""
        stage = self._course.stage
        _create_tables(self._db, self._course)
        assert stage.history is not None
        self._db.sql(f"COPY reports FROM '{stage.history}/older-*.parquet'")
        self._db.sql("FLUSH reports")  # few files are only appended where Spark is starting
        for path in sorted(stage.history.glob("newest-*.parquet")):
            self._db.append("reports", pq.read_table(path))
        return int(self._db.sql("SELECT count(*) FROM reports").fetchall()[0][0])

    def close(self) -> None:
        self._db.close()


class Driver:
    """One run."""

    def __init__(self, course: Course) -> None:
        self._course, self._stage = course, course.stage
        self._db = _open(course)
        if self._stage.history is None:
            _create_tables(self._db, course)
        application.create_queries(self._db)
        for (name,) in self._db.sql("SELECT view_name FROM tidemill.views").fetchall():
            self._db.sql(f"REFRESH MATERIALIZED VIEW {name}")  # they find the last of each car
        stage = self._stage
        self._arrivals = np.full(stage.last - stage.first + 1, np.inf)
        self._delivered = Deliveries(stage.first, self._arrivals)
        self._reader = application.Answers(self._db)
        self._told = Measured()
        self._fed_upto = stage.first
        self._stop = threading.Event()
        self._origin = 0.0
        self._sampler = Sampler()
        self._askers = self._make_askers()
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), name=work.__name__)
            for work in (self._feed, self._read)
        ]

    # -- from outside

    def start(self) -> None:
        self._origin = time.perf_counter()
        self._sampler.start(self._origin)
        for thread in self._threads:
            thread.start()
        if self._askers is not None:
            self._askers.start(self._origin)

    def progress(self) -> Progress:
        is_done = not any(thread.is_alive() for thread in self._threads)
        slowest_s = self._delivered.slowest_s
        return Progress(self._fed_upto, self._delivered.rows, slowest_s, is_done)

    def result(self) -> Measured:
        """Wait for the end; the answers lie in the folder afterwards."""
        told = self._told
        for thread in self._threads:
            thread.join()
        told.seconds = time.perf_counter() - self._origin
        if self._askers is not None:
            told.asked = self._askers.finish()
        told.samples = self._sampler.finish()
        told.fed_seconds = self._fed_upto - self._stage.first
        self._look_at_jobs()
        write_answers(self._course.answers, self._delivered.answers())
        return told

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._db.close()

    # -- the threads

    def _feed(self) -> None:
        """Hand everything over, then wait for the last answers."""
        feed = self._feed_at_once if self._course.rate is None else self._feed_by_the_clock
        try:
            feed()
            if (waiting := self._settle(SETTLE_S_MAX)) and not self._told.gave_up:
                self._told.errors.append(f"not all was answered: {'; '.join(waiting)}")
        finally:
            self._stop.set()

    def _feed_by_the_clock(self) -> None:
        rate = self._course.rate
        assert rate is not None
        for batch in self._stage.seconds():
            if not batch.num_rows:
                continue
            second = batch.column("time")[0].as_py()
            due = self._origin + (second - self._stage.first) / rate
            if self._stop.wait(max(0.0, due - time.perf_counter())):
                return
            self._told.late_feeds += time.perf_counter() - due > READ_EVERY_S
            self._arrivals[second - self._stage.first] = due
            application.feed(self._db, batch)
            self._fed_upto = second + 1

    def _feed_at_once(self) -> None:
        seconds = self._stage.seconds()
        while batch := _several(seconds):
            low, high = batch.column("time")[0].as_py(), batch.column("time")[-1].as_py()
            first = self._stage.first
            self._arrivals[low - first : high - first + 1] = time.perf_counter()
            application.feed(self._db, batch)
            self._fed_upto = high + 1
            self._settle(PATIENCE_S)
            if self._stop.is_set():
                return

    def _settle(self, patience_s: float) -> list[str]:
        """Wait until every row was answered, or nothing was for a while; what is left."""
        waiting, before, moment = self._waiting(), list[str](), time.perf_counter()
        while waiting and not self._stop.wait(READ_EVERY_S / 10):
            if waiting != before:
                before, moment = waiting, time.perf_counter()
            elif time.perf_counter() - moment > patience_s:
                break
            waiting = self._waiting()
        return waiting

    def _waiting(self) -> list[str]:
        """Kept queries that have not answered all rows, in the order in which they read each
        other: if none is found, there is nothing on the way between two of them either."""
        return [
            f"{name} has {lag:,} rows to answer" + (f" ({error})" if error else "")
            for name, lag, error in self._db.sql(_LAG).fetchall()
            if lag
        ]

    def _read(self) -> None:
        """Stamp the answers as they come, and once more when all have come."""
        while True:
            is_last = self._stop.wait(READ_EVERY_S)
            found = self._reader.read()
            self._delivered.take(found, time.perf_counter())
            if is_last:
                return
            if self._course.gives_up and self._delivered.slowest_s > GIVE_UP_S:
                self._told.gave_up = True
                self._stop.set()

    def _guard(self, work: object) -> None:
        assert callable(work)
        try:
            work()
        except Exception as error:
            self._told.errors.append(f"{type(error).__name__}: {error}")
            self._stop.set()

    # -- before and after

    def _make_askers(self) -> Askers | None:
        course, stage = self._course, self._stage
        if not course.otq_per_minute or course.rate is None:
            return None
        seconds = (stage.last - stage.first + 1) / course.rate
        return Askers(
            self._db,
            Past(*stage.known()),
            course.otq_per_minute,
            seconds,
            course.seed,
            self._known_minute,
        )

    def _known_minute(self) -> int:
        """All minutes before this one are in the warehouse."""
        return self._fed_upto // 60

    def _look_at_jobs(self) -> None:
        told = self._told
        asked = "SELECT state, rows, error FROM tidemill.jobs WHERE kind = 'move'"
        for state, rows, error in self._db.sql(asked).fetchall():
            if state == "committed":
                told.moves += 1
                told.moved_rows += rows
            elif state == "failed":
                told.errors.append(f"a move failed: {error}")


def _open(course: Course) -> Database:
    return tidemill.open(course.warehouse, spark_master=course.spark_master, lifetime="long")


def _create_tables(db: Database, course: Course) -> None:
    tolls = course.stage.daily_tolls()
    application.create_tables(db, tolls, has_indices=course.has_indices)


def _several(seconds: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The next seconds in one batch; None at the end."""
    taken = list(islice(seconds, MAX_RATE_SECONDS))
    if not taken:
        return None
    whole = pa.concat_batches(taken)
    return whole if whole.num_rows else _several(seconds)
