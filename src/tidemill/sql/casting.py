"""Casts of literals, as DuckDB makes them in a session whose time zone is UTC.

A cell is a literal's kind and its Python value. ``cast_cell`` gives the cell after a cast only when
DuckDB surely gives the same: whatever is rounded, out of range or written unusually is None, and is
left to DuckDB together with its errors.

Integers of all widths are two kinds, because their values decide what a column makes of them, and
their width only what a text beside them may be. An INTERVAL is (months, days, microseconds), a
UUID its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from functools import lru_cache
from math import isinf

from tidemill.sql.fold import parse_timestamp

NULL, BOOLEAN, INTEGER, DECIMAL, DOUBLE = "NULL", "BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE"
NARROW = "SMALLINT"  # a TINYINT or SMALLINT, where that matters: a text beside it may not fit
TEXT, VARCHAR = "TEXT", "VARCHAR"  # a string that has no type yet, and one that has
DATE, TIME, INTERVAL, UUID = "DATE", "TIME", "INTERVAL", "UUID"
TIMESTAMP, TIMESTAMPTZ = "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"

Cell = tuple[str, object]
IntervalParts = tuple[int, int, int]

BIGINT_MAX = 2**63 - 1
DECIMAL_DIGITS_MAX = 38
DECIMAL_CAST_DIGITS_MAX = 18
EXACT = Context(prec=76)
_DOUBLE_EXACT_MAX = 2**53
_EXACT_POWER_MAX = 22  # 10**22 is the last power of ten that is a DOUBLE
_DAYS_MAX = 2**31 - 1
_US_MAX = 2**53  # Arrow counts them in nanoseconds

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "INTEGER": 32, "BIGINT": 64}
_NAMES = {
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION"), DOUBLE),
    **dict.fromkeys(("VARCHAR", "TEXT", "STRING"), VARCHAR),
    **dict.fromkeys(("BOOLEAN", "BOOL"), BOOLEAN),
    **dict.fromkeys(("TIMESTAMP", "DATETIME"), TIMESTAMP),
    **dict.fromkeys(("TIMESTAMPTZ", TIMESTAMPTZ), TIMESTAMPTZ),
    **{name: name for name in (DATE, TIME, INTERVAL, UUID)},
}
_DECIMAL_TYPE = re.compile(r"(?:DECIMAL|NUMERIC)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.ASCII)
_INTEGER_TEXT = re.compile(r"-?\d{1,18}", re.ASCII)
_DECIMAL_TEXT = re.compile(r"-?\d{1,38}(?:\.\d{1,38})?", re.ASCII)
_DOUBLE_TEXT = re.compile(r"-?\d{1,100}(?:\.\d{1,100})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_UUID_TEXT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DATE_TEXT = re.compile(r"\d{4}-\d{1,2}-\d{1,2}", re.ASCII)
_TIME_TEXT = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?", re.ASCII)
_PIECES = re.compile(r"-?\d{1,9} [A-Za-z]+(?: -?\d{1,9} [A-Za-z]+)*", re.ASCII)
_COUNT = re.compile(r"-?\d{1,9}", re.ASCII)
_UNITS: dict[str, IntervalParts] = {
    "YEAR": (12, 0, 0),
    "MONTH": (1, 0, 0),
    "WEEK": (0, 7, 0),
    "DAY": (0, 1, 0),
    "HOUR": (0, 0, 3_600_000_000),
    "MINUTE": (0, 0, 60_000_000),
    "SECOND": (0, 0, 1_000_000),
    "MILLISECOND": (0, 0, 1_000),
    "MICROSECOND": (0, 0, 1),
}


@dataclass(frozen=True)
class Target:
    """A type that is cast to: its kind, the bits of an integer, the shape of a decimal."""

    kind: str
    bits: int = 0
    width: int = 0
    scale: int = 0


@lru_cache(1_000)
def target_of(name: str) -> Target | None:
    """The type of a name, unless values are better cast to it by DuckDB.

    >>> target_of("decimal(10, 2)")
    Target(kind='DECIMAL', bits=0, width=10, scale=2)
    """
    upper = " ".join(name.upper().split())
    if upper in _BITS:
        return Target(INTEGER if _BITS[upper] >= 32 else NARROW, bits=_BITS[upper])
    if upper in _NAMES:
        return Target(_NAMES[upper])
    shape = _DECIMAL_TYPE.fullmatch(upper)
    if shape is None:
        return None
    width, scale = (18, 3) if shape[1] is None else (int(shape[1]), int(shape[2] or 0))
    is_plain = 0 < width <= DECIMAL_CAST_DIGITS_MAX and scale <= width
    return Target(DECIMAL, width=width, scale=scale) if is_plain else None


def cast_cell(cell: Cell, target: Target) -> Cell | None:
    """A literal after a cast; None if DuckDB should say what it is."""
    kind, value = cell
    if value is None:
        return None if target.kind == DECIMAL else (target.kind, None)
    if kind == target.kind and kind not in (INTEGER, NARROW, DECIMAL):
        return cell
    cast = _CASTS[target.kind](_SAME.get(kind, kind), value, target)
    return None if cast is None else (target.kind, cast)


def _to_integer(kind: str, value: object, target: Target) -> object:
    if kind == TEXT and _INTEGER_TEXT.fullmatch(str(value)):
        value = int(str(value))
    elif isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    elif kind != INTEGER:
        return None
    assert isinstance(value, int)
    limit = 1 << (target.bits - 1)
    return value if -limit <= value < limit else None


def _to_decimal(kind: str, value: object, target: Target) -> object:
    if kind == TEXT and _DECIMAL_TEXT.fullmatch(str(value)):
        value = Decimal(str(value))
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    number = Decimal(value)
    if abs(number) >= Decimal(10) ** (target.width - target.scale):
        return None
    rounded = rescaled(number, target.scale)
    if rounded != number:
        return None
    return rounded or rounded.copy_abs()  # a decimal zero has no sign


def rescaled(number: Decimal, scale: int) -> Decimal:
    """A decimal with so many digits after its point."""
    return number.quantize(Decimal(1).scaleb(-scale), context=EXACT)


def _to_double(kind: str, value: object, target: Target) -> object:
    if kind == INTEGER:
        assert isinstance(value, int)
        return float(value) if abs(value) <= _DOUBLE_EXACT_MAX else None
    if isinstance(value, Decimal):
        return float(value) if is_divided_once(value) else None
    if kind != TEXT or not _DOUBLE_TEXT.fullmatch(str(value)):
        return None
    double = float(str(value))
    return None if isinf(double) else double


def is_divided_once(value: Decimal) -> bool:
    """Whether DuckDB divides two exact numbers, which gives the nearest DOUBLE."""
    scale = scale_of(value)
    return scale <= _EXACT_POWER_MAX and abs(value.scaleb(scale, EXACT)) <= _DOUBLE_EXACT_MAX


def scale_of(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return -exponent


def _to_varchar(kind: str, value: object, target: Target) -> object:
    if kind == TEXT:
        return value
    if kind == BOOLEAN:
        return "true" if value else "false"
    if kind == INTEGER:
        return str(value)
    return f"{value:f}" if isinstance(value, Decimal) and value else None


def _to_boolean(kind: str, value: object, target: Target) -> object:
    return {"true": True, "false": False}.get(str(value)) if kind == TEXT else None


def _to_time(kind: str, value: object, target: Target) -> object:
    if kind == TEXT:
        text = str(value)
        return time_value(target.kind, text) if text.isascii() and text == text.strip() else None
    if kind not in (DATE, TIMESTAMP) or target.kind not in (TIMESTAMP, TIMESTAMPTZ):
        return None
    assert isinstance(value, date)
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    return moment if target.kind == TIMESTAMP else moment.replace(tzinfo=UTC)


def time_value(kind: str, text: str) -> object | None:
    """The text of a TIMESTAMP, TIMESTAMPTZ, DATE or TIME as a Python value; None when unusual."""
    if kind == TIME:
        match = _TIME_TEXT.fullmatch(text)
        return None if match is None else _clock(*match.groups())
    if kind == DATE and not _DATE_TEXT.fullmatch(text):
        return None
    moment = parse_timestamp(text)
    if moment is None:
        return None
    if kind == DATE:
        return date(moment.year, moment.month, moment.day)
    if (moment.tzinfo is None) == (kind == TIMESTAMP):
        return moment
    return None if kind == TIMESTAMP else moment.replace(tzinfo=UTC)


def _clock(hour: str, minute: str, second: str, fraction: str | None) -> time | None:
    try:
        return time(int(hour), int(minute), int(second), int((fraction or "0").ljust(6, "0")))
    except ValueError:
        return None


def _to_interval(kind: str, value: object, target: Target) -> object:
    return span_of(str(value), None) if kind == TEXT else None


def span_of(text: str, unit: str | None) -> IntervalParts | None:
    """An interval of whole numbers of units: (months, days, microseconds).

    >>> span_of("2 years -3 days", None), span_of("90", "minutes")
    ((24, -3, 0), (0, 0, 5400000000))
    """
    if unit is not None:
        text = f"{text} {unit}" if _COUNT.fullmatch(text) else ""
    if not _PIECES.fullmatch(text):
        return None
    months = days = us = 0
    words = text.split(" ")
    for count, name in zip(map(int, words[::2]), words[1::2], strict=True):
        size = _UNITS.get(name.upper().removesuffix("S"))
        if size is None:
            return None
        months, days, us = months + count * size[0], days + count * size[1], us + count * size[2]
    is_held = abs(months) <= _DAYS_MAX and abs(days) <= _DAYS_MAX and abs(us) <= _US_MAX
    return (months, days, us) if is_held else None


def _to_uuid(kind: str, value: object, target: Target) -> object:
    return value if kind == TEXT and _UUID_TEXT.fullmatch(str(value)) else None


_SAME = {VARCHAR: TEXT, NARROW: INTEGER}
_CASTS: dict[str, Callable[[str, object, Target], object]] = {
    **dict.fromkeys((INTEGER, NARROW), _to_integer),
    DECIMAL: _to_decimal,
    DOUBLE: _to_double,
    VARCHAR: _to_varchar,
    BOOLEAN: _to_boolean,
    **dict.fromkeys((DATE, TIME, TIMESTAMP, TIMESTAMPTZ), _to_time),
    INTERVAL: _to_interval,
    UUID: _to_uuid,
}
