"""The parser: a text in, typed statements out.

1. ``tokens`` cuts the text into tokens and the tokens into statements, at semicolons.
2. The first word chooses the reader of the head (``tables``, ``heads``, ``inserts``, ``copies``,
   ``sources``, ``views``, ``variables``).
3. ``bodies`` gives queries and expressions to the stock sqlglot parser.

A stream of INSERTs with literal rows takes a shorter way past all three (``inserts``), long lists
of constants become one token each (``lists``).
Whatever is wrong with the text, the error is a TidemillError with its place in the whole input.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from tidemill.errors import (
    Position,
    SqlSyntaxError,
    TidemillError,
    UnknownNameError,
    UnsupportedError,
    did_you_mean,
)
from tidemill.sql.bodies import parse_body
from tidemill.sql.copies import read_copy
from tidemill.sql.heads import (
    read_alter,
    read_create_index,
    read_describe,
    read_drop,
    read_flush,
    read_show,
    read_truncate,
    read_vacuum,
)
from tidemill.sql.inserts import read_fast_insert, read_insert
from tidemill.sql.lists import tokenize_lists
from tidemill.sql.names import position_of, table_name_of
from tidemill.sql.sources import read_create_source
from tidemill.sql.statements import Change, Explain, ExplainView, Query, Statement
from tidemill.sql.tables import read_create_streaming_table, read_create_table
from tidemill.sql.tokens import DOCS_HINT, Cursor, split, tokenize, words
from tidemill.sql.travel import find_clause
from tidemill.sql.variables import read_reset, read_set
from tidemill.sql.views import VIEW_KINDS, accept_view, read_create_view, read_refresh
from tidemill.sql.windows import window_call

_Reader = Callable[[Cursor, str, Position], Statement]


def parse(text: str) -> list[Statement]:
    """All statements of a text, in order; at least one.

    >>> [type(statement).__name__ for statement in parse("SHOW TABLES; DESCRIBE t;")]
    ['ShowTables', 'Describe']
    """
    statements, at = _fast_inserts(text)
    if at >= len(text) and statements:
        return statements
    statements += _read_with_lists(text, at) or _read_tokens(text, at, tokenize(text))
    if not statements:
        raise SqlSyntaxError(
            "there is no statement", hint="write one, for example SHOW TABLES", position=_START
        )
    return statements


def _read_with_lists(text: str, at: int) -> list[Statement]:
    """The statements from an offset on, if the text has long lists and nothing is wrong with it."""
    tokens = tokenize_lists(text)
    try:
        return _read_tokens(text, at, tokens) if tokens is not None else []
    except TidemillError:
        return []  # what is wrong is said of the tokens themselves


def _read_tokens(text: str, at: int, tokens: list[Token]) -> list[Statement]:
    chunks = [chunk for chunk in split(tokens) if chunk[0].start >= at]
    return [_read_statement(text, chunk) for chunk in chunks]


def parse_one(text: str) -> Statement:
    """The only statement of a text."""
    statements = parse(text)
    if len(statements) > 1:
        raise SqlSyntaxError(
            f"expected one statement, found {len(statements)}",
            hint="send them one by one, or use parse",
            position=statements[1].position,
        )
    return statements[0]


_START = Position(1, 1)


def _fast_inserts(text: str) -> tuple[list[Statement], int]:
    """Literal INSERTs at the beginning of the text, and the offset after them."""
    statements: list[Statement] = []
    at = 0
    while at < len(text) and (found := read_fast_insert(text, at)) is not None:
        statement, at = found
        statements.append(statement)
    if statements and not text[at:].strip():
        at = len(text)
    return statements, at


def _read_statement(text: str, tokens: list[Token]) -> Statement:
    cursor = Cursor(text, tokens)
    return _read_at(cursor)


def _read_at(cursor: Cursor) -> Statement:
    """The statement from the cursor to the end of its tokens."""
    start = cursor.at
    if cursor.done:
        cursor.fail("the statement ends too early")
    own = cursor.slice(start, len(cursor.tokens))
    position = cursor.position(cursor.peek())
    word = cursor.word()
    reader = _READERS.get(word)
    if reader is not None:
        cursor.at += 1
        return reader(cursor, own, position)
    if word in _QUERY_WORDS:
        return _read_query(cursor, own, position)
    if word in _UNSUPPORTED:
        raise UnsupportedError(f"{word} is not offered", hint=_UNSUPPORTED[word], position=position)
    near = did_you_mean(position.words, _STATEMENT_WORDS)
    raise SqlSyntaxError(
        f'a statement cannot start with "{position.words}"',
        hint=near or DOCS_HINT,
        position=position,
    )


def _read_create(cursor: Cursor, text: str, position: Position) -> Statement:
    or_replace = cursor.accept("OR", "REPLACE")
    if cursor.accept("STREAMING", "TABLE"):
        return read_create_streaming_table(cursor, text, position, or_replace)
    if cursor.accept("TABLE"):
        return read_create_table(cursor, text, position, or_replace)
    if accept_view(cursor):
        return read_create_view(cursor, text, position, or_replace)
    if cursor.accept("SOURCE"):
        return read_create_source(cursor, text, position, or_replace)
    unique = not or_replace and cursor.accept("UNIQUE")
    if not or_replace and cursor.accept("INDEX"):
        return read_create_index(cursor, text, position, unique)
    word = cursor.word()
    if word in _UNSUPPORTED_CREATE:
        raise UnsupportedError(
            f"CREATE {word} is not offered",
            hint=_UNSUPPORTED_CREATE[word],
            position=cursor.position(cursor.peek()),
        )
    if cursor.accept("STREAMING"):
        cursor.fail_expected(["TABLE"])
    if cursor.word() in VIEW_KINDS:
        cursor.at += 1
        cursor.fail_expected(["VIEW"])
    return cursor.fail_expected(["STREAMING", "TABLE", "MATERIALIZED", "INDEX", "SOURCE"])


def _read_explain(cursor: Cursor, text: str, position: Position) -> Explain | ExplainView:
    analyze = cursor.accept("ANALYZE") or cursor.accept("ANALYSE")
    if cursor.word() == "EXPLAIN":
        cursor.fail("EXPLAIN cannot be explained", hint="write EXPLAIN once")
    if accept_view(cursor) or cursor.accept("VIEW"):
        return _read_explain_view(cursor, text, position, analyze)
    return Explain(_read_at(cursor), analyze, text=text, position=position)


def _read_explain_view(cursor: Cursor, text: str, position: Position, analyze: bool) -> ExplainView:
    token = cursor.peek()
    name = cursor.table_name()
    cursor.expect_end()
    if analyze:
        cursor.fail(
            "EXPLAIN ANALYZE runs a query", token, hint=f"EXPLAIN ANALYZE SELECT * FROM {name}"
        )
    return ExplainView(name, text=text, position=position)


def _read_query(cursor: Cursor, text: str, position: Position) -> Statement:
    body = parse_body(cursor, cursor.at, len(cursor.tokens))
    if isinstance(body, (exp.Update, exp.Delete, exp.Merge)):
        return _change(body, text, position)
    if isinstance(body, exp.Insert):
        raise UnsupportedError(
            "INSERT after WITH is not offered",
            hint="write INSERT INTO t WITH … SELECT …",
            position=position,
        )
    if body.args.get("into") is not None and not isinstance(body, exp.Pivot):
        raise UnsupportedError(
            "SELECT … INTO is not offered", hint="CREATE TABLE t AS SELECT …", position=position
        )
    if not isinstance(body, (exp.Query, exp.Values, exp.Pivot, exp.Summarize)):
        raise SqlSyntaxError("this is not a query", hint=DOCS_HINT, position=position)
    return Query(body, text=text, position=position)


def _read_change(cursor: Cursor, text: str, position: Position) -> Statement:
    """UPDATE, DELETE or MERGE; the first word belongs to the body."""
    body = parse_body(cursor, cursor.at - 1, len(cursor.tokens))
    if not isinstance(body, (exp.Update, exp.Delete, exp.Merge)):
        raise SqlSyntaxError("this is not a statement", hint=DOCS_HINT, position=position)
    return _change(body, text, position)


def _check_clauses(body: exp.Expression, kind: str, position: Position) -> None:
    """Refuse clauses that nobody would carry out."""
    table = body.this
    found = [
        name
        for name in ("order", "limit", "tables", "cluster", "hint", "options")
        if body.args.get(name)
    ]
    if isinstance(table, exp.Table):
        names = ("joins", "sample", "pivots", "hints", "laterals", "when", "ordinality")
        found += [name for name in names if table.args.get(name)]
        alias = table.args.get("alias")
        found += ["columns"] if alias is not None and alias.args.get("columns") else []
    if found:
        raise UnsupportedError(
            f"{kind.upper()} takes a table, FROM or USING, and WHERE",
            detail=f"found {', '.join(found)}",
            hint="WHERE _seq IN (SELECT _seq FROM t ORDER BY … LIMIT …) names rows by an order",
            position=position,
        )


_KINDS = {exp.Update: "update", exp.Delete: "delete", exp.Merge: "merge"}


def _target_name(target: exp.Table) -> str | None:
    """The table that is changed, by its name or as RECENT(t, …)."""
    function = window_call(target)
    if function is None:
        return table_name_of(target)
    inner = function.expressions[0] if function.expressions else None
    return inner.name if isinstance(inner, exp.Column) and not inner.table else None


def _change(body: exp.Update | exp.Delete | exp.Merge, text: str, position: Position) -> Change:
    kind = _KINDS[type(body)]
    target = body.this
    name = _target_name(target) if isinstance(target, exp.Table) else None
    if name is None:
        place = position_of(target) if isinstance(target, exp.Expression) else None
        raise UnknownNameError(
            f"{kind.upper()} needs the name of a table",
            hint="tables have no schema (or main)",
            position=place or position,
        )
    _check_clauses(body, kind, position)
    if kind == "update" and not body.expressions:
        raise SqlSyntaxError("UPDATE sets nothing", hint="UPDATE t SET a = 1", position=position)
    if (clause := find_clause(body)) is not None:
        raise UnsupportedError(
            f"{kind.upper()} reads the present only",
            hint="CREATE TABLE r AS SELECT … FOR SYSTEM_TIME AS OF … keeps rows of the past",
            position=position_of(clause) or position,
        )
    return Change(kind, name, body, text=text, position=position)


_ATOMIC = "every statement is atomic and durable by itself; leave it out"
_EXTENSION = "a warehouse uses what DuckDB has built in"
_FILES = "COPY t FROM 'file' reads files into a table"
_UNSUPPORTED = {
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT"), _ATOMIC),
    **dict.fromkeys(("INSTALL", "LOAD", "UNINSTALL"), _EXTENSION),
    **dict.fromkeys(("ATTACH", "DETACH", "USE", "IMPORT"), _FILES),
    "EXPORT": "COPY (SELECT …) TO 'file' writes files",
    "REPLACE": "INSERT … ON CONFLICT does it for a reference table",
    "PRAGMA": "tidemill.settings shows settings, ALTER TABLE t SET (…) changes a table's, SET a "
    "session's",
    "CALL": "SELECT * FROM f(…) calls a table function",
    "CHECKPOINT": "FLUSH t moves rows to history; log segments are then removed by themselves",
    "OPTIMIZE": "files are merged by themselves; VACUUM removes those that nobody needs",
    "ANALYZE": "statistics are kept by themselves",
    "COMMENT": "write comments as -- in the text",
    "GRANT": "access is not managed in SQL",
    "REVOKE": "access is not managed in SQL",
    "PREPARE": "pass parameters with the statement: ?, $1 or :name",
    "EXECUTE": "pass parameters with the statement: ?, $1 or :name",
    "DEALLOCATE": "pass parameters with the statement: ?, $1 or :name",
    "SUBSCRIBE": "subscriptions are not offered yet; poll with RECENT(t, INTERVAL …)",
}
_TABLE_HINT = "CREATE TABLE makes a reference table that lasts; DROP it when done"
_VIEW_HINT = (
    "write CREATE MATERIALIZED VIEW v AS SELECT …: it is fresh whenever it is read; or use WITH "
    "inside the query"
)
_SOURCE = (
    "COPY t FROM 'file' reads files once, CREATE SOURCE s FROM 'folder/*.csv' INTO t all along"
)
_UNSUPPORTED_CREATE = {
    **dict.fromkeys(("TEMP", "TEMPORARY", "UNLOGGED"), _TABLE_HINT),
    **dict.fromkeys(("VIEW", "RECURSIVE"), _VIEW_HINT),
    **dict.fromkeys(("SCHEMA", "DATABASE"), "tables have no schema; put it into the name"),
    **dict.fromkeys(("MACRO", "FUNCTION", "TYPE", "SECRET"), "write it inside the query"),
    "SEQUENCE": "row_number() numbers rows in a query",
    "TRIGGER": "rows are handled by queries",
    "STREAM": "CREATE STREAMING TABLE makes a table that rows stream into",
    **dict.fromkeys(("EXTERNAL", "FOREIGN", "PIPE", "STAGE"), _SOURCE),
    "SAMPLE": "samples are not offered yet; SELECT … USING SAMPLE draws one",
    "USER": "access is not managed in SQL",
    "ROLE": "access is not managed in SQL",
}
_QUERY_WORDS = words(
    "SELECT WITH VALUES FROM PIVOT UNPIVOT TABLE SUMMARIZE PIVOT_WIDER PIVOT_LONGER ("
)
_READERS: dict[str, _Reader] = {
    "CREATE": _read_create,
    "DROP": read_drop,
    "ALTER": read_alter,
    "SHOW": read_show,
    "DESCRIBE": read_describe,
    "DESC": read_describe,
    "INSERT": read_insert,
    "UPDATE": _read_change,
    "DELETE": _read_change,
    "MERGE": _read_change,
    "TRUNCATE": read_truncate,
    "COPY": read_copy,
    "EXPLAIN": _read_explain,
    "FLUSH": read_flush,
    "VACUUM": read_vacuum,
    "REFRESH": read_refresh,
    "SET": read_set,
    "RESET": read_reset,
}
_STATEMENT_WORDS = sorted({*_READERS, *_QUERY_WORDS} - {"("})
