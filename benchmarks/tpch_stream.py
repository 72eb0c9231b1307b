"""TPC-H with line items as a stream: how fast they come in while an answer is kept fresh.

Document 004, §4.3.2: queries 1, 3, 6, 15 and 20, all tables but lineitem at rest. Each query by
itself: line items are inserted as fast as a system takes them, the answer is refreshed once a
second, and the clock stops when it holds all rows. Tidemill's views stand beside deferred
recomputation in DuckDB and Spark's Structured Streaming; the last answers are compared.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks import lineitem, tpch_data
from benchmarks.harness import Options, Worker, WorkerError, console, progress, scratch
from benchmarks.history_queries import same_rows
from benchmarks.history_questions import HistoryQuestion
from benchmarks.report import OURS, Report
from benchmarks.tpch_questions import QUESTIONS, StreamQuestion
from benchmarks.tpch_systems import AFTER_BATCHES, ONLY_BY_NAME, SYSTEMS, Poured

POURING = "Insert throughput with one refresh a second, scale factor {scale:.3g}"
REFRESH = "A refresh after 10,000 new rows, all others in"
MEANWHILE = "Refreshes while rows are poured"
DUCK = "duckdb"
JUDGE = DUCK
WARM_BATCHES = 20 + AFTER_BATCHES
TURNS_MAX = 3
SLOW_S = 60.0  # a system that takes longer for one query has one turn
BUDGET_S = 900.0  # no further turn begins after so long
AVERAGES = 1e-6  # Spark's averages of decimals have six digits after the point


def run(options: Options) -> Report:
    rows = min(options.rows, lineitem.ROWS_A_SCALE)
    with scratch() as folder, ExitStack() as stack:
        report = Report("tpch_stream", "TPC-H with a stream of line items", options, folder)
        workers = _open(report, options, folder, rows, stack)
        _pour(report, options, workers, rows)
    _set_goals(report, rows)
    report.notes += [
        f"{rows:,} line items in batches of {tpch_data.BATCH_ROWS:,}, in the order of their "
        "orders. One thread inserts, another refreshes at every whole second; the rate counts "
        "the time until an answer holds all rows. Each query is alone in its system.",
        "Queries 15 and 20 group the stream first and join the groups; ORDER BY and LIMIT are "
        "left out, as in document 004. The text is the same for all systems.",
        "duckdb-memory keeps nothing on disk; what it leaves is the cost of recomputation alone.",
        "Line items stay in Tidemill's memory (move = 'manual'). Spark's refreshes meanwhile are "
        "its triggers; one after new rows waits for the next trigger, up to a second.",
    ]
    return report


def _open(
    report: Report, options: Options, folder: Path, rows: int, stack: ExitStack
) -> dict[str, Worker]:
    workers: dict[str, Worker] = {}
    given = options.systems
    names = [n for n in SYSTEMS if options.wants(n) and (n in given or n not in ONLY_BY_NAME)]
    with progress(len(names), "TPC-H stream, opening") as advance:
        for name in names:
            advance(name, 1)
            try:
                worker = stack.enter_context(Worker(SYSTEMS[name], folder / name, rows))
                workers[name] = worker
                report.systems[name] = workers[name].call("settings")
            except WorkerError as error:
                workers.pop(name, None)
                report.missing[name] = str(error)
    return workers


def _pour(report: Report, options: Options, workers: dict[str, Worker], rows: int) -> None:
    found: dict[tuple[str, str], list[Poured]] = {}
    turns = min(options.repeat, TURNS_MAX)
    began = time.perf_counter()
    with progress((turns + 1) * len(QUESTIONS) * len(workers), "TPC-H stream") as advance:
        for turn in range(turns + 1):
            if turn > 1 and time.perf_counter() - began > BUDGET_S:
                report.notes.append(f"After {BUDGET_S:g} s no further turn was begun.")
                break
            for question in QUESTIONS:
                answers: dict[str, Poured] = {}
                for name, worker in workers.items():
                    advance(f"{question.name}, {name}, turn {turn}", 1)
                    many = found.setdefault((question.name, name), [])
                    is_slow = bool(many) and many[-1].seconds > SLOW_S
                    if name in report.missing or is_slow:
                        continue
                    try:
                        # The first turn is a short one, to warm up.
                        limit = None if turn else WARM_BATCHES
                        answers[name] = worker.call("pour", question, limit)
                    except WorkerError as error:
                        console.print(f"[red]{name} failed[/] at {question.name}: {error}")
                        report.missing[name] = f"failed at {question.name}: {error}"
                        continue
                    many += [answers[name]] if turn else []
                _compare(report, question, answers)
    _add(report, found, rows)


def _compare(report: Report, question: StreamQuestion, answers: dict[str, Poured]) -> None:
    judge = JUDGE if JUDGE in answers else next(iter(answers), "")
    asked = HistoryQuestion(question.name, question.sql, absolute=AVERAGES)
    for name, poured in answers.items():
        if name != judge:
            mine, right = poured.answer, answers[judge].answer
            same = same_rows(mine, right, asked)
            detail = "" if same else f"{mine[:2]} is not {judge}'s {right[:2]}"[:300]
            report.check(name, f"same answer as {judge}: {question.name}", same, detail)


def _add(report: Report, found: dict[tuple[str, str], list[Poured]], rows: int) -> None:
    group = POURING.format(scale=tpch_data.scale_of(rows))
    measured = {key: many for key, many in found.items() if many}
    for (what, name), many in measured.items():
        rates = [poured.rows / poured.seconds for poured in many]
        report.add(group, what, name, "rows/s", rates, many[-1].remark)
    for (what, name), many in measured.items():
        taken = [seconds * 1_000 for poured in many for seconds in poured.after]
        report.add(REFRESH, what, name, "ms", taken)
    for (what, name), many in measured.items():
        taken = [seconds * 1_000 for poured in many for seconds in poured.during]
        if taken:
            report.add(MEANWHILE, what, name, "ms", taken, f"{len(taken)} refreshes")


def _set_goals(report: Report, rows: int) -> None:
    group = POURING.format(scale=tpch_data.scale_of(rows))
    for peer in [name for name in SYSTEMS if name != OURS]:
        ratios = {}
        for question in QUESTIONS:
            theirs = report.find(group, question.name, peer)
            if theirs is not None and (ratio := report.ratio(theirs)) is not None:
                ratios[question.name] = ratio
        value = median(ratios.values()) if ratios else None
        if peer == DUCK:
            text = "insert throughput ≥ 5 × deferred recomputation in DuckDB, one refresh a second"
            report.goal_at_least(f"{text} (median of {len(ratios)} queries)", value, 5, "×")
        if value is not None:
            each = ", ".join(f"{name} {ratio:.1f}" for name, ratio in ratios.items())
            report.notes.append(f"Times {peer}'s insert throughput: {each}; median {value:.1f}.")


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["tpch_stream", *sys.argv[1:]])
