"""Marks: which sequence number a table had reached at which moment, for reading the past.

The newest mark is always exact; older ones stand at least ``SPACING_US`` apart, so that a moment is
known to a tenth of a second and a busy table keeps ten marks a second. Marks of rows that moved to
history are kept by the catalog, a second apart.
"""

from __future__ import annotations

import threading
from bisect import bisect_right

from tidemill.catalog.commits import Mark

SPACING_US = 100_000
KEPT_SPACING_US = 1_000_000
MARKS_MAX = 100_000

_Pair = tuple[int, int]  # microseconds, sequence number


class Marks:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: list[_Pair] = []

    def add(self, at_us: int, seq: int) -> None:
        """At this moment everything up to a sequence number was visible."""
        with self._lock:
            marks = self._marks
            if marks and at_us < marks[-1][0]:
                at_us = marks[-1][0]  # people set clocks back
            is_close = len(marks) > 1 and at_us - marks[-2][0] < SPACING_US
            if marks and (marks[-1][0] == at_us or is_close):
                marks[-1] = (at_us, seq)
            else:
                marks.append((at_us, seq))
            if len(marks) > MARKS_MAX:
                del marks[: MARKS_MAX // 2]

    def seq_at(self, at_us: int) -> int | None:
        """The number reached at a moment, or None if no mark is as old."""
        with self._lock:
            place = bisect_right(self._marks, (at_us, 2**63))
            return self._marks[place - 1][1] if place else None

    def up_to(self, seq: int) -> list[Mark]:
        """Marks of rows up to a sequence number, thinned out for the catalog."""
        with self._lock:
            kept: list[Mark] = []
            for at_us, reached in self._marks:
                if reached > seq:
                    break
                if len(kept) > 1 and at_us - kept[-2].at_us < KEPT_SPACING_US:
                    kept[-1] = Mark(at_us, reached)
                else:
                    kept.append(Mark(at_us, reached))
            return kept

    def forget(self, seq: int) -> None:
        """The catalog keeps the marks of rows up to a sequence number; keep the last of them."""
        with self._lock:
            older = sum(1 for mark in self._marks if mark[1] <= seq)
            del self._marks[: max(older - 1, 0)]
