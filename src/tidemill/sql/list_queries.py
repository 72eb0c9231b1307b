"""Queries for the elements of long lists: one text that DuckDB casts to a list, or splits.

``x IN (SELECT unnest(CAST('[1, 2]' AS BIGINT[])))`` is ``x IN (1, 2)``, NULL and NOT IN included,
if the elements have a type in which DuckDB compares them with ``x`` as it would the literals. That
is so for values of the type of ``x`` itself; for others there is no query here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

from tidemill.sql.casting import BIGINT_MAX, DECIMAL_DIGITS_MAX, is_divided_once, scale_of
from tidemill.sql.fold import INTEGER_TYPES, comparable
from tidemill.types import SqlType, literal

_MOMENTS = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DATE")
_SEPARATORS = "\x1f\x1e\x1d\x01"
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def list_query(values: Sequence[object], kind: SqlType) -> str | None:
    """A query that gives the values, to be compared with a column of a type; None if there is no
    such query, or if DuckDB would compare the values themselves in another way."""
    known = [value for value in values if value is not None]
    if len({type(value) for value in known}) != 1:
        return None
    query = _query(known, kind)
    return f"{query} UNION ALL SELECT NULL" if query and len(known) < len(values) else query


def _query(values: list[object], kind: SqlType) -> str | None:
    first, name = values[0], kind.name
    if name == "VARCHAR":
        return _split([str(value) for value in values]) if isinstance(first, str) else None
    if name in INTEGER_TYPES:
        return _integers(values) if type(first) is int else None
    if name in _MOMENTS and isinstance(first, (str, date)):
        return _converted(values, kind, datetime if name != "DATE" else date)
    if name == "DOUBLE" and isinstance(first, Decimal):
        return _doubles([value for value in values if isinstance(value, Decimal)])
    if name == "DOUBLE" and type(first) in (int, float):
        return _converted(values, kind, float)
    if (shape := _DECIMAL.fullmatch(name)) and type(first) in (int, Decimal):
        return _decimals([Decimal(str(value)) for value in values], int(shape[1]), int(shape[2]))
    return None


def _split(texts: list[str]) -> str | None:
    whole = "".join(texts)
    separator = next((sign for sign in _SEPARATORS if sign not in whole), None)
    if separator is None:
        return None
    return f"SELECT unnest(string_split({literal(separator.join(texts))}, chr({ord(separator)})))"


def _elements(texts: Sequence[str], kind: str) -> str:
    return f"SELECT unnest(CAST('[{', '.join(texts)}]' AS {kind}[]))"


def _integers(values: list[object]) -> str | None:
    numbers = [value for value in values if isinstance(value, int)]
    is_held = min(numbers) >= -BIGINT_MAX and max(numbers) <= BIGINT_MAX
    return _elements(list(map(str, numbers)), "BIGINT") if is_held else None


def _converted(values: list[object], kind: SqlType, wanted: type) -> str | None:
    """Values of another type that DuckDB surely takes for values of the column's."""
    known = [comparable(value, kind) for value in values]
    if any(type(value) is not wanted for value in known):
        return None
    texts = [value.isoformat() if isinstance(value, date) else repr(value) for value in known]
    return _elements(texts, kind.name)


def _doubles(values: list[Decimal]) -> str | None:
    """Decimals that DuckDB surely compares as the nearest DOUBLE."""
    if not all(map(is_divided_once, values)):
        return None
    return _elements([repr(float(value)) for value in values], "DOUBLE")


def _decimals(values: list[Decimal], width: int, scale: int) -> str | None:
    digits = max(max(value.adjusted() + 1, 1) for value in values)
    places = max(max(map(scale_of, values)), 0)
    if max(width - scale, digits) + max(scale, places) > DECIMAL_DIGITS_MAX:
        return None
    return _elements([f"{value:f}" for value in values], f"DECIMAL({digits + places},{places})")
