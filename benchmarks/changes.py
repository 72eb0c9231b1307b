"""Updates and deletes of streams (000, Fig. 15 to 18), and what changes that wait cost.

1. *Fig. 15*: requests a second by the share of updates, at 1 and at 10 queries a second.
2. *Fig. 16*: the same at a tenth of updates, by the frequency of queries.
3. *Fig. 17*: readings and corrections at a rate; by how much later the answer of a continuous query
   comes than without any.
4. *Fig. 18*: the same for analytics over history.
5. What waits: the latency of a query by the number of changes that wait, if they concern it and if
   not; statements and corrections a second; a month of history that is deleted.

The peers are the paper's baseline: readings in bulk until a change or a query comes, changes as
they come. ``duckdb-batches`` takes the changes of a block in one statement, as Tidemill does. After
every run a system's rows are compared with what the requests say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from benchmarks.changes_waiting import add_waiting
from benchmarks.changing import Told
from benchmarks.harness import Options, Worker, WorkerError, console, progress, scratch
from benchmarks.linear_road.plots import Chart, Series
from benchmarks.peers import install_peers
from benchmarks.report import OURS, Report

EAGER, BATCHES = "tidemill-eager", "duckdb-batches"
SYSTEMS = (OURS, EAGER, "duckdb", BATCHES, "postgres", "chdb")
SYSTEMS_16 = (OURS, "duckdb", "postgres", "chdb")
SYSTEMS_17 = (OURS, EAGER, "duckdb", "postgres", "chdb")
BASELINES = ("duckdb", "chdb")  # trickle updates on an engine for analytics
SHARES = (0.0, 0.01, 0.10, 0.20, 0.25, 0.33, 0.50)
FREQUENCIES = (1.0, 10.0)
FREQUENCIES_16 = (0.25, 1.0, 2.0, 10.0)
SHARES_17 = (0.0, 0.10, 0.25, 0.33)
SHARES_18 = (0.0, 0.01, 0.10, 0.25)
PRELOADED = 500_000
HISTORY = 2_000_000
SECONDS = 5.0
PACED_S = 12.0
RATE_17, PERIOD_17_S = 20_000.0, 0.6
RATE_18, PERIOD_18_S = 10_000.0, 1.0
THROUGHPUT = "Requests a second, {hz:g} queries a second (Fig. 15)"
BY_FREQUENCY = "Requests a second at 10 % updates, by queries a second (Fig. 16)"
DELAYS = "Delay of a continuous query every 0.6 s, 20,000 requests a second (Fig. 17)"
ANALYTICS = "Delay of analytics over history, 10,000 requests a second (Fig. 18)"
TIMES_10, TIMES_50 = 100.0, 1_000.0
DELAY_10, DELAY_33 = 1.02, 1.07


def run(options: Options) -> Report:
    with scratch() as folder:
        report = Report("changes", "Updates and deletes of streams", options, folder)
        bench = _Bench(report, options, folder)
        bench.install()
        parts: dict[str, Callable[[], None]] = {
            "fig15": bench.by_share,
            "fig16": bench.by_frequency,
            "fig17": bench.delays,
            "fig18": bench.analytics,
            "waiting": lambda: add_waiting(report, options, folder),
        }
        for name, part in parts.items():
            if not options.parts or name in options.parts:
                part()
    _set_goals(report)
    report.notes += [
        f"{PRELOADED:,} readings of 9 columns are there before the clock starts; a second of event "
        "time is 100,000 readings, whatever a system's speed, and monitoring queries read the "
        "last second. 3 in 100 changes concern readings of any age, the others the last 200,000; "
        "a tenth of the changes are deletions.",
        f"A run takes {options.seconds or SECONDS:g} seconds (the paper's take five minutes: "
        "--seconds 300), and ends with a query over all rows: what was put off is paid for.",
        "Tidemill takes blocks of 10,000 requests: readings by append, corrections by update, "
        "deletions by delete, each durable by itself.",
        "In Fig. 17 and 18 a query waits for the requests that were due before it, at most 20,000; "
        "a system that is slower than that falls behind further than is shown.",
    ]
    return report


class _Bench:
    def __init__(self, report: Report, options: Options, folder: Path) -> None:
        self.report = report
        self.options = options
        self.folder = folder
        self.names = [name for name in SYSTEMS if options.wants(name)]
        self._runs = 0

    def install(self) -> None:
        if "chdb" in self.names and (reason := install_peers()):
            self._miss("chdb", reason)

    def _miss(self, name: str, reason: str) -> None:
        self.report.missing[name] = reason
        console.print(f"[yellow]{name} is missing[/]: {reason}")

    def _worker(self, name: str, rows: int) -> Worker:
        self._runs += 1
        worker = Worker(
            "benchmarks.changing:ChangeWorker", name, self.folder / f"{name}-{self._runs}"
        )
        self.report.systems.setdefault(name, worker.call("settings"))
        worker.call("load", rows)
        return worker

    def _each(
        self,
        text: str,
        turns: int,
        work: Callable[[str, Callable[[str], None]], None],
        systems: Sequence[str],
    ) -> None:
        """Run something with every system that is there."""
        wanted = [name for name in self.names if name in systems]
        names = [name for name in wanted if name not in self.report.missing]
        with progress(turns * len(names), text) as advance:
            for name in names:
                try:
                    work(name, partial(_advance, advance, name))
                except WorkerError as error:
                    self._miss(name, f"failed: {error}")

    def _check(self, name: str, what: str, told: Told) -> None:
        self.report.check(name, what, told.is_right, told.detail)

    @property
    def _seconds(self) -> float:
        return self.options.seconds or (1.5 if self.options.quick else SECONDS)

    # -- Fig. 15, 16

    def by_share(self) -> None:
        for hz in FREQUENCIES:
            self._by_share(hz)

    def _by_share(self, hz: float) -> None:
        rates: dict[str, list[float]] = {}
        group = THROUGHPUT.format(hz=hz)

        def work(name: str, advance: Callable[[str], None]) -> None:
            for share in SHARES:
                advance(f"{share:.0%} updates, {hz:g}/s")
                with self._worker(name, self._rows(PRELOADED)) as worker:
                    told = worker.call("flood", share, hz, self._seconds, 7)
                rates.setdefault(name, []).append(told.requests / told.seconds)
                rate, what = rates[name][-1], f"{share:.0%} updates"
                note = f"{told.requests:,} requests, {told.queries} queries"
                self.report.add(group, what, name, "requests/s", [rate], note)
                self._check(name, f"{what}, {hz:g} queries a second", told)

        self._each("changes, Fig. 15", len(SHARES), work, SYSTEMS)
        self._in_order(group, [f"{share:.0%} updates" for share in SHARES])
        percents = [100 * share for share in SHARES]
        self._chart(f"Fig. 15: {hz:g} queries a second", "requests/s", "% updates", percents, rates)

    def by_frequency(self) -> None:
        rates: dict[str, list[float]] = {}

        def work(name: str, advance: Callable[[str], None]) -> None:
            for hz in FREQUENCIES_16:
                advance(f"{hz:g} queries a second")
                with self._worker(name, self._rows(PRELOADED)) as worker:
                    told = worker.call("flood", 0.10, hz, self._seconds, 8)
                rates.setdefault(name, []).append(told.requests / told.seconds)
                rate, what = rates[name][-1], f"{hz:g} a second"
                self.report.add(BY_FREQUENCY, what, name, "requests/s", [rate])
                self._check(name, f"10 % updates, {what}", told)

        self._each("changes, Fig. 16", len(FREQUENCIES_16), work, SYSTEMS_16)
        self._in_order(BY_FREQUENCY, [f"{hz:g} a second" for hz in FREQUENCIES_16])
        self._chart("Fig. 16: 10 % updates", "requests/s", "queries/s", FREQUENCIES_16, rates)

    # -- Fig. 17, 18

    def delays(self) -> None:
        given = (RATE_17, PERIOD_17_S, "monitoring")
        self._paced(DELAYS, "Fig. 17", SHARES_17, self._rows(PRELOADED), *given)

    def analytics(self) -> None:
        given = (RATE_18, PERIOD_18_S, "analytics")
        self._paced(ANALYTICS, "Fig. 18", SHARES_18, self._rows(HISTORY), *given)

    def _paced(
        self,
        group: str,
        figure: str,
        shares: Sequence[float],
        rows: int,
        rate: float,
        period_s: float,
        what: str,
    ) -> None:
        means: dict[str, list[float]] = {}
        seconds = self.options.seconds or (4.0 if self.options.quick else PACED_S)

        def work(name: str, advance: Callable[[str], None]) -> None:
            for share in shares:
                advance(f"{share:.0%} updates")
                with self._worker(name, rows) as worker:
                    told = worker.call("paced", share, rate, period_s, seconds, 9, what)
                values = [delay * 1_000 for delay in told.delays_s]
                means.setdefault(name, []).append(fmean(values))
                kept = told.requests / told.seconds
                more = f"; {means[name][-1] / means[name][0]:.2f} × the delay without updates"
                note = f"mean {means[name][-1]:,.2f} ms, {kept:,.0f} requests/s"
                text = f"{share:.0%} updates"
                self.report.add(group, text, name, "ms", values, note + (more if share else ""))
                self._check(name, f"{figure}, {text}", told)

        self._each(f"changes, {figure}", len(shares), work, SYSTEMS_17)
        self._in_order(group, [f"{share:.0%} updates" for share in shares])
        percents = [100 * share for share in shares]
        self._chart(f"{figure}: delay", "ms", "% updates", percents, means)

    # -- what is shown

    def _rows(self, rows: int) -> int:
        return self.options.smaller(rows, 50_000)

    def _in_order(self, group: str, lines: Sequence[str]) -> None:
        """The systems of a line beside each other."""
        places = {what: at for at, what in enumerate(lines)}
        measured = self.report.measurements
        mine = [m for m in measured if m.group == group]
        mine.sort(key=lambda m: places[m.what])
        self.report.measurements = [m for m in measured if m.group != group] + mine

    def _chart(
        self,
        title: str,
        unit: str,
        x_name: str,
        x: Sequence[float],
        found: dict[str, list[float]],
    ) -> None:
        series = tuple(
            Series(name, x, values) for name, values in found.items() if len(values) == len(x)
        )
        if series:
            self.report.charts.append(Chart(title, unit, x_name, series, is_log=True))


def _advance(advance: Callable[[str, int], None], name: str, what: str) -> None:
    advance(f"{name}, {what}", 1)


def _set_goals(report: Report) -> None:
    for share, times in ((0.10, TIMES_10), (0.50, TIMES_50)):
        for hz in FREQUENCIES:
            ours = _rate(report, share, hz, OURS)
            best = max((_rate(report, share, hz, name) or 0.0 for name in BASELINES), default=0.0)
            text = f"{share:.0%} updates, {hz:g} queries a second: ≥ {times:g} × the best baseline"
            report.goal_at_least(text, ours / best if ours and best else None, times, "×")
    for peer in ("postgres", "chdb"):
        ratios = [
            ours / theirs
            for share in SHARES
            for hz in FREQUENCIES
            if (ours := _rate(report, share, hz, OURS))
            and (theirs := _rate(report, share, hz, peer))
        ]
        text = f"ahead of {peer} at every share"
        report.goal_at_least(text, min(ratios, default=None), 1.0, "× at worst")
    for share, most in ((0.10, DELAY_10), (0.33, DELAY_33)):
        means = [_mean(report, each) for each in (share, 0.0)]
        ratio = means[0] / means[1] if means[0] and means[1] else None
        text = f"a continuous query at {share:.0%} updates ≤ {most:g} × its delay without"
        report.goal_at_most(text, ratio, most, "×")


def _rate(report: Report, share: float, hz: float, system: str) -> float | None:
    found = report.find(THROUGHPUT.format(hz=hz), f"{share:.0%} updates", system)
    return None if found is None else found.summary.median


def _mean(report: Report, share: float) -> float | None:
    found = report.find(DELAYS, f"{share:.0%} updates", OURS)
    return None if found is None else fmean(found.runs) if found.runs else found.summary.median


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["changes", *sys.argv[1:]])
