"""Tables by other names; they keep those by which the query calls them as aliases, so that its
columns stay as written.
"""

from __future__ import annotations

from sqlglot import exp

from tidemill.sql.calls import Call, read_call
from tidemill.sql.maintain.checks import ViewTables
from tidemill.sql.windows import window_call
from tidemill.types import SEQ

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
