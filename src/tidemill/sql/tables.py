"""CREATE STREAMING TABLE and CREATE TABLE: the heads, and whether they agree with themselves."""

from __future__ import annotations

from sqlglot import exp

from tidemill.errors import DefinitionError, Position, UnsupportedError
from tidemill.sql.bodies import parse_body
from tidemill.sql.columns import ColumnList, read_columns
from tidemill.sql.options import read_settings
from tidemill.sql.statements import CreateKeptQuery, CreateStreamingTable, CreateTable
from tidemill.sql.tokens import Cursor
from tidemill.sql.views import read_kept_query
from tidemill.types import TIME_TYPES, Column


def read_create_streaming_table(
    cursor: Cursor, text: str, position: Position, or_replace: bool
) -> CreateStreamingTable | CreateKeptQuery:
    """After ``CREATE [OR REPLACE] STREAMING TABLE``."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.new_table_name()
    if cursor.word() in ("AS", "WITH"):
        return read_kept_query(cursor, name, text, position, or_replace, if_not_exists)
    found = read_columns(cursor)
    settings = read_settings(cursor) if cursor.accept("WITH") else {}
    if cursor.word() == "AS":
        cursor.fail("columns and AS SELECT exclude each other", hint="cast inside the SELECT")
    cursor.expect_end()
    if found.constraints:
        raise UnsupportedError(
            "a streaming table has neither UNIQUE nor CHECK",
            hint="PRIMARY KEY is enforced; bad rows can be filtered before they are appended",
            position=cursor.position(found.constraint_token),
        )
    time_column = _time_column(cursor, found)
    found.require_not_null(time_column)
    _check_key(cursor, found, time_column)
    if "on_conflict" in settings and not found.primary_key:
        raise DefinitionError(
            "on_conflict needs a primary key",
            hint=f"add PRIMARY KEY (…, {time_column}), or leave on_conflict out",
            position=position,
        )
    return CreateStreamingTable(
        name,
        tuple(found.columns),
        time_column,
        found.watermark,
        found.primary_key,
        settings,
        or_replace,
        if_not_exists,
        text=text,
        position=position,
    )


def _time_column(cursor: Cursor, found: ColumnList) -> str:
    times = [column for column in found.columns if column.type.is_time]
    if found.watermark is not None:
        return _watermark_column(cursor, found, times)
    if len(times) == 1:
        return times[0].name
    names = ", ".join(column.name for column in times)
    if not times:
        raise DefinitionError(
            "a streaming table needs a time column",
            hint="add a column of type TIMESTAMP or TIMESTAMPTZ",
            position=cursor.position(cursor.tokens[0]),
        )
    raise DefinitionError(
        f"the table has several time columns: {names}",
        hint=f"say which one orders the stream: WATERMARK FOR {times[0].name} AS {times[0].name}",
        position=cursor.position(found.tokens[times[1].name.lower()]),
    )


def _watermark_column(cursor: Cursor, found: ColumnList, times: list[Column]) -> str:
    assert found.watermark is not None
    column = found.column_or_fail(found.watermark.column, cursor, found.watermark_token)
    if not column.type.is_time:
        others = ", ".join(time.name for time in times)
        raise DefinitionError(
            f'the watermark column "{column.name}" is {column.type}, not a time',
            hint=f"use {others}" if times else f"its type must be {' or '.join(TIME_TYPES)}",
            position=cursor.position(found.watermark_token),
        )
    return column.name


def _check_key(cursor: Cursor, found: ColumnList, time_column: str) -> None:
    if found.primary_key and time_column not in found.primary_key:
        key = ", ".join([*found.primary_key, time_column])
        raise DefinitionError(
            f'the primary key of a streaming table includes its time column "{time_column}"',
            detail="so that it can be enforced exactly, in memory and in one partition",
            hint=f"PRIMARY KEY ({key})",
            position=cursor.position(found.key_token),
        )


def read_create_table(
    cursor: Cursor, text: str, position: Position, or_replace: bool
) -> CreateTable:
    """After ``CREATE [OR REPLACE] TABLE``."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.new_table_name()
    query: exp.Expression | None = None
    found = ColumnList()
    if cursor.word() == "(":
        found = read_columns(cursor)
        _refuse_streaming_parts(cursor, found)
    if cursor.word() == "WITH":
        raise UnsupportedError(
            "a reference table has no settings",
            hint="WITH belongs to CREATE STREAMING TABLE",
            position=cursor.position(cursor.peek()),
        )
    if cursor.accept("AS"):
        query = _read_query(cursor, bool(found.columns))
    elif not found.columns:
        cursor.fail_expected(["(", "AS"])
    cursor.expect_end()
    return CreateTable(
        name,
        tuple(found.columns),
        found.primary_key,
        tuple(found.constraints),
        query,
        or_replace,
        if_not_exists,
        text=text,
        position=position,
    )


def _refuse_streaming_parts(cursor: Cursor, found: ColumnList) -> None:
    if found.watermark is not None:
        raise DefinitionError(
            "a reference table has no watermark",
            hint="CREATE STREAMING TABLE has one",
            position=cursor.position(found.watermark_token),
        )


def _read_query(cursor: Cursor, has_columns: bool) -> exp.Expression:
    token = cursor.peek()
    if has_columns:
        cursor.fail("columns and AS SELECT exclude each other", hint="cast inside the SELECT")
    tree = parse_body(cursor, cursor.at, len(cursor.tokens))
    cursor.at = len(cursor.tokens)
    if not isinstance(tree, (exp.Query, exp.Values)):
        cursor.fail("expected a query after AS", token, hint="CREATE TABLE t AS SELECT …")
    return tree
