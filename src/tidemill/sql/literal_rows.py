"""Rows of literals: ``VALUES (…), (…)`` read from the text alone, with the types DuckDB gives them.

DuckDB gives a column of VALUES one type, which all of its values have to have. Where it cannot (a
text beside a time), the general path takes such rows one by one, every value in its own type. Both
are done here without DuckDB, for literals whose values are sure (``literals``):

1. all cells are read; one that is not sure ends it, and the general path reads the statement;
2. the cells of each column are brought to one type, where DuckDB surely would;
3. if DuckDB surely refuses that for a column, all cells stay as they are (``is_by_row``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from tidemill.sql.casting import (
    BOOLEAN,
    DATE,
    DECIMAL,
    DECIMAL_CAST_DIGITS_MAX,
    DECIMAL_DIGITS_MAX,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NARROW,
    NULL,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    Cell,
    Target,
    cast_cell,
    rescaled,
    scale_of,
)
from tidemill.sql.literals import read_cell

_OPENING = re.compile(r"\s*+\(", re.ASCII)
_NEXT = re.compile(r"\s*+,\s*+\(", re.ASCII)
_BIGINT_DIGITS = 19
_INTEGER_BITS = 32  # of the least type that whole numbers have beside texts


@dataclass(frozen=True)
class LiteralRows:
    """Columns of cells (kind and value), all of the same length. Unless they are to be taken row
    by row, the cells of a column are NULL or of one kind, decimals of one scale."""

    columns: tuple[tuple[Cell, ...], ...]
    is_by_row: bool = False


class _Mixed(Enum):
    """Why cells have not got one type: DuckDB refuses to give them one, or it is not known."""

    REFUSED = "refused"
    UNKNOWN = "unknown"


def read_literal_rows(text: str, at: int) -> tuple[LiteralRows, int] | None:
    """The rows from the bracket at or after an offset, and the offset after them; None if there is
    more to them than literals, or if their values are not sure."""
    first = at
    rows: list[list[Cell]] = []
    opening = _OPENING.match(text, at)
    while opening is not None:
        at = opening.end()
        row: list[Cell] = []
        is_last = False
        while not is_last:
            found = read_cell(text, at)
            if found is None:
                return None
            cell, at, is_last = found
            row.append(cell)
        rows.append(row)
        opening = _NEXT.match(text, at)
    if not rows or any(len(row) != len(rows[0]) for row in rows) or not _is_plain(text[first:at]):
        return None
    combined = combine(list(zip(*rows, strict=True)))
    return None if combined is None else (combined, at)


def _is_plain(text: str) -> bool:
    """Whether a text holds no character that the general path refuses."""
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def combine(columns: Sequence[tuple[Cell, ...]]) -> LiteralRows | None:
    """The columns in one type each, or to be taken row by row; None if that is not sure."""
    found = [_in_one_type(cells) for cells in columns]
    if _Mixed.REFUSED in found:
        return LiteralRows(tuple(columns), is_by_row=True)
    if _Mixed.UNKNOWN in found:
        return None
    return LiteralRows(tuple(cells for cells in found if not isinstance(cells, _Mixed)))


def _in_one_type(cells: tuple[Cell, ...]) -> tuple[Cell, ...] | _Mixed:
    kinds = {kind for kind, _ in cells} - {NULL}
    if kinds <= {*_WHOLE, DECIMAL} and DECIMAL in kinds:
        return _decimals(cells, kinds)
    if len(kinds) < 2:
        return cells
    for target, sources in _COMBINED.items():
        if kinds <= sources:
            return _cast_all(cells, target)
    if TEXT in kinds and VARCHAR not in kinds:
        return _with_texts(cells, kinds - {TEXT})
    groups = {_GROUPS[kind] for kind in kinds - {TEXT}}
    is_refused = len(groups) > 1 and not groups <= {_GROUPS[INTEGER], BOOLEAN}
    return _Mixed.REFUSED if is_refused else _Mixed.UNKNOWN


_WHOLE = frozenset({INTEGER, NARROW})
# What values of different kinds become, in the order in which the types hold each other.
_COMBINED = {
    INTEGER: {*_WHOLE, BOOLEAN},
    DOUBLE: {*_WHOLE, DECIMAL, DOUBLE},
    VARCHAR: {TEXT, VARCHAR},
    TIMESTAMP: {DATE, TIMESTAMP},
    TIMESTAMPTZ: {DATE, TIMESTAMP, TIMESTAMPTZ},
}
# DuckDB has no type for values of different groups, but for integers and booleans.
_GROUPS = {
    **dict.fromkeys((*_WHOLE, DECIMAL, DOUBLE), "numbers"),
    **dict.fromkeys((DATE, TIMESTAMP, TIMESTAMPTZ), "moments"),
    **{kind: kind for kind in (BOOLEAN, VARCHAR, TIME, INTERVAL, UUID)},
}
_FROM_TEXT = frozenset(
    {INTEGER, DOUBLE, BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ, TIME, INTERVAL, UUID}
)


def _with_texts(cells: tuple[Cell, ...], others: set[str]) -> tuple[Cell, ...] | _Mixed:
    """Texts become what stands before them; what comes after a first text must be one."""
    if cells[0][0] == TEXT:
        return _Mixed.REFUSED
    first = next(kind for kind, _ in cells if kind != NULL)
    if others != {first}:
        return _Mixed.UNKNOWN
    if first == DECIMAL:
        return _decimal_texts(cells)
    return _cast_all(cells, first) if first in _FROM_TEXT else _Mixed.UNKNOWN


def _cast_all(cells: tuple[Cell, ...], kind: str) -> tuple[Cell, ...] | _Mixed:
    target = Target(kind, bits=_INTEGER_BITS)
    cast = [cell if cell[0] == kind else _cast_one(cell, target) for cell in cells]
    known = tuple(cell for cell in cast if cell is not None)
    return known if len(known) == len(cells) else _Mixed.UNKNOWN


def _cast_one(cell: Cell, target: Target) -> Cell | None:
    if target.kind == INTEGER and cell[0] != TEXT:
        return INTEGER, None if cell[1] is None else int(cell[1])  # type: ignore[call-overload]
    return cast_cell(cell, target)


def _decimals(cells: tuple[Cell, ...], kinds: set[str]) -> tuple[Cell, ...] | _Mixed:
    numbers = [Decimal(value) for _, value in cells if isinstance(value, (int, Decimal))]
    scale = max(map(scale_of, numbers))
    digits = max(max(number.adjusted() + 1, 1) for number in numbers)
    if len({scale_of(number) for number in numbers}) > 1:
        digits = max(digits, DECIMAL_CAST_DIGITS_MAX if kinds == {DECIMAL} else _BIGINT_DIGITS)
    if digits + scale > DECIMAL_DIGITS_MAX:
        return _Mixed.UNKNOWN
    return tuple(_rescaled(cell, scale) for cell in cells)


def _decimal_texts(cells: tuple[Cell, ...]) -> tuple[Cell, ...] | _Mixed:
    """Texts among decimals, if they have no more digits than these before and after the point."""
    numbers = [value for _, value in cells if isinstance(value, Decimal)]
    scale = max(map(scale_of, numbers))
    digits = max(number.adjusted() + 1 for number in numbers)
    target = Target(DECIMAL, width=digits + scale, scale=scale)
    if not 0 < digits <= target.width <= DECIMAL_DIGITS_MAX:
        return _Mixed.UNKNOWN
    cast = [cell if cell[0] != TEXT else cast_cell(cell, target) for cell in cells]
    known = tuple(cell for cell in cast if cell is not None)
    return _decimals(known, {DECIMAL}) if len(known) == len(cells) else _Mixed.UNKNOWN


def _rescaled(cell: Cell, scale: int) -> Cell:
    value = cell[1]
    if not isinstance(value, (int, Decimal)):
        return NULL, None
    return DECIMAL, rescaled(Decimal(value), scale)
