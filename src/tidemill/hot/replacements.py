"""Which rows newer rows replaced, and when: for those who follow a stream and must take rows back.

A replacement is noted with the last sequence number that was published with it. A move forgets
those of the rows that it takes, and the older half goes when there are too many: whoever comes from
before ``forgotten_seq`` cannot be told what was replaced since. What history had when the process
started is not known either.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterable

REPLACEMENTS_MAX = 1_000_000  # 16 bytes each


class Replacements:
    """Thread-safe. Notes come in the order of publication."""

    def __init__(self, moved_seq: int = 0, limit: int = REPLACEMENTS_MAX) -> None:
        """``moved_seq``: up to where rows had left memory before anything was noted."""
        self.forgotten_seq = moved_seq
        self._limit = limit
        self._lock = threading.Lock()
        self._replaced = array("q")
        self._by = array("q")

    def __len__(self) -> int:
        return len(self._by)

    def note(self, replaced: Iterable[int], by_seq: int) -> None:
        """Rows were replaced by others, the last of which is ``by_seq``."""
        with self._lock:
            self._replaced.extend(replaced)
            self._by.extend([by_seq] * (len(self._replaced) - len(self._by)))
            if len(self._by) > self._limit:
                self._forget(self._by[len(self._by) // 2])

    def forget(self, upto_seq: int) -> None:
        """Nobody is told any more of what rows up to a number replaced."""
        with self._lock:
            self._forget(upto_seq)

    def between(self, after_seq: int, upto_seq: int) -> list[int] | None:
        """The rows that were replaced by rows of a stretch of numbers; None if that is not known
        any more."""
        with self._lock:
            if after_seq < self.forgotten_seq:
                return None
            first, last = bisect_right(self._by, after_seq), bisect_right(self._by, upto_seq)
            return self._replaced[first:last].tolist()

    def _forget(self, upto_seq: int) -> None:
        count = bisect_right(self._by, upto_seq)
        if count:
            self.forgotten_seq = max(self.forgotten_seq, self._by[count - 1])
            del self._by[:count], self._replaced[:count]
