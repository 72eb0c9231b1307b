"""Partners: small sources that a stream is joined with, to be read before the stream.

``p.vid = i.vid`` asks of the stream ``p`` the values that ``i`` has. If ``i`` can be read by itself
(a reference table, a data frame, a list of rows, a query of these alone), it is read first and its
keys are looked up in the stream's index, as those of ``vid IN (SELECT vid FROM i)`` are. The rows
that were read then stand in the query in the place of ``i``, so that both see the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from tidemill.sql.calls import Tables
from tidemill.sql.constants import is_repeatable_list, is_repeatable_query
from tidemill.sql.scopes import base_table, readers, with_query

_PARTNER = "tidemill_partner"
_PLAIN_TABLE = frozenset({"this", "alias", "db"})
_HIDDEN = "rowid"  # of a reference table, which its rows alone do not have


def partner_query(
    node: exp.Expr,
    conditions: Iterable[exp.Expr],
    rows_max: int,
    tree: exp.Expression,
    find: Tables,
) -> exp.Select | None:
    """A query for a source's rows that satisfy conditions, one more than ``rows_max`` at most;
    None if the source cannot be read by itself."""
    source = _alone(node, tree, find)
    if source is None or not source.alias_or_name:
        return None
    query = exp.select("*").from_(source, copy=False)
    for condition in conditions:
        query = query.where(condition.copy(), copy=False)
    return query.limit(rows_max + 1, copy=False)


def may_have_partners(tree: exp.Expression) -> bool:
    """Whether rows may stand in the place of a table: not in a statement that writes, and not
    beside a column that only tables have."""
    if not isinstance(tree, exp.Query):
        return False
    return all(str(node.this).lower() != _HIDDEN for node in tree.find_all(exp.Identifier))


def mark_partner(node: exp.Expr, name: str) -> None:
    """Note under which name a source's rows may take its place."""
    node.meta[_PARTNER] = name


def put_partners(tree: exp.Expression, names: frozenset[str]) -> exp.Expression:
    """A copy of a tree in which the sources marked with these names are their rows."""
    tree = tree.copy()
    for node in list(tree.find_all(exp.Table, exp.Subquery, exp.Values)):
        name = node.meta.get(_PARTNER) if node._meta else None
        if name in names:
            alias = exp.to_identifier(node.alias_or_name, quoted=True)
            rows = exp.Table(this=exp.to_identifier(name, quoted=True))
            rows.set("alias", exp.TableAlias(this=alias))
            node.replace(rows)
    return tree


def _alone(node: exp.Expr, tree: exp.Expression, find: Tables) -> exp.Expression | None:
    """A copy of a source that can be read without the query around it."""
    if isinstance(node, exp.Values):
        return node.copy() if is_repeatable_list(node) else None
    if isinstance(node, exp.Subquery):
        is_plain = not _given(node) - {"this", "alias"} and _is_alone(node.this, find)
        return node.copy() if is_plain else None
    if not isinstance(node, exp.Table) or _given(node) - _PLAIN_TABLE:
        return None
    cte = with_query(node)
    if cte is not None:
        return _with_query(node, cte, tree, find)
    table = base_table(node, find)
    return node.copy() if table is not None and table.time_column is None else None


def _with_query(
    node: exp.Table, cte: exp.CTE, tree: exp.Expression, find: Tables
) -> exp.Expression | None:
    """A WITH query that is read once, as a subquery."""
    with_ = cte.parent
    if not isinstance(with_, exp.With) or with_.args.get("recursive"):
        return None
    if cte.args["alias"].args.get("columns") or (node.alias and node.args["alias"].columns):
        return None
    if readers(tree, cte) != [node] or not _is_alone(cte.this, find):
        return None
    alias = exp.TableAlias(this=exp.to_identifier(node.alias_or_name, quoted=True))
    return exp.Subquery(this=cte.this.copy(), alias=alias)


def _is_alone(query: exp.Expression, find: Tables) -> bool:
    """Whether a query reads no stream, and the same every time."""
    if not is_repeatable_query(query, find):
        return False
    tables = [base_table(node, find) for node in query.find_all(exp.Table)]
    return all(table is not None and table.time_column is None for table in tables)


def _given(node: exp.Expr) -> set[str]:
    return {key for key, value in node.args.items() if value}
