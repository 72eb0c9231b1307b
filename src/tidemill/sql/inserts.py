"""INSERT: a fast path that reads literal rows straight from the text, and the general one.

A stream of single-row INSERTs must not pay for a general parser, so the fast path reads
``INSERT INTO t [(a, b)] VALUES (…), (…)`` with two regular expressions, into Python values.
Rows with casts and intervals are read in the same way, into values of the types that DuckDB gives
them (``literal_rows``). Whatever else there is (an expression, a comment, a tail) is left to the
general path, which reads the head from tokens and the body with sqlglot.
"""

from __future__ import annotations

import re
from decimal import Decimal
from enum import Enum
from math import inf, isinf
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidemill.errors import Position, SqlSyntaxError, UnsupportedError
from tidemill.sql.bodies import parse_body
from tidemill.sql.casting import TIMESTAMPTZ, time_value
from tidemill.sql.literal_rows import LiteralRows, read_literal_rows
from tidemill.sql.params import Param, are_in_order
from tidemill.sql.statements import Insert
from tidemill.sql.tokens import (
    NAME_LENGTH_MAX,
    RESERVED,
    Cursor,
    depth_change,
    position_at,
    tokenize,
)


class Default(Enum):
    """The value ``DEFAULT`` in a row: the column's default."""

    DEFAULT = "DEFAULT"


DEFAULT: Final = Default.DEFAULT

Rows = tuple[tuple[object, ...], ...]

