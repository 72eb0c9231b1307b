"""The worker of the hot-query benchmark: one system, loaded once, asked many times."""

from __future__ import annotations

import ctypes
import gc
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.data import BATCH_ROWS, batches, car_table
from benchmarks.machine import rss_bytes
from benchmarks.pouring import open_system, quiet
from benchmarks.questions import LOOKUP, QUESTIONS, Question, Values
from benchmarks.systems.base import Row, System

ANSWERS_KEPT = 5
LOOKUP_BUDGET_S = 8.0
_TIMES = ("low", "high")


class Reader:
    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.system: System = open_system(name, folder, is_read=True)

    def settings(self) -> dict[str, str]:
        return self.system.settings()

    def load(self, rows: int) -> dict[str, float]:
        """Fill the system; answers seconds, and how much this process grew by it."""
        list(batches(BATCH_ROWS))  # what the generator itself loads is not the system's memory
        before = _settled_rss()
        began = time.perf_counter()
        self.system.load(batches(rows), car_table())
        seconds = time.perf_counter() - began
        after = _settled_rss()
        return {"seconds": seconds, "rss": after[0] - before[0], "anonymous": after[1] - before[1]}

    def ask(self, at: int, given: list[Values]) -> tuple[list[float], list[list[Row]]]:
        """Ask a question with each of the values; seconds of each, and the first answers."""
        question = QUESTIONS[at]
        sql = question.own.get(self.name, question.sql)
        calls = [self._spelled(question, sql, values) for values in given]
        taken: list[float] = []
        answers: list[Any] = []
        with quiet():
            deadline = time.perf_counter() + LOOKUP_BUDGET_S
            for text, values in calls:
                began = time.perf_counter()
                answer = self.system.ask(text, values)
                now = time.perf_counter()
                taken.append(now - began)
                if len(answers) < ANSWERS_KEPT:
                    answers.append(answer)
                if question.kind == LOOKUP and now > deadline:
                    break
        return taken, [sorted(self.system.rows(answer)) for answer in answers]

    def _spelled(self, question: Question, sql: str, values: Values) -> tuple[str, dict[str, Any]]:
        used = {name: value for name, value in values.items() if f":{name}" in sql}
        if not question.is_literal:
            times = {name: self.system.time(v) for name, v in used.items() if name in _TIMES}
            return sql, {**used, **times}
        for name, value in used.items():
            is_time = name in _TIMES
            text = self.system.time_literal(value) if is_time else str(value)
            sql = sql.replace(f":{name}", text)
        return sql, {}

    def held(self) -> dict[str, int]:
        """What Tidemill says of its own memory."""
        told: dict[str, int] = self.system.held()  # type: ignore[attr-defined]
        return told

    def explain(self, at: int, values: Values) -> list[str]:
        """Tidemill's own account of how it answers a question."""
        text, given = self._spelled(QUESTIONS[at], QUESTIONS[at].sql, values)
        rows = self.system.rows(self.system.ask(f"EXPLAIN {text}", given))
        return [str(row[0]) for row in rows]

    def close(self) -> None:
        self.system.close()


def _settled_rss() -> tuple[int, int]:
    """Resident memory once everything that can be given back has been."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    return rss_bytes()
