"""The worker of the changes benchmark: one system under readings, corrections and queries."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from benchmarks.changes_data import (
    BLOCK,
    INSERT,
    UPDATE,
    Block,
    Model,
    analytics,
    blocks,
    monitoring,
    readings_of,
)
from benchmarks.pouring import quiet
from benchmarks.systems.changing import SYSTEMS, ChangingSystem

WINDOW = 100_000  # readings in the last second
LOAD_ROWS = 500_000
SLOWEST = 3  # times as long as asked for, then no more requests are begun
WAITING_MAX = 20_000  # requests that a system may be behind when a query comes
CHECKED_EVERY = 16  # requests between two looks at the clock


@dataclass(frozen=True)
class Told:
    """What was done in how long; of each query how long its answer took, from when it was due."""

    requests: int
    seconds: float
    queries: int
    delays_s: tuple[float, ...]
    is_right: bool
    detail: str


class ChangeWorker:
    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        module, kind = SYSTEMS[name].split(":")
        make: Callable[[Path], ChangingSystem] = getattr(importlib.import_module(module), kind)
        self.system = make(folder)
        self.model = Model()
        self._monitoring = monitoring()
        self._asked = 0

    def settings(self) -> dict[str, str]:
        return self.system.settings()

    def load(self, rows: int) -> None:
        """Fill the table before the clock starts."""
        first = len(self.model.alive)
        for begin in range(first, first + rows, LOAD_ROWS):
            readings = readings_of(begin, min(LOAD_ROWS, first + rows - begin))
            self.system.insert(readings)
            self.model.add(readings)
        self.system.settle()

    # -- as fast as it can

    def flood(self, share: float, queries_s: float, seconds: float, seed: int) -> Told:
        """Requests one after the other without a pause, and a monitoring query every so often."""
        source = blocks(share, len(self.model.alive), seed)
        requests, delays = 0, []
        with quiet():
            began = now = time.perf_counter()
            due = began + 1 / queries_s
            while now < began + seconds:
                for part in self._parts(next(source), began + seconds):
                    requests += part
                    now = time.perf_counter()
                    if now >= due:
                        self._monitor()
                        now = time.perf_counter()
                        delays.append(now - due)
                        due = max(due + 1 / queries_s, now)
            self.system.totals()  # what was put off is part of the work
            ended = time.perf_counter()
        return self._told(requests, ended - began, delays)

    def _parts(self, block: Block, ends: float) -> Iterator[int]:
        """Carry a block out; gives how many requests are done since the last time. A system that
        takes them one by one may end in the middle."""
        if self.system.takes_blocks:
            self.system.take(block)
            self.model.take(block)
            yield block.requests
            return
        yield from self._trickle(block, ends)

    def _trickle(self, block: Block, ends: float) -> Iterator[int]:
        """Readings in bulk, as far as they go until a change comes; changes as they come."""
        first, told, inserted = block.first, 0, 0
        stored = 0
        changes = 0
        for at, kind in enumerate(block.kinds.tolist()):
            if kind == INSERT:
                inserted += 1
                continue
            if inserted > stored:
                self.system.insert(block.readings.slice(stored, inserted - stored))
                stored = inserted
            number = int(block.targets[at])
            if kind == UPDATE:
                self.system.update(number, float(block.v1[at]), float(block.v2[at]))
            else:
                self.system.delete(number)
            changes += 1
            is_late = changes % CHECKED_EVERY == 0 and time.perf_counter() >= ends
            self.model.take(_cut(block, told, at + 1, first))
            first += inserted - (first - block.first)
            yield at + 1 - told
            told = at + 1
            if is_late:
                return
        if inserted > stored:
            self.system.insert(block.readings.slice(stored, inserted - stored))
        self.model.take(_cut(block, told, block.requests, first))
        yield block.requests - told

    def _monitor(self) -> None:
        text = self._monitoring[self._asked % len(self._monitoring)]
        self._asked += 1
        self.system.ask(text, max(len(self.model.alive) - WINDOW, 0))

    # -- at a rate

    def paced(
        self, share: float, rate: float, period_s: float, seconds: float, seed: int, what: str
    ) -> Told:
        """Requests at a rate, and a query every period: how long after it was due its answer comes,
        with all requests that were due before it."""
        size = max(min(BLOCK, int(rate * period_s / 4)), 1)
        source = blocks(share, len(self.model.alive), seed, size)
        texts = analytics() if what == "analytics" else self._monitoring[:1]
        requests, delays = 0, []
        with quiet():
            began = time.perf_counter()
            due, number = began + period_s, 0
            while due <= began + seconds:
                wanted = min((due - began) * rate, requests + WAITING_MAX)
                while requests + size <= wanted:
                    if time.perf_counter() > began + SLOWEST * seconds:
                        break
                    for part in self._parts(next(source), inf):
                        requests += part
                    _wait_until(min(began + requests / rate, due))
                _wait_until(due)
                self._ask(texts[number % len(texts)], what)
                now = time.perf_counter()
                delays.append(now - due)
                number += 1
                due = max(due + period_s, now)
            ended = time.perf_counter()
        return self._told(requests, ended - began, delays)

    def _ask(self, text: str, what: str) -> None:
        since = None if what == "analytics" else max(len(self.model.alive) - WINDOW, 0)
        self.system.ask(text, since)

    def _told(self, requests: int, seconds: float, delays: Sequence[float]) -> Told:
        given, right = self.system.totals(), self.model.totals()
        detail = "" if given == right else f"{given} instead of {right}"
        return Told(requests, seconds, len(delays), tuple(delays), given == right, detail)

    def close(self) -> None:
        self.system.close()


def _cut(block: Block, begin: int, end: int, first: int) -> Block:
    """Some requests of a block, whose readings begin with a number."""
    kinds = block.kinds[begin:end]
    count = int((kinds == INSERT).sum())
    return Block(
        kinds,
        block.targets[begin:end],
        block.v1[begin:end],
        block.v2[begin:end],
        first,
        block.readings.slice(first - block.first, count),
    )


def _wait_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)
