"""The worker of the AIM benchmark: one system with its six views, filled, read, and both at once.

Whatever was inserted is always ``past`` and the first so many calls of the run, so that the number
alone says what the right answers are.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.aim_data import PIECE_ROWS, Calls
from benchmarks.aim_questions import QUESTIONS, Answers, ordered
from benchmarks.pouring import quiet
from benchmarks.systems.views import SYSTEMS, ViewSystem

LOAD_ROWS = PIECE_ROWS  # a batch, where filling is not what is measured
TURNS_MIN = 3  # however slow a system is


@dataclass(frozen=True)
class Filled:
    """Rows that were inserted: the seconds of all of it, and of the end alone, when nothing more
    came and the views were waited for."""

    rows: int
    seconds: float
    absorb_s: float


@dataclass(frozen=True)
class Together:
    """Inserts and reads at once."""

    rows: int
    insert_s: float
    reads: int
    read_s: float
    latencies_s: tuple[float, ...]


class AimWorker:
    def __init__(self, name: str, folder: Path, calls: Calls) -> None:
        folder.mkdir(parents=True)
        module, kind = SYSTEMS[name].split(":")
        make: Callable[[Path, Calls], ViewSystem]
        make = getattr(importlib.import_module(module), kind)
        self.system = make(folder, calls)
        self.calls = calls
        self.inserted = 0
        try:
            for batch in calls.past().to_batches():
                self.system.insert(self.system.prepare(batch))
            self.system.absorb()
        except BaseException:
            self.system.close()
            raise

    def settings(self) -> dict[str, str]:
        return self.system.settings()

    def is_concurrent(self) -> bool:
        return self.system.is_concurrent

    def explain(self, question: str) -> list[str]:
        """Tidemill's own account of a view."""
        told: list[str] = self.system.explain(question)  # type: ignore[attr-defined]
        return told

    def answers(self) -> tuple[int, Answers]:
        """How many calls were inserted, and what the views say."""
        found: Answers = {}
        for question in QUESTIONS:
            self.system.refresh(question)
            found[question] = ordered(self.system.read(question))
        return self.inserted, found

    # -- what is measured

    def fill(self, rows: int, size: int) -> Filled:
        """Insert batch after batch until every view has absorbed the last."""
        last = self.inserted + rows
        batches = self.calls.batches(self.inserted, last, size)
        prepared = [self.system.prepare(batch) for batch in batches]
        insert = self.system.insert
        with quiet():
            began = time.perf_counter()
            for batch in prepared:
                insert(batch)
            inserted = time.perf_counter()
            self.system.absorb()
            ended = time.perf_counter()
        self.inserted = last
        return Filled(rows, ended - began, ended - inserted)

    def reads(self, question: str, budget_s: float) -> float:
        """Reads a second of a view while nothing changes."""
        read, count = self.system.read, 0
        self.system.refresh(question)
        read(question)
        with quiet():
            began = time.perf_counter()
            deadline = began + budget_s
            while (now := time.perf_counter()) < deadline or not count:
                read(question)
                count += 1
        return count / (now - began)

    def after_rows(
        self, turns: int, size: int, budget_s: float
    ) -> tuple[dict[str, list[float]], list[float]]:
        """Seconds of the first read of each question after ``size`` new rows; and of insert and
        read together, whatever the question. Every turn begins with another question."""
        questions = list(QUESTIONS)
        taken: dict[str, list[float]] = {question: [] for question in questions}
        whole: list[float] = []
        deadline = time.perf_counter() + budget_s
        for turn in range(turns):
            if turn >= TURNS_MIN and time.perf_counter() > deadline:
                break
            batches = self.calls.batches(self.inserted, self.inserted + size, size)
            prepared = [self.system.prepare(batch) for batch in batches]
            began = time.perf_counter()
            for batch in prepared:
                self.system.insert(batch)
            insert_s = time.perf_counter() - began
            self.inserted += size
            first = turn % len(questions)
            for question in questions[first:] + questions[:first]:
                began = time.perf_counter()
                self.system.refresh(question)
                self.system.read(question)
                taken[question].append(time.perf_counter() - began)
                whole.append(insert_s + taken[question][-1])
        return taken, whole

    def together(self, rate: int, size: int, seconds: float) -> Together:
        """Insert at a rate (or as fast as possible, where that is slower), read as fast as
        possible, each question in turn."""
        wanted = round(rate * seconds)
        batches = self.calls.batches(self.inserted, self.inserted + wanted, size)
        writer = _Writer(self.system, [self.system.prepare(b) for b in batches], rate, size)
        questions, taken, reads = list(QUESTIONS), [], 0
        with quiet():
            began = time.perf_counter()
            writer.start(began, began + seconds)
            while time.perf_counter() < began + seconds:
                asked = time.perf_counter()
                question = questions[reads % len(questions)]
                self.system.refresh(question)
                self.system.read(question)
                reads += 1
                taken.append(time.perf_counter() - asked)
            read_s = time.perf_counter() - began
            rows, insert_s = writer.end()
        self.inserted += rows
        return Together(rows, insert_s, reads, read_s, tuple(taken))

    def close(self) -> None:
        self.system.close()


class _Writer:
    """A thread that inserts each batch when it is due."""

    def __init__(
        self, system: ViewSystem, prepared: Sequence[object], rate: int, size: int
    ) -> None:
        self._system = system
        self._prepared = prepared
        self._step_s = size / rate
        self._size = size
        self._rows = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._span = (0.0, 0.0)
        self._ended = 0.0

    def start(self, began: float, deadline: float) -> None:
        self._span = (began, deadline)
        self._thread.start()

    def _run(self) -> None:
        began, deadline = self._span
        try:
            for at, batch in enumerate(self._prepared):
                wait_s = began + at * self._step_s - time.perf_counter()
                if wait_s > 0:
                    time.sleep(wait_s)
                if time.perf_counter() >= deadline:
                    return
                self._system.insert(batch)
                self._rows += self._size
        except BaseException as error:
            self._failure = error
        finally:
            self._ended = time.perf_counter()

    def end(self) -> tuple[int, float]:
        """How many rows were inserted, and how long it took; at least the time that was given."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        began, deadline = self._span
        return self._rows, max(self._ended, deadline) - began
