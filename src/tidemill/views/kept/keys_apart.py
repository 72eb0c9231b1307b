"""Whether an EVERY ROW query keeps the keys of ``RECENT(t, rows => k, partition_by => key)`` apart.

With EVERY ROW the query answers for the key of the row that arrived: the other keys' windows are
as they were. That is what the same SELECT gives for this key, as long as no step of the query puts
rows of different keys together. Where one does (``count(*)`` without GROUP BY, LIMIT, a window
function over all rows), the answer would not be the SELECT's, so such a query is refused.

From the FROM item upwards, each SELECT must have all keys in its GROUP BY and DISTINCT ON, and in
the PARTITION BY of its window functions. Keys are followed by name through subqueries and WITH.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlglot import exp

from tidemill.catalog.model import Snapshot
from tidemill.errors import UnsupportedError
from tidemill.sql.decompose.calls import find_aggregates
from tidemill.sql.fold import constant
from tidemill.sql.scopes import enclosing_select, is_named_by, readers
from tidemill.views.kept.reads import Read, leading, reads_of
from tidemill.views.kept.tagging import has_aggregates

_CUT = ("limit", "offset", "sample", "pivots")
Names = list[frozenset[str]]
"""The names of each key's column in a FROM item."""


def check_keys_apart(tree: exp.Expression, snapshot: Snapshot) -> None:
    read = leading(reads_of(tree, snapshot))
    if read.call is None or not read.call.partition_by:
        return
    names = [frozenset((key.lower(),)) for key in read.call.partition_by]
    item: exp.Expr | None = read.node
    while item is not None:
        select = enclosing_select(item)
        if select is None or not _is_apart(select, item, names):
            raise _refused(read)
        names = [_given_on(select, item, each) for each in names]
        if select is tree or _is_part_of(select, tree):
            return
        item = _reader(tree, select)
    raise _refused(read)


def _refused(read: Read) -> UnsupportedError:
    assert read.call is not None
    keys = ", ".join(read.call.partition_by)
    return UnsupportedError(
        "EVERY ROW answers for the key of the row that arrived, and the query puts keys together",
        detail=f'"{read.table.name}" is read with partition_by => {keys}',
        hint=f"GROUP BY {keys}, and PARTITION BY {keys} in OVER, keep them apart; an answer of all "
        "keys: EVERY INTERVAL '…', or CREATE MATERIALIZED VIEW … AS SELECT …",
        position=read.position,
    )


def _is_part_of(select: exp.Select, tree: exp.Expression) -> bool:
    """Whether it is an operand of UNION and the like, from there to the whole query."""
    node: exp.Expr | None = select.parent
    while isinstance(node, exp.SetOperation) and not _is_cut(node):
        if node is tree:
            return True
        node = node.parent
    return False


def _reader(tree: exp.Expression, select: exp.Select) -> exp.Expr | None:
    """The FROM item that reads the answers of an inner SELECT."""
    parent = select.parent
    if not isinstance(parent, exp.CTE):
        return parent if isinstance(parent, exp.Subquery) else None
    found = readers(tree, parent)
    return found[0] if len(found) == 1 else None


def _is_apart(select: exp.Select, item: exp.Expr, names: Names) -> bool:
    def has_all(nodes: Iterable[exp.Expr]) -> bool:
        given = list(nodes)
        return all(any(_is_key(node, item, each) for node in given) for each in names)

    if _is_cut(select) or _is_cut(item):
        return False
    if has_aggregates(select) and not has_all(_groups(select)):
        return False
    distinct = select.args.get("distinct")
    on = distinct.args.get("on") if distinct is not None else None
    if on is not None and not has_all(on.expressions):
        return False
    return all(
        has_all(window.args.get("partition_by") or [])
        for window in _windows(select)
        if not window.alias  # OVER w: the definition of w is one of them
    )


def _is_cut(node: exp.Expr) -> bool:
    return any(node.args.get(key) for key in _CUT)


def _is_key(node: exp.Expr, item: exp.Expr, names: frozenset[str]) -> bool:
    return (
        isinstance(node, exp.Column)
        and node.name.lower() in names
        and is_named_by(node, item.alias_or_name, _table_of(item))
    )


def _table_of(item: exp.Expr) -> str:
    """The name of a window function's table, by which its columns may be called."""
    function = item.this if isinstance(item, exp.Table) else None
    first = function.expressions[0] if isinstance(function, exp.Anonymous) else None
    return "" if first is None else str(first.name).lower()


def _groups(select: exp.Select) -> Iterator[exp.Expr]:
    """What a SELECT groups by; names and numbers of its columns are looked up."""
    group = select.args.get("group")
    if group is None:
        return
    if group.find(exp.Rollup, exp.Cube, exp.GroupingSets) is not None:
        return
    if group.args.get("all"):
        yield from (part.unalias() for part in select.expressions if not any(find_aggregates(part)))
    for part in group.expressions:
        place = constant(part) if isinstance(part, exp.Literal) else None
        if isinstance(place, int) and 0 < place <= len(select.expressions):
            yield select.expressions[place - 1].unalias()
        else:
            yield part
            yield from (
                given.this
                for given in select.expressions
                if isinstance(given, exp.Alias) and given.alias.lower() == part.name.lower()
            )


def _windows(select: exp.Select) -> Iterator[exp.Window]:
    parts = [*select.expressions, *(select.args.get("windows") or [])]
    parts += [select.args[key] for key in ("qualify", "order") if select.args.get(key)]
    for part in parts:
        for window in part.find_all(exp.Window):
            if window.find_ancestor(exp.Select) is select:
                yield window


def _given_on(select: exp.Select, item: exp.Expr, names: frozenset[str]) -> frozenset[str]:
    """The names of a key among the columns of a SELECT."""
    found: set[str] = set()
    for part in select.expressions:
        if part.is_star:
            found |= names
        elif _is_key(part.unalias(), item, names):
            found.add(part.alias_or_name.lower())
    return frozenset(found)
