"""Columns: the bracketed list of CREATE TABLE, with its constraints and its watermark.

``read_columns`` reads the syntax that streaming and reference tables share; what each kind allows
is decided by ``sql/tables.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from tidemill.errors import DefinitionError, TidemillError, UnknownNameError, did_you_mean
from tidemill.sql.bodies import parse_body
from tidemill.sql.fold import fixed_us
from tidemill.sql.statements import Watermark
from tidemill.sql.tokens import Cursor, depth_change, words
from tidemill.types import Column, SqlType, quote

_AFTER_TYPE = words(
    "NOT NULL DEFAULT PRIMARY UNIQUE CHECK REFERENCES COLLATE GENERATED AS CONSTRAINT"
) | {"PRIMARY KEY"}
_TABLE_CONSTRAINTS = words("PRIMARY UNIQUE CHECK FOREIGN CONSTRAINT WATERMARK") | {
    "PRIMARY KEY",
    "FOREIGN KEY",
}
COLUMNS_MAX = 2_000


@dataclass
class ColumnList:
    """What stands between the brackets, with the token of each part for error messages."""

    columns: list[Column] = field(default_factory=list)
    tokens: dict[str, Token] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    key_token: Token | None = None
    watermark: Watermark | None = None
    watermark_token: Token | None = None
    constraints: list[str] = field(default_factory=list)
    constraint_token: Token | None = None

    def find(self, name: str) -> Column | None:
        return next((known for known in self.columns if known.name.lower() == name.lower()), None)

    def require_not_null(self, name: str) -> None:
        self.columns = [
            replace(column, nullable=False) if column.name.lower() == name.lower() else column
            for column in self.columns
        ]

    def column_or_fail(self, name: str, cursor: Cursor, token: Token | None) -> Column:
        column = self.find(name)
        if column is None:
            known = [column.name for column in self.columns]
            raise UnknownNameError(
                f'column "{name}" does not exist',
                hint=did_you_mean(name, known) or f"the columns are {', '.join(known[:20])}",
                position=cursor.position(token),
            )
        return column


def read_columns(cursor: Cursor) -> ColumnList:
    """``(column …, constraint …)``; the cursor stands on the opening bracket."""
    found = ColumnList()
    cursor.expect("(")
    if cursor.word() == ")":
        raise DefinitionError(
            "a table needs at least one column",
            hint="name columns with their types: (ts TIMESTAMP, vid BIGINT)",
            position=cursor.position(cursor.peek()),
        )
    while True:
        _read_item(cursor, found)
        if not cursor.accept(","):
            break
    if not cursor.accept(")"):
        cursor.fail_expected([",", ")"])
    _check_key(cursor, found)
    return found


def _read_item(cursor: Cursor, found: ColumnList) -> None:
    word = cursor.word()
    if word in _TABLE_CONSTRAINTS and _is_constraint(cursor, word):
        _read_table_constraint(cursor, found)
    else:
        _read_column(cursor, found)


def _is_constraint(cursor: Cursor, word: str) -> bool:
    """A column may be called watermark: the word after it decides."""
    return word != "WATERMARK" or cursor.word(1) == "FOR"


def _read_column(cursor: Cursor, found: ColumnList) -> None:
    token = cursor.peek()
    name = cursor.name("column name")
    if name.lower() in found.tokens:
        raise DefinitionError(
            f'column "{name}" is defined twice',
            hint="column names are compared without case; rename one",
            position=cursor.position(token),
        )
    if name.lower().startswith("_seq"):
        raise DefinitionError(
            f'column name "{name}" is reserved',
            hint="names that start with _seq belong to Tidemill; rename the column",
            position=cursor.position(token),
        )
    if len(found.columns) >= COLUMNS_MAX:
        raise DefinitionError(
            f"a table has at most {COLUMNS_MAX} columns",
            hint="use a STRUCT or a LIST",
            position=cursor.position(token),
        )
    assert token is not None
    found.tokens[name.lower()] = token
    column = Column(name, _read_type(cursor))
    found.columns.append(_read_column_constraints(cursor, column, found))


def _read_type(cursor: Cursor) -> SqlType:
    start, first = cursor.at, cursor.peek()
    _skip_until(cursor, _AFTER_TYPE)
    if cursor.at == start:
        cursor.fail("expected a type", hint="every column has a name and a type: vid BIGINT")
    return parse_type(cursor, cursor.slice(start, cursor.at), first)


def parse_type(cursor: Cursor, text: str, token: Token | None) -> SqlType:
    try:
        return SqlType.parse(text)
    except TidemillError as error:
        raise cursor.place(error, token) from error
    except Exception as error:  # duckdb.sqltype raises more than it promises on hostile text
        raise DefinitionError(
            f'type "{text}" does not exist or is not supported',
            hint="docs/sql.md lists the types",
            position=cursor.position(token),
        ) from error


def _skip_until(cursor: Cursor, words: frozenset[str]) -> None:
    """Step to a top-level comma, the closing bracket, or one of the words (not the first token)."""
    depth, start = 0, cursor.at
    while (token := cursor.peek()) is not None:
        word = cursor.word()
        if depth == 0 and (word in (",", ")") or (cursor.at > start and word in words)):
            return
        depth += depth_change(token)
        if depth < 0:
            return
        cursor.at += 1


def _read_column_constraints(cursor: Cursor, column: Column, found: ColumnList) -> Column:
    while cursor.word() not in (",", ")", ""):
        token = cursor.peek()
        if cursor.accept("NOT", "NULL"):
            column = replace(column, nullable=False)
        elif cursor.accept("NULL"):
            column = replace(column, nullable=True)
        elif cursor.accept("DEFAULT"):
            column = replace(column, default=_read_default(cursor))
        elif _accept_pair(cursor, "PRIMARY", "KEY"):
            _set_key(cursor, found, (column.name,), token)
        elif cursor.accept("UNIQUE"):
            found.constraints.append(f"UNIQUE ({quote(column.name)})")
            found.constraint_token = token
        elif cursor.word() == "CHECK":
            found.constraints.append(_read_check(cursor))
            found.constraint_token = token
        else:
            _refuse(cursor)
    return column


def _accept_pair(cursor: Cursor, first: str, second: str) -> bool:
    """Two words that the tokenizer may have joined."""
    return cursor.accept(f"{first} {second}") or cursor.accept(first, second)


def _refuse(cursor: Cursor) -> None:
    word = cursor.word()
    hints = {
        "REFERENCES": "foreign keys are not offered; join the tables instead",
        "FOREIGN": "foreign keys are not offered; join the tables instead",
        "FOREIGN KEY": "foreign keys are not offered; join the tables instead",
        "GENERATED": "generated columns are not offered; compute the value in the query",
        "AS": "generated columns are not offered; compute the value in the query",
        "COLLATE": "collations are not offered here; use them in the query",
    }
    if word in hints:
        cursor.fail(f"{word} is not supported in a column list", hint=hints[word])
    cursor.fail_expected(["NOT NULL", "DEFAULT", "PRIMARY KEY", ",", ")"])


def _read_default(cursor: Cursor) -> str:
    start, first = cursor.at, cursor.peek()
    depth = 0
    while (token := cursor.peek()) is not None:
        word = cursor.word()
        if depth == 0 and cursor.at > start and _ends_default(cursor, word):
            break
        if depth == 0 and word in (",", ")"):
            break
        depth += depth_change(token)
        cursor.at += 1
    if cursor.at == start:
        cursor.fail("DEFAULT needs a value", hint="DEFAULT 0, DEFAULT 'x' or DEFAULT now()")
    tree = parse_body(cursor, start, cursor.at)
    if tree.find(exp.Column, exp.Query, exp.Placeholder, exp.Parameter) is not None:
        raise DefinitionError(
            "a DEFAULT must be a constant expression",
            detail="it names a column, a parameter or a query",
            hint="DEFAULT 0, DEFAULT 'x' or DEFAULT now()",
            position=cursor.position(first),
        )
    return cursor.slice(start, cursor.at)


def _ends_default(cursor: Cursor, word: str) -> bool:
    if word == "NOT":
        return cursor.word(1) == "NULL"
    return word in ("NULL", "PRIMARY", "PRIMARY KEY", "UNIQUE", "CHECK", "REFERENCES", "GENERATED")


def _read_check(cursor: Cursor) -> str:
    start = cursor.at
    cursor.expect("CHECK")
    if cursor.word() != "(":
        cursor.fail_expected(["("])
    cursor.skip_group()
    parse_body(cursor, start + 1, cursor.at)
    return cursor.slice(start, cursor.at)


def _read_table_constraint(cursor: Cursor, found: ColumnList) -> None:
    if cursor.accept("CONSTRAINT"):
        cursor.name("constraint name")
    token = cursor.peek()
    if _accept_pair(cursor, "PRIMARY", "KEY"):
        _set_key(cursor, found, cursor.names("column name"), token)
    elif cursor.accept("UNIQUE"):
        names = cursor.names("column name")
        for name in names:
            found.column_or_fail(name, cursor, token)
        found.constraints.append(f"UNIQUE ({', '.join(map(quote, names))})")
        found.constraint_token = token
    elif cursor.word() == "CHECK":
        found.constraints.append(_read_check(cursor))
        found.constraint_token = token
    elif cursor.accept("WATERMARK", "FOR"):
        _read_watermark(cursor, found, token)
    else:
        _refuse(cursor)


def _set_key(
    cursor: Cursor, found: ColumnList, names: tuple[str, ...], token: Token | None
) -> None:
    if found.primary_key:
        raise DefinitionError(
            "a table has one primary key",
            hint="name all its columns together: PRIMARY KEY (a, b)",
            position=cursor.position(token),
        )
    found.primary_key, found.key_token = names, token


def _check_key(cursor: Cursor, found: ColumnList) -> None:
    columns = [found.column_or_fail(name, cursor, found.key_token) for name in found.primary_key]
    found.primary_key = tuple(column.name for column in columns)
    for column in columns:
        found.require_not_null(column.name)
    if found.watermark is not None:
        column = found.column_or_fail(found.watermark.column, cursor, found.watermark_token)
        found.watermark = replace(found.watermark, column=column.name)


def _read_watermark(cursor: Cursor, found: ColumnList, token: Token | None) -> None:
    """``ts AS ts [- INTERVAL …]``, after WATERMARK FOR."""
    if found.watermark is not None:
        raise DefinitionError(
            "a table has one watermark",
            hint="keep one WATERMARK FOR",
            position=cursor.position(token),
        )
    found.watermark_token = cursor.peek()
    column = cursor.name("column name")
    cursor.expect("AS")
    again = cursor.peek()
    if cursor.name("column name").lower() != column.lower():
        cursor.fail(
            "a watermark is computed from its own column",
            again,
            hint=f"WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND",
        )
    delay_us = _read_delay(cursor, column) if cursor.accept("-") else 0
    found.watermark = Watermark(column, delay_us)


def _read_delay(cursor: Cursor, column: str) -> int:
    start, first = cursor.at, cursor.peek()
    _skip_until(cursor, frozenset())
    hint = f"WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND"
    if cursor.at == start:
        cursor.fail("the watermark's delay is missing", hint=hint)
    delay_us = fixed_us(parse_body(cursor, start, cursor.at))
    if delay_us is None or delay_us < 0:
        raise DefinitionError(
            "a watermark's delay must be an interval of fixed length, not negative",
            detail=f"found {cursor.slice(start, cursor.at)}",
            hint=hint,
            position=cursor.position(first),
        )
    return delay_us
