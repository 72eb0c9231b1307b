"""The newest rows: a scan of which only the last few, by time, can reach the answer.

``SELECT … FROM t [WHERE ts <= …] ORDER BY ts DESC[, …] LIMIT k``, which is also what
``RECENT(t, rows => k)`` becomes, needs no more than the rows from the k-th newest time on. That
holds when nothing stands between the scan and the limit: no join, no grouping, no window function,
no DISTINCT, and no predicate but bounds on the time column itself.
"""

from __future__ import annotations

from sqlglot import exp

from tidemill.sql.calls import StreamTable
from tidemill.sql.predicates import Conjunct

_BETWEEN = ("joins", "group", "having", "qualify", "distinct", "laterals", "pivots", "sample")
_GATHERS = (
    exp.AggFunc,
    exp.Window,
    exp.Explode,
    exp.Unnest,
    exp.Subquery,
    exp.Anonymous,
    exp.Columns,
)
_BOUNDS = ("<", "<=", ">", ">=")


def newest_wanted(
    node: exp.Table, table: StreamTable | None, conjuncts: tuple[Conjunct, ...]
) -> int | None:
    """How many of the newest rows suffice for a scan; None when all may matter."""
    select = node.parent.parent if isinstance(node.parent, exp.From) else None
    if table is None or not isinstance(select, exp.Select) or has_more(node, select):
        return None
    order = select.args.get("order")
    if order is None or not is_newest_first(order, select, table):
        return None
    return rows_limit(select) if _asks_time_only(select, table, conjuncts) else None


def rows_limit(select: exp.Select) -> int | None:
    """How many rows LIMIT and OFFSET reach, if they say so in numbers."""
    limit = select.args.get("limit")
    if not isinstance(limit, exp.Limit) or limit.args.get("limit_options"):
        return None  # LIMIT 10% counts otherwise
    counts = [limit.expression, *(o.expression for o in [select.args.get("offset")] if o)]
    if not all(isinstance(count, exp.Literal) and count.is_int for count in counts):
        return None
    return sum(int(count.name) for count in counts)


def has_more(node: exp.Table, select: exp.Select) -> bool:
    """Whether anything but a condition and an order stands between a scan and the limit."""
    if any(select.args.get(key) for key in _BETWEEN):
        return True
    if any(node.args.get(key) for key in ("joins", "pivots", "sample", "laterals")):
        return True
    stars = [star for part in select.expressions for star in part.find_all(exp.Star)]
    if any(star.args.get("replace") or star.args.get("rename") for star in stars):
        return True  # ORDER BY may mean what a star calls so
    return any(part.find(*_GATHERS) for part in select.expressions)


def is_newest_first(order: exp.Order, select: exp.Select, table: StreamTable) -> bool:
    """Whether rows are ordered by their time first, the latest first."""
    first = order.expressions[0]
    column = first.this
    if not first.args.get("desc") or not isinstance(column, exp.Column):
        return False
    name = column.name.lower()
    if table.time_column is None or name != table.time_column.lower():
        return False
    renamed = any(
        isinstance(part, exp.Alias) and part.alias.lower() == name for part in select.expressions
    )
    return not renamed


def _asks_time_only(
    select: exp.Select, table: StreamTable, conjuncts: tuple[Conjunct, ...]
) -> bool:
    where = select.args.get("where")
    if where is None:
        return True
    parts = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]
    bounds = [c for c in conjuncts if c.column == table.time_column and c.op in _BOUNDS]
    plain = (exp.LT, exp.LTE, exp.GT, exp.GTE)
    return all(isinstance(part, plain) for part in parts) and len(bounds) == len(parts)
