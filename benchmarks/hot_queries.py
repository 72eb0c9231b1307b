"""Hot queries: how fast Tidemill and its peers answer over rows in memory.

Every system is loaded once with the same rows and held in a process of its own; then they are
asked in turn, question by question, and their answers are compared. Memory is what Tidemill says
it holds, checked against what its process grew by.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.harness import Options, Worker, WorkerError, progress, scratch
from benchmarks.peers import install_peers
from benchmarks.questions import LOOKUP, QUESTIONS, Question
from benchmarks.report import OURS, Report

SYSTEMS = (OURS, "duckdb-memory", "duckdb-arrow", "chdb", "postgres", "sqlite")
DUCK = "duckdb-memory"
LOOKUPS = "Lookups"
SCANS = "Scans and aggregates"
MEMORY = "Memory"
LOADING = "Loading for the read test (not durable, not compared)"
SLOW_S = 2.0  # who takes longer for one scan is asked that only SLOW_TURNS_MAX times
SLOW_TURNS_MAX = 2


def run(options: Options) -> Report:
    with scratch() as folder, ExitStack() as stack:
        report = Report("hot_queries", "Hot queries", options, folder)
        workers = _load(report, options, folder, stack)
        first_us, last_us = data.time_span_us(options.rows)
        turns = progress(len(QUESTIONS) * (options.repeat + 1), "hot queries")
        advance = stack.enter_context(turns)
        for at, question in enumerate(QUESTIONS):
            asked = {n: w for n, w in workers.items() if not question.only or n in question.only}
            taken: dict[str, list[float]] = {name: [] for name in asked}
            for turn in range(options.repeat + 1):
                advance(question.name, 1)
                count = options.smaller(200, 30) if question.kind == LOOKUP else 1
                values = question.values(turn, count, first_us, last_us)
                answers = {}
                for name, worker in asked.items():
                    is_slow = max(taken[name], default=0) > SLOW_S
                    if name in report.missing or (is_slow and turn > SLOW_TURNS_MAX):
                        continue
                    try:
                        seconds, answers[name] = worker.call("ask", at, values)
                    except WorkerError as error:
                        report.missing[name] = f"failed at '{question.name}': {error}"
                        continue
                    taken[name] += seconds if turn else []  # the first turn warms up
                _compare(report, question, answers)
            group = LOOKUPS if question.kind == LOOKUP else SCANS
            for name, seconds in taken.items():
                if seconds:
                    report.add(group, question.name, name, "ms", [s * 1_000 for s in seconds])
        if OURS in workers:
            example = QUESTIONS[0].values(1, 1, first_us, last_us)[0]
            lines = workers[OURS].call("explain", 0, example)
            report.notes.append("EXPLAIN of one key over 5 minutes: " + " / ".join(lines))
    _set_goals(report)
    report.notes += [
        "Answers are fetched whole, in each system's usual form: Arrow (Tidemill, DuckDB, chdb) or "
        "Python rows (PostgreSQL, SQLite). All systems use all cores where they can.",
        f"Who takes longer than {SLOW_S:g} s for a scan is asked it {SLOW_TURNS_MAX} times only.",
        "Every number includes the way through each system's Python interface.",
    ]
    return report


def _load(report: Report, options: Options, folder: Path, stack: ExitStack) -> dict[str, Worker]:
    workers: dict[str, Worker] = {}
    names = [name for name in SYSTEMS if options.wants(name)]
    if "chdb" in names and (reason := install_peers()):
        report.missing["chdb"] = reason
    with progress(len(names), "hot queries, loading") as advance:
        for name in names:
            advance(name, 1)
            if name in report.missing:
                continue
            try:
                worker = stack.enter_context(
                    Worker("benchmarks.reading:Reader", name, folder / name)
                )
                loaded = worker.call("load", options.rows)
                report.systems[name] = worker.call("settings")
            except WorkerError as error:
                report.missing[name] = str(error)
                continue
            workers[name] = worker
            report.add(LOADING, "load", name, "s", [loaded["seconds"]], is_compared=False)
            _add_memory(report, options, name, worker, loaded)
    report.measurements.sort(key=lambda m: m.group == MEMORY)
    return workers


def _add_memory(
    report: Report, options: Options, name: str, worker: Worker, loaded: dict[str, float]
) -> None:
    arrow_bytes = options.rows * data.ARROW_ROW_BYTES
    if name == OURS:
        held = worker.call("held")
        note = f"{held['memory']:,} bytes held, {held['index']:,} of them the index"
        ratio = held["memory"] / arrow_bytes
        report.add(MEMORY, "held ÷ Arrow size of the rows", OURS, "×", [ratio], note)
        report.goal_at_most("memory with one index ≤ 1.6 × the Arrow size", ratio, 1.6, "×")
    if name in (OURS, DUCK, "duckdb-arrow"):
        ratio = loaded["anonymous"] / arrow_bytes
        note = f"anonymous memory grew by {loaded['anonymous'] / 2**20:,.0f} MiB"
        report.add(MEMORY, "growth of the process ÷ Arrow size", name, "×", [ratio], note)


def _compare(report: Report, question: Question, answers: dict[str, list[Any]]) -> None:
    """All systems must say the same; the one to agree with is DuckDB's own table."""
    judge = DUCK if DUCK in answers else next(iter(answers), None)
    if judge is None:
        return
    for name, given in answers.items():
        if name == judge:
            continue
        count = min(len(given), len(answers[judge]))
        same = all(_same_rows(given[at], answers[judge][at]) for at in range(count))
        detail = "" if same else f"{given[:1]} is not {judge}'s {answers[judge][:1]}"[:300]
        report.check(name, f"same answer as {judge}: {question.name}", same, detail)


def _same_rows(rows: Sequence[Sequence[Any]], others: Sequence[Sequence[Any]]) -> bool:
    return len(rows) == len(others) and all(
        len(row) == len(other) and all(_same(a, b) for a, b in zip(row, other, strict=True))
        for row, other in zip(rows, others, strict=True)
    )


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, float) or isinstance(other, float):
        return math.isclose(value, other, rel_tol=1e-9)
    return bool(value == other)


def _set_goals(report: Report) -> None:
    key = report.find(LOOKUPS, QUESTIONS[0].name, OURS)
    p50 = None if key is None else key.summary.median
    report.goal_at_most("one key over 5 minutes, p50 ≤ 2 ms", p50, 2, "ms")
    for question in QUESTIONS:
        if question.is_everything:
            ours = report.find(SCANS, question.name, OURS)
            duck = report.find(SCANS, question.name, DUCK)
            times = ours.summary.median / duck.summary.median if ours and duck else None
            text = f"{question.name}: within 1.3 × DuckDB in memory"
            report.goal_at_most(text, times, 1.3, "×")


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["hot_queries", *sys.argv[1:]])
