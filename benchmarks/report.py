"""Reports: what was measured, how it compares, and whether the goals were reached.

One object collects measurements, goals and checks of answers; it is printed to the terminal and
written as JSON (for programs) and as a page (for people), so all three say the same.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness import KEEP, ROOT, Options, Summary, console, summarise
from benchmarks.linear_road.plots import Chart, panels
from benchmarks.machine import describe_machine, describe_versions

OURS = "tidemill"
_RUNS_KEPT_MAX = 50


@dataclass(frozen=True)
class Measurement:
    """One thing measured of one system. ``unit`` is rows/s, statements/s, … or ms, s, ratio."""

    group: str
    what: str
    system: str
    unit: str
    summary: Summary
    runs: tuple[float, ...]
    note: str = ""
    is_compared: bool = True

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")


@dataclass(frozen=True)
class Goal:
    """A stated goal, the value reached, and whether that is enough."""

    text: str
    reached: str
    passed: bool | None

    @property
    def word(self) -> str:
        return {True: "PASS", False: "FAIL", None: "NOT MEASURED"}[self.passed]


@dataclass(frozen=True)
class Check:
    """Whether a system's answers were right (or the same as the others')."""

    system: str
    what: str
    passed: bool
    detail: str = ""


class Report:
    def __init__(self, name: str, title: str, options: Options, folder: Path) -> None:
        self.name = name
        self.title = title
        self.options = options
        self.began_at = time.gmtime()
        self.machine = describe_machine(folder)
        self.versions = describe_versions()
        self.systems: dict[str, dict[str, str]] = {}
        self.missing: dict[str, str] = {}
        self.measurements: list[Measurement] = []
        self.goals: list[Goal] = []
        self.checks: list[Check] = []
        self.notes: list[str] = []
        self.charts: list[Chart] = []
        if self.machine["file system of the data"] in ("tmpfs", "ramfs"):
            self.notes.append("The data lay in memory: nothing durable was measured. Use --folder.")

    # -- collecting

    def add(
        self,
        group: str,
        what: str,
        system: str,
        unit: str,
        values: list[float],
        note: str = "",
        is_compared: bool = True,
    ) -> Measurement:
        kept = tuple(values) if len(values) <= _RUNS_KEPT_MAX else ()
        made = Measurement(group, what, system, unit, summarise(values), kept, note, is_compared)
        self.measurements.append(made)
        return made

    def find(self, group: str, what: str, system: str) -> Measurement | None:
        wanted = (group, what, system)
        return next((m for m in self.measurements if (m.group, m.what, m.system) == wanted), None)

    def ratio(self, measured: Measurement) -> float | None:
        """How many times better Tidemill is than a peer at the same thing; above 1 is ahead."""
        ours = self.find(measured.group, measured.what, OURS)
        if ours is None or measured.system == OURS or not measured.is_compared:
            return None
        mine, theirs = ours.summary.median, measured.summary.median
        better, worse = (mine, theirs) if measured.is_rate else (theirs, mine)
        return better / worse if worse else None

    def goal_at_least(self, text: str, value: float | None, bound: float, unit: str = "") -> None:
        self._goal(text, value, value is not None and value >= bound, unit)

    def goal_at_most(self, text: str, value: float | None, bound: float, unit: str = "") -> None:
        self._goal(text, value, value is not None and value <= bound, unit)

    def _goal(self, text: str, value: float | None, passed: bool, unit: str) -> None:
        reached = "not measured" if value is None else f"{number(value)} {unit}".strip()
        self.goals.append(Goal(text, reached, None if value is None else passed))

    def check(self, system: str, what: str, passed: bool, detail: str = "") -> None:
        self.checks.append(Check(system, what, passed, detail))
        if not passed:
            console.print(f"[bold red]wrong answer[/] from {system}: {what} {detail}")

    @property
    def answers_are_right(self) -> bool:
        """Whether every answer was right, and Tidemill gave some."""
        return OURS not in self.missing and all(check.passed for check in self.checks)

    # -- showing

    def print(self) -> None:
        console.rule(f"[bold]{self.title}")
        for group, rows in self._tables():
            table = Table("", *_HEADS, title=group, title_justify="left")
            for row in rows:
                table.add_row(*row, style="bold" if row[1] == OURS else None)
            console.print(table)
        for name, reason in self.missing.items():
            console.print(f"[yellow]missing: {name}[/] ({reason})")
        goals = Table("goal", "reached", "", title="Goals", title_justify="left")
        for goal in self.goals:
            colour = {True: "green", False: "red", None: "yellow"}[goal.passed]
            goals.add_row(goal.text, goal.reached, f"[bold {colour}]{goal.word}")
        console.print(goals)
        console.print(self._checks_line())

    def write(self) -> Path:
        """Write the JSON and the page; small runs go beside the repository's results, not in."""
        folder = (ROOT / "benchmarks" if self.options.is_full else KEEP) / "results"
        folder.mkdir(parents=True, exist_ok=True)
        stem = folder / f"{time.strftime('%Y-%m-%d', self.began_at)}-{self.name}"
        stem.with_suffix(".json").write_text(json.dumps(self._as_json(), indent=2) + "\n")
        page = stem.with_suffix(".md")
        picture = ""
        if self.charts:
            picture = stem.with_suffix(".svg").name
            stem.with_suffix(".svg").write_text(panels(self.charts))
        page.write_text("\n".join(self._page(picture)) + "\n")
        console.print(f"written: {page.relative_to(ROOT)} and .json")
        return page

    def _as_json(self) -> dict[str, Any]:
        measured = []
        for m in self.measurements:
            measured.append({**asdict(m), "tidemill_is_times_better": self.ratio(m)})
        return {
            "name": self.name,
            "began_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", self.began_at),
            "options": asdict(self.options),
            "machine": self.machine,
            "versions": self.versions,
            "systems": self.systems,
            "missing": self.missing,
            "goals": [asdict(goal) for goal in self.goals],
            "measurements": measured,
            "checks": [asdict(check) for check in self.checks],
            "charts": [asdict(chart) for chart in self.charts],
            "notes": self.notes,
        }

    def _tables(self) -> list[tuple[str, list[list[str]]]]:
        tables = []
        for group, members in groupby(self.measurements, lambda m: m.group):
            rows, last = [], None
            for m in members:
                rows.append([m.what if m.what != last else "", *self._cells(m)])
                last = m.what
            tables.append((group, rows))
        return tables

    def _cells(self, m: Measurement) -> list[str]:
        s = m.summary
        tail = "" if s.p95 is None or s.p99 is None else f"{number(s.p95)} / {number(s.p99)}"
        ratio = self.ratio(m)
        middle = f"{number(s.median)} {m.unit}"
        spread = f"{number(s.low)} – {number(s.high)}" if s.runs > 1 else ""
        return [m.system, middle, spread, tail, f"{number(ratio)}×" if ratio else "", m.note]

    def _checks_line(self) -> str:
        wrong = [c for c in self.checks if not c.passed]
        if not self.checks:
            return "Answers: none were checked."
        if not wrong:
            return f"Answers: {len(self.checks)} checks, all right."
        listed = "; ".join(f"{c.system}: {c.what} {c.detail}" for c in wrong)
        return f"Answers: {len(wrong)} of {len(self.checks)} checks WRONG: {listed}"

    def _page(self, picture: str) -> list[str]:
        options = self.options
        size = f"{options.rows:,} rows, {options.repeat} repetitions"
        lines = [f"# {self.title}", "", time.strftime("%Y-%m-%d %H:%M UTC", self.began_at), ""]
        lines += [f"{size}. Medians; spread is smallest to largest. The column *Tidemill is* says"]
        lines += ["how many times better Tidemill's median is than the peer's.", ""]
        lines += ["## Goals", "", *_rows(["goal", "reached", ""], self._goal_rows()), ""]
        lines += [self._checks_line(), ""]
        lines += [f"![{self.title}]({picture})", ""] if picture else []
        lines += [f"Missing: {name} ({reason})" for name, reason in self.missing.items()]
        for group, rows in self._tables():
            lines += ["", f"## {group}", "", *_rows(["", *_HEADS], rows)]
        lines += ["", "## Systems and their settings", ""]
        for name, settings in self.systems.items():
            told = "; ".join(f"{key} = {value}" for key, value in settings.items())
            lines.append(f"- **{name}**: {told}")
        lines += ["", "## Machine and versions", ""]
        for name, value in {**self.machine, **self.versions}.items():
            lines.append(f"- {name}: {value}")
        if self.notes:
            lines += ["", "## Notes", "", *(f"- {note}" for note in self.notes)]
        return lines

    def _goal_rows(self) -> list[list[str]]:
        return [[goal.text, goal.reached, goal.word] for goal in self.goals]


_HEADS = ("system", "median", "spread", "p95 / p99", "Tidemill is", "")


def _rows(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return lines


def number(value: float) -> str:
    """A number with about three digits that mean something.

    >>> number(3_456_789), number(12.345), number(0.01234)
    ('3,456,789', '12.3', '0.0123')
    """
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.3g}"
