"""Arrow columns as Python values, by the SQL types they had.

Arrow keeps less than SQL says: a HUGEINT is a decimal, a UUID a text, an unnamed struct has made-up
names. ``to_python`` gives what people expect: int, ``uuid.UUID``, a tuple; an INTERVAL without
months is a ``timedelta``. Dates and times that Python does not have (year 20000, infinity) come
as texts, as SQL writes them, so that one of them does not keep the others from being read.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]

_DAY_S = 86_400
_UNITS_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_INFINITE_DAYS = 2**31 - 1
_INFINITE_US = 2**63 - 1
UNREADABLE = (OverflowError, ValueError, NotImplementedError)
_PART = re.compile(r"\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'|[(),]|\s+|[^\"'(),\s]+")


def to_python(column: pa.ChunkedArray, kind: str) -> list[Any]:
    """The values of a column whose SQL type is ``kind``; NULL is None."""
    try:
        values: list[Any] = column.to_pylist()
    except UNREADABLE:
        values = [_readable(value) for value in column]
    convert = converter(kind)
    return values if convert is None else [convert(value) for value in values]


@lru_cache(maxsize=1_024)
def converter(kind: str) -> Convert | None:
    """What makes Arrow's Python value into SQL's; None where they are the same.

    >>> converter("TUPLE(INTEGER, VARCHAR)")({"element1": 1, "element2": "x"})
    (1, 'x')
    >>> converter("INTEGER[]") is None
    True
    """
    kind = kind.strip()
    if kind.endswith("]"):
        return _each(converter(kind[: kind.rindex("[")]))
    head, bracket, _ = kind.partition("(")
    head = head.strip().upper()
    if head in ("HUGEINT", "UHUGEINT"):
        return _known(int)
    if head == "UUID":
        return _known(lambda value: uuid.UUID(str(value)))
    if head == "INTERVAL":
        return _known(_span)
    if bracket and head in ("TUPLE", "STRUCT", "MAP"):
        inner = list(_arguments(kind))
        if head == "TUPLE":
            return _tuple([converter(part) for part in inner])
        if head == "MAP":
            return _map([converter(part) for part in inner])
        return _struct([converter(_type_of_field(part)) for part in inner])
    return None


def _known(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return _known(lambda values: [convert(value) for value in values])


def _tuple(converts: list[Convert | None]) -> Convert:
    def make(value: dict[str, Any]) -> tuple[Any, ...]:
        pairs = zip(value.values(), converts, strict=True)
        return tuple(item if convert is None else convert(item) for item, convert in pairs)

    return _known(make)


def _struct(converts: list[Convert | None]) -> Convert | None:
    if not any(converts):
        return None

    def make(value: dict[str, Any]) -> dict[str, Any]:
        pairs = zip(value.items(), converts, strict=True)
        return {name: item if fix is None else fix(item) for (name, item), fix in pairs}

    return _known(make)


def _map(converts: list[Convert | None]) -> Convert | None:
    pair = _pair(converts)
    return _each(pair) if any(converts) else None


def _pair(converts: list[Convert | None]) -> Convert:
    def make(pair: tuple[Any, Any]) -> tuple[Any, ...]:
        items = zip(pair, converts, strict=True)
        return tuple(item if convert is None else convert(item) for item, convert in items)

    return make


def _span(value: Any) -> Any:
    """An interval as a timedelta; as it is where it has months, which have no fixed length."""
    if value.months or value.nanoseconds % 1_000:
        return value
    try:
        return dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1_000)
    except OverflowError:
        return value


def _arguments(kind: str) -> Iterator[str]:
    """The parts between the outer parentheses of a type's name.

    >>> list(_arguments('STRUCT("a, b" DECIMAL(9, 2), c INTEGER[])'))
    ['"a, b" DECIMAL(9, 2)', 'c INTEGER[]']
    """
    depth, part = 0, ""
    for token in _PART.findall(kind[kind.index("(") : kind.rindex(")")]):
        depth += (token == "(") - (token == ")")
        if token == "," and depth == 1:
            yield part.strip()
            part = ""
        elif depth > 1 or token != "(":
            part += token
    if part.strip():
        yield part.strip()


def _type_of_field(part: str) -> str:
    """The type of a struct's field, behind its name."""
    name = _PART.match(part)
    return part[name.end() :].strip() if name else part


def _readable(value: pa.Scalar) -> Any:
    """One value as Python has it; a date or time that Python does not have, as text."""
    try:
        return value.as_py()
    except UNREADABLE:
        pass
    kind = value.type
    if pa.types.is_struct(kind):
        return {name: _readable(value[name]) for name in (field.name for field in kind)}
    if pa.types.is_map(kind):
        return [(_readable(pair["key"]), _readable(pair["value"])) for pair in value.values]
    if pa.types.is_nested(kind):
        return [_readable(item) for item in value.values]
    return _moment_text(value)


def _moment_text(value: pa.Scalar) -> str:
    kind, count = value.type, int(value.value)
    if pa.types.is_date32(kind):
        if abs(count) >= _INFINITE_DAYS:
            return "infinity" if count > 0 else "-infinity"
        return _date_text(count)
    if not pa.types.is_timestamp(kind):
        return str(count)
    if abs(count) >= _INFINITE_US:
        return "infinity" if count > 0 else "-infinity"
    per_s = _UNITS_PER_S[kind.unit]
    seconds, fraction = divmod(count, per_s)
    days, second = divmod(seconds, _DAY_S)
    text = f"{_date_text(days)} {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    if fraction:
        text += "." + str(fraction + per_s)[1:].rstrip("0")
    return text + ("+00" if kind.tz else "")


def _date_text(days: int) -> str:
    """A day of the Gregorian calendar, counted from 1970-01-01, as SQL writes it.

    >>> _date_text(0), _date_text(6585442), _date_text(-735527)
    ('1970-01-01', '20000-04-30', '0045-03-13 (BC)')
    """
    # Years of 400 repeat: the day is moved into one that Python has.
    cycles, rest = divmod(days - _CYCLE_START, _CYCLE_DAYS)
    day = dt.date(2000, 3, 1) + dt.timedelta(rest)
    year = day.year + 400 * cycles
    era = " (BC)" if year < 1 else ""
    return f"{1 - year if year < 1 else year:04}-{day.month:02}-{day.day:02}{era}"


_CYCLE_DAYS = 146_097
_CYCLE_START = (dt.date(2000, 3, 1) - dt.date(1970, 1, 1)).days
