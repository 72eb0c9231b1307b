"""The page of a run: the verdict, response times, processor, memory, one-time queries, plots.

Printed to the terminal and written as a page (``.md``), its picture (``.svg``) and its numbers
(``.json``), so all say the same. Runs at real rate and full load go to ``benchmarks/results``, all
others to ``.benchmarks/results``, where they replace nothing.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from benchmarks.harness import KEEP, ROOT, console
from benchmarks.linear_road.comparison import LATE_SECONDS, Kind
from benchmarks.linear_road.onetime import SIZES, Asked
from benchmarks.linear_road.plots import Chart, Series, panels
from benchmarks.linear_road.run import Outcome
from benchmarks.linear_road.sampling import Sample
from benchmarks.linear_road.staging import HISTORY_MINUTES
from benchmarks.linear_road.traffic import PEAK_PER_MINUTE, RAMP_MINUTES
from benchmarks.machine import describe_machine, describe_versions
from benchmarks.report import number

MEAN_SECONDS_MAX = 0.5
OTQ_SECONDS_MAX = 0.1
MEMORY_BYTES_MAX = 2_500_000_000  # Java and Python workers included
GOAL_XWAYS = 2  # of more expressways only right answers in time are asked
GOAL_HIGHEST = {10: 40, 0: 60}  # L that is to hold, by the minutes it holds for at least
FULL_MINUTES = 30  # a run that is shorter is a trial, unless it belongs to a search
LOADS_MINUTES = 9  # the same of a run that goes through several loads of one-time queries
NO_INDICES_MINUTES = 6  # and of one without indices
POINTS_MAX = 240  # of a line
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Seconds of many answers."""

    count: int
    low: float
    mean: float
    median: float
    p99: float
    high: float
    late: int

    def cells(self) -> list[str]:
        seconds = (self.low, self.mean, self.median, self.p99, self.high)
        return [f"{self.count:,}", *(f"{value:.3f}" for value in seconds), f"{self.late:,}"]


_HEADS = ["", "answers", "min s", "mean s", "median s", "p99 s", "max s", "over 5 s"]


def spread(seconds: Floats) -> Spread | None:
    """None if there are none."""
    if not len(seconds):
        return None
    median, p99 = np.quantile(seconds, [0.5, 0.99])
    return Spread(
        len(seconds),
        float(seconds.min()),
        float(seconds.mean()),
        float(median),
        float(p99),
        float(seconds.max()),
        int((seconds > LATE_SECONDS).sum()),
    )


