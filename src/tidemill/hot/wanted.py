"""What a scan can need of a table: a span of time, conditions on columns, and alternatives."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tidemill.hot.values import Range


@dataclass(frozen=True)
class Condition:
    """What a query surely asks of one column: any of the ranges (an equality is a range)."""

    column: str
    ranges: tuple[Range, ...]

    @property
    def is_equality(self) -> bool:
        return all(r.low is not None and r.low == r.high for r in self.ranges)


@dataclass(frozen=True)
class Branch:
    """One of several alternatives: a span of time (both ends included), conditions, and further
    alternatives, all of which hold there."""

    low_us: int | None = None
    high_us: int | None = None
    conditions: tuple[Condition, ...] = ()
    alternatives: tuple[Alternatives, ...] = ()


Alternatives = tuple[Branch, ...]
"""An OR: at least one of the branches holds."""


@dataclass(frozen=True)
class Wanted:
    """What a scan can need: a span of time (both ends included), conditions on columns, and
    alternatives; all of them hold.

    ``newest`` is set when only so many of the newest rows of the span matter (and no condition
    is asked besides). ``horizon_us`` is the oldest time that may be seen at all: while the rest
    may select too much, no older row is ever selected."""

    low_us: int | None = None
    high_us: int | None = None
    conditions: tuple[Condition, ...] = ()
    with_seq: bool = False
    newest: int | None = None
    horizon_us: int | None = None
    alternatives: tuple[Alternatives, ...] = ()

    @property
    def span(self) -> tuple[int | None, int | None]:
        """The span of time, both ends included."""
        return self.low_us, self.high_us

    def within(self, horizon_us: int | None) -> Wanted:
        """The same, of rows that may be seen."""
        if horizon_us is None:
            return self
        low_us = horizon_us if self.low_us is None else max(self.low_us, horizon_us)
        return replace(self, low_us=low_us, horizon_us=horizon_us)


def without_columns(wanted: Wanted, columns: Collection[str]) -> Wanted:
    """The same without what is asked of some columns."""
    if not columns:
        return wanted
    lower = {name.lower() for name in columns}
    conditions = tuple(c for c in wanted.conditions if c.column.lower() not in lower)
    alternatives = tuple(a for a in wanted.alternatives if not _mentions(a, lower))
    return replace(wanted, conditions=conditions, alternatives=alternatives)


def _mentions(alternatives: Alternatives, lower: Collection[str]) -> bool:
    return any(
        any(condition.column.lower() in lower for condition in branch.conditions)
        or any(_mentions(each, lower) for each in branch.alternatives)
        for branch in alternatives
    )
