"""Finding the block: the innermost query level at which rows of the stream meet each other.

1. Begin at the stream's table and climb. A SELECT that only filters, projects and joins reference
   tables treats every row by itself: climb on, through FROM and through a WITH query that is used
   once.
2. The first SELECT that does more (groups, removes duplicates, takes the first k), or the last
   one, is the block. What is below it runs over parts; what is above it sees the merged whole.
3. Whatever lets rows meet in another way (window functions, outer joins that keep rows of the
   other side, samples, set operations) ends the search with a reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tidemill.sql.decompose.calls import find_aggregates
from tidemill.sql.decompose.nodes import own_nodes
from tidemill.sql.decompose.plan import Refused
from tidemill.sql.scopes import readers, with_query

ROWS, TOP, TOP_OF_KEYS, DISTINCT, AGGREGATE = "rows", "top", "top of keys", "distinct", "aggregate"

_SELECT_PARTS = frozenset(
    (
        *("with_", "expressions", "distinct", "from_", "joins", "where", "group", "having"),
        *("qualify", "windows", "order", "limit", "offset"),
    )
)
_TABLE_PARTS = frozenset(("this", "db", "catalog", "alias"))
_SUBQUERY_PARTS = frozenset(("this", "alias"))
_RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank)


@dataclass(frozen=True)
class Level:
    """A SELECT, and the FROM item through which the stream's rows reach it."""

    select: exp.Select
    source: exp.Expr


@dataclass(frozen=True)
class Block:
    """The SELECT to split, how its rows meet, and the levels from the stream up to it."""

    select: exp.Select
    kind: str
    levels: tuple[Level, ...] = ()


def find_block(scan: exp.Table, is_in_union: bool = False) -> Block:
    """Climb from the stream's table to the block that is to be split; with ``is_in_union`` the
    block may be one side of a set operation, and the search ends there."""
    node: exp.Expr = scan
    is_ordered_below = False
    levels: list[Level] = []
    while True:
        select = _select_of(node)
        levels.append(Level(select, node))
        kind = _kind_of(select)
        above = _outside(select)
        if kind != ROWS or above is None:
            if is_ordered_below and kind in (ROWS, TOP):
                raise Refused("a subquery gives its rows in an order of its own")
            return Block(select, kind, tuple(levels))
        is_ordered_below = is_ordered_below or select.args.get("order") is not None
        if isinstance(above, exp.CTE):
            node = _only_use(above)
        elif isinstance(above, exp.Subquery) and isinstance(above.parent, (exp.From, exp.Join)):
            node = above
        elif isinstance(above, exp.SetOperation) and is_in_union:
            return Block(select, kind, tuple(levels))
        elif isinstance(above, exp.SetOperation):
            raise Refused("UNION, INTERSECT and EXCEPT need the rows of both sides together")
        else:
            raise Refused("a subquery in an expression needs all rows of the stream together")


def is_of_cte(table: exp.Table) -> bool:
    """Whether a table's name is that of a WITH query."""
    return with_query(table) is not None


def _outside(select: exp.Select) -> exp.Expr | None:
    """What stands around a SELECT, without bare parentheses; None for the whole query."""
    above = select.parent
    while isinstance(above, exp.Subquery):
        if _extra(above, _SUBQUERY_PARTS):
            raise Refused(f"a subquery with {_extra(above, _SUBQUERY_PARTS)} is not split")
        if isinstance(above.parent, (exp.From, exp.Join)) or above.args.get("alias"):
            return above
        above = above.parent
    return above


def _only_use(cte: exp.CTE) -> exp.Table:
    with_ = cte.parent
    assert isinstance(with_, exp.With)
    assert with_.parent is not None
    if with_.args.get("recursive"):
        raise Refused("a recursive WITH query meets its own rows again")
    uses = readers(with_.parent, cte)
    if len(uses) != 1:
        raise Refused(f'the WITH query "{cte.alias}" is used {len(uses)} times')
    return uses[0]


# One level: its FROM, and what it does with rows.