class Page:
    """Everything that is told of a run."""

    def __init__(
        self, outcome: Outcome, folder: Path, found: tuple[int, list[tuple[int, Outcome]]] | None
    ) -> None:
        self.outcome = outcome
        self.found = found
        self.began_at = time.gmtime()
        self.machine = describe_machine(folder)
        self.versions = describe_versions()
        answers = outcome.answers
        self.times: dict[str, tuple[npt.NDArray[np.int32], Floats]] = {}
        for name, table in (
            ("toll notifications", answers.tolls),
            ("accident notifications", answers.accidents),
            ("account balances", answers.balances),
            ("daily expenditures", answers.expenditures),
        ):
            at = table.column("time").to_numpy()
            self.times[name] = at, table.column("emit").to_numpy() - at

    # -- what it says

    @property
    def title(self) -> str:
        request, stage = self.outcome.request, self.outcome.stage
        plusses = "++" if request.otq_per_minute else "+"
        return f"Linear Road, L{stage.xways}{plusses}"

    def verdict_line(self) -> str:
        outcome = self.outcome
        if outcome.ok:
            return "Every answer was right and within 5 seconds."
        first, *others = outcome.faults
        return f"NOT good: {first}" + (f"; and {len(others)} faults more" if others else "")

    def about(self) -> str:
        """How it was run, in one paragraph."""
        outcome, told = self.outcome, self.outcome.measured
        request, stage = outcome.request, outcome.stage
        rate = "as fast as it went" if request.rate is None else f"{request.rate:g} × real rate"
        rate = "real rate" if request.rate == 1 else rate
        minutes = (stage.last - stage.first + 1) / 60
        lines = [
            f"{_count(stage.xways, 'expressway')}, minutes {stage.first / 60:g} to "
            f"{(stage.last + 1) / 60:g}, {stage.rows:,} rows, at {rate} "
            f"({told.seconds:,.0f} s for {_count(round(minutes), 'minute')} of traffic).",
        ]
        if request.plan is not None:
            lines.append(f"Seed {request.plan.seed}.")
        if not request.has_indices:
            lines.append("The reports have no indices.")
        if outcome.history_rows:
            lines.append(f"{outcome.history_rows:,} reports of history were there before.")
        if request.otq_per_minute:
            loads = [f"{load:g}" for load in request.otq_per_minute]
            lines.append(f"{', then '.join(loads)} one-time queries a minute.")
        if told.moves:
            moves = _count(told.moves, "move")
            lines.append(f"{moves} took {told.moved_rows:,} rows to history meanwhile.")
        if told.late_feeds:
            late = _count(told.late_feeds, "second")
            lines.append(f"The input of {late} was handed over more than 50 ms after its moment.")
        return " ".join(lines)

    def responses(self) -> dict[str, Spread]:
        found = {name: spread(seconds) for name, (_, seconds) in self.times.items()}
        return {name: one for name, one in found.items() if one is not None}

    def questions(self) -> dict[str, Spread]:
        """The one-time queries by how many there were a minute and by how many rows they asked
        for, and all."""
        asked = self.outcome.measured.asked
        loads = self.outcome.request.otq_per_minute
        found = {
            f"{load:g} a minute, about {size:,} rows": spread(
                _latencies([a for a in asked if (a.per_minute, a.size) == (load, size)])
            )
            for load in loads
            for size in SIZES
        }
        found["all"] = spread(_latencies(asked))
        return {name: one for name, one in found.items() if one is not None}

    def usage(self) -> dict[str, list[str]]:
        samples = self.outcome.measured.samples
        if not samples:
            return {}
        rows = {"processor (cores)": [s.cores for s in samples]}
        rows["memory (MB)"] = [s.resident / 1e6 for s in samples]
        rows["memory no file backs (MB)"] = [s.anonymous / 1e6 for s in samples]
        if any(s.java_resident for s in samples):
            rows["Java's processor (cores)"] = [s.java_cores for s in samples]
            rows["Java's memory (MB)"] = [s.java_resident / 1e6 for s in samples]
            rows["memory in all (MB)"] = [_all_bytes(s) / 1e6 for s in samples]
        return {
            name: [number(each) for each in (min(v), float(np.mean(v)), max(v))]
            for name, v in rows.items()
        }

    def load_costs(self) -> list[list[str]]:
        """What each load of one-time queries cost: the part of the run in which there were so many,
        by processor, memory, and how long answers took meanwhile. Empty if there was one load."""
        loads, told = self.outcome.request.otq_per_minute, self.outcome.measured
        stage, rate = self.outcome.stage, self.outcome.request.rate
        if len(loads) < 2 or rate is None or not told.samples:
            return []
        part = (stage.last - stage.first + 1) / rate / len(loads)
        at = np.concatenate([times for times, _ in self.times.values()])
        seconds = np.concatenate([taken for _, taken in self.times.values()])
        parts = ((at - stage.first) / rate // part).astype(int)
        rows = []
        for number_, load in enumerate(loads):
            samples = [s for s in told.samples if number_ <= s.at / part < number_ + 1]
            taken = spread(seconds[parts == number_])
            if samples and taken is not None:
                cores = float(np.mean([s.cores + s.java_cores for s in samples]))
                memory = float(np.mean([_all_bytes(s) for s in samples])) / 1e6
                times = [f"{taken.mean:.3f}", f"{taken.p99:.3f}", f"{taken.high:.3f}"]
                rows.append([f"{load:g}", f"{cores:.3f}", number(memory), *times])
        return rows

    def goals(self) -> list[tuple[str, str, bool | None]]:
        """What is asked of a run, what it reached, and whether that is enough."""
        outcome = self.outcome
        goals: list[tuple[str, str, bool | None]] = [
            ("every answer right and within 5 s", self.verdict_line(), outcome.ok)
        ]
        plan = outcome.request.plan
        if self.found is not None and plan is not None:
            minutes = plan.minutes - plan.from_minute
            goal = next(goal for least, goal in GOAL_HIGHEST.items() if minutes >= least)
            what = f"highest L that holds for {minutes} minutes at the peak: {goal}"
            goals.append((what, f"L = {self.found[0]}", self.found[0] >= goal))
        if not outcome.request.has_indices:  # a comparison: nothing more is asked of it
            return goals
        if plan is not None and plan.xways > GOAL_XWAYS:
            return goals
        slowest = max((one.mean for one in self.responses().values()), default=0.0)
        if outcome.request.rate is not None:
            # An answer that is missing has no response time, and would make the mean look better.
            is_whole = self._kinds() and not any(kind.missing for kind in self._kinds())
            passed = slowest <= MEAN_SECONDS_MAX if is_whole else None
            text = f"{slowest:.3f} s, of the slowest kind" if is_whole else "answers are missing"
            goals.append(("mean response ≤ 0.5 s", text, passed))
        asked = self.questions()
        if asked:
            slowest = max(one.mean for one in asked.values())
            text = f"{slowest:.3f} s, of the slowest load and size"
            goals.append(("one-time queries: mean ≤ 0.1 s", text, slowest <= OTQ_SECONDS_MAX))
        samples = outcome.measured.samples
        if samples:
            most = max(map(_all_bytes, samples))
            goals.append(("memory ≤ 2.5 GB", f"{most / 1e9:.2f} GB", most <= MEMORY_BYTES_MAX))
        return goals

    # -- showing

    def print(self) -> None:
        console.rule(f"[bold]{self.title}")
        console.print(self.about())
        _table(_HEADS, [[name, *one.cells()] for name, one in self.responses().items()])
        if asked := self.questions():
            heads = ["one-time queries", *_HEADS[1:]]
            _table(heads, [[name, *one.cells()] for name, one in asked.items()])
        _table(_USED, [[name, *cells] for name, cells in self.usage().items()])
        _table(_COSTS, self.load_costs())
        _table(["goal", "reached", ""], [[t, r, _word(p)] for t, r, p in self.goals()])
        for kind in self._kinds():
            if not kind.ok:
                console.print(str(kind), markup=False)
        colour = "green" if self.outcome.ok else "red"
        console.print(f"[bold {colour}]{self.verdict_line()}")

    def write(self, name: str) -> Path:
        folder = (ROOT / "benchmarks" if self.is_full else KEEP) / "results"
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / f"{time.strftime('%Y-%m-%d', self.began_at)}-{name}"
        stem.with_suffix(".svg").write_text(panels(self.charts()))
        stem.with_suffix(".json").write_text(json.dumps(self.as_json(), indent=2) + "\n")
        page = stem.with_suffix(".md")
        page.write_text("\n".join(self.lines(stem.with_suffix(".svg").name)) + "\n")
        console.print(f"written: {page.relative_to(ROOT)}, .svg and .json")
        return page

    @property
    def is_full(self) -> bool:
        """Whether the numbers are worth keeping in the repository."""
        request = self.outcome.request
        plan = request.plan
        return (
            plan is not None
            and (request.rate == 1 or (self._is_whole and (request.rate or 0) > 1))
            and (plan.peak_per_minute, plan.ramp_minutes) == (PEAK_PER_MINUTE, RAMP_MINUTES)
            and plan.minutes >= HISTORY_MINUTES
            and (self.found is not None or plan.minutes - plan.from_minute >= self._least_minutes)
        )

    @property
    def _is_whole(self) -> bool:
        """Whether it has all three hours; then it may be faster than real."""
        plan = self.outcome.request.plan
        return plan is not None and plan.minutes - plan.from_minute >= HISTORY_MINUTES

    @property
    def _least_minutes(self) -> int:
        if not self.outcome.request.has_indices:
            return NO_INDICES_MINUTES
        return LOADS_MINUTES if len(self.outcome.request.otq_per_minute) > 1 else FULL_MINUTES

    def lines(self, picture: str) -> list[str]:
        lines = [f"# {self.title}", "", time.strftime("%Y-%m-%d %H:%M UTC", self.began_at), ""]
        lines += [self.about(), "", f"![plots]({picture})", ""]
        lines += ["## Goals", ""]
        lines += _rows(["goal", "reached", ""], [[t, r, _word(p)] for t, r, p in self.goals()])
        lines += ["", "## Response times", ""]
        lines += _rows(_HEADS, [[name, *one.cells()] for name, one in self.responses().items()])
        lines += ["", "From the moment of a row's second to the moment at which the answer was"]
        lines += ["read. The judge says:", ""]
        lines += [f"- {str(kind).splitlines()[0]}" for kind in self._kinds()]
        if asked := self.questions():
            lines += ["", "## One-time queries", ""]
            lines += _rows(_HEADS, [[name, *one.cells()] for name, one in asked.items()])
            lines += ["", "From the moment at which a query was due until all its rows were there;"]
            lines += ["every one was checked by the number of its rows."]
        lines += ["", "## Processor and memory", ""]
        lines += _rows(_USED, [[name, *cells] for name, cells in self.usage().items()])
        if costs := self.load_costs():
            lines += ["", "## What one-time queries cost", "", *_rows(_COSTS, costs)]
            lines += ["", "Means over the part of the run with so many, Java and workers included;"]
            lines += ["the times are those of the other answers meanwhile."]
        if self.found is not None:
            lines += ["", "## Search", "", *_rows(*_searched(self.found[1]))]
        lines += ["", "## Machine and versions", ""]
        told = {**self.machine, **self.versions, "jobs": self.outcome.request.spark_master}
        return lines + [f"- {key}: {value}" for key, value in told.items()]

    def as_json(self) -> dict[str, Any]:
        outcome = self.outcome
        return {
            "name": "linear_road",
            "began_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", self.began_at),
            "about": self.about(),
            "ok": outcome.ok,
            "faults": outcome.faults,
            "goals": [list(goal) for goal in self.goals()],
            "responses": {name: asdict(one) for name, one in self.responses().items()},
            "one_time_queries": {name: asdict(one) for name, one in self.questions().items()},
            "verdict": [asdict(kind) for kind in self._kinds()],
            "usage": self.usage(),
            "load_costs": [dict(zip(_COSTS, row, strict=True)) for row in self.load_costs()],
            "tried": [] if self.found is None else [[x, o.ok] for x, o in self.found[1]],
            "machine": self.machine,
            "versions": self.versions,
        }

    def _kinds(self) -> tuple[Kind, ...]:
        return () if self.outcome.verdict is None else self.outcome.verdict.kinds

    # -- plots

    def charts(self) -> list[Chart]:
        stage, told = self.outcome.stage, self.outcome.measured
        load = self._load()
        first, rate = stage.first / 60, self.outcome.request.rate
        charts = [self._response_chart(load)]

        def minutes(at: float) -> float:
            return first + at * (rate or (stage.last - stage.first + 1) / told.seconds) / 60

        x = [minutes(sample.at) for sample in told.samples]
        name = "simulated minute"
        cores: tuple[Series, ...] = (
            Series("cores in use", *_thin(x, [s.cores for s in told.samples])),
        )
        resident = [s.resident / 1e6 for s in told.samples]
        memory: tuple[Series, ...] = (Series("resident", *_thin(x, resident)),)
        if any(sample.java_resident for sample in told.samples):
            java_cores = [s.java_cores for s in told.samples]
            java = [s.java_resident / 1e6 for s in told.samples]
            cores = (*cores, Series("Java's", *_thin(x, java_cores)))
            memory = (*memory, Series("Java's", *_thin(x, java)))
        charts.append(Chart("Processor", "cores", name, cores, load, "reports/min"))
        charts.append(Chart("Memory", "MB", name, memory, load, "reports/min"))
        if told.asked:
            series = tuple(
                Series(
                    f"about {size:,} rows",
                    [minutes(a.due) for a in told.asked if a.size == size],
                    [a.latency_s for a in told.asked if a.size == size],
                    is_dots=True,
                )
                for size in SIZES
            )
            title = "One-time queries over past reports"
            charts.append(Chart(title, "s", name, series, limit=OTQ_SECONDS_MAX))
        return charts

    def _load(self) -> Series:
        stage = self.outcome.stage
        reports = stage.reports_by_minute().tolist()
        ends = [float(stage.first_minute + at) for at in range(len(reports))]
        ends.append((stage.last + 1) / 60)
        x = [end for pair in pairwise(ends) for end in pair]
        return Series("reports a minute", x, [count for count in reports for _ in range(2)])

    def _response_chart(self, load: Series) -> Chart:
        """By the minute; of a short run by shorter steps."""
        stage = self.outcome.stage
        at = np.concatenate([times for times, _ in self.times.values()])
        seconds = np.concatenate([taken for _, taken in self.times.values()])
        step = max(1, min(60, (stage.last - stage.first + 1) // 60))
        bins = (at - stage.first) // step
        order = np.argsort(bins, kind="stable")
        bins, seconds = bins[order], seconds[order]
        known, starts = np.unique(bins, return_index=True)
        pieces = np.split(seconds, starts[1:]) if len(known) else []
        x = [(stage.first + (float(b) + 0.5) * step) / 60 for b in known]
        means = [float(piece.mean()) for piece in pieces]
        highs = [float(piece.max()) for piece in pieces]
        series = (Series("mean", x, means), Series("slowest", x, highs))
        title = "Response time of all answers"
        return Chart(
            title, "s", "simulated minute", series, load, "reports/min", limit=LATE_SECONDS
        )


_USED = ["", "min", "mean", "max"]
_COSTS = ["one-time queries a minute", "cores", "memory (MB)", "mean s", "p99 s", "max s"]


def _all_bytes(sample: Sample) -> int:
    return sample.resident + sample.java_resident


def _latencies(asked: list[Asked]) -> Floats:
    return np.array([one.latency_s for one in asked], np.float64)


def _thin(x: list[float], y: list[float]) -> tuple[list[float], list[float]]:
    """So few points that each can be seen: the highest of every few."""
    every = -(-len(x) // POINTS_MAX) or 1
    starts = range(0, len(x), every)
    return [x[at] for at in starts], [max(y[at : at + every]) for at in starts]


def _searched(tried: list[tuple[int, Outcome]]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for xways, outcome in tried:
        taken = [
            table.column("emit").to_numpy() - table.column("time").to_numpy()
            for table in (outcome.answers.tolls, outcome.answers.balances)
        ]
        seconds = spread(np.concatenate(taken))
        cores = [sample.cores for sample in outcome.measured.samples]
        times = ["–", "–"] if seconds is None else [f"{seconds.mean:.3f}", f"{seconds.high:.3f}"]
        used = f"{np.mean(cores):.2f}" if cores else "–"
        word = "holds" if outcome.ok else "; ".join(outcome.faults)
        rows.append([str(xways), *times, used, word])
    return ["L", "mean s", "max s", "cores", ""], rows


def _count(number: int, noun: str) -> str:
    """
    >>> _count(1, "move"), _count(2_000, "move")
    ('1 move', '2,000 moves')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _word(passed: bool | None) -> str:
    return {True: "PASS", False: "FAIL", None: "NOT MEASURED"}[passed]


def _table(heads: list[str], rows: list[list[str]]) -> None:
    if rows:
        table = Table(*heads)
        for row in rows:
            table.add_row(*row)
        console.print(table)


def _rows(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return lines
