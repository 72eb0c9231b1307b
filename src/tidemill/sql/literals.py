"""Literals as a text writes them: numbers, texts, times and intervals, with casts around them.

``read_cell`` reads one literal with one regular expression and gives its kind (a DuckDB type, or
``TEXT`` for a string that has none yet) and its Python value. It answers only when it is sure to
agree with DuckDB in a session whose time zone is UTC; for anything else the general path asks
DuckDB itself. ``LITERAL`` is the pattern of the usual ones, for lists that are only found.

A sign stands outside of ``::``, as in DuckDB: ``-128::TINYINT`` is an error, for 128 does not fit.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from math import isinf

from tidemill.sql.casting import (
    BIGINT_MAX,
    BOOLEAN,
    DECIMAL,
    DECIMAL_DIGITS_MAX,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NARROW,
    NULL,
    TEXT,
    Cell,
    Target,
    cast_cell,
    span_of,
    target_of,
)

_TYPE = (
    r"(?:TIMESTAMP\s++WITH\s++TIME\s++ZONE|DOUBLE\s++PRECISION"
    r"|[A-Za-z]\w*+(?:\s*+\(\s*+\d{1,2}\s*+(?:,\s*+\d{1,2}\s*+)?\))?+)"
)
_AFTER = rf"(?:\s*+::\s*+{_TYPE}|\s++AS\s++{_TYPE}\s*+\))"
_NUMBER = r"(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+(?![\w.])"
_STRING = r"'(?:[^']|'')*+'"
_WORD = r"(?:NULL|TRUE|FALSE)(?![\w.(])"
_TYPED = r"(?:TIMESTAMPTZ|TIMESTAMP|DATE|TIME)\s*+'[^']*+'"
_UNIT = r"(?:YEAR|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND|MILLISECOND|MICROSECOND)S?+"
_INTERVAL = rf"INTERVAL\s*+(?:'[^']*+'(?:\s*+{_UNIT}(?!\w))?+|\d{{1,9}}+\s++{_UNIT}(?!\w))"
_BASE = rf"(?:-?{_NUMBER}|{_STRING}|{_WORD}|{_TYPED})(?:\s*+::\s*+{_TYPE})*+"
LITERAL = rf"(?:{_BASE}|CAST\s*+\(\s*+{_BASE}\s++AS\s++{_TYPE}\s*+\)(?:\s*+::\s*+{_TYPE})*+)"
_CELL = re.compile(
    r"\s*+((?:CAST\s*+\(\s*+)*+)"  # 1 casts around it
    rf"(?:([+-]?)\s*+({_NUMBER})"  # 2 sign, 3 number
    rf"|({_STRING})|({_WORD})|({_TYPED})|({_INTERVAL}))"  # 4 text, 5 word, 6 typed, 7 interval
    rf"((?:{_AFTER})*+)"  # 8 casts
    r"\s*+([,)])",  # 9 what follows
    re.ASCII | re.IGNORECASE,
)
_CASTS = re.compile(rf"::\s*+({_TYPE})|AS\s++({_TYPE})\s*+\)", re.ASCII | re.IGNORECASE)
_QUANTITY = re.compile(
    rf"INTERVAL\s*+(?:'([^']*+)'|(\d++))\s*+({_UNIT})?+", re.ASCII | re.IGNORECASE
)
_WORDS: dict[str, Cell] = {
    "null": (NULL, None),
    "true": (BOOLEAN, True),
    "false": (BOOLEAN, False),
}
_DIGITS_MAX = 300  # of a number; Python reads no longer ones


def read_cell(text: str, at: int) -> tuple[Cell, int, bool] | None:
    """The literal at an offset, the offset after it and what follows it, and whether that was a
    closing bracket; None if it is not a literal, or one whose value is not sure."""
    match = _CELL.match(text, at)
    if match is None:
        return None
    casts, sign, number, string, word, typed, interval, after, end = match.groups()
    cell: Cell | None
    if string is not None:
        cell = (TEXT, string[1:-1].replace("''", "'"))
    elif number is not None:
        cell = _number(number)
    elif word is not None:
        cell = _WORDS[word.lower()]
    elif typed is not None:
        cell = _typed(typed)
    else:
        cell = _interval(interval)
    if cell is not None and (sign or casts or after):
        cell = _cast(cell, sign, casts, after)
    return None if cell is None else (cell, match.end(), end == ")")


def _number(text: str) -> Cell | None:
    if len(text) > _DIGITS_MAX:
        return None
    if text.isdigit():
        number = int(text)
        return (INTEGER, number) if number <= BIGINT_MAX else None
    if "e" in text or "E" in text:
        double = float(text)
        return None if isinf(double) else (DOUBLE, double)
    if len(text) - 1 > DECIMAL_DIGITS_MAX or (text[:2].isdigit() and text[0] == "0"):
        return None
    if text[0] == ".":  # as text it would be ".5", which a Decimal does not tell from 0.5
        return None
    return DECIMAL, Decimal(text)


def _typed(text: str) -> Cell | None:
    name, _, rest = text.partition("'")
    target = target_of(name.strip())
    return None if target is None else cast_cell((TEXT, rest[:-1]), target)


def _interval(text: str) -> Cell | None:
    found = _QUANTITY.match(text)
    if found is None:
        return None
    quoted, count, unit = found.groups()
    span = span_of(quoted if count is None else count, unit)
    return None if span is None else (INTERVAL, span)


def _cast(cell: Cell, sign: str, casts: str, after: str) -> Cell | None:
    """The literal after its casts, from the inside out."""
    steps = _steps(after)
    if steps is None or sum(is_call for _, is_call in steps) != casts.count("("):
        return None
    is_signed = False
    found: Cell | None = cell
    for target, is_call in steps:
        if is_call and not is_signed:
            found, is_signed = _signed(found, sign), True
        found = None if found is None else cast_cell(found, target)
        if found is None:
            return None
    return found if is_signed else _signed(found, sign)


@lru_cache(1_000)
def _steps(after: str) -> tuple[tuple[Target, bool], ...] | None:
    """The types that ``::type`` and ``AS type)`` cast to in turn, and which are the latter."""
    steps = []
    for short, long in _CASTS.findall(after):
        target = target_of(short or long)
        if target is None:
            return None
        steps.append((target, bool(long)))
    return tuple(steps)


def _signed(cell: Cell | None, sign: str) -> Cell | None:
    if cell is None or not sign:
        return cell
    kind, value = cell
    if kind not in (INTEGER, NARROW, DECIMAL, DOUBLE) or value is None:
        return None
    if sign == "+":
        return cell
    if isinstance(value, Decimal):
        return kind, value.copy_negate() if value else value  # a decimal zero has no sign
    return kind, -value  # type: ignore[operator]