_WORD = r"[A-Za-z_]\w*+"
_HEAD = re.compile(
    rf"\s*+(INSERT)\s++INTO\s++(?:main\.)?({_WORD}|\"(?:[^\"]|\"\")++\")(?![.$\"])\s*+"
    rf"(?:\(\s*+({_WORD}(?:\s*+,\s*+{_WORD})*+)\s*+\)\s*+)?VALUES\s*+(?=\()",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"\s*+(?:([+-]?\d++)(?![.\w])"  # 1 integer
    r"|'((?:[^']|'')*+)'"  # 2 string
    r"|([+-]?(?:\d++\.\d*+|\.\d++))(?!\w)"  # 3 decimal
    r"|([+-]?(?:\d++\.?\d*+|\.\d++)[eE][+-]?\d++)(?![.\w])"  # 4 float
    r"|(NULL|TRUE|FALSE|DEFAULT)(?![\w.(])"  # 5 word
    r"|(TIMESTAMP|TIMESTAMPTZ|DATE|TIME)\s*+'([^']*+)'"  # 6 type, 7 text
    r"|(\?)(?!\w)|(?:\$|:)(\w++)"  # 8 parameter by place, 9 by number or name
    r")\s*+[,)]",
    re.IGNORECASE,
)
_INTEGER, _STRING, _DECIMAL, _NUMBER, _WORDED, _PLACE = 1, 2, 3, 4, 5, 8  # groups
_INFINITE = (inf, -inf)
_FLOAT = re.compile(r"(?:\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_NEXT_ROW = re.compile(r"\s*+,\s*+\(")
_OPENING = re.compile(r"\s*+\(")
_END = re.compile(r"\s*+(?:;|\Z)")
_WORDS: dict[str, object] = {"null": None, "true": True, "false": False, "default": DEFAULT}


def read_fast_insert(text: str, start: int) -> tuple[Insert, int] | None:
    """The INSERT of literal rows at ``start`` and the offset after it and its semicolon."""
    head = _HEAD.match(text, start)
    if head is None:
        return None
    found = _read_literals(text, head.end())
    name, columns = _plain_name(head[2]), _plain_columns(head[3])
    if found is None or name is None or columns == ():
        return None
    values, after = found
    end = _END.match(text, after)
    if end is None:
        return None
    first = head.start(1)
    position = position_at(text, first, first + 6)
    return _insert(name, columns, values, "", text[first:after], position), end.end()


def _read_literals(text: str, at: int) -> tuple[Rows | LiteralRows, int] | None:
    """Rows without parameters, and the offset after them."""
    found = _read_rows(text, at)
    if found is None:
        return read_literal_rows(text, at)
    rows, after, has_params = found
    return None if has_params else (rows, after)


def _insert(
    table: str,
    columns: tuple[str, ...] | None,
    values: Rows | LiteralRows,
    tail: str,
    text: str,
    position: Position,
) -> Insert:
    if isinstance(values, LiteralRows):
        return Insert(
            table, columns, None, None, tail, literals=values, text=text, position=position
        )
    _check_widths(values, columns, position)
    return Insert(table, columns, values, None, tail, text=text, position=position)


def _plain_name(word: str) -> str | None:
    name = word[1:-1].replace('""', '"') if word[0] == '"' else word
    reserved = word[0] != '"' and name.lower() in RESERVED
    return None if reserved or len(name) > NAME_LENGTH_MAX or "\0" in name else name


def _plain_columns(listed: str | None) -> tuple[str, ...] | None:
    """The names; None without a list; empty when the general path should look at it."""
    if listed is None:
        return None
    names = tuple(name.strip() for name in listed.split(","))
    lower = {name.lower() for name in names}
    return () if len(lower) < len(names) or lower & RESERVED else names


def _read_rows(text: str, at: int) -> tuple[Rows, int, bool] | None:
    """The rows from ``at`` on, the offset after them, and whether they have parameters."""
    rows: list[tuple[object, ...]] = []
    places = 0
    has_params = False
    opening = _OPENING.match(text, at)
    match_value = _VALUE.match
    while opening is not None:
        at = opening.end()
        row: list[object] = []
        while True:
            match = match_value(text, at)
            if match is None:
                return None
            at = match.end()
            group = match.lastindex
            assert group is not None
            found = match[group]
            try:
                if group == _INTEGER:
                    row.append(int(found))
                elif group == _STRING:
                    row.append(found.replace("''", "'") if "'" in found else found)
                elif group == _WORDED:
                    row.append(_WORDS[found.lower()])
                elif group == _DECIMAL:
                    row.append(Decimal(found))
                elif group < _PLACE:
                    value = float(found) if group == _NUMBER else _time(match)
                    if value is None or value in _INFINITE:
                        return None
                    row.append(value)
                else:
                    places += group == _PLACE
                    has_params = True
                    row.append(Param(str(places) if group == _PLACE else found))
            except ValueError:  # a number of thousands of digits
                return None
            if text[at - 1] == ")":
                break
        rows.append(tuple(row))
        opening = _NEXT_ROW.match(text, at)
    return (tuple(rows), at, has_params) if rows else None


def _time(match: re.Match[str]) -> object | None:
    """``TIMESTAMP '…'`` and its kind as a Python value; None when the text is unusual."""
    kind = match[6].upper()
    return time_value(TIMESTAMPTZ if kind == "TIMESTAMPTZ" else kind, match[7])


def _check_widths(rows: Rows, columns: tuple[str, ...] | None, position: Position) -> None:
    width = len(columns) if columns is not None else len(rows[0])
    for number, row in enumerate(rows, 1):
        if len(row) == width:
            continue
        wanted = f"{width} columns are named" if columns is not None else f"row 1 has {width}"
        raise SqlSyntaxError(
            f"row {number} has {len(row)} value(s), and {wanted}",
            hint="give every row one value for each column; NULL and DEFAULT are values too",
            position=position,
        )


def read_insert(cursor: Cursor, text: str, position: Position) -> Insert:
    """The general path, after ``INSERT``."""
    if cursor.word() == "OR":
        raise UnsupportedError(
            f"INSERT OR {cursor.word(1)} is not offered",
            hint="use ON CONFLICT for a reference table, WITH (on_conflict = …) for a stream",
            position=cursor.position(cursor.peek()),
        )
    if not cursor.accept("INTO"):
        cursor.fail_expected(["INTO"])
    table = cursor.table_name()
    columns = cursor.names("column name") if _is_column_list(cursor) else None
    by_name = cursor.accept("BY", "NAME")
    if not by_name:
        cursor.accept("BY", "POSITION")
    if cursor.accept("DEFAULT", "VALUES"):
        tail = _tail(cursor, cursor.at)
        return Insert(table, (), ((),), None, tail, text=text, position=position)
    return _read_body(cursor, table, columns, by_name, text, position)


def _is_column_list(cursor: Cursor) -> bool:
    """A bracket opens the columns, unless a query stands in it."""
    return cursor.word() == "(" and cursor.word(1) not in ("SELECT", "WITH", "VALUES", "FROM", "(")


def _read_body(
    cursor: Cursor,
    table: str,
    columns: tuple[str, ...] | None,
    by_name: bool,
    text: str,
    position: Position,
) -> Insert:
    start, end = cursor.at, _body_end(cursor)
    if start == end:
        cursor.fail_expected(["VALUES", "SELECT"])
    tail = _tail(cursor, end)
    template: Rows | None = None
    if cursor.word() == "VALUES":
        if end == start + 1:
            raise SqlSyntaxError(
                "VALUES without a row",
                hint="write VALUES (…), or DEFAULT VALUES for a row of defaults",
                position=cursor.position(cursor.peek()),
            )
        first, stop = cursor.tokens[start].end + 1, cursor.tokens[end - 1].end + 1
        found = _read_literals(cursor.text, first)
        if found is not None and found[1] == stop:
            values = found[0]
            if not by_name or not isinstance(values, LiteralRows):
                return _insert(table, columns, values, tail, text, position)
        template = _read_template(cursor.text, first, stop, columns, position)
        if template is None:
            _refuse_default(cursor, start, end)
            _refuse_infinite(cursor, start, end)
    query = parse_body(cursor, start, end)
    if not isinstance(query, (exp.Query, exp.Values)):
        cursor.fail_expected(["VALUES", "SELECT"])
    return Insert(
        table,
        columns,
        None,
        query,
        tail,
        by_name,
        template,
        in_order=template is not None and are_in_order(template),
        text=text,
        position=position,
    )


def _read_template(
    text: str, at: int, stop: int, columns: tuple[str, ...] | None, position: Position
) -> Rows | None:
    """Rows of literals and parameters that end at an offset."""
    found = _read_rows(text, at)
    if found is None or found[1] != stop:
        return None
    _check_widths(found[0], columns, position)
    return found[0]


def _body_end(cursor: Cursor) -> int:
    """The index of ON CONFLICT or RETURNING outside brackets, or the end."""
    depth = 0
    for index in range(cursor.at, len(cursor.tokens)):
        token = cursor.tokens[index]
        depth += depth_change(token)
        if depth or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        word = token.text.upper()
        if word == "RETURNING":
            return index
        if word == "ON" and index + 2 < len(cursor.tokens):
            following = [cursor.tokens[index + ahead].text.upper() for ahead in (1, 2)]
            if following[0] == "CONFLICT" and following[1] in ("(", "DO"):
                return index
    return len(cursor.tokens)


def _tail(cursor: Cursor, start: int) -> str:
    rest = Cursor(cursor.text, cursor.tokens, start)
    if rest.done:
        return ""
    if rest.word() not in ("ON", "RETURNING"):
        rest.expect_end()
    head = tokenize("INSERT INTO t SELECT 1")
    parse_body(Cursor(cursor.text, [*head, *rest.tokens[start:]]), 0, len(head) + len(rest.tokens))
    return rest.slice(start, len(rest.tokens))


def _refuse_infinite(cursor: Cursor, start: int, end: int) -> None:
    """A number that no DOUBLE holds; DuckDB would take it for infinity."""
    for token in cursor.tokens[start:end]:
        number = _FLOAT.match(token.text) if token.token_type == TokenType.NUMBER else None
        if number is not None and isinf(float(number[0])):
            raise SqlSyntaxError(
                f"number {number[0][:40]} is too large",
                hint="write 'infinity' if you mean it",
                position=cursor.position(token),
            )


def _refuse_default(cursor: Cursor, start: int, end: int) -> None:
    for index in range(start + 1, end - 1):
        if cursor.tokens[index].text.upper() != "DEFAULT":
            continue
        here = Cursor(cursor.text, cursor.tokens, index - 1)
        around = here.word() in ("(", ",") and here.word(2) in (")", ",")
        if here.word(1) == "DEFAULT" and around:
            raise UnsupportedError(
                "DEFAULT cannot stand beside expressions in VALUES",
                hint="name the other columns and leave this one out, or use literals only",
                position=cursor.position(cursor.tokens[index]),
            )