def _select_of(node: exp.Expr) -> exp.Select:
    """The SELECT that reads a FROM item, when it treats each of the item's rows by itself."""
    known = _TABLE_PARTS if isinstance(node, exp.Table) else _SUBQUERY_PARTS
    if _extra(node, known):
        raise Refused(f"a table with {_extra(node, known)} is not split")
    place = node.parent
    select = place.parent if isinstance(place, (exp.From, exp.Join)) else None
    if not isinstance(select, exp.Select):
        raise Refused("the stream stands in a nested join, a lateral join or a table function")
    if _extra(select, _SELECT_PARTS):
        raise Refused(f"a SELECT with {_extra(select, _SELECT_PARTS)} is not split")
    joins: list[exp.Join] = select.args.get("joins") or []
    own = place if isinstance(place, exp.Join) else None
    if own is not None:
        _check_join(own, is_stream_left=False)
    for join in joins[joins.index(own) + 1 if own is not None else 0 :]:
        _check_join(join, is_stream_left=True)
    return select


def _check_join(join: exp.Join, is_stream_left: bool) -> None:
    """Joins in which a row of the stream finds its partners whatever the other rows are."""
    method, side, kind = join.method.upper(), join.side.upper(), join.kind.upper()
    words = " ".join(part for part in (method, side, kind) if part)
    keeps = ("", "LEFT") if is_stream_left else ("", "RIGHT")
    kinds = ("", "INNER", "CROSS", "OUTER", *(("SEMI", "ANTI") if is_stream_left else ()))
    methods = ("", "NATURAL", *(("ASOF",) if is_stream_left else ()))
    if side in ("SEMI", "ANTI"):
        side, kind = "", side
    if side not in keeps or kind not in kinds or method not in methods:
        place = "left" if is_stream_left else "right"
        raise Refused(f"{words} JOIN with the stream on its {place} needs all its rows together")


def _kind_of(select: exp.Select) -> str:
    group = select.args.get("group")
    sets = (exp.Rollup, exp.Cube, exp.GroupingSets)
    if group is not None and (
        _extra(group, frozenset(("expressions", "all"))) or group.find(*sets)
    ):
        raise Refused("GROUPING SETS, ROLLUP and CUBE are not split")
    parts = [*select.expressions, *_clauses(select, "having", "order", "qualify")]
    if (
        group is not None
        or select.args.get("having")
        or any(next(find_aggregates(part), None) for part in parts)
    ):
        return AGGREGATE
    windows = [node for part in parts for node in own_nodes(part) if isinstance(node, exp.Window)]
    distinct = select.args.get("distinct")
    if select.args.get("qualify"):
        if len(windows) != 1 or distinct is not None or rank_of(select) is None:
            raise Refused("QUALIFY is split only as row_number() OVER (…) <= k and its like")
        return TOP_OF_KEYS
    if windows or select.args.get("windows"):
        raise Refused("a window function needs all rows of its partition together")
    if distinct is not None:
        if distinct.args.get("on"):
            raise Refused("DISTINCT ON takes one of several rows as they come")
        return DISTINCT
    if select.args.get("limit") or select.args.get("offset"):
        return TOP
    return ROWS


def rank_of(select: exp.Select) -> exp.Window | None:
    """The window of ``QUALIFY row_number() OVER (…) <= k``: the first k of each partition."""
    condition = select.args["qualify"].this
    if not isinstance(condition, (exp.LTE, exp.LT, exp.EQ)):
        return None
    window, bound = condition.this, condition.expression
    if not isinstance(window, exp.Window) or window.args.get("alias") or window.args.get("spec"):
        return None
    is_rank = isinstance(window.this, _RANKS) or (
        isinstance(window.this, exp.Anonymous)
        and window.this.name.lower() in ("row_number", "rank", "dense_rank")
    )
    if not is_rank or not isinstance(bound, (exp.Literal, exp.Placeholder)):
        return None
    if isinstance(condition, exp.EQ) and not (bound.is_int and bound.name == "1"):
        return None
    return window


def _clauses(select: exp.Select, *names: str) -> list[exp.Expression]:
    return [select.args[name] for name in names if select.args.get(name) is not None]


def _extra(node: exp.Expr, known: frozenset[str]) -> str:
    """The parts of a node that are not known here, for a message."""
    extra = [name for name, value in node.args.items() if value and name not in known]
    return ", ".join(name.strip("_").replace("_", " ").upper() for name in extra)
