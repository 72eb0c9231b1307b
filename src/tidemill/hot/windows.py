"""Windows: how far back recent queries of a table reached, so that the mover keeps it.

A query reaches back by time (``ts >= …``, ``RECENT(t, INTERVAL …)``) or by count (``RECENT(t,
rows => k)``, ``ORDER BY ts DESC LIMIT k``). One without either end could only be kept whole, and
one for the newest rows of each key reaches as far as the rarest key: neither is noted.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

from tidemill.hot.view import Wanted

WINDOWS_MAX = 512
FORGET_AFTER_US = 10 * 60 * 1_000_000


class _Seen(NamedTuple):
    at_us: int
    age_us: int | None
    rows: int | None


class Windows:
    """The last few hundred queries; older ones are forgotten after ten minutes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: deque[_Seen] = deque(maxlen=WINDOWS_MAX)

    def note(self, at_us: int, age_us: int) -> None:
        """At a moment a query asked for rows up to this old."""
        self._add(_Seen(at_us, max(age_us, 0), None))

    def note_rows(self, at_us: int, rows: int) -> None:
        """At a moment a query asked for so many of the newest rows."""
        self._add(_Seen(at_us, None, max(rows, 0)))

    def note_scan(self, at_us: int, table_now_us: int | None, wanted: Wanted) -> None:
        """At a moment a scan wanted this, while the table's clock stood at ``table_now_us``."""
        if wanted.newest is not None:
            self.note_rows(at_us, wanted.newest)
        elif wanted.low_us is not None and table_now_us is not None:
            self.note(at_us, table_now_us - wanted.low_us)

    def _add(self, seen: _Seen) -> None:
        with self._lock:
            self._seen.append(seen)

    def ages_us(self, now_us: int) -> list[int]:
        """How old the oldest rows were that queries asked for by time."""
        return [seen.age_us for seen in self._recent(now_us) if seen.age_us is not None]

    def row_counts(self, now_us: int) -> list[int]:
        """How many of the newest rows queries asked for by count."""
        return [seen.rows for seen in self._recent(now_us) if seen.rows is not None]

    def _recent(self, now_us: int) -> list[_Seen]:
        with self._lock:
            return [seen for seen in self._seen if now_us - seen.at_us <= FORGET_AFTER_US]
