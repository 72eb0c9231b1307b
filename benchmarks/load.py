"""Load: packages of CSV into time partitions, Tidemill's Spark job beside what one writes by hand.

1. Gzipped CSV files of 100,000 position reports, all loaded at once, by each system in turn; count
   and sums of what was stored are compared with those that numpy computed.
2. The same with a thousand small packages of 1,000 rows: the cost of a file.
3. A warehouse opened anew: how soon the first Spark job is done, and whether SQL over files and
   memory waits for the JVM meanwhile.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks import sources, traffic
from benchmarks.harness import Options, Worker, WorkerError, progress, scratch
from benchmarks.loading import HOT_ROWS, WORKERS, Loaded
from benchmarks.report import OURS, Report

LARGE = "Packages of 100,000 rows, gzipped CSV, into one-hour partitions"
SMALL = "Packages of 1,000 rows, the same"
START = "A warehouse opened anew"
RATE = "end to end"
SIZE = "bytes written ÷ rows"
PLAIN = "pyspark"
PACKAGE_ROWS = 100_000
SMALL_ROWS = 1_000
SMALL_PACKAGES = 1_000
TURNS_MAX = 3
CLUSTERED_TURNS_MAX = 2
STARTS = 3


def run(options: Options) -> Report:
    with scratch() as folder, ExitStack() as stack:
        report = Report("load", "Loading packages", options, folder)
        small_rows = SMALL_ROWS * options.smaller(SMALL_PACKAGES, 50)
        with progress(None, "load, making files") as advance:
            advance("CSV", 1)
            large = sources.reports_csv(options.rows, PACKAGE_ROWS)
            small = sources.reports_csv(small_rows, SMALL_ROWS)
        workers = _start(report, options, folder, stack)
        _load(report, options, workers, LARGE, large, options.rows)
        _load(report, options, workers, SMALL, small, small_rows)
        if OURS in workers and OURS not in report.missing:
            stack.close()  # the other systems' JVMs would only stand in the way
            _first_job(report, options, folder)
    _set_goals(report)
    report.notes += [
        f"{options.rows:,} rows are {len(sources.paths(large))} files of "
        f"{sources.bytes_of(large):,} bytes in all. Sessions are up and have loaded the files "
        "once before the first turn that counts; the clock stops when the rows can be read.",
        "Tidemill's files are clustered by car within the hour, zstd-compressed, synced to disk "
        "and named by a commit that also records every package; PySpark's are snappy-compressed, "
        "as they come and not synced. pyspark-clustered sorts as Tidemill does.",
    ]
    return report


def _start(report: Report, options: Options, folder: Path, stack: ExitStack) -> dict[str, Worker]:
    workers: dict[str, Worker] = {}
    names = [name for name in WORKERS if options.wants(name)]
    with progress(len(names), "load, starting") as advance:
        for name in names:
            advance(name, 1)
            kind, arguments = WORKERS[name]
            try:
                place = folder / name
                worker = stack.enter_context(
                    Worker(f"benchmarks.loading:{kind}", place, *arguments)
                )
                report.systems[name] = worker.call("settings")
                workers[name] = worker
            except WorkerError as error:
                report.missing[name] = str(error)
    return workers


def _load(
    report: Report,
    options: Options,
    workers: dict[str, Worker],
    group: str,
    folder: Path,
    rows: int,
) -> None:
    pattern, wanted = f"{folder}/*.csv.gz", traffic.expected(rows)
    turns = min(options.repeat, TURNS_MAX)
    found: dict[str, list[Loaded]] = {name: [] for name in workers}
    with progress((turns + 1) * len(workers), f"load, {rows:,} rows") as advance:
        for turn in range(turns + 1):
            for name, worker in workers.items():
                advance(f"{name}, turn {turn}", 1)
                is_over = name == "pyspark-clustered" and turn > CLUSTERED_TURNS_MAX
                if name in report.missing or is_over:
                    continue
                try:
                    loaded: Loaded = worker.call("load", pattern)
                except WorkerError as error:
                    report.missing[name] = f"failed at '{group}': {error}"
                    continue
                report.check(name, f"{group}: count and sums", loaded.totals == wanted)
                found[name] += [loaded] if turn else []  # the first turn warms up
    for name, many in found.items():
        if many:
            rates = [rows / loaded.seconds for loaded in many]
            report.add(group, RATE, name, "rows/s", rates, many[-1].remark)
    for name, many in found.items():
        if many:
            report.add(group, SIZE, name, "bytes", [loaded.bytes / rows for loaded in many])


def _first_job(report: Report, options: Options, folder: Path) -> None:
    """Each start is a new process over a warehouse that has rows in files and in memory."""
    source = sources.reports_csv(10 * SMALL_ROWS, SMALL_ROWS)
    pattern = f"{source}/*.csv.gz"
    seconds, queries = [], []
    try:
        with progress(STARTS, "load, first job") as advance:
            for turn in range(min(STARTS, options.repeat)):
                advance(f"start {turn + 1}", 1)
                place = folder / f"anew-{turn}"
                with Worker("benchmarks.loading:LoadTide", place) as worker:
                    worker.call("fill", pattern)
                with Worker("benchmarks.loading:StartTide", place) as worker:
                    told = worker.call("first_job", pattern)
                seconds.append(told["seconds"])
                queries += [taken * 1_000 for taken in told["queries"]]
                counts = {answer[0] for answer in told["answers"]}
                right = 10 * SMALL_ROWS + HOT_ROWS
                report.check(OURS, "queries while Spark starts", counts == {right}, str(counts))
                report.check(OURS, "first job: rows", told["rows"] == 10 * SMALL_ROWS)
    except WorkerError as error:
        report.missing[OURS] = f"failed at the first job: {error}"
        return
    report.add(START, "open to the end of the first Spark job", OURS, "s", seconds, told["remark"])
    report.add(START, "a query over files and memory meanwhile", OURS, "ms", queries)
    report.add(START, "the slowest of them", OURS, "ms", [max(queries)])


def _set_goals(report: Report) -> None:
    def median(group: str, what: str, system: str) -> float | None:
        found = report.find(group, what, system)
        return None if found is None else found.summary.median

    ours, plain = median(LARGE, RATE, OURS), median(LARGE, RATE, PLAIN)
    report.goal_at_least("load ≥ 500,000 rows/s", ours, 500_000, "rows/s")
    times = ours / plain if ours and plain else None
    report.goal_at_least("load ≥ 1.5 × plain PySpark, the same files", times, 1.5, "×")
    first = median(START, "open to the end of the first Spark job", OURS)
    report.goal_at_most("first Spark job ≤ 15 s after the start", first, 15, "s")
    slowest = median(START, "the slowest of them", OURS)
    text = "SQL over files and memory never waits for the JVM (slowest ≤ 1 s)"
    report.goal_at_most(text, slowest, 1_000, "ms")


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["load", *sys.argv[1:]])
