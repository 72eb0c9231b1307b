"""CREATE SOURCE: where packages of rows come from, into which table, and how often to look.

After the pattern, the clauses FORMAT, WITH, INTO and EVERY stand in any order, each once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from tidemill.errors import DefinitionError, Position, SqlSyntaxError
from tidemill.sql.every import read_every
from tidemill.sql.formats import choose_format
from tidemill.sql.options import read_options
from tidemill.sql.statements import CreateSource
from tidemill.sql.tokens import Cursor

_EXAMPLE = "CREATE SOURCE s FROM 'folder/*.csv' INTO t EVERY INTERVAL '10' SECOND"


@dataclass
class _Clauses:
    options: dict[str, object] = field(default_factory=dict)
    format_token: Token | None = None
    table: str | None = None
    columns: tuple[str, ...] | None = None
    every_us: int | None = None


def read_create_source(
    cursor: Cursor, text: str, position: Position, or_replace: bool
) -> CreateSource:
    """After ``CREATE [OR REPLACE] SOURCE``."""
    token = cursor.peek()
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        cursor.fail("OR REPLACE and IF NOT EXISTS exclude each other", token, hint="write one")
    name = cursor.name("source name")
    if not cursor.accept("FROM"):
        cursor.fail_expected(["FROM"])
    path_token = cursor.peek()
    pattern = cursor.string("a path or URL")
    if not pattern.strip():
        cursor.fail("the path is empty", path_token, hint=_EXAMPLE)
    found = _read_clauses(cursor)
    if found.table is None:
        raise SqlSyntaxError(
            "the source does not say into which table its rows go",
            hint="add INTO t",
            position=cursor.position(None),
        )
    format_ = choose_format(
        cursor,
        pattern,
        found.options,
        path_token=path_token,
        format_token=found.format_token,
        hint="add FORMAT csv, json, ndjson or parquet after it",
    )
    return CreateSource(
        name,
        pattern,
        format_,
        found.options,
        found.table,
        found.columns,
        found.every_us,
        or_replace,
        if_not_exists,
        text=text,
        position=position,
    )


def _read_clauses(cursor: Cursor) -> _Clauses:
    found = _Clauses()
    format_: str | None = None
    seen: set[str] = set()
    while not cursor.done:
        token = cursor.take()
        word = "" if token.token_type == TokenType.IDENTIFIER else token.text.upper()
        if word in seen:
            cursor.fail(f"{word} is given twice", token, hint="give it once")
        seen.add(word)
        if word == "FORMAT":
            found.format_token = cursor.peek()
            format_ = _read_format(cursor)
        elif word in _READERS and token.token_type != TokenType.STRING:
            _READERS[word](cursor, found)
        else:
            cursor.at -= 1
            cursor.fail_expected([w for w in ("FORMAT", *_READERS) if w not in seen] or [";"])
    if format_ is not None:
        if str(found.options.get("format", format_)).lower() != format_.lower():
            cursor.fail("two formats are given", found.format_token, hint="give one")
        found.options["format"] = format_
    return found


def _read_format(cursor: Cursor) -> str:
    token = cursor.peek()
    if token is not None and token.token_type == TokenType.STRING:
        return cursor.string("a format")
    return cursor.name("format")


def _read_with(cursor: Cursor, found: _Clauses) -> None:
    if cursor.word() != "(":
        cursor.fail("expected options in brackets", hint="WITH (delimiter = '|', header = true)")
    token = cursor.peek()
    found.options = read_options(cursor)
    found.format_token = found.format_token or token


def _read_into(cursor: Cursor, found: _Clauses) -> None:
    token = cursor.peek()
    found.table = cursor.table_name()
    if found.table.startswith("tidemill.") or "$" in found.table:
        raise DefinitionError(
            f'rows cannot be loaded into "{found.table}"',
            hint="name a streaming or reference table",
            position=cursor.position(token),
        )
    found.columns = cursor.names("column name") if cursor.word() == "(" else None


def _read_every(cursor: Cursor, found: _Clauses) -> None:
    found.every_us = read_every(cursor, "a source is looked at")


_READERS: dict[str, Callable[[Cursor, _Clauses], None]] = {
    "WITH": _read_with,
    "INTO": _read_into,
    "EVERY": _read_every,
}
