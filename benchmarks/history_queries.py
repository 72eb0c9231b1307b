"""History queries: Tidemill's routes beside DuckDB, chdb and plain Spark SQL, over the same files.

Position reports and TPC-H's lineitem are loaded into Tidemill by ``COPY``; its peers are given the
Parquet files that came out. Then all are asked in turn: ten aggregates, everything warm, answers
compared; and single keys in one hour of many rows (``--key-rows``; the goal speaks of 100 million).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import sources
from benchmarks.harness import Options, Worker, WorkerError, console, progress, scratch
from benchmarks.history_questions import KEY, QUESTIONS, HistoryQuestion, key_texts
from benchmarks.history_reading import PEERS, Files
from benchmarks.peers import install_peers
from benchmarks.report import OURS, Report

LOADING = "Loading for the read test (COPY of Parquet)"
AGGREGATES = "Aggregates over {rows:,} rows, warm"
KEYS = "One key in one hour of {rows:,} rows"
ROUTES = {OURS: "local", "tidemill-spark": "spark", "tidemill-spark_sql": "spark_sql"}
MAY_REFUSE = ("tidemill-spark_sql",)  # it takes only what is known to mean the same in Spark
DUCK, SPARK = "duckdb", "spark"
JUDGE = DUCK
BUDGET_S = 150.0  # no further turn of all questions begins after so long, but two there are
TURNS_MIN = 2
SLOW_S = 5.0
KEYS_A_TURN = 60
KEY_BUDGET_S = 5.0
KEY_GOAL_ROWS = 100_000_000


def run(options: Options) -> Report:
    rows, key_rows = options.rows, options.key_rows or options.rows
    with scratch() as folder, ExitStack() as stack:
        report = Report("history_queries", "Queries over history", options, folder)
        given = _make_sources(rows, key_rows)
        workers = _open(report, options, folder, given, stack)
        _ask_aggregates(report, options, workers)
        _ask_keys(report, options, workers, key_rows)
        if OURS in workers and OURS not in report.missing:
            _explain(report, workers[OURS])
    _set_goals(report, rows, key_rows)
    report.notes += [
        "DuckDB, chdb and Spark SQL read the Parquet files that Tidemill's history consists of; "
        "Spark is given the list of files once, before the clock starts.",
        "Answers are fetched whole, as Arrow. The first turn of all questions warms up.",
        "tidemill is the local route; tidemill-spark and tidemill-spark_sql are forced by SET "
        "route. All of them run in one process, so that they share the files' page cache.",
    ]
    return report


def _make_sources(rows: int, key_rows: int) -> dict[str, Path]:
    with progress(None, "history queries, making files") as advance:
        advance("reports", 1)
        given = {"reports": sources.reports_parquet(rows)}
        advance("lineitem", 1)
        given["lineitem"] = sources.lineitem_parquet(rows)
        advance("reports for the key", 1)
        given["keyed"] = sources.reports_parquet(key_rows)
    return given


def _open(
    report: Report, options: Options, folder: Path, given: dict[str, Path], stack: ExitStack
) -> dict[str, Worker]:
    """One worker a system; the routes of Tidemill share theirs."""
    workers: dict[str, Worker] = {}
    files: Files = {table: sources.paths(place) for table, place in given.items()}
    routes = [name for name in ROUTES if options.wants(name)]
    if routes:
        try:
            worker, files = _load_tide(report, folder / OURS, given, stack)
            workers |= dict.fromkeys(routes, worker)
        except WorkerError as error:
            report.missing |= dict.fromkeys(routes, str(error))
            report.missing[OURS] = str(error)
            report.notes.append("Tidemill failed, so the peers read the files as generated.")
    names = [name for name in PEERS if options.wants(name)]
    if "chdb" in names and (reason := install_peers()):
        report.missing["chdb"] = reason
    for name in names:
        if name in report.missing:
            continue
        try:
            target = f"benchmarks.history_reading:{PEERS[name]}"
            workers[name] = stack.enter_context(Worker(target, folder / name, files))
            report.systems[name] = workers[name].call("settings")
        except WorkerError as error:
            workers.pop(name, None)
            report.missing[name] = str(error)
    return workers


def _load_tide(
    report: Report, folder: Path, given: dict[str, Path], stack: ExitStack
) -> tuple[Worker, Files]:
    worker = stack.enter_context(Worker("benchmarks.history_reading:AskTide", folder))
    report.systems[OURS] = worker.call("settings")
    files: dict[str, list[str]] = {}
    with progress(len(given), "history queries, loading") as advance:
        for table, place in given.items():
            advance(table, 1)
            seconds, files[table] = worker.call("load", table, f"{place}/*.parquet")
            count = len(files[table])
            report.add(LOADING, table, OURS, "s", [seconds], f"{count} files", is_compared=False)
    return worker, files


def _ask(
    report: Report, worker: Worker, name: str, what: str, texts: list[str]
) -> tuple[list[float], list[Any]]:
    """Seconds and first answers; none of either if the system failed or refused."""
    try:
        if name in ROUTES:
            told = worker.call("ask_by", ROUTES[name], texts, KEY_BUDGET_S)
        else:
            told = worker.call("ask", texts, KEY_BUDGET_S)
    except WorkerError as error:
        _give_up(report, name, what, error)
        return [], []
    if isinstance(told, str):
        if name in MAY_REFUSE:
            report.notes.append(f"{name} does not take '{what}': {told}")
        else:
            report.check(name, f"an answer: {what}", False, told)
        return [], []
    seconds, answers = told
    return seconds, answers


def _ask_aggregates(report: Report, options: Options, workers: dict[str, Worker]) -> None:
    group = AGGREGATES.format(rows=options.rows)
    taken: dict[tuple[str, str], list[float]] = {}
    refused: set[tuple[str, str]] = set()
    began = time.perf_counter()
    turns = options.repeat + 1
    with progress(turns * len(QUESTIONS), "history queries") as advance:
        for turn in range(turns):
            if turn > TURNS_MIN and time.perf_counter() - began > BUDGET_S:
                report.notes.append(f"After {BUDGET_S:g} s no further turn was begun.")
                break
            for question in QUESTIONS:
                advance(f"{question.name}, turn {turn}", 1)
                answers = {}
                for name, worker in workers.items():
                    seconds = taken.setdefault((question.name, name), [])
                    is_slow = bool(seconds) and max(seconds) > SLOW_S and turn > TURNS_MIN
                    is_over = is_slow or (question.name, name) in refused
                    if name in report.missing or is_over:
                        continue
                    text = question.own.get(name, question.sql)
                    spent, found = _ask(report, worker, name, question.name, [text])
                    if not found:
                        refused.add((question.name, name))
                        continue
                    answers[name] = found[0]
                    seconds += spent if turn else []
                _compare(report, question, answers)
    for (what, name), seconds in taken.items():
        if seconds:
            report.add(group, what, name, "ms", [s * 1_000 for s in seconds])


def _give_up(report: Report, name: str, where: str, error: WorkerError) -> None:
    """A worker ends with its first error; the routes of Tidemill end together."""
    console.print(f"[red]{name} failed[/] at {where}: {error}")
    for lost in ROUTES if name in ROUTES else (name,):
        report.missing[lost] = f"{name} failed at '{where}': {error}"


def _ask_keys(report: Report, options: Options, workers: dict[str, Worker], rows: int) -> None:
    group = KEYS.format(rows=rows)
    taken: dict[str, list[float]] = {}
    asked = [name for name in (OURS, DUCK, "chdb", SPARK) if name in workers]
    with progress((options.repeat + 1) * len(asked), "history queries, keys") as advance:
        for turn in range(options.repeat + 1):
            texts = key_texts(rows, turn, options.smaller(KEYS_A_TURN, 20))
            answers: dict[str, list[Any]] = {}
            for name in asked:
                advance(f"{name}, turn {turn}", 1)
                if name in report.missing:
                    continue
                spent, found = _ask(report, workers[name], name, KEY.name, texts)
                if found:
                    answers[name] = found
                taken.setdefault(name, []).extend(spent if turn else [])
            for at in range(min(map(len, answers.values()), default=0)):
                _compare(report, KEY, {name: found[at] for name, found in answers.items()})
    for name, seconds in taken.items():
        if seconds:
            report.add(group, KEY.name, name, "ms", [s * 1_000 for s in seconds])


def _compare(report: Report, question: HistoryQuestion, answers: dict[str, list[Any]]) -> None:
    judge = JUDGE if JUDGE in answers else next(iter(answers), "")
    for name, rows in answers.items():
        if name != judge:
            same = same_rows(rows, answers[judge], question)
            detail = "" if same else f"{rows[:2]} is not {judge}'s {answers[judge][:2]}"[:300]
            report.check(name, f"same answer as {judge}: {question.name}", same, detail)


def same_rows(
    rows: Sequence[Sequence[Any]], others: Sequence[Sequence[Any]], question: HistoryQuestion
) -> bool:
    """Whether two sorted answers are equal, numbers with a fraction within what is tolerated.

    >>> same_rows([(1, 0.1)], [(1, 0.1 + 1e-12)], KEY), same_rows([(1,)], [(2,)], KEY)
    (True, False)
    """
    return len(rows) == len(others) and all(
        len(row) == len(other)
        and all(_same(a, b, question) for a, b in zip(row, other, strict=True))
        for row, other in zip(rows, others, strict=True)
    )


def _same(value: Any, other: Any, question: HistoryQuestion) -> bool:
    if (isinstance(value, float) or isinstance(other, float)) and None not in (value, other):
        allowed = {"rel_tol": question.tolerance, "abs_tol": question.absolute}
        return math.isclose(value, other, **allowed)
    return bool(value == other)


def _explain(report: Report, worker: Worker) -> None:
    for name, route in ROUTES.items():
        lines = worker.call("explain", route, QUESTIONS[1].sql)
        report.notes.append(f"EXPLAIN, {name}, {QUESTIONS[1].name}: " + " / ".join(lines))


def _ratios(report: Report, group: str, system: str, other: str) -> dict[str, float]:
    """By question: how many times as long ``other`` takes as ``system``."""
    found = {}
    for question in QUESTIONS:
        mine, theirs = (report.find(group, question.name, name) for name in (system, other))
        if mine and theirs:
            found[question.name] = theirs.summary.median / mine.summary.median
    return found


def _set_goals(report: Report, rows: int, key_rows: int) -> None:
    group = AGGREGATES.format(rows=rows)
    for name in ("tidemill-spark", "tidemill-spark_sql"):
        times = _ratios(report, group, name, SPARK)
        value = median(times.values()) if times else None
        text = f"aggregates, {name}: ≥ 2 × plain Spark SQL, warm (median of {len(times)} questions)"
        if name == "tidemill-spark":
            report.goal_at_least(text, value, 2, "×")
        elif value is not None:
            report.notes.append(f"{text.replace('≥ 2', f'{value:.2f}')}; no goal.")
    slower = {what: 1 / ratio for what, ratio in _ratios(report, group, OURS, DUCK).items()}
    text = f"local route within 1.3 × DuckDB over the same files (median of {len(slower)})"
    report.goal_at_most(text, median(slower.values()) if slower else None, 1.3, "×")
    if slower:
        worst = max(slower, key=slower.__getitem__)
        report.goal_at_most(f"the same, its worst question ({worst})", slower[worst], 1.3, "×")
    key = report.find(KEYS.format(rows=key_rows), KEY.name, OURS)
    p50 = key.summary.median if key and key_rows >= KEY_GOAL_ROWS else None
    text = f"a key in one hour out of {KEY_GOAL_ROWS:,} rows, p50 ≤ 30 ms on the local route"
    report.goal_at_most(text, p50, 30, "ms")
    if key and p50 is None:
        report.goal_at_most(f"the same out of {key_rows:,} rows", key.summary.median, 30, "ms")


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["history_queries", *sys.argv[1:]])
