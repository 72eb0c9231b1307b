"""Intervals as numbers: months (which vary) and microseconds (which do not), as DuckDB reads them.

Used wherever a length of time must be known before a query runs: window sizes, watermark delays,
constant folding.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from sqlglot import exp

_US = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1_200}
_SHORT = {
    "US": "MICROSECOND",
    "USEC": "MICROSECOND",
    "MS": "MILLISECOND",
    "MSEC": "MILLISECOND",
    "S": "SECOND",
    "SEC": "SECOND",
    "M": "MINUTE",
    "MIN": "MINUTE",
    "H": "HOUR",
    "HR": "HOUR",
    "D": "DAY",
    "W": "WEEK",
    "MON": "MONTH",
    "Y": "YEAR",
    "YR": "YEAR",
}
_PIECE = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_CLOCK = re.compile(r"\s*([+-]?)(\d+):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?\s*")
_FUNCTIONS = {f"TO_{unit}S": unit for unit in ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE")}
_FUNCTIONS |= {f"TO_{unit}S": unit for unit in ("HOUR", "DAY", "WEEK", "MONTH", "YEAR")}
_US_MAX = 2**62
_TEXT_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class Interval:
    """A length of time; only one without months is the same length everywhere."""

    months: int
    us: int

    def __neg__(self) -> Interval:
        return Interval(-self.months, -self.us)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.months + other.months, self.us + other.us)

    def times(self, factor: int) -> Interval:
        return Interval(self.months * factor, self.us * factor)

    def after(self, moment: datetime) -> datetime:
        """The moment plus this span; the day of the month is cut to the month's length."""
        if self.months:
            year, month = divmod(moment.year * 12 + moment.month - 1 + self.months, 12)
            day = min(moment.day, monthrange(year, month + 1)[1])
            moment = moment.replace(year=year, month=month + 1, day=day)
        return moment + timedelta(microseconds=self.us)


def unit_interval(count: int | Fraction, unit: str) -> Interval | None:
    """``count`` times a unit by any of its names; None for an unknown one, and for fractions that
    are no whole microseconds or months, which DuckDB rounds in its own way."""
    name = unit.upper()
    for candidate in (name, name[:-1] if name.endswith("S") else name):
        full = _SHORT.get(candidate, candidate)
        if full in _US:
            us = count * _US[full]
            return Interval(0, int(us)) if us.denominator == 1 else None
        if full in _MONTHS:
            return Interval(int(count) * _MONTHS[full], 0) if count.denominator == 1 else None
    return None


def parse_interval(text: str) -> Interval | None:
    """``'1 hour 30 minutes'``, ``'1.5 s'``, ``'01:30:00'``; None for what we do not read.

    >>> parse_interval("1 hour 30 minutes")
    Interval(months=0, us=5400000000)
    """
    if len(text) > _TEXT_LENGTH_MAX:
        return None
    total, at = Interval(0, 0), 0
    while at < len(text):
        if clock := _CLOCK.match(text, at):
            sign = -1 if clock[1] == "-" else 1
            seconds = int(clock[2]) * 3_600 + int(clock[3]) * 60 + int(clock[4] or 0)
            total += Interval(0, sign * (seconds * 1_000_000 + int((clock[5] or "").ljust(6, "0"))))
            at = clock.end()
        elif (piece := _PIECE.match(text, at)) and (
            span := unit_interval(Fraction(piece[1]), piece[2])
        ):
            total += span
            at = piece.end()
        else:
            return None
    return total if text.strip() and abs(total.us) < _US_MAX else None


def function_unit(name: str) -> str | None:
    """The unit of DuckDB's ``to_minutes`` and its kind."""
    return _FUNCTIONS.get(name.upper())


def interval_unit(node: exp.Interval) -> str | None:
    unit = node.args.get("unit")
    return unit.name if unit is not None else None
