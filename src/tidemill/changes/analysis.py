"""Analysis: which of the changes that wait concern a reader, and by which rule the others do not.

Changes of one form are looked at together, in arrays. The rules are asked what matters to a reader
as it is; if something does, then so do the rows and columns before it that it depends on: the
reader needs more, and the rules are asked again, until nothing is added (§III-B7, dependencies). A
round that adds something adds a column or takes away what is known of one, so there are at most as
many rounds as columns, and a change is compared at most ``rounds × RULES`` times, in whatever
order changes and readers come (§III-B8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidemill.changes.alike import Alike
from tidemill.changes.model import Change, ChangeForm
from tidemill.changes.needed import Needed
from tidemill.changes.rules import RULES

MATTERS = -1
_UNSEEN = 127
Verdicts = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Analysis:
    """Of every change the rule that left it out, by its place in ``RULES``, or ``MATTERS``."""

    verdicts: Verdicts
    rounds: int = 0

    @property
    def concerning(self) -> npt.NDArray[np.intp]:
        """The places of changes that may matter."""
        return np.flatnonzero(self.verdicts == MATTERS)

    def left_out(self) -> dict[str, int]:
        """How many changes each rule left out."""
        numbers, counts = np.unique(self.verdicts[self.verdicts != MATTERS], return_counts=True)
        return {
            RULES[number].why: count
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        }


NO_CHANGES = Analysis(np.empty(0, dtype=np.int8))


def analysed(groups: Mapping[ChangeForm, Alike], count: int, needed: Needed) -> Analysis:
    """What ``count`` changes, by their forms, are to a reader."""
    if not count:
        return NO_CHANGES
    rounds = 0
    while True:
        rounds += 1
        verdicts = np.full(count, _UNSEEN, dtype=np.int8)
        wider = needed
        for alike in groups.values():
            if _judge(alike, needed, verdicts):
                wider = wider.before(alike.form)
        if wider is needed:
            verdicts[verdicts == _UNSEEN] = len(RULES) - 1  # changes without any correction
            return Analysis(verdicts, rounds)
        needed = wider


def _judge(alike: Alike, needed: Needed, verdicts: Verdicts) -> bool:
    """Note the verdict on each change of a form; answers whether any matters."""
    found = np.full(alike.count, MATTERS, dtype=np.int8)
    for number, rule in enumerate(RULES):
        mask = rule.may_matter(alike, needed)
        found[(found == MATTERS) & ~mask] = number
        if not (found == MATTERS).any():
            break
    np.minimum.at(verdicts, alike.owners, found)  # of many corrections one may matter
    return bool((found == MATTERS).any())


def grouped(changes: Sequence[Change]) -> dict[ChangeForm, Alike]:
    """Changes by their forms."""
    return with_more({}, changes, 0)


def with_more(
    groups: Mapping[ChangeForm, Alike], changes: Sequence[Change], begin: int
) -> dict[ChangeForm, Alike]:
    """The same with later changes, the first of which has the place ``begin`` among all."""
    added: dict[ChangeForm, list[tuple[int, Change]]] = {}
    for at, change in enumerate(changes, begin):
        added.setdefault(change.form, []).append((at, change))
    found = dict(groups)
    for form, some in added.items():
        found[form] = found.get(form, Alike(form)).with_more(some)
    return found
