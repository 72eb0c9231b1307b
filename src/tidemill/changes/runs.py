"""Runs: changes that can be looked at together, since none of them reads what another one sets.

Changes mean the rows as those before them left them. Where no change reads a column that an earlier
one sets, each finds the values that it means in the rows as they are, so all are compared at once
and of each column the last value counts; a row that any of them deletes is gone. So a thousand
corrections of a sensor's readings are one step, and only what builds upon other changes waits for a
step of its own:

1. a change begins a new run if it reads a column that one of the run sets,
2. unless both name rows by equality of the same columns, and other values: then no row is in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from tidemill.changes.model import Change, ChangeForm, Spans

Keys: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Changes of one form that spare the same rows, in their order."""

    form: ChangeForm
    spared: Spans
    changes: list[Change] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many corrections they have."""
        return sum(change.count for change in self.changes)


@dataclass
class Run:
    """Changes that are compared at once."""

    groups: dict[tuple[ChangeForm, Spans], Group] = field(default_factory=dict)
    tables: tuple[pa.Table, ...] = ()  # the corrections of each group, once they were asked for
    # By column that is set: by which columns all who set it name their rows, and which rows; None
    # if some do so in other ways.
    _writers: dict[str, tuple[Keys, set[object]] | None] = field(default_factory=dict)

    @property
    def writes(self) -> frozenset[str]:
        return frozenset(self._writers)

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups.values())

    @property
    def low_us(self) -> int:
        return min(change.low_us for change in self.changes())

    @property
    def high_us(self) -> int:
        return max(change.high_us for change in self.changes())

    @property
    def upto_seq(self) -> int:
        return max(change.upto_seq for change in self.changes())

    @property
    def places(self) -> dict[int, int]:
        """Of each change, by its number, the place of its first correction among all of the run:
        later ones count."""
        found, place = {}, 0
        for change in sorted(self.changes(), key=lambda change: change.number):
            found[change.number] = place
            place += change.count
        return found

    def changes(self) -> Iterator[Change]:
        for group in self.groups.values():
            yield from group.changes

    def takes(self, change: Change) -> bool:
        """Whether a change can be compared together with those of the run."""
        met = [self._writers[name] for name in change.form.reads if name in self._writers]
        if not met:
            return True
        own = _keys_of(change)
        if own is None:
            return False
        names, values = own
        return all(
            other is not None and other[0] == names and not values & other[1] for other in met
        )

    def add(self, change: Change) -> None:
        key = change.form, change.spared
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(*key)
        group.changes.append(change)
        named = _keys_of(change) if change.form.sets else None
        for name, _ in change.form.sets:
            # Rows whose name a change sets are not told apart by it any more.
            own = None if named is None or name in named[0] else named
            known = self._writers.get(name)
            if name not in self._writers:
                self._writers[name] = None if own is None else (own[0], set(own[1]))
            elif known is not None:
                if own is None or known[0] != own[0]:
                    self._writers[name] = None
                else:
                    known[1].update(own[1])


def runs_of(changes: Iterable[Change]) -> list[Run]:
    """The runs of changes, which come in their order."""
    runs: list[Run] = []
    for change in changes:
        if not runs or not runs[-1].takes(change):
            runs.append(Run())
        runs[-1].add(change)
    return runs


def _keys_of(change: Change) -> tuple[Keys, set[object]] | None:
    """The columns by whose values rows are named, and these; None if they are named otherwise, or
    if one correction of the change may meet a row of another."""
    form = change.form
    if not form.keys or change.batch is not None:
        return None
    ordered = sorted(form.keys)
    names = tuple(name for name, _ in ordered)
    values: set[object] = {tuple([row[slot] for _, slot in ordered]) for row in change.rows}
    if any(each != each for key in values for each in key):  # type: ignore[attr-defined]
        return None  # NaN, which SQL takes for equal to itself
    return (names, values) if len(values) == len(change.rows) else None
