"""COPY: ``COPY t FROM 'file' (options)`` and ``COPY (query) TO 'file' (options)``."""

from __future__ import annotations

from sqlglot import exp

from tidemill.errors import Position, UnsupportedError
from tidemill.sql.bodies import parse_body
from tidemill.sql.formats import choose_format
from tidemill.sql.names import table_node
from tidemill.sql.options import read_options
from tidemill.sql.statements import CopyFrom, CopyTo
from tidemill.sql.tokens import Cursor

_FORMAT_HINT = "add (FORMAT csv), json, ndjson or parquet"


def read_copy(cursor: Cursor, text: str, position: Position) -> CopyFrom | CopyTo:
    """After ``COPY``."""
    if cursor.word() == "(":
        query = _read_query(cursor)
        columns = None
        table = ""
    else:
        table = cursor.table_name()
        columns = cursor.names("column name") if cursor.word() == "(" else None
        query = None
    if query is None and cursor.accept("FROM"):
        path, format_, options = _read_file(cursor)
        return CopyFrom(table, columns, path, format_, options, text=text, position=position)
    if not cursor.accept("TO"):
        cursor.fail_expected(["TO"] if query is not None else ["FROM", "TO"])
    path, format_, options = _read_file(cursor)
    source = query if query is not None else _select(table, columns)
    return CopyTo(source, path, format_, options, text=text, position=position)


def _read_query(cursor: Cursor) -> exp.Expression:
    start = cursor.at
    cursor.skip_group()
    query = parse_body(cursor, start + 1, cursor.at - 1)
    if not isinstance(query, (exp.Query, exp.Values)):
        cursor.fail(
            "expected a query in the brackets",
            cursor.tokens[start],
            hint="COPY (SELECT …) TO 'file.csv'",
        )
    return query


def _select(table: str, columns: tuple[str, ...] | None) -> exp.Select:
    chosen: list[exp.Expression] = (
        [exp.Star()]
        if columns is None
        else [exp.Column(this=exp.to_identifier(name, quoted=True)) for name in columns]
    )
    return exp.Select(expressions=chosen, from_=exp.From(this=table_node(table)))


def _read_file(cursor: Cursor) -> tuple[str, str, dict[str, object]]:
    token = cursor.peek()
    if cursor.word() in ("STDIN", "STDOUT", "PROGRAM"):
        raise UnsupportedError(
            f"COPY with {cursor.word()} is not offered",
            hint="name a file, or use tidemill load, db.append and db.sql(…).df()",
            position=cursor.position(token),
        )
    path = cursor.string("a file's path")
    if not path.strip():
        cursor.fail("the file's path is empty", token, hint="COPY t FROM 'file.csv'")
    cursor.accept("WITH")
    options: dict[str, object] = {}
    if not cursor.done:
        if cursor.word() != "(":
            cursor.fail(
                f'unexpected "{cursor.position(cursor.peek()).words}"',
                hint="options stand in brackets: (FORMAT csv, HEADER true)",
            )
        options = read_options(cursor)
        cursor.expect_end()
    format_ = choose_format(
        cursor, path, options, path_token=token, format_token=token, hint=_FORMAT_HINT
    )
    return path, format_, options
