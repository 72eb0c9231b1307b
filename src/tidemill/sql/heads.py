"""Heads of the small statements: indices, DROP, ALTER, SHOW, DESCRIBE, TRUNCATE, FLUSH, VACUUM."""

from __future__ import annotations

from sqlglot import exp

from tidemill.errors import Position, UnsupportedError, did_you_mean
from tidemill.sql.names import table_node
from tidemill.sql.options import read_settings
from tidemill.sql.statements import (
    AlterTableSet,
    Change,
    CreateIndex,
    Describe,
    DropIndex,
    DropSource,
    DropTable,
    Flush,
    ShowIndexes,
    ShowJobs,
    ShowPartitions,
    ShowSources,
    ShowTables,
    ShowViews,
    Statement,
    Vacuum,
)
from tidemill.sql.tokens import Cursor, words
from tidemill.sql.variables import read_show_variable
from tidemill.sql.views import VIEW_KINDS, accept_view, read_drop_view

_METHODS = {"hash": "hash", "btree": "ordered", "ordered": "ordered"}


def read_create_index(cursor: Cursor, text: str, position: Position, unique: bool) -> CreateIndex:
    """After ``CREATE [UNIQUE] INDEX``."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = None if cursor.word() == "ON" else cursor.name("index name")
    if not cursor.accept("ON"):
        cursor.fail_expected(["ON"])
    table = cursor.table_name()
    method = _read_method(cursor) if cursor.accept("USING") else "ordered"
    columns = cursor.names("column name")
    cursor.expect_end()
    return CreateIndex(
        name, table, columns, method, unique, if_not_exists, text=text, position=position
    )


def _read_method(cursor: Cursor) -> str:
    token = cursor.peek()
    word = cursor.name("index method").lower()
    if word not in _METHODS:
        cursor.fail(
            f'index method "{word}" does not exist',
            token,
            hint=did_you_mean(word, _METHODS) or "USING hash, or USING ordered (btree)",
        )
    return _METHODS[word]


def read_drop(cursor: Cursor, text: str, position: Position) -> Statement:
    """After ``DROP``."""
    kind = cursor.peek()
    if cursor.accept("INDEX"):
        if_exists = cursor.accept("IF", "EXISTS")
        name = cursor.name("index name")
        cursor.expect_end()
        return DropIndex(name, if_exists, text=text, position=position)
    if cursor.accept("SOURCE"):
        if_exists = cursor.accept("IF", "EXISTS")
        name = cursor.name("source name")
        cursor.expect_end()
        return DropSource(name, if_exists, text=text, position=position)
    if cursor.accept("STREAMING", "TABLE") or cursor.accept("TABLE"):
        if_exists = cursor.accept("IF", "EXISTS")
        table = cursor.table_name()
        if cursor.word() in ("CASCADE", "RESTRICT"):
            cursor.take()
        cursor.expect_end()
        return DropTable(table, if_exists, text=text, position=position)
    if accept_view(cursor) or cursor.accept("VIEW"):
        return read_drop_view(cursor, text, position)
    if cursor.word() in ("SCHEMA", "SEQUENCE", "TYPE", "MACRO", "FUNCTION", "DATABASE"):
        raise UnsupportedError(
            f"DROP {cursor.word()} is not offered",
            hint="DROP TABLE, VIEW, INDEX and SOURCE are",
            position=cursor.position(kind),
        )
    return cursor.fail_expected(
        ["TABLE", "STREAMING TABLE", "MATERIALIZED VIEW", "INDEX", "SOURCE"]
    )


def read_alter(cursor: Cursor, text: str, position: Position) -> AlterTableSet:
    """After ``ALTER``."""
    if cursor.word() == "SOURCE":
        raise UnsupportedError(
            "ALTER SOURCE is not offered",
            hint="CREATE OR REPLACE SOURCE changes it; no package is loaded twice",
            position=cursor.position(cursor.peek()),
        )
    cursor.accept("STREAMING")
    if not cursor.accept("TABLE"):
        cursor.fail_expected(["TABLE", "STREAMING"])
    table = cursor.table_name()
    if cursor.word() in ("ADD", "DROP", "RENAME", "ALTER", "MODIFY", "RESET", "OWNER"):
        raise UnsupportedError(
            f"ALTER TABLE … {cursor.word()} is not offered",
            hint="ALTER TABLE t SET (setting = value) changes settings; otherwise create a new "
            "table and INSERT INTO it",
            position=cursor.position(cursor.peek()),
        )
    if not cursor.accept("SET"):
        cursor.fail_expected(["SET"])
    if cursor.word() != "(":
        cursor.fail("expected settings in brackets", hint="ALTER TABLE t SET (late = 'divert')")
    settings = read_settings(cursor, alter=True)
    cursor.expect_end()
    return AlterTableSet(table, settings, text=text, position=position)


def read_show(cursor: Cursor, text: str, position: Position) -> Statement:
    """After ``SHOW``."""
    if cursor.accept("TABLES") or cursor.accept("ALL", "TABLES"):
        cursor.expect_end()
        return ShowTables(text=text, position=position)
    if cursor.accept("INDEXES") or cursor.accept("INDICES"):
        return ShowIndexes(_read_of_table(cursor), text=text, position=position)
    if cursor.accept("PARTITIONS"):
        return ShowPartitions(_read_of_table(cursor), text=text, position=position)
    if cursor.accept("SOURCES"):
        cursor.expect_end()
        return ShowSources(text=text, position=position)
    if any(cursor.accept(kind, "VIEWS") for kind in VIEW_KINDS) or cursor.accept("VIEWS"):
        cursor.expect_end()
        return ShowViews(text=text, position=position)
    if cursor.accept("JOBS"):
        cursor.expect_end()
        return ShowJobs(text=text, position=position)
    if cursor.accept("COLUMNS"):
        if not (cursor.accept("FROM") or cursor.accept("IN")):
            cursor.fail_expected(["FROM"])
        return read_describe(cursor, text, position)
    # A word like one of these is a slip, unless it is quoted; any other is a variable.
    if cursor.done or did_you_mean(cursor.word(), _SHOWN):
        cursor.fail_expected(_SHOWN)
    return read_show_variable(cursor, text, position)


_SHOWN = ("TABLES", "VIEWS", "INDEXES", "COLUMNS", "PARTITIONS", "SOURCES", "JOBS")


def _read_of_table(cursor: Cursor) -> str | None:
    """``[ON t | FROM t]`` at the end of a statement."""
    table = cursor.table_name() if cursor.accept("ON") or cursor.accept("FROM") else None
    cursor.expect_end()
    return table


def read_describe(cursor: Cursor, text: str, position: Position) -> Describe:
    """After ``DESCRIBE``, ``DESC`` or ``SHOW COLUMNS FROM``."""
    if cursor.done:
        cursor.fail("expected a table name", hint="DESCRIBE t; SHOW TABLES lists the tables")
    if cursor.word() in ("SELECT", "WITH", "VALUES", "FROM", "("):
        raise UnsupportedError(
            "DESCRIBE of a query is not offered",
            hint="SELECT typeof(column) …, or CREATE TABLE t AS … and DESCRIBE t",
            position=cursor.position(cursor.peek()),
        )
    cursor.accept("TABLE")
    table = cursor.table_name()
    cursor.expect_end()
    return Describe(table, text=text, position=position)


def read_truncate(cursor: Cursor, text: str, position: Position) -> Change:
    """After ``TRUNCATE``: a DELETE of everything."""
    cursor.accept("TABLE")
    table = cursor.table_name()
    cursor.expect_end()
    body = exp.Delete(this=table_node(table))
    return Change("delete", table, body, text=text, position=position)


def read_flush(cursor: Cursor, text: str, position: Position) -> Flush:
    """After ``FLUSH``."""
    return Flush(_read_tables(cursor), text=text, position=position)


def read_vacuum(cursor: Cursor, text: str, position: Position) -> Vacuum:
    """After ``VACUUM``."""
    is_option = cursor.word() in _VACUUM_OPTIONS and cursor.peek(1) is not None
    if is_option or cursor.word() in ("(", "ANALYZE", "ANALYSE"):
        raise UnsupportedError(
            "VACUUM has no options",
            hint="write VACUUM or VACUUM t; statistics are kept by themselves",
            position=cursor.position(cursor.peek()),
        )
    if cursor.done or cursor.word() == "ALL":
        return Vacuum(_read_tables(cursor), text=text, position=position)
    cursor.accept("TABLE")
    table = cursor.table_name()
    drops_damaged = cursor.accept("DROP")
    if drops_damaged:
        cursor.expect("DAMAGED")
    cursor.expect_end()
    return Vacuum(table, drops_damaged, text=text, position=position)


_VACUUM_OPTIONS = words("FULL FREEZE VERBOSE")


def _read_tables(cursor: Cursor) -> str | None:
    """``t``, ``TABLE t``, or None for all of them, which is ``ALL`` or nothing."""
    if cursor.done or cursor.accept("ALL"):
        cursor.expect_end()
        return None
    cursor.accept("TABLE")
    table = cursor.table_name()
    cursor.expect_end()
    return table
