"""Clocks. Time is counted in microseconds since 1970 UTC, as Arrow and DuckDB count it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is. ``now_us`` must never raise and may go backwards (people set clocks)."""

    def now_us(self) -> int: ...


class WallClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000


class FakeClock:
    """A clock that stands until a test moves it."""

    def __init__(self, start: datetime | int = 0) -> None:
        self._now_us = start if isinstance(start, int) else to_us(start)

    def now_us(self) -> int:
        return self._now_us

    def advance(self, seconds: float) -> None:
        self._now_us += round(seconds * 1_000_000)

    def set(self, moment: datetime | int) -> None:
        self._now_us = moment if isinstance(moment, int) else to_us(moment)


def to_us(moment: datetime) -> int:
    """Microseconds since 1970 UTC; a datetime without a zone is taken as UTC.

    >>> to_us(datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (aware - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The UTC datetime, without a zone, of a count of microseconds."""
    return (_EPOCH + us * _MICROSECOND).replace(tzinfo=None)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = datetime(1970, 1, 1, 0, 0, 0, 1) - datetime(1970, 1, 1)
DATETIME_US_MIN, DATETIME_US_MAX = to_us(datetime.min), to_us(datetime.max)
