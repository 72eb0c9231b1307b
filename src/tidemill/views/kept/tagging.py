"""Tagging: one evaluation for many instants.

A kept query is defined by one instant at a time: the window of one row, the rows of one closed
window. Here the windows of many instants are one relation, whose rows carry the instant they
belong to (``tm_row``) and its time (``tm_time``), and the query is changed so that no two instants
meet. From the FROM item up to the outermost SELECT, each SELECT on the way

1. groups by the tags as well, if it groups;
2. partitions its window functions by them, and its DISTINCT ON;
3. leaves them out of its stars, and gives them on by name;
4. reads the instant's time where it says now().

A query in which that would not be the same (a LIMIT, a RIGHT JOIN, a set operation, an aggregate
over rows that may all be filtered away, …) is not tagged: it is evaluated instant by instant.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from tidemill.sql.decompose.calls import find_aggregates
from tidemill.sql.decompose.nodes import own_nodes
from tidemill.sql.hidden import has_rows, leave_out
from tidemill.sql.now import NOW, bind_now
from tidemill.sql.scopes import enclosing_select
from tidemill.types import SEQ

ROW, TIME = "tm_row", "tm_time"
ANSWER = "tm_answer"
_REFUSED = ("limit", "offset", "sample", "windows", "pivots", "laterals", "connect", "cluster")


def tagged(tree: exp.Expression, node: exp.Expr, *, with_seq: bool) -> exp.Expression | None:
    """The tree, changed in place, whose answers end with the tags of ``node``, a FROM item of it;
    None if the query must be evaluated instant by instant."""
    steps = list(_way_up(tree, node))
    if not steps or steps[-1][0] is not tree:
        return None
    bind_now(tree)
    selects = [select for select, _ in steps]
    if not all(_is_separable(select, item) for select, item in steps) or _may_miss(selects):
        return None
    if any(_shows_rows(select, item) for select, item in steps):
        return None
    if _nows(tree) != sum(_nows_of(select) for select in selects):
        return None
    for number, (select, item) in enumerate(steps):
        _tag(select, _alias(item), with_seq and number == 0)
    return tree


def hide_seq(node: exp.Expr) -> None:
    """Leave the sequence number of a FROM item out of the stars of its SELECT."""
    select = enclosing_select(node)
    if select is not None:
        leave_out(select, _alias(node), (SEQ,))


def _shows_rows(select: exp.Select, item: exp.Expr) -> bool:
    """Whether a SELECT shows an item's row as one value, or columns that it does not name: tags
    would be among them."""
    return select.find(exp.Columns) is not None or has_rows(select, _alias(item), ())


def _way_up(tree: exp.Expression, node: exp.Expr) -> Iterator[tuple[exp.Select, exp.Expr]]:
    """The SELECTs between a FROM item and the root, each with the item by which it is reached."""
    item = node
    while (select := enclosing_select(item)) is not None:
        yield select, item
        parent = select.parent
        if select is tree or not isinstance(parent, exp.Subquery):
            return
        item = parent


def _alias(item: exp.Expr) -> str:
    if not item.alias_or_name:
        item.set("alias", exp.TableAlias(this=exp.to_identifier("tm_inner")))
    name: str = item.alias_or_name
    return name


# Whether instants can be kept apart in a SELECT.


def _is_separable(select: exp.Select, item: exp.Expr) -> bool:
    if any(select.args.get(key) for key in _REFUSED) or any(
        item.args.get(key) for key in ("joins", "pivots", "sample", "laterals")
    ):
        return False
    alias = item.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return False
    if not _keeps_rows(select, item) or select.find(exp.Columns) is not None:
        return False
    group = select.args.get("group")
    return group is None or group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is None


def _may_miss(selects: list[exp.Select]) -> bool:
    """Whether an instant could lose all its rows on the way and still have an answer: that of an
    aggregate without GROUP BY."""
    loses = False
    for select in selects:
        loses = loses or any(select.args.get(key) for key in ("where", "joins", "having"))
        if loses and select.args.get("group") is None and has_aggregates(select):
            return True
        loses = loses or bool(select.args.get("qualify"))
    return False


def _keeps_rows(select: exp.Select, item: exp.Expr) -> bool:
    """Whether the item's rows are joined one by one, none of the others' being kept alone."""
    for join in select.args.get("joins") or []:
        if join.side.upper() in ("RIGHT", "FULL") or join.method.upper() == "POSITIONAL":
            return False
        if join.this is item and (
            join.side or join.method or join.kind.upper() in ("SEMI", "ANTI", "OUTER")
        ):
            return False
    return True


def has_aggregates(select: exp.Select) -> bool:
    """Whether a SELECT makes one row of many."""
    if select.args.get("group") is not None:
        return True
    parts = [*select.expressions, *(select.args.get(key) for key in ("having", "qualify"))]
    return any(part is not None and any(find_aggregates(part)) for part in parts)


def _nows(tree: exp.Expression) -> int:
    return sum(1 for node in tree.find_all(exp.Placeholder) if node.this == NOW)


def _own(select: exp.Select) -> Iterator[exp.Expr]:
    """The nodes of a SELECT's own clauses, without FROM items and subqueries."""
    for key, value in select.args.items():
        if key in ("from_", "with_"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Join):
                on = part.args.get("on")
                yield from own_nodes(on) if on is not None else ()
            elif isinstance(part, exp.Expr):
                yield from own_nodes(part)


