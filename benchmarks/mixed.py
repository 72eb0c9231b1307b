"""Mixed work: rows arrive, are asked for and are moved to history, all at once (000, Fig. 15-21).

1. A varying arrival rate (45, 10, 45, 20, 45 thousand rows a second, times four), monitoring
   queries over the last 1, 5 and 10 seconds and analytics over the last minutes; without moves,
   with periodic and with adaptive ones (Fig. 19, 21).
2. A constant rate and windows that always lie in memory: what a move costs the queries that run
   beside it (Fig. 17, 18, 20).
3. As fast as rows can be appended: throughput with and without moves, and at different
   frequencies of queries (Fig. 15, 16, 20).
4. Figures 19, 20 and 21 at the paper's own rates (``mixed_figures``): ``--parts fig19,fig20,fig21``
   runs these alone.

Every answer's count is checked against what was acknowledged; an error of any query is a fault.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.harness import Options, Worker, WorkerError, console, progress, scratch
from benchmarks.mixed_figures import Figures, rate_of
from benchmarks.mixing import WARM_S, Asked, Plan, Told, percentile
from benchmarks.report import OURS, Report

VARYING = "Varying rate: {policy}"
STEADY = "Constant rate, windows in memory"
FASTEST = "As fast as it can"
RATES = (180_000, 40_000, 180_000, 80_000, 180_000)
STEADY_RATE = 100_000
PHASE_S = 4.0
STEADY_S = 40.0
STEADY_TURNS_MAX = 4
FASTEST_S = 6.0
TURNS_MAX = 3
TABLE_SETTINGS = {"memory": "2 GB", "durability": "batch", "hot": "1 second"}
POLICIES = {
    "off": {"move": "manual"},
    "periodic": {"move": "periodic", "move_every": "5 seconds"},
    "adaptive": {"move": "adaptive", "move_every": "5 seconds"},
}
STEADY_SETTINGS = {"hot": "10 seconds", "move": "periodic", "move_every": "2 seconds"}
STEADY_A_S = 25.0  # queries: a move takes 0.3 s, and its share of them must be many
STEADY_WINDOWS_S = (1.0, 3.0, 5.0)
FREQUENCIES = (1.0, 10.0)
LATENCY = "query latency, all monitoring"


def run(options: Options) -> Report:
    with scratch() as folder:
        report = Report("mixed", "Ingest, queries and moves at once", options, folder)
        report.systems[OURS] = {
            "table": ", ".join(f"{k} = {v}" for k, v in TABLE_SETTINGS.items()),
            **{name: ", ".join(f"{k} = {v}" for k, v in s.items()) for name, s in POLICIES.items()},
        }
        bench = _Bench(report, options, folder)
        figures = Figures(report, options, bench.run)
        parts = {
            "varying": bench.varying,
            "steady": bench.steady,
            "fastest": bench.fastest,
            "fig19": figures.rates,
            "fig20": figures.fall,
            "fig21": figures.policies,
        }
        if wrong := set(options.parts) - set(parts):
            sys.exit(f"mixed has no part {', '.join(sorted(wrong))}; it has {', '.join(parts)}")
        try:
            for name in options.parts or parts:
                parts[name]()
        except WorkerError as error:
            report.missing[OURS] = str(error)
            console.print(f"[red]tidemill failed[/]: {error}")
        if not options.parts or {"varying", "steady"} & set(options.parts):
            bench.set_goals()
        figures.set_goals()
    report.notes += [
        "Latency is from the moment at which a query was due until its answer was there; a query "
        "that had to wait for its predecessor counts the waiting. Service time is without it.",
        f"The first {WARM_S:g} seconds of a run are not counted. Every run is a new process over a "
        f"new warehouse, with {bench.past_rows:,} older rows already in files and Spark started.",
        "There is no peer: the comparison is Tidemill without moves.",
    ]
    return report


class _Bench:
    def __init__(self, report: Report, options: Options, folder: Path) -> None:
        self.report = report
        self.options = options
        self.folder = folder
        self.past_rows = options.smaller(2_000_000, 200_000)
        self.told: dict[str, list[Told]] = {name: [] for name in POLICIES}
        self._runs = 0

    def run(self, settings: dict[str, str], plan: Plan) -> Told:
        self._runs += 1
        place = self.folder / f"run-{self._runs}"
        with Worker("benchmarks.mixing:Mix", place, settings) as worker:
            told: Told = worker.call("run", plan)
        what = f"{settings['move']} moves, {plan.seconds:g} s"
        self.report.check(OURS, f"{what}: every count", not told.wrong, "; ".join(told.wrong[:3]))
        errors = "; ".join(told.errors[:3])
        self.report.check(OURS, f"{what}: no query failed", not told.errors, errors)
        return told

    # -- 1: a varying rate

    def varying(self) -> None:
        phase_s = PHASE_S if not self.options.quick else 1.5
        turns = min(self.options.repeat, TURNS_MAX)
        with progress(turns * len(POLICIES), "mixed, varying rate") as advance:
            for turn in range(turns):
                for name, policy in POLICIES.items():
                    advance(f"{name}, turn {turn + 1}", 1)
                    settings = {**TABLE_SETTINGS, **policy}
                    plan = Plan(settings, RATES, phase_s, past_rows=self.past_rows)
                    self.told[name].append(self.run(settings, plan))
        for name, many in self.told.items():
            self._add_varying(name, many, phase_s)

    def _add_varying(self, name: str, many: list[Told], phase_s: float) -> None:
        group = VARYING.format(policy=name)
        moves = [move for told in many for move in told.moves]
        note = f"{len(moves)} moves, {sum(move[2] for move in moves):,} rows"
        rates = [told.rows / told.seconds for told in many]
        wanted = sum(RATES) / len(RATES)
        self.report.add(group, f"throughput (arrival: {wanted:,.0f})", OURS, "rows/s", rates, note)
        asked = [one for told in many for one in told.asked]
        monitors = [one for one in asked if one.kind != "analytics"]
        self._add(group, LATENCY, monitors)
        for kind in sorted({one.kind for one in asked}, key=lambda kind: (len(kind), kind)):
            self._add(group, kind, [one for one in asked if one.kind == kind])
        for phase, rate in enumerate(RATES):
            began = phase * phase_s
            inside = [one for one in monitors if began <= one.due < began + phase_s]
            self._add(group, f"phase {phase + 1}: {rate:,} rows/s arrive", inside)
        if many[0].reasons:
            self.report.notes.append(f"tidemill.moves, {name}: " + " / ".join(many[0].reasons))

    def _add(self, group: str, what: str, asked: Iterable[Asked], note: str = "") -> None:
        """p50 and spread of the latency; percentiles come with the numbers."""
        values = [one.latency_s * 1_000 for one in asked]
        if values:
            self.report.add(group, what, OURS, "ms", values, note)

    # -- 2: what a move costs

    def steady(self) -> None:
        """With and without moves in turn, all turns together: a move's share of the queries is
        small, and the machine is not the same from one minute to the next."""
        seconds = self.options.smaller(round(STEADY_S), 8)
        turns = min(self.options.repeat, STEADY_TURNS_MAX)
        found: dict[str, list[Asked]] = {"without": [], "beside": [], "between": []}
        rates: dict[bool, list[float]] = {True: [], False: []}
        moves = 0
        with progress(2 * turns, "mixed, constant rate") as advance:
            for turn in range(2 * turns):
                is_off = turn % 2 == 0
                advance("off" if is_off else "moves", 1)
                told = self._run_steady(is_off, float(seconds))
                moves += len(told.moves)
                for one in told.asked:
                    if one.kind != "analytics":
                        is_beside = told.during(one)
                        at = "without" if is_off else "beside" if is_beside else "between"
                        found[at].append(one)
                for is_beside in () if is_off else (True, False):
                    rate = rate_of(told, is_beside)
                    rates[is_beside] += [rate] if rate else []
        self._add(STEADY, "without any move", found["without"])
        self._add(STEADY, "while a move runs", found["beside"], f"{moves} moves")
        self._add(STEADY, "between moves", found["between"])
        for what, is_beside in (("while a move runs", True), ("between moves", False)):
            if rates[is_beside]:
                self.report.add(STEADY, f"throughput {what}", OURS, "rows/s", rates[is_beside])

    def _run_steady(self, is_off: bool, seconds: float) -> Told:
        settings = {**TABLE_SETTINGS, **STEADY_SETTINGS}
        if is_off:
            settings["move"] = "manual"
            del settings["move_every"]
        plan = Plan(
            settings,
            (STEADY_RATE,),
            seconds,
            monitors_a_s=STEADY_A_S,
            analytics_a_s=0.2,
            past_rows=self.past_rows,
            windows_s=STEADY_WINDOWS_S,
        )
        return self.run(settings, plan)

    # -- 3: as fast as it can

    def fastest(self) -> None:
        seconds = float(self.options.smaller(round(FASTEST_S), 2))
        ways = [(name, FREQUENCIES[-1]) for name in POLICIES]
        ways += [("adaptive", frequency) for frequency in FREQUENCIES[:-1]]
        with progress(len(ways), "mixed, fastest") as advance:
            for name, frequency in ways:
                advance(f"{name}, {frequency:g} queries/s", 1)
                settings = {**TABLE_SETTINGS, "memory": "6 GB", **POLICIES[name]}
                if "move_every" in settings:
                    settings["move_every"] = "2 seconds"
                plan = Plan(
                    settings,
                    (None,),
                    seconds,
                    monitors_a_s=frequency,
                    past_rows=self.past_rows,
                    windows_s=(1.0,),
                )
                told = self.run(settings, plan)
                what = f"{name}, {frequency:g} queries/s"
                note = f"{len(told.moves)} moves; batches of 2,000 rows, one writer"
                rate = told.rows / told.seconds
                self.report.add(FASTEST, what, OURS, "rows/s", [rate], note)

    # -- goals

    def set_goals(self) -> None:
        report = self.report
        p50s = {name: self._latency(name, 0.5) for name in POLICIES}
        beside, between = self._steady("while a move runs"), self._steady("between moves")
        cost = beside / between - 1 if beside and between else None
        text = "a move costs running queries ≤ 15 % in p50 (against between moves)"
        report.goal_at_most(text, None if cost is None else cost * 100, 15, "%")
        off = self._steady("without any move")
        cost = beside / off - 1 if beside and off else None
        text = "the same against a run without any move"
        report.goal_at_most(text, None if cost is None else cost * 100, 15, "%")
        for share, word in ((0.5, "p50"), (0.95, "p95")):
            mine, theirs = self._latency("adaptive", share), self._latency("periodic", share)
            text = f"adaptive beats periodic in query latency, varying rate, {word} of all turns"
            report.goal_at_least(text, theirs / mine if mine and theirs else None, 1.0, "×")
            turns = ", ".join(f"{times:.2f}" for times in self._times_better(share))
            report.notes.append(f"Adaptive against periodic, {word}, turn by turn: {turns}.")
        for name in ("periodic", "adaptive"):
            mine, base = p50s[name], p50s["off"]
            if mine and base:
                report.notes.append(
                    f"Varying rate, p50 of monitoring queries: {name} is {mine / base:.2f} × that "
                    "without moves."
                )
        failed = [check for check in report.checks if "no query failed" in check.what]
        errors = None if not failed else float(sum(not check.passed for check in failed))
        report.goal_at_most("moves never cause an error (runs with one)", errors, 0)

    def _latency(self, policy: str, share: float) -> float | None:
        asked = [one for told in self.told[policy] for one in told.asked]
        return _monitoring(asked, share)

    def _times_better(self, share: float) -> list[float]:
        """How many times better adaptive is than periodic, turn by turn."""
        found = []
        pairs = zip(self.told["periodic"], self.told["adaptive"], strict=False)
        for periodic, adaptive in pairs:
            theirs, mine = _monitoring(periodic.asked, share), _monitoring(adaptive.asked, share)
            found += [theirs / mine] if theirs and mine else []
        return found

    def _steady(self, what: str) -> float | None:
        found = self.report.find(STEADY, what, OURS)
        return None if found is None else found.summary.median


def _monitoring(asked: Iterable[Asked], share: float) -> float | None:
    """A percentile of the monitoring queries' latency."""
    return percentile([one.latency_s for one in asked if one.kind != "analytics"], share)


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["mixed", *sys.argv[1:]])
