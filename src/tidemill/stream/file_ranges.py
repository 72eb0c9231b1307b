"""What a scan asks of memory, in the terms in which files are ruled out."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.history.ranges import FileAlternatives, FileBranch, RangeCondition
from tidemill.hot.wanted import Alternatives, Branch, Condition


def ranges_of(conditions: Iterable[Condition]) -> tuple[RangeCondition, ...]:
    return tuple(
        RangeCondition(
            condition.column,
            tuple((r.low, r.low_included, r.high, r.high_included) for r in condition.ranges),
        )
        for condition in conditions
    )


def alternatives_of(given: Iterable[Alternatives]) -> tuple[FileAlternatives, ...]:
    return tuple(tuple(_branch_of(branch) for branch in either) for either in given)


def _branch_of(branch: Branch) -> FileBranch:
    return FileBranch(
        branch.low_us,
        branch.high_us,
        ranges_of(branch.conditions),
        alternatives_of(branch.alternatives),
    )