def _nows_of(select: exp.Select) -> int:
    return sum(1 for node in _own(select) if isinstance(node, exp.Placeholder) and node.this == NOW)


# The change.


def _tag(select: exp.Select, alias: str, with_seq: bool) -> None:
    tags = [exp.column(name, table=alias, quoted=True) for name in (ROW, TIME)]
    for node in list(_own(select)):
        if isinstance(node, exp.Placeholder) and node.this == NOW:
            node.replace(tags[1].copy())
        elif isinstance(node, exp.Window):
            node.set("partition_by", [*(node.args.get("partition_by") or []), tags[0].copy()])
    group = select.args.get("group")
    if group is None and has_aggregates(select):
        select.set("group", exp.Group(expressions=[tag.copy() for tag in tags]))
    elif group is not None and not group.args.get("all"):
        group.set("expressions", [*group.expressions, *(tag.copy() for tag in tags)])
    distinct = select.args.get("distinct")
    on = distinct.args.get("on") if distinct is not None else None
    if on is not None:
        on.set("expressions", [*on.expressions, tags[0].copy()])
    elif select.args.get("order") is not None:
        select.set("order", None)  # nothing is cut off by it
    _leave_out(select, alias, (ROW, TIME, SEQ) if with_seq else (ROW, TIME))
    pairs = zip(tags, (ROW, TIME), strict=True)
    named = [exp.Alias(this=tag, alias=exp.to_identifier(name)) for tag, name in pairs]
    select.set("expressions", [*select.expressions, *named])


def _leave_out(select: exp.Select, alias: str, names: tuple[str, ...]) -> None:
    for part in select.expressions:
        is_own = isinstance(part, exp.Column) and part.table.lower() == alias.lower()
        if isinstance(part, exp.Star):
            hidden: list[exp.Expr] = [exp.column(n, table=alias, quoted=True) for n in names]
            part.set("except_", [*(part.args.get("except_") or []), *hidden])
        elif is_own and isinstance(part.this, exp.Star):
            hidden = [exp.to_identifier(name) for name in names]
            part.this.set("except_", [*(part.this.args.get("except_") or []), *hidden])


def finished(tree: exp.Expression, own_time: exp.Expression | None, name: str) -> exp.Select:
    """A tagged query's answers in order, with their time as the first column; with ``own_time``,
    an expression that takes the place of the query's own column of that name."""
    hidden: list[exp.Expr] = [exp.to_identifier(ROW), exp.to_identifier(TIME)]
    star = exp.Star(except_=hidden)
    columns: list[exp.Expr] = [star]
    if own_time is None:
        time = exp.column(TIME)
        columns.insert(0, exp.Alias(this=time, alias=exp.to_identifier(name, quoted=True)))
    else:
        star.set("replace", [exp.alias_(own_time, name, quoted=True)])
    alias = exp.TableAlias(this=exp.to_identifier(ANSWER))
    select = exp.Select(
        expressions=columns, from_=exp.From(this=exp.Subquery(this=tree, alias=alias))
    )
    return select.order_by(exp.column(ROW))
