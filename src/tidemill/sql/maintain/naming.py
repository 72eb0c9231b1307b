"""The query as a whole: bound by DuckDB as it stands, and its tables by other names.

Tables keep the names by which the query calls them as aliases, so that its columns stay as written.
"""

from __future__ import annotations

import duckdb
from sqlglot import exp

from tidemill.errors import QueryError
from tidemill.sql.calls import SEQ, Call, read_call
from tidemill.sql.decompose.plan import sql_of
from tidemill.sql.hidden import hide_seq
from tidemill.sql.maintain.binding import Binder, Columns, columns_of
from tidemill.sql.maintain.checks import ViewTables
from tidemill.sql.now import bind_now
from tidemill.sql.scopes import unbound_tables
from tidemill.sql.windows import rewrite_deferred, window_call

SESSIONS = "tm_sessions_"
SEQ_COLUMN = (SEQ, "BIGINT")


def take_sessions(tree: exp.Expression, tables: ViewTables) -> dict[int, Call]:
    """Put a table in the place of each SESSION call, in place; its number is in the mark."""
    calls: dict[int, Call] = {}
    for node in list(tree.find_all(exp.Table)):
        function = window_call(node)
        if function is None or function.name.upper() != "SESSION":
            continue
        call = read_call(function, node, tables)
        number = len(calls)
        calls[number] = call
        rename(node, f"{SESSIONS}{number}", exp.to_identifier(call.table.name, quoted=True))
    return calls


def rename(node: exp.Table, name: str, alias: exp.Expression) -> None:
    """Give a table another name; the query goes on to call it as before."""
    if not node.alias:
        given = node.args.get("alias") or exp.TableAlias()
        given.set("this", alias.copy())
        node.set("alias", given)
    node.set("this", exp.to_identifier(name))
    node.set("db", None)
    node.set("catalog", None)


def bind_whole(query: exp.Expression, tables: ViewTables, binder: Binder) -> Columns:
    """The columns of the query as it is, or the error that DuckDB has with it."""
    tree = rewrite_deferred(query.copy(), tables, copy=False).query
    bind_now(tree)
    unqualify(tree)
    with_seq = any(column.name.lower() == SEQ for column in tree.find_all(exp.Column))
    for node, name in list(unbound_tables(tree)):
        table = tables(name)
        assert table is not None
        physical = f"tm_table_{table.table_id}"
        shown = with_seq and table.is_streaming
        if shown:
            hide_seq(node, [column.name for column in table.columns], tables)
        rename(node, physical, node.this)
        binder.create(physical, (*columns_of(table.columns), *([SEQ_COLUMN] if shown else [])))
    try:
        return binder.columns(sql_of(tree))
    except duckdb.Error as error:
        raise QueryError("the view's query does not bind", detail=str(error)) from error


def unqualify(tree: exp.Expression) -> None:
    """``main.t.c`` as ``t.c``: tables get other names, not other aliases."""
    for column in tree.find_all(exp.Column):
        if column.args.get("db") is not None:
            column.set("db", None)
            column.set("catalog", None)
