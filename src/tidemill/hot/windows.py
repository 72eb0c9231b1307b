"""Windows: how far back recent queries of a table reached, so that the mover keeps it."""

from __future__ import annotations

import threading
from collections import deque

WINDOWS_MAX = 512
FORGET_AFTER_US = 10 * 60 * 1_000_000


class Windows:
    """The last few hundred queries; older ones are forgotten after ten minutes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: deque[tuple[int, int]] = deque(maxlen=WINDOWS_MAX)

    def note(self, at_us: int, age_us: int) -> None:
        """At a moment a query asked for rows up to this old."""
        with self._lock:
            self._seen.append((at_us, max(age_us, 0)))

    def ages_us(self, now_us: int) -> list[int]:
        with self._lock:
            return [age for at, age in self._seen if now_us - at <= FORGET_AFTER_US]
