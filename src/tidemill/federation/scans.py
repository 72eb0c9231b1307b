"""Scans: what a query asks of one streaming table, and the rows that can matter to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.hot.keys import probe
from tidemill.hot.values import Range
from tidemill.hot.wanted import Alternatives, Branch, Condition, Wanted

KEYS_MAX = 10_000  # a longer IN list is cheaper to scan for than to look up
PARTNER_ROWS_MAX = 1_000  # of a table that is read before the stream it is joined with

Asked = tuple[str, str, tuple[object, ...]]  # column, operator, constants


@dataclass(frozen=True)
class AskedBranch:
    """What is asked of a table, or by one branch of an OR: all of ``asked``, and of each of
    ``either`` at least one branch."""

    asked: tuple[Asked, ...]
    either: tuple[tuple[AskedBranch, ...], ...] = ()


NOTHING_ASKED = AskedBranch(())


def wanted_of(
    table: Table, asked: AskedBranch, with_seq: bool, newest: int | None = None
) -> Wanted:
    """The span of time and the indexed conditions in what a query asks of a table.

    Whatever cannot be compared exactly as the index compares it is left out: DuckDB applies the
    query's own predicates to all rows that are selected."""
    found = _branch_of(table, asked)
    return Wanted(
        found.low_us,
        found.high_us,
        found.conditions,
        with_seq,
        newest,
        alternatives=found.alternatives,
    )


def span_of(table: Table, asked: AskedBranch) -> tuple[int | None, int | None]:
    """The span of time that is asked for, both ends included."""
    found = _branch_of(table, asked)
    return found.low_us, found.high_us


def _branch_of(table: Table, asked: AskedBranch) -> Branch:
    low, high, conditions = _conditions_of(table, asked.asked)
    alternatives: list[Alternatives] = []
    for some in asked.either:
        branches = tuple(_branch_of(table, branch) for branch in some)
        if all(branch != Branch() for branch in branches):
            alternatives.append(branches)
            low, high = _narrow(low, high, _spans(branches))
    return Branch(low, high, conditions, tuple(alternatives))


def _spans(branches: Alternatives) -> tuple[Range, ...]:
    return tuple(Range(branch.low_us, True, branch.high_us, True) for branch in branches)


def _conditions_of(
    table: Table, asked: Iterable[Asked]
) -> tuple[int | None, int | None, tuple[Condition, ...]]:
    """A span of time, and a condition for each indexed column of which something is asked."""
    low: int | None = None
    high: int | None = None
    conditions: dict[str, Condition] = {}
    indexed = {name for index in table.indexes for name in index.columns}
    for one in asked:
        condition = condition_of(table, one)
        if condition is None:
            continue
        if condition.column == table.time_column:
            low, high = _narrow(low, high, condition.ranges)
        elif condition.column in indexed:
            known = conditions.get(condition.column)
            conditions[condition.column] = _combine(known, condition)
    return low, high, tuple(conditions.values())


def condition_of(table: Table, asked: Asked) -> Condition | None:
    """What is asked of one column, if it can be compared exactly as an index compares."""
    name, operator, values = asked
    column = table.column(name)
    if column is None:
        return None
    kind = column.type.arrow
    ranges = _points(kind, values) if operator == "in" else _range(kind, operator, values[0])
    return None if ranges is None else Condition(column.name, ranges)


def _points(kind: pa.DataType, values: tuple[object, ...]) -> tuple[Range, ...] | None:
    if len(values) > KEYS_MAX:
        return None
    keys = [probe(kind, value) for value in values if value is not None]
    if any(key is None for key in keys):
        return None
    return tuple(Range(key, True, key, True) for key in dict.fromkeys(keys))


def _range(kind: pa.DataType, operator: str, value: object) -> tuple[Range, ...] | None:
    key: Any = probe(kind, value)
    if key is None:
        return None
    if operator == "=":
        return (Range(key, True, key, True),)
    if operator in (">", ">="):
        return (Range(low=key, low_included=operator == ">="),)
    if operator in ("<", "<="):
        return (Range(high=key, high_included=operator == "<="),)
    return None


def _narrow(
    low: int | None, high: int | None, ranges: tuple[Range, ...]
) -> tuple[int | None, int | None]:
    """Intersect a span of time with the smallest span around some ranges (microseconds)."""
    if not ranges:
        return 1, 0  # nothing can match
    lows = [None if r.low is None else r.low + (not r.low_included) for r in ranges]
    highs = [None if r.high is None else r.high - (not r.high_included) for r in ranges]
    around_low = None if None in lows else min(low for low in lows if low is not None)
    around_high = None if None in highs else max(high for high in highs if high is not None)
    if around_low is not None:
        low = around_low if low is None else max(low, around_low)
    if around_high is not None:
        high = around_high if high is None else min(high, around_high)
    return low, high


def _combine(known: Condition | None, new: Condition) -> Condition:
    """Both hold: keep equality over ranges, and join two open ranges into one."""
    if known is None:
        return new
    if known.is_equality or new.is_equality:
        return min(known, new, key=lambda c: (not c.is_equality, len(c.ranges)))
    if len(known.ranges) == len(new.ranges) == 1:
        a, b = known.ranges[0], new.ranges[0]
        if a.low is None and b.high is None:
            return Condition(new.column, (Range(b.low, b.low_included, a.high, a.high_included),))
        if a.high is None and b.low is None:
            return Condition(new.column, (Range(a.low, a.low_included, b.high, b.high_included),))
    return known
