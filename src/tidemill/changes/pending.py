"""Pending changes: those that some rows may still need, in their order, found by what they reach.

A table may have a hundred thousand, and almost every query needs none of them. Their spans of time
and numbers stand in arrays, so that those which can concern some rows are found without looking at
the others one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

from tidemill.changes.alike import Alike
from tidemill.changes.analysis import Analysis, analysed, grouped, with_more
from tidemill.changes.model import Change, ChangeForm
from tidemill.changes.needed import Needed

Numbers = npt.NDArray[np.int64]
_NONE: Numbers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Pending(Sequence[Change]):
    """Changes with growing numbers."""

    changes: tuple[Change, ...] = ()
    numbers: Numbers = field(default_factory=lambda: _NONE)
    lows: Numbers = field(default_factory=lambda: _NONE)
    highs: Numbers = field(default_factory=lambda: _NONE)
    uptos: Numbers = field(default_factory=lambda: _NONE)
    base: Pending | None = None  # some of these, the first, by their forms already

    @classmethod
    def of(cls, changes: Sequence[Change]) -> Pending:
        return cls(
            tuple(changes),
            _numbers([change.number for change in changes]),
            _numbers([change.low_us for change in changes]),
            _numbers([change.high_us for change in changes]),
            _numbers([change.upto_seq for change in changes]),
        )

    @cached_property
    def has_spared(self) -> bool:
        """Whether any of them spares rows."""
        return any(change.spared for change in self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    @overload
    def __getitem__(self, at: int) -> Change: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Change, ...]: ...

    def __getitem__(self, at: int | slice) -> Change | tuple[Change, ...]:
        return self.changes[at]

    def added(self, changes: Sequence[Change]) -> Pending:
        """These and later ones."""
        new = Pending.of(changes)
        return Pending(
            (*self.changes, *new.changes),
            np.concatenate([self.numbers, new.numbers]),
            np.concatenate([self.lows, new.lows]),
            np.concatenate([self.highs, new.highs]),
            np.concatenate([self.uptos, new.uptos]),
            self if "groups" in self.__dict__ else None,
        )

    def without(self, numbers: Collection[int]) -> Pending:
        """All but those with some numbers."""
        if not numbers:
            return self
        gone = np.isin(self.numbers, np.fromiter(numbers, np.int64, len(numbers)))
        return self._taken(np.flatnonzero(~gone))

    @cached_property
    def groups(self) -> Mapping[ChangeForm, Alike]:
        """The changes by their forms."""
        base = self.base
        object.__setattr__(self, "base", None)
        with _grouping:
            if base is None:
                return grouped(self.changes)
            return with_more(base.groups, self.changes[len(base) :], len(base))

    def analysed(self, needed: Needed) -> Analysis:
        """What they are to a reader."""
        return analysed(self.groups, len(self), needed)

    def concerning(self, needed: Needed) -> Pending:
        """Those that may matter to a reader."""
        if not self.changes:
            return self
        found = self.analysed(needed).concerning
        return self if len(found) == len(self) else self._taken(found)

    def reaching(self, low_us: int | None, high_us: int | None, after: int = 0) -> Pending:
        """Those that reach into a span of time, with numbers behind one."""
        mask = self.numbers > after
        if low_us is not None:
            mask &= self.highs >= low_us
        if high_us is not None:
            mask &= self.lows <= high_us
        found = np.flatnonzero(mask)
        return self if len(found) == len(self) else self._taken(found)

    def _taken(self, places: npt.NDArray[np.intp]) -> Pending:
        return Pending(
            tuple([self.changes[at] for at in places]),
            self.numbers[places],
            self.lows[places],
            self.highs[places],
            self.uptos[places],
        )


_grouping = threading.Lock()  # groups share what they hold
NOTHING_PENDING = Pending()


def _numbers(values: list[int]) -> Numbers:
    return np.array(values, dtype=np.int64)
