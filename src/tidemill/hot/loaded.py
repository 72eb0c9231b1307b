"""The numbers that loads were given: their rows go to files and are never in memory.

``Published`` holds its lock around all calls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Span = tuple[int, int]


class LoadedNumbers:
    def __init__(self) -> None:
        self._spans: list[Span] = []  # behind what has moved, in order
        self._open: list[Span] = []  # of loads that are not known to be committed

    def add(self, first_seq: int, last_seq: int) -> None:
        """Numbers behind all before belong to a load."""
        known = self._spans
        if known and known[-1][1] + 1 == first_seq:
            known[-1] = (known[-1][0], last_seq)
        else:
            known.append((first_seq, last_seq))

    def begin(self, first_seq: int, last_seq: int) -> None:
        """The same of a load that begins. Its rows are not there until it is committed, however far
        moves may have come by then."""
        self.add(first_seq, last_seq)
        self._open.append((first_seq, last_seq))

    def end(self, first_seq: int) -> None:
        """A load whose numbers began with this one was committed, or given up."""
        self._open = [span for span in self._open if span[0] != first_seq]

    @property
    def has_open(self) -> bool:
        """Whether a load may be under way."""
        return bool(self._open)

    def holds(self, seq: int) -> bool:
        place = bisect_right(self._spans, (seq, 2**63))
        return place > 0 and self._spans[place - 1][1] >= seq

    def release(self, moved_seq: int) -> None:
        """Rows up to a number have moved; what is in files is nobody's question any more."""
        self._spans = [span for span in self._spans if span[1] > moved_seq]

    def open_without(self, known: Iterable[Span]) -> tuple[Span, ...]:
        """The numbers of loads under way, without some."""
        found = self._open
        for first, last in known:
            rest = []
            for low, high in found:
                if low < first <= high:
                    rest.append((low, first - 1))
                if low <= last < high:
                    rest.append((last + 1, high))
                if high < first or low > last:
                    rest.append((low, high))
            found = rest
        return tuple(found)
