"""Figures 19 to 21 of document 000 §V, at the arrival rates that the paper gives.

- **Fig. 19**, arrival rate against query execution and makespan: 30,000 rows a second, the double,
  the triple, and more; windows of 5, 15 and 30 seconds and a memory that holds 2.5 million rows
  stay the same. The faster rows come, the more of a window is in files. The bars of the figure,
  execution in the buffer and in the database, are the time of a query shared out by the rows that
  it read in memory and in files, times what these were measured to cost (``tidemill.costs``).
- **Fig. 20**, what a move does to throughput: while one runs and between two, at 35,000 rows a
  second and as fast as rows can be appended.
- **Fig. 21**, moves at a period against adaptive ones, while 45, 10, 45, 20 and 45 thousand rows a
  second arrive: throughput, response time and the moments at which moves began, second by second.

The paper's experiments took 5 minutes each, and ten runs; here it is one minute a rate, or what
``--seconds`` says. Its machines were twelve nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.harness import Options, progress
from benchmarks.linear_road.plots import Chart, Series
from benchmarks.mixing import MONITOR_WINDOWS_S, WARM_S, Asked, Plan, Told, percentile
from benchmarks.report import OURS, Report

FIG_19 = "Fig. 19: {rate:,} rows/s, {policy}"
FIG_20 = "Fig. 20: what a move does to throughput"
FIG_21 = "Fig. 21: {policy}"
RATES_19 = (30_000, 60_000, 90_000, 120_000, 150_000)
RATE_20 = 35_000
RATES_21 = (45_000, 10_000, 45_000, 20_000, 45_000)
WINDOWS_19_S = (5.0, 15.0, 30.0)
SECONDS, SECONDS_QUICK = 60.0, 6.0
PHASE_21_S, PHASE_21_QUICK_S = 20.0, 2.0
# 2.5 million rows of 40 bytes, 16 more for the index, at the fill of 0.6.
BUFFER = {"memory": "240 MB", "durability": "batch", "hot": "1 second", "move_every": "10 seconds"}
# A short run, to see that it works, would end before the first move.
BUFFER_QUICK = {**BUFFER, "move_every": "2 seconds", "move_min": "500 kB"}
POLICIES = ("periodic", "adaptive")

Run = Callable[[dict[str, str], Plan], Told]


@dataclass(frozen=True)
class Shares:
    """The average time of a query, and what of it belongs to rows in files."""

    query_ms: float
    files_ms: float
    memory_only: float  # the share of queries that read no file

    @classmethod
    def of(cls, asked: Sequence[Asked], costs: dict[str, float]) -> Shares | None:
        if not asked:
            return None
        times = [one.service_s * 1e3 for one in asked]
        parts = [_files_part(one, costs) for one in asked]
        return cls(
            fmean(times),
            fmean(ms * part for ms, part in zip(times, parts, strict=True)),
            fmean(one.file_rows == 0 for one in asked),
        )


def _files_part(one: Asked, costs: dict[str, float]) -> float:
    """How much of a query's time its rows in files took, by what rows cost.

    >>> _files_part(Asked("", 0, 0, 1, rows=100, file_rows=50), {"memory": 10, "files": 30})
    0.75
    """
    in_files = one.file_rows * costs.get("files", 1.0)
    in_memory = (one.rows - one.file_rows) * costs.get("memory", 1.0)
    return in_files / (in_files + in_memory) if in_files else 0.0


class Figures:
    def __init__(self, report: Report, options: Options, run: Run) -> None:
        """``run`` runs a plan in a process of its own and checks its answers."""
        self._report = report
        self._run = run
        self._is_quick = options.quick
        self._buffer = BUFFER_QUICK if options.quick and not options.seconds else BUFFER
        self._seconds = options.seconds or (SECONDS_QUICK if options.quick else SECONDS)
        phase_s = PHASE_21_QUICK_S if options.quick else PHASE_21_S
        self._phase_s = options.seconds / len(RATES_21) if options.seconds else phase_s
        self._past_rows = options.smaller(2_000_000, 200_000)
        told = ", ".join(f"{name} = {value}" for name, value in self._buffer.items())
        report.systems.setdefault(OURS, {})["figures 19 to 21"] = told
        self._fig21: dict[str, Told] = {}

    def _told(
        self,
        settings: dict[str, str],
        rates: tuple[int | None, ...],
        phase_s: float,
        windows_s: tuple[float, ...] = MONITOR_WINDOWS_S,
    ) -> Told:
        """Monitoring queries, rows that arrive, and nothing else."""
        plan = Plan(
            settings,
            rates,
            phase_s,
            analytics_a_s=0.0,
            past_rows=self._past_rows,
            windows_s=windows_s,
        )
        return self._run(settings, plan)

    # -- Fig. 19

    def rates(self) -> None:
        rates = (RATES_19[0], RATES_19[-1]) if self._is_quick else RATES_19
        found: dict[str, list[tuple[int, Told]]] = {policy: [] for policy in POLICIES}
        with progress(len(rates) * len(POLICIES), "mixed, Fig. 19") as advance:
            for rate in rates:
                for policy in POLICIES:
                    advance(f"{rate:,} rows/s, {policy}", 1)
                    settings = {**self._buffer, "move": policy}
                    told = self._told(settings, (rate,), self._seconds, WINDOWS_19_S)
                    found[policy].append((rate, told))
                    self._add_rate(rate, policy, told)
        self._report.charts += [_chart_19(policy, told) for policy, told in found.items()]

    def _add_rate(self, rate: int, policy: str, told: Told) -> None:
        group = FIG_19.format(rate=rate, policy=policy)
        add = self._report.add
        rows = sum(move[2] for move in told.moves)
        note = f"{len(told.moves)} moves, {rows:,} rows; {told.seconds:.1f} s of arrivals"
        add(group, "makespan", OURS, "s", [told.makespan_s], note)
        shares = Shares.of(told.asked, told.costs)
        if shares is not None:
            add(group, "query, average", OURS, "ms", [shares.query_ms])
            add(group, "of it over rows in memory", OURS, "ms", [shares.query_ms - shares.files_ms])
            add(
                group, "of it over rows in files", OURS, "ms", [shares.files_ms], _shown(told.costs)
            )
            add(group, "queries that read memory alone", OURS, "%", [100 * shares.memory_only])
            latencies = [one.latency_s * 1e3 for one in told.asked]
            add(group, "latency", OURS, "ms", latencies)
        self._note_reasons(group, told)

    # -- Fig. 20

    def fall(self) -> None:
        ways: list[tuple[str, int | None]] = [("as fast as it can", None)]
        if not self._is_quick:
            ways.append((f"{RATE_20:,} rows/s arrive", RATE_20))
        with progress(len(ways), "mixed, Fig. 20") as advance:
            for what, rate in ways:
                advance(what, 1)
                settings = {**self._buffer, "move": "periodic", "move_every": "3 seconds"}
                if rate is None:
                    settings["memory"] = "4 GB"
                seconds = min(self._seconds, 20.0)
                told = self._told(settings, (rate,), seconds, (1.0,))
                for word, is_beside in (("while a move runs", True), ("between moves", False)):
                    found = rate_of(told, is_beside)
                    if found:
                        note = f"{len(told.moves)} moves"
                        self._report.add(FIG_20, f"{what}, {word}", OURS, "rows/s", [found], note)
                self._report.charts.append(_chart_20(what, told))

    # -- Fig. 21

    def policies(self) -> None:
        with progress(len(POLICIES), "mixed, Fig. 21") as advance:
            for policy in POLICIES:
                advance(policy, 1)
                told = self._told({**self._buffer, "move": policy}, RATES_21, self._phase_s)
                self._fig21[policy] = told
                self._add_policy(policy, told)
                self._report.charts.append(_chart_21(policy, told))

    def _add_policy(self, policy: str, told: Told) -> None:
        group = FIG_21.format(policy=policy)
        add = self._report.add
        wanted = sum(RATES_21) / len(RATES_21)
        moves = ", ".join(f"{start:.0f}" for start, _, _ in told.moves) or "none"
        note = f"{len(told.moves)} moves, at second {moves}"
        add(group, f"throughput (arrival: {wanted:,.0f})", OURS, "rows/s", [_rate(told)], note)
        add(group, "query latency", OURS, "ms", [one.latency_s * 1e3 for one in told.asked])
        for phase, rate in enumerate(RATES_21):
            began = phase * self._phase_s
            inside = [one for one in told.asked if began <= one.due < began + self._phase_s]
            if inside:
                latencies = [one.latency_s * 1e3 for one in inside]
                add(group, f"phase {phase + 1}: {rate:,} rows/s", OURS, "ms", latencies)
        alone = [one for one in told.asked if not one.file_rows]
        share = 100 * len(alone) / max(len(told.asked), 1)
        add(group, "queries that read memory alone", OURS, "%", [share])
        self._note_reasons(group, told)

    def _note_reasons(self, group: str, told: Told) -> None:
        if told.reasons:
            self._report.notes.append(f"{group}, tidemill.moves: " + " / ".join(told.reasons))

    # -- goals

    def set_goals(self) -> None:
        if not self._fig21:
            return
        for share, word in ((0.5, "p50"), (0.95, "p95")):
            theirs, mine = (
                percentile([one.latency_s for one in self._fig21[policy].asked], share)
                for policy in POLICIES
            )
            text = f"Fig. 21: adaptive beats periodic in query latency, {word}"
            value = theirs / mine if mine and theirs else None
            self._report.goal_at_least(text, value, 1.0, "×")


def rate_of(told: Told, is_beside: bool) -> float | None:
    """Rows a second that were appended while moves ran, or else between them."""
    spans = sorted((max(0.0, start), min(told.seconds, end)) for start, end, _ in told.moves)
    inside_s = sum(max(0.0, end - start) for start, end in spans)
    seconds = inside_s if is_beside else told.seconds - inside_s
    rows = 0
    for moment, count in told.appended:
        if any(start <= moment < end for start, end in spans) == is_beside:
            rows += count
    return rows / seconds if seconds > 0 else None


def _rate(told: Told) -> float:
    return told.rows / told.seconds


def _shown(costs: dict[str, float]) -> str:
    shown = ", ".join(f"{ns:.1f} ns in {place}" for place, ns in costs.items())
    return f"a row costs {shown}"


# -- charts


def by_second(pairs: Iterable[tuple[float, float]], seconds: float) -> dict[int, list[float]]:
    """Values by the second in which they came.

    >>> by_second([(0.1, 5.0), (0.9, 7.0), (2.5, 1.0), (9.0, 4.0)], 3.0)
    {0: [5.0, 7.0], 1: [], 2: [1.0]}
    """
    found: dict[int, list[float]] = {second: [] for second in range(int(seconds))}
    for moment, value in pairs:
        if int(moment) in found:
            found[int(moment)].append(value)
    return found


def _throughput(told: Told) -> Series:
    found = by_second(told.appended, told.seconds)
    return Series("rows/s", [*map(float, found)], [sum(values) for values in found.values()])


def _latency(told: Told) -> Series:
    pairs = ((one.due, one.latency_s * 1e3) for one in told.asked)
    found = {s: values for s, values in by_second(pairs, told.seconds).items() if values}
    return Series("query, average", [*map(float, found)], [fmean(v) for v in found.values()])


def _moves(told: Told) -> Series:
    starts = [max(start, 0.0) for start, _, _ in told.moves]
    return Series("moves begin", starts, [0.0] * len(starts), is_dots=True)


def _chart_19(policy: str, found: list[tuple[int, Told]]) -> Chart:
    shares = [(rate, Shares.of(told.asked, told.costs)) for rate, told in found]
    known = [(float(rate), each) for rate, each in shares if each is not None]
    rates = [rate for rate, _ in known]
    return Chart(
        f"Fig. 19: {policy} moves",
        "ms",
        "rows a second",
        (
            Series("query, average", rates, [each.query_ms for _, each in known]),
            Series("of it in files", rates, [each.files_ms for _, each in known]),
        ),
        Series("makespan", [float(r) for r, _ in found], [told.makespan_s for _, told in found]),
        "s",
    )


def _chart_20(what: str, told: Told) -> Chart:
    series = (_throughput(told), _moves(told))
    return Chart(f"Fig. 20: {what}", "rows/s", "seconds", series)


def _chart_21(policy: str, told: Told) -> Chart:
    series = (_latency(told), _moves(told))
    title = f"Fig. 21: {policy} moves"
    x_name = f"seconds; queries of the first {WARM_S:g} are not counted"
    return Chart(title, "ms", x_name, series, _throughput(told), "rows/s")
