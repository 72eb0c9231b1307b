"""Putting the parts in place: WITH queries go where they are needed, the final into the query."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from tidemill.sql.decompose.plan import Refused, sql_of
from tidemill.sql.scopes import names_outside, source_names, visible_queries, with_query

_QUERY_LEVELS = (exp.Select, exp.SetOperation, exp.Subquery, exp.CTE, exp.With, exp.From, exp.Join)


def needed_with(block: exp.Select) -> exp.With | None:
    """The WITH queries of the block and around it that its FROM and WHERE lead to, in order."""
    visible = list(_visible(block))
    needed: list[exp.CTE] = []
    ahead: list[exp.Expr] = [
        part for name, part in _parts(block) if name in ("from_", "joins", "where", "expressions")
    ]
    while ahead:
        for table in ahead.pop().find_all(exp.Table):
            cte = with_query(table)
            if cte is not None and _is_in(cte, visible) and not _is_in(cte, needed):
                needed.append(cte)
                ahead.append(cte)
    if not needed:
        return None
    ordered = [cte for cte in visible if _is_in(cte, needed)]
    if len({cte.alias.lower() for cte in ordered}) < len(ordered):
        raise Refused("two WITH queries have one name")
    recursive = any(cte.parent is not None and cte.parent.args.get("recursive") for cte in ordered)
    return exp.With(expressions=[cte.copy() for cte in ordered], recursive=recursive)


def _is_in(cte: exp.CTE, ctes: list[exp.CTE]) -> bool:
    return any(cte is other for other in ctes)


def _parts(select: exp.Select) -> Iterator[tuple[str, exp.Expr]]:
    for name, value in select.args.items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Expr):
                yield name, part


def _visible(block: exp.Select) -> list[exp.CTE]:
    """The WITH queries in sight of a block that it is no part of, the outermost first."""
    around: list[exp.Expr] = []
    node = block.parent
    while node is not None:
        around.append(node)
        node = node.parent
    own = block.args["with_"].expressions if block.args.get("with_") else []
    found = [*reversed(own), *visible_queries(block)]
    return [cte for cte in reversed(found) if not any(cte is each for each in around)]


def check_free(block: exp.Select, partial: exp.Select) -> None:
    """A block whose rows depend on those of a query around it cannot run by itself."""
    outer: set[str] = set()
    in_expression = False
    child: exp.Expr = block
    node = block.parent
    while node is not None:
        if isinstance(node, exp.Select):
            in_expression |= child.arg_key not in ("from_", "joins", "with_")
            outer |= source_names(node)
        elif isinstance(node, exp.CTE):
            in_expression, outer = False, set()  # a WITH query sees nothing of its users
        elif not isinstance(node, _QUERY_LEVELS):
            in_expression = True
        child, node = node, node.parent
    for found in names_outside(partial, outer):
        raise Refused(f"a subquery over the stream depends on {sql_of(found)} outside of it")
    for found in partial.find_all(exp.Column):
        if in_expression and outer and not found.table and not isinstance(found.this, exp.Star):
            raise Refused(f"column {sql_of(found)} of a subquery may belong to the query around it")


def put_in_place(block: exp.Select, final: exp.Select, scan: exp.Table) -> exp.Expression:
    """The whole query with ``final`` for the block, and without WITH queries over the stream."""
    with_ = block.args.get("with_")
    if with_ is not None:
        final.set("with_", with_)
    root = block.root()
    if block is root:
        root = final
    else:
        block.replace(final)
    while holders := [cte for cte in root.find_all(exp.CTE) if _holds(cte, scan)]:
        _remove(
            next(cte for cte in holders if not any(_holds_cte(cte, other) for other in holders))
        )
    assert isinstance(root, exp.Expression)
    return root


def _holds(node: exp.Expr, scan: exp.Table) -> bool:
    return any(table is scan for table in node.find_all(exp.Table))


def _holds_cte(node: exp.CTE, other: exp.CTE) -> bool:
    return node is not other and any(cte is other for cte in node.find_all(exp.CTE))


def _remove(cte: exp.CTE) -> None:
    owner = cte.parent
    assert isinstance(owner, exp.With)
    assert owner.parent is not None
    rest = [other for other in owner.expressions if other is not cte]
    if rest:
        owner.set("expressions", rest)
    else:
        owner.parent.set("with_", None)
