"""Which sums a final query takes in any width.

A sum has a type of 128 bits, and states hold it in 64 for as long as it fits. Widening it for the
final query costs more than most final queries do by themselves. Where a final query does nothing
with a sum but add it up, average it, count it or compare it with a number, its answer does not
depend on the width: DuckDB adds 64 bits up in 128 as well.
"""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp, parse_one

from tidemill.sql.maintain.plan import DIGEST
from tidemill.sql.scopes import is_named_by

_ADDED = (exp.Sum, exp.Avg, exp.Count)
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_MIXING = ("group", "distinct", "order", "qualify")


@lru_cache(256)
def takes_any_width(final: str, digest: int, column: str) -> bool:
    """Whether the width of a digest's column does not matter to a final query.

    >>> takes_any_width("SELECT avg(s) FROM (SELECT s0 AS s FROM tm_digest_0)", 0, "s0")
    True
    >>> takes_any_width("SELECT s0 AS s FROM tm_digest_0", 0, "s0")
    False
    """
    tree = parse_one(final, dialect="duckdb")
    tables = [table for table in tree.find_all(exp.Table) if table.name == f"{DIGEST}{digest}"]
    return all(_is_hidden(table, table.alias_or_name, column) for table in tables)


def _is_hidden(source: exp.Expr, name: str, column: str) -> bool:
    """Whether a column of one source of a SELECT is nowhere seen in its own type. Columns of the
    same name that may be another's are taken for it."""
    select = source.find_ancestor(exp.Select)
    if select is None or any(join.args.get("using") for join in select.args.get("joins") or []):
        return False
    if any(join.method.upper() == "NATURAL" for join in select.args.get("joins") or []):
        return False
    if any(isinstance(item.unalias(), exp.Star) or item.is_star for item in select.expressions):
        return False
    uses = [
        found
        for found in select.find_all(exp.Column)
        if found.name.lower() == column.lower() and is_named_by(found, name)
    ]
    return all(found.parent_select is select and _is_use_hidden(found, select) for found in uses)


def _is_use_hidden(found: exp.Column, select: exp.Select) -> bool:
    node: exp.Expr = found
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    parent = node.parent
    if isinstance(parent, _ADDED):
        return parent.this is node and not isinstance(parent.parent, exp.Window)
    if isinstance(parent, _COMPARED):
        other = parent.expression if parent.this is node else parent.this
        return isinstance(other, exp.Literal) and not other.is_string
    if isinstance(parent, exp.Is):
        return isinstance(parent.expression, exp.Null)
    item = parent if isinstance(parent, exp.Alias) else node
    return item.parent is select and item.arg_key == "expressions" and _is_passed_on(item, select)


def _is_passed_on(item: exp.Expr, select: exp.Select) -> bool:
    """Whether a column of a SELECT is one of a subquery in FROM, and hidden by its readers."""
    if any(select.args.get(part) for part in _MIXING):
        return False
    subquery = select.parent
    if not isinstance(subquery, exp.Subquery) or not isinstance(
        subquery.parent, (exp.From, exp.Join)
    ):
        return False
    if subquery.alias_column_names:
        return False
    return _is_hidden(subquery, subquery.alias, item.alias_or_name)
