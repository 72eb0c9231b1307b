"""Comparisons: what one condition of a query implies for single columns.

``comparisons`` reads ``column op constant`` out of a condition, in all the ways of writing it;
``parts_of_and`` and ``parts_of_or`` take nested conditions apart. Every comparison that is found
rejects NULL: where its column is NULL, the condition it was read from does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from tidemill.sql.calls import Tables
from tidemill.sql.constants import is_constant, is_repeatable_query


@dataclass(frozen=True)
class Conjunct:
    """``column op values``: op is one of = < <= > >= in in_query.

    ``in`` has one value for each element; ``in_query`` has one value, a query that can be run by
    itself. Values are nodes of the tree: constants, perhaps with parameters and now().
    """

    column: str
    op: str
    values: tuple[exp.Expression, ...]
    claim: Claim


@dataclass(frozen=True, eq=False)
class Claim:
    """The condition of the query that implies a conjunct.

    ``one_type`` are the lists of operands, beside the column, that DuckDB brings to one type before
    it compares: an IN compares all of its elements in the type that holds them all, a BETWEEN both
    bounds, while the parts of an OR are compared each in its own.
    """

    condition: exp.Expr
    one_type: tuple[tuple[exp.Expression, ...], ...] = ()

    def asked_of(self, column: str) -> exp.Expression | None:
        """The condition on a column of that name; None if it needs other columns too."""
        found = [_written(node) for node in self.condition.find_all(exp.Column)]
        if len(set(found)) != 1:
            return None
        new = exp.column(column, quoted=True)
        swapped = self.condition.transform(
            lambda node: new.copy() if isinstance(node, exp.Column) else node
        )
        return exp.paren(swapped, copy=False)


def _written(column: exp.Column) -> str:
    return column.sql(dialect="duckdb").lower()


def parts_of_and(condition: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of nested ANDs, from left to right."""
    stack = [condition]
    while stack:
        part = stack.pop()
        if isinstance(part, exp.Paren):
            stack.append(part.this)
        elif isinstance(part, exp.And):
            stack += [part.expression, part.this]
        else:
            yield part


_OPS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}

Comparison = tuple[exp.Column, str, tuple[exp.Expression, ...], Claim]


def comparisons(part: exp.Expr, tables: Tables) -> Iterator[Comparison]:
    """The comparisons of a column with constants that one conjunct implies."""
    if type(part) in _OPS:
        yield from _compared(part)
    elif isinstance(part, exp.Between):
        column = column_of(part.this)
        if column is not None and not part.args.get("symmetric"):
            low, high = part.args["low"], part.args["high"]
            claim = Claim(part, ((low, high),))
            for op, bound in ((">=", low), ("<=", high)):
                if is_constant(bound):
                    yield column, op, (bound,), claim
    elif isinstance(part, exp.In):
        yield from _listed(part, tables)
    elif isinstance(part, exp.Or):
        yield from _alternatives(part, tables)


def _compared(part: exp.Expr) -> Iterator[Comparison]:
    op, flipped = _OPS[type(part)]
    left, right = part.this, part.args["expression"]
    if (column := column_of(left)) is not None and is_constant(right):
        yield column, op, (right,), Claim(part)
    elif (column := column_of(right)) is not None and is_constant(left):
        yield column, flipped, (left,), Claim(part)


def _listed(part: exp.In, tables: Tables) -> Iterator[Comparison]:
    column = column_of(part.this)
    if column is None:
        return
    query = part.args.get("query")
    if query is not None:
        body = query.unnest() if isinstance(query, exp.Subquery) else query
        if isinstance(body, exp.Expression) and is_repeatable_query(body, tables):
            yield column, "in_query", (body,), Claim(part)
        return
    values = part.expressions
    if values and not part.args.get("unnest") and all(map(is_constant, values)):
        yield column, "in", tuple(values), Claim(part, (tuple(values),))


def _alternatives(part: exp.Or, tables: Tables) -> Iterator[Comparison]:
    """``a = 1 OR a IN (2, 3)`` asks for the rows of ``a`` in 1, 2 and 3."""
    values: list[exp.Expression] = []
    one_type: list[tuple[exp.Expression, ...]] = []
    column: exp.Column | None = None
    for branch in parts_of_or(part):
        found = list(comparisons(branch, tables)) if not isinstance(branch, exp.Or) else []
        if len(found) != 1 or found[0][1] not in ("=", "in"):
            return
        if column is not None and column != found[0][0]:
            return
        column = found[0][0]
        values += found[0][2]
        one_type += found[0][3].one_type
    if column is not None:
        yield column, "in", tuple(values), Claim(part, tuple(one_type))


def parts_of_or(condition: exp.Expr) -> Iterable[exp.Expr]:
    stack = [condition]
    while stack:
        part = stack.pop()
        if isinstance(part, exp.Paren):
            stack.append(part.this)
        elif isinstance(part, exp.Or):
            stack += [part.expression, part.this]
        else:
            yield part


def column_of(node: exp.Expr) -> exp.Column | None:
    while isinstance(node, exp.Paren):
        node = node.this
    return node if isinstance(node, exp.Column) else None
