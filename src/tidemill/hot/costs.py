"""Scan costs: what a row of a table costs a query, by the place where the row is read.

These are c_b (memory) and c_h (files) of document 000 §IV-C, and the same for Spark. Whoever runs
queries notes them (``federation.costs``); the router compares places by them, and the mover asks
whether rows that queries read are better off in memory. Memory and files have start values, about
what a narrow aggregate costs on two cores; Spark has none, since nobody knows the cluster.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tidemill.smoothing import smoothed

MEMORY, FILES = "memory", "files"
# On Spark: partial results of tasks; the whole query in one task; Spark's own SQL.
SPARK, SPARK_TASK, SPARK_SQL = "spark", "spark_task", "spark_sql"
PLACES = (MEMORY, FILES, SPARK, SPARK_TASK, SPARK_SQL)
START_NS = {MEMORY: 5.0, FILES: 30.0}
# Before rows are let go that queries read, files must have proved to be so many times cheaper, by
# so many queries of each place: memory hardly ever is the dearer one.
CHEAPER_TIMES, CHEAPER_RUNS = 2.0, 10


@dataclass(frozen=True)
class Cost:
    """An estimate in its own unit; ``runs`` says how many measurements it stands on."""

    value: float
    runs: int = 0
    measured_at_us: int | None = None

    def after(self, found: float, at_us: int) -> Cost:
        """The estimate after one more measurement."""
        return Cost(smoothed(self.value, found, self.runs), self.runs + 1, at_us)


class ScanCosts:
    """Nanoseconds a row of one table, by place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._costs = {place: Cost(ns) for place, ns in START_NS.items()}

    def get(self, place: str) -> Cost | None:
        """None where nothing was measured yet and nothing can be assumed."""
        return self._costs.get(place)

    def note(self, place: str, row_ns: float, at_us: int) -> None:
        """A query was seen to take so long for a row of that place."""
        with self._lock:
            known = self._costs.get(place)
            if known is not None:
                self._costs[place] = known.after(row_ns, at_us)
            elif row_ns > 0:
                self._costs[place] = Cost(row_ns, 1, at_us)

    def items(self) -> list[tuple[str, Cost]]:
        return [(place, cost) for place in PLACES if (cost := self._costs.get(place)) is not None]

    @property
    def memory_is_cheaper(self) -> bool:
        """c_b < c_h: whether a query gains when its rows are in memory. That is taken for granted
        unless measurements of both clearly say otherwise."""
        memory, files = self._costs[MEMORY], self._costs[FILES]
        is_measured = min(memory.runs, files.runs) >= CHEAPER_RUNS
        return not is_measured or memory.value < CHEAPER_TIMES * files.value
