"""The query of a single window, in which the window's start and end are known.

``GROUP BY window_start, window_end, car`` over the rows of one window has the same groups as
``GROUP BY car``. Two columns of times in the key cost about as much as the rest of the grouping, so
they leave it, and what selects them gets the values:

1. Begin at the SELECT that reads the window. Columns ``window_start`` and ``window_end`` become
   parameters; as expressions of GROUP BY they go, if another one stays (without any, a window
   without rows would have an answer).
2. What that SELECT gives on under a name is known to the SELECT around it: go on there.

A SELECT in which a name could mean something else (joins, subqueries, stars) is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from tidemill.sql.decompose.nodes import own_nodes
from tidemill.sql.scopes import enclosing_select

_CLAUSES = ("having", "qualify", "order", "where")
_REFUSED = ("joins", "laterals", "pivots", "distinct", "windows", "sample", "connect", "cluster")

Known = Mapping[str, exp.Expr]
"""Columns of a FROM item whose values are known, by their names in lower case."""


def fix_window(source: exp.Subquery, known: Known) -> None:
    """Use what is known of the columns of a FROM item, from its SELECT on outwards. The tree is
    changed."""
    item = source
    while known:
        select = enclosing_select(item)
        if select is None or not _is_plain(select, item):
            return
        _fix(select, known)
        parent = select.parent
        if not isinstance(parent, exp.Subquery):
            return
        known, item = dict(_given(select)), parent


def _is_plain(select: exp.Select, item: exp.Expr) -> bool:
    """Whether names in a SELECT can only be columns of its one FROM item, or what they are
    given as."""
    from_ = select.args.get("from_")
    if from_ is None or from_.this is not item or any(select.args.get(key) for key in _REFUSED):
        return False
    alias = item.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return False
    if any(item.args.get(key) for key in ("joins", "pivots", "sample", "laterals")):
        return False
    group = select.args.get("group")
    if group is None or any(value for key, value in group.args.items() if key != "expressions"):
        return False
    if group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None:
        return False
    nodes = (node for part in _parts(select) for node in part.walk())
    return not any(part.is_star for part in select.expressions) and not any(
        isinstance(node, exp.Query | exp.Columns | exp.Window) for node in nodes
    )


def _parts(select: exp.Select) -> Iterator[exp.Expr]:
    yield from select.expressions
    for key in ("group", *_CLAUSES):
        part = select.args.get(key)
        if part is not None:
            yield part


def _fix(select: exp.Select, known: Known) -> None:
    group = select.args["group"]
    stays = [part for part in group.expressions if not _is_known(part, known)]
    if not stays or _hides(select, known):
        return
    group.set("expressions", stays)
    for part in list(_parts(select)):
        for node in list(own_nodes(part)):
            if _is_known(node, known):
                _replace(select, node, known)


def _hides(select: exp.Select, known: Known) -> bool:
    """Whether a SELECT calls something else by a known column's name, or has a column without a
    name of its own that would be called differently."""
    for part in select.expressions:
        is_column = isinstance(part, exp.Column)
        if part.alias.lower() in known and not _is_known(part.unalias(), known):
            return True
        if not is_column and not part.alias and any(_is_known(n, known) for n in own_nodes(part)):
            return True
    return False


def _replace(select: exp.Select, node: exp.Expr, known: Known) -> None:
    value = known[node.name.lower()].copy()
    is_shown = node.parent is select and node.arg_key == "expressions"
    node.replace(exp.alias_(value, node.name, quoted=True) if is_shown else value)


def _is_known(node: exp.Expr, known: Known) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() in known


def _given(select: exp.Select) -> Iterator[tuple[str, exp.Expr]]:
    """What a SELECT gives on that is known: parameters under a name."""
    for part in select.expressions:
        value = part.unalias()
        if part.alias and isinstance(value, exp.Cast) and isinstance(value.this, exp.Placeholder):
            yield part.alias.lower(), value
