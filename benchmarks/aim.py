"""AIM: six continuous views over the calls of a million customers (004, §4.3.1, Fig. 4.8, 4.9).

1. Insert throughput with all six views attached, durable, until every view has absorbed all rows.
2. Reads a second of a view while nothing changes.
3. The first read of each view after 10,000 new rows.
4. Both at once: 50,000 calls a second come in, views are read as fast as they can be.

Peers keep the same answers each in its own best way; slow ones get fewer calls, which the page
says. After every measurement a system's answers are compared with DuckDB's over all calls.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.aim_data import CUSTOMERS, Calls, week_of
from benchmarks.aim_questions import QUESTIONS, Judge, differences, ordered
from benchmarks.aim_working import LOAD_ROWS, Filled, Together
from benchmarks.harness import Options, Worker, WorkerError, console, progress, scratch
from benchmarks.peers import install_peers
from benchmarks.report import OURS, Measurement, Report
from benchmarks.systems import flink

INSERTS = "Inserts with six views attached"
READS = "Reads of an unchanged view"
AFTER = "Reads right after 10,000 new rows"
WHOLE = "insert and read, any query"
TOGETHER = "50,000 calls a second and reads at once"
TOGETHER_LINES = ("inserts", "reads", "latency of a read")
FLINK = "pyflink"
SPARK = "spark"
SYSTEMS = (OURS, FLINK, SPARK, "chdb", "postgres-triggers", "postgres-refresh")
SIZES = (10_000, 100_000)
ROWS_MAX = {FLINK: 1_000_000, "chdb": 1_000_000, "postgres-triggers": 200_000}
ROWS_MAX |= {SPARK: 4_000_000, "postgres-refresh": 1_000_000}
ONE_SIZE = {SPARK: 100_000}  # small files would only slow it down
READ_ROWS = 2_000_000  # calls that are there when views are read
TURNS_MAX = 3
NEW_ROWS = 10_000
NEW_TURNS = 60
NEW_BUDGET_S = 60.0
READ_BUDGET_S = 2.0
RATE = 50_000
RATE_ROWS = 10_000
RATE_S = 20.0
VIEWS_TEXT = "batches of {size:,}"
CHECK_CUSTOMERS = 2_000
CHECK_ROWS = 20_000
RATE_GOAL, TIMES_GOAL, READS_GOAL, NEW_GOAL_MS = 1_000_000, 10, 5_000, 20


def run(options: Options) -> Report:
    calls = Calls(round(time.time() * 1_000_000), options.smaller(CUSTOMERS, 50_000))
    with scratch() as folder:
        report = Report("aim", "AIM: six continuous views", options, folder)
        bench = _Bench(report, options, folder, calls)
        try:
            bench.install()
            bench.inserts()
            bench.flink()
            bench.read()
        finally:
            bench.judge.close()
    _set_goals(report)
    report.notes += [
        f"{calls.customers:,} customers; every one has called before a second call of any. Calls "
        "of the week before are there too, and must not be counted.",
        "Calls are made before the clock starts. The time of inserts ends when all views have "
        "absorbed the last row: one read of each, or what a system needs to be up to date.",
        "Slow peers get fewer calls (see each line); throughput is per second all the same.",
        "PyFlink runs one job with all six queries; its answers leave through a sink and cannot be "
        "read, so it has no lines for reads. Starting, reading the customers and the week before "
        "are subtracted. It does without checkpoints: nothing of it is durable.",
        "Spark keeps the aggregates below the queries only (it does not aggregate twice in update "
        "mode): one state for all six, and no answer. A read computes the answer from its state, "
        "which takes so long that it has no lines for both at once.",
        "A peer that keeps its answers while it inserts (chdb, PostgreSQL's triggers) has little "
        f"left to do at a read; '{WHOLE}' shows both costs.",
        "PyFlink and Spark apply the week's filter when a row comes: when a new week begins, their "
        "answers stay those of the old one. The others follow the clock.",
    ]
    if week_of(round(time.time() * 1_000_000)) != calls.week:
        report.notes.append("A new week began during the run: answers after that are not right.")
    return report


class _Bench:
    def __init__(self, report: Report, options: Options, folder: Path, calls: Calls) -> None:
        self.report = report
        self.options = options
        self.folder = folder
        self.calls = calls
        self.judge = Judge(calls)
        self.names = [name for name in SYSTEMS if options.wants(name)]
        self._runs = 0

    def install(self) -> None:
        makers: dict[str, Callable[[], str | None]]
        makers = {"chdb": install_peers, FLINK: flink.install}
        for name, make in makers.items():
            if name in self.names and (reason := make()):
                self._miss(name, reason)

    def _miss(self, name: str, reason: str) -> None:
        self.report.missing[name] = reason
        console.print(f"[yellow]{name} is missing[/]: {reason}")

    def _worker(self, name: str) -> Worker:
        self._runs += 1
        place = self.folder / f"{name}-{self._runs}"
        worker = Worker("benchmarks.aim_working:AimWorker", name, place, self.calls)
        self.report.systems.setdefault(name, worker.call("settings"))
        return worker

    def _check(self, name: str, worker: Worker, what: str) -> None:
        count, given = worker.call("answers")
        wrong = differences(given, self.judge.answers(count))
        self.report.check(name, f"{what}: six answers after {count:,} calls", not wrong, wrong)

    # -- 1: inserts

    def _rows(self, name: str) -> int:
        rows = min(self.options.rows, ROWS_MAX.get(name, self.options.rows))
        return max(rows // LOAD_ROWS, 1) * LOAD_ROWS

    def inserts(self) -> None:
        turns = min(self.options.repeat, TURNS_MAX)
        names = [name for name in self.names if name != FLINK]
        for size in SIZES:
            taken: dict[str, list[Filled]] = {name: [] for name in names}
            with progress(turns * len(names), f"AIM, inserts of {size:,}") as advance:
                for _ in range(turns):
                    for name in names:
                        advance(name, 1)
                        if name in self.report.missing or ONE_SIZE.get(name, size) != size:
                            continue
                        try:
                            with self._worker(name) as worker:
                                taken[name].append(worker.call("fill", self._rows(name), size))
                                self._check(name, worker, f"inserts of {size:,}")
                        except WorkerError as error:
                            self._miss(name, f"failed at inserts: {error}")
            for name, many in taken.items():
                if many:
                    self._add_inserts(name, size, many)

    def _add_inserts(self, name: str, size: int, many: list[Filled]) -> None:
        end_ms = [one.absorb_s * 1_000 for one in many]
        note = f"{many[0].rows:,} calls; the end, until all is absorbed: {max(end_ms):,.0f} ms"
        rates = [one.rows / one.seconds for one in many]
        self.report.add(INSERTS, VIEWS_TEXT.format(size=size), name, "calls/s", rates, note)

    def flink(self) -> None:
        """Jobs over all calls, less one over none: what starting and the customers take."""
        if FLINK not in self.names or FLINK in self.report.missing:
            return
        rows = self._rows(FLINK)
        turns = self.options.smaller(2, 1)
        try:
            self._check_flink()
            with (
                progress(2 * turns + 4, "AIM, PyFlink") as advance,
                flink.Flink(self.folder / FLINK, self.calls) as peer,
            ):
                self.report.systems[FLINK] = peer.settings()
                for what, text in (("views", "one job"), ("aggregates", "aggregates only")):
                    advance(f"{text}, warming up", 1)
                    peer.run(what, LOAD_ROWS)
                    advance(f"{text}, without calls", 1)
                    before_s = peer.run(what, 0)
                    rates = []
                    for _ in range(turns):
                        advance(text, 1)
                        took_s = peer.run(what, rows)
                        rates.append(rows / (took_s - before_s if took_s > before_s else took_s))
                    note = f"{rows:,} calls; {before_s:.1f} s without any were subtracted"
                    if what != "views":
                        note += "; keeps a customer's aggregates and answers nothing"
                    self.report.add(INSERTS, text, FLINK, "calls/s", rates, note)
        except (WorkerError, OSError) as error:
            self._miss(FLINK, str(error))

    def _check_flink(self) -> None:
        """Few calls of few customers: each change of an answer comes out one by one."""
        calls = Calls(self.calls.anchor_us, CHECK_CUSTOMERS)
        judge = Judge(calls)
        with flink.Flink(self.folder / f"{FLINK}-check", calls) as peer:
            told = peer.answers(CHECK_ROWS)
        given = {name: ordered(rows) for name, rows in told.items()}
        wrong = differences(given, judge.answers(CHECK_ROWS))
        judge.close()
        what = f"six answers after {CHECK_ROWS:,} calls of {CHECK_CUSTOMERS:,} customers"
        self.report.check(FLINK, what, not wrong, wrong)

    # -- 2, 3, 4: reads

    def read(self) -> None:
        names = [name for name in self.names if name not in (FLINK, *self.report.missing)]
        with progress(4 * len(names), "AIM, reads") as advance:
            for name in names:
                try:
                    with self._worker(name) as worker:
                        self._read(name, worker, lambda text: advance(text, 1))
                except WorkerError as error:
                    self._miss(name, f"failed at reads: {error}")
        order = [INSERTS, READS, AFTER, TOGETHER]
        lines = [*(VIEWS_TEXT.format(size=size) for size in SIZES), *QUESTIONS, *TOGETHER_LINES]
        places = {what: at for at, what in enumerate(lines)}
        self.report.measurements.sort(
            key=lambda m: (order.index(m.group), places.get(m.what, len(places)))
        )

    def _read(self, name: str, worker: Worker, advance: Callable[[str], None]) -> None:
        rows = min(READ_ROWS, max(self.options.rows // LOAD_ROWS, 1) * LOAD_ROWS)
        report, options = self.report, self.options
        advance(f"{name}, filling")
        worker.call("fill", rows, LOAD_ROWS)
        advance(f"{name}, unchanged")
        budget_s = READ_BUDGET_S if not options.quick else 0.3
        for question in QUESTIONS:
            rate = worker.call("reads", question, budget_s)
            report.add(READS, question, name, "reads/s", [rate])
        advance(f"{name}, after new rows")
        budget_s = NEW_BUDGET_S if not options.quick else 2.0
        turns = options.smaller(NEW_TURNS, 5)
        by_question, whole = worker.call("after_rows", turns, NEW_ROWS, budget_s)
        for question, taken in by_question.items():
            report.add(AFTER, question, name, "ms", [s * 1_000 for s in taken])
        report.add(AFTER, WHOLE, name, "ms", [s * 1_000 for s in whole])
        self._check(name, worker, "reads after new rows")
        advance(f"{name}, both at once")
        if worker.call("is_concurrent"):
            seconds = RATE_S if not options.quick else 2.0
            told = worker.call("together", RATE, RATE_ROWS, seconds)
            self._add_together(name, told)
            self._check(name, worker, "both at once")
        if name == OURS:
            for question in QUESTIONS:
                lines = worker.call("explain", question)
                report.notes.append(f"EXPLAIN of {question}: " + " / ".join(lines))

    def _add_together(self, name: str, told: Together) -> None:
        note = f"{RATE:,} were wanted, in batches of {RATE_ROWS:,}"
        inserts, reads, latency = TOGETHER_LINES
        rate = told.rows / told.insert_s
        self.report.add(TOGETHER, inserts, name, "calls/s", [rate], note, is_compared=False)
        self.report.add(TOGETHER, reads, name, "reads/s", [told.reads / told.read_s])
        values = [s * 1_000 for s in told.latencies_s]
        self.report.add(TOGETHER, latency, name, "ms", values)


def _set_goals(report: Report) -> None:
    ours = [_rate(report, VIEWS_TEXT.format(size=size), OURS) for size in SIZES]
    for size, rate in zip(SIZES, ours, strict=True):
        text = f"six views attached, batches of {size:,}: ≥ {RATE_GOAL:,} calls/s, durable"
        report.goal_at_least(text, rate, RATE_GOAL, "calls/s")
    slowest = min((rate for rate in ours if rate), default=None)
    peers = {"PyFlink": _rate(report, "one job", FLINK)}
    peers["Spark Structured Streaming"] = _rate(
        report, VIEWS_TEXT.format(size=ONE_SIZE[SPARK]), SPARK
    )
    for name, rate in peers.items():
        times = slowest / rate if slowest and rate else None
        report.goal_at_least(f"≥ {TIMES_GOAL} × {name} (our slower size)", times, TIMES_GOAL, "×")
    reads = [m.summary.median for m in report.measurements if _is_ours(m, READS)]
    text = f"≥ {READS_GOAL:,} reads/s of an unchanged view (the slowest of {len(reads)})"
    report.goal_at_least(text, min(reads, default=None), READS_GOAL, "reads/s")
    after = [m.summary.median for m in report.measurements if _is_ours(m, AFTER)]
    text = f"a read after new rows ≤ {NEW_GOAL_MS} ms, p50"
    middle = median(after) if after else None
    report.goal_at_most(f"{text} (the median of {len(after)} queries)", middle, NEW_GOAL_MS, "ms")
    slowest = max(after, default=None)
    report.goal_at_most(f"{text} (the slowest of {len(after)})", slowest, NEW_GOAL_MS, "ms")


def _is_ours(measured: Measurement, group: str) -> bool:
    """Whether it is Tidemill's, in that group, and of one query."""
    return (measured.group, measured.system) == (group, OURS) and measured.what in QUESTIONS


def _rate(report: Report, what: str, system: str) -> float | None:
    found = report.find(INSERTS, what, system)
    return None if found is None else found.summary.median


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["aim", *sys.argv[1:]])
