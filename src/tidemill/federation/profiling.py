"""Profiling: a query run once under DuckDB's profiler, and what it says as plain data.

DuckDB answers a tree of operators. A scan of files says how many files and row groups it read and
names the first files; that tells to which table it belongs. Times of operators are summed over
threads, so that together they may be longer than the query took.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.federation.duck import Duck
from tidemill.federation.runner import Filled

FILE_SCAN, MEMORY_SCAN = "READ_PARQUET", "PYTHON_ARROW_SCAN"

# Operators of the profiler itself.
_WRAPPERS = frozenset({"RESULT_COLLECTOR", "EXPLAIN_ANALYZE"})
_UNION = "UNION"


@dataclass(frozen=True)
class Operator:
    """One step of DuckDB's plan. ``about`` is what DuckDB tells of it, by heading."""

    kind: str
    rows: int
    elapsed_s: float
    about: Mapping[str, str]
    row_groups: int
    children: tuple[Operator, ...]

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Operator:
        about = {name: _text(value) for name, value in (node.get("extra_info") or {}).items()}
        return cls(
            str(node.get("type", "")),
            int(node.get("intermediate_rows", 0)),
            float(node.get("timing", 0.0)),
            about,
            int(node.get("row_groups_scanned", 0)),
            tuple(cls.of(child) for child in node.get("children", ())),
        )

    @property
    def function(self) -> str:
        """The table function of a scan."""
        return self.about.get("Function", "").upper()

    @property
    def files(self) -> int:
        number = self.about.get("Total Files Read", "0")
        return int(number) if number.isdecimal() else 0

    @property
    def answered(self) -> int:
        """Rows passed on; a union counts none itself."""
        return sum(c.answered for c in self.children) if self.kind == _UNION else self.rows

    def walk(self) -> Iterator[Operator]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Profile:
    """A query's run. ``steps`` are all operators, the last of the plan first."""

    rows: int
    elapsed_s: float
    planning_s: float
    bytes_read: int
    steps: tuple[Operator, ...]


def profile(duck: Duck, filled: Filled) -> Profile:
    """Run a query once, for its profile; the answer is not kept."""
    began = time.perf_counter()
    text = f"EXPLAIN (ANALYZE, FORMAT json) {filled.sql}"
    table, _ = duck.query(text, filled.values, filled.sources)
    elapsed_s = time.perf_counter() - began
    return read_profile(json.loads(str(table.column(1)[0].as_py())), elapsed_s)


def read_profile(told: Any, elapsed_s: float) -> Profile:
    """What DuckDB told, whichever parts of it there are: a constant answer has hardly any."""
    if not isinstance(told, dict):
        told = {}
    roots = [Operator.of(node) for node in told.get("operator", ())]
    steps = [step for root in roots for step in root.walk() if step.kind not in _WRAPPERS]
    phases = ("planner", "optimizer", "physical_planner")
    return Profile(
        steps[0].answered if steps else 0,
        elapsed_s,
        sum(float(told.get(phase, {}).get("total_time", 0.0)) for phase in phases),
        int(told.get("io", {}).get("total_bytes_read", 0)),
        tuple(steps),
    )


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
