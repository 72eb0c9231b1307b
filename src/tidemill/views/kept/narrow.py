"""Whether a kept query needs no rows of a window but those of the instant's own time.

``SELECT … FROM RECENT(t, rows => 5, partition_by => key) WHERE ts = now() AND …`` with EVERY ROW
looks at the rows before with PREV, whose values are columns of the windows (``before``). The other
rows of the windows can then be left out before DuckDB sees them. That holds if the query looks at
each row by itself, and if the condition is on the stream's own time: not on a column of another
table, nor on one that a subquery calls so.
"""

from __future__ import annotations

from sqlglot import exp

from tidemill.sql.now import is_now
from tidemill.sql.scopes import enclosing_select
from tidemill.views.kept.tagging import has_aggregates


def is_narrow(tree: exp.Expression, source: exp.Expr, time: str) -> bool:
    """Whether a query says ``time = now()`` of the rows of ``source``, a FROM item."""
    if tree.find(exp.Window) is not None:
        return False
    item, is_known, is_said = source, True, False
    while (select := enclosing_select(item)) is not None:
        if has_aggregates(select) or select.args.get("distinct"):
            return False
        where = select.args.get("where")
        if is_known and where is not None:
            is_said = is_said or _says_now(where.this, item, time)
        is_known = is_known and _gives_time(select, item, time)
        item = select.parent if isinstance(select.parent, exp.Subquery) else tree
    return is_said


def _says_now(node: exp.Expr, item: exp.Expr, time: str) -> bool:
    """Whether a condition holds for rows of that time alone."""
    if isinstance(node, exp.And):
        return any(_says_now(part, item, time) for part in node.flatten())
    operands = (node.this, node.expression) if isinstance(node, exp.EQ) else ()
    return any(_is_time(one, item, time) for one in operands) and any(map(is_now, operands))


def _is_time(node: exp.Expr, item: exp.Expr, time: str) -> bool:
    """Whether a node is the column of an item that holds the time."""
    if not isinstance(node, exp.Column) or node.name.lower() != time.lower():
        return False
    if node.table:
        return bool(node.table.lower() == item.alias_or_name.lower())
    select = enclosing_select(item)
    return select is not None and not select.args.get("joins")


def _gives_time(select: exp.Select, item: exp.Expr, time: str) -> bool:
    """Whether the column of a SELECT that has the name of the time is the time."""
    stars = [part.find(exp.Star) for part in select.expressions if part.is_star]
    named = [
        part
        for part in select.expressions
        if not part.is_star and part.alias_or_name.lower() == time.lower()
    ]
    if any(star.args.get("replace") or star.args.get("rename") for star in stars if star):
        return False
    if stars and select.args.get("joins"):
        return False
    return bool(stars or named) and all(_is_time(part, item, time) for part in named)
