"""Conditions with queries in them: EXISTS, IN (SELECT …), and a query as a value.

Spark answers IN (SELECT …) with two values where SQL has three, unless it is a condition by itself;
so it is translated only where unknown counts as false. A query inside a condition may see the one
around it in its own WHERE, one level deep.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tidemill.sql.spark.aggregates import AGGREGATE_NODES
from tidemill.sql.spark.expressions import Relation
from tidemill.sql.spark.kinds import BOOL, INTEGER
from tidemill.sql.spark.scopes import Place
from tidemill.sql.spark.sources import Sources
from tidemill.sql.spark.values import NotVerified, Value, refuse

_GATHERING = ("group", "having", "distinct", "limit", "offset", "qualify", "with_")


class Conditions(Sources):
    """Translates WHERE, and the queries that stand for a value."""

    def where(self, node: exp.Select, place: Place) -> str:
        where = node.args.get("where")
        if where is None:
            return ""
        self.use("clause where")
        scope = place.scope
        parts = []
        for conjunct in _conjuncts(where.this):
            scope.outer_allowed, before, scope.outer_used = True, scope.outer_used, False
            parts.append(self._conjunct(conjunct, replace(place, predicates=True), True).sql)
            if scope.outer_used and not isinstance(conjunct, exp.EQ):
                scope.outer_unequal = True
            scope.outer_allowed, scope.outer_used = False, scope.outer_used or before
        return f" WHERE {' AND '.join(parts)}"

    def _conjunct(self, node: exp.Expr, place: Place, is_top: bool) -> Value:
        """A condition of WHERE. IN (SELECT …) may stand where unknown counts as false only: Spark
        gives it two values, not three, except in a NOT IN that is a condition by itself."""
        node = node.unnest()
        if not _has_in_query(node):
            return self.condition(node, place)
        if isinstance(node, exp.And | exp.Or):
            word = "AND" if isinstance(node, exp.And) else "OR"
            self.use(f"operator {word.lower()}")
            still = is_top and word == "AND"
            left = self._conjunct(node.this, place, still)
            right = self._conjunct(node.args["expression"], place, still)
            return Value(f"({left.sql} {word} {right.sql})", BOOL)
        if isinstance(node, exp.Not):
            inner = node.this.unnest()
            if isinstance(inner, exp.Not):
                return self._conjunct(inner.this, place, is_top)
            if isinstance(inner, exp.And | exp.Or):
                turned = exp.Or if isinstance(inner, exp.And) else exp.And
                sides = [exp.Not(this=side) for side in (inner.this, inner.args["expression"])]
                return self._conjunct(turned(this=sides[0], expression=sides[1]), place, is_top)
            if isinstance(inner, exp.In) and is_top:
                self.use("subquery not in")
                return self._in_query(inner.this, inner.args["query"], "NOT IN", place)
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._in_query(node.this, node.args["query"], "IN", place)
        if isinstance(node, exp.EQ) and isinstance(node.args["expression"], exp.Any):
            self.use("subquery any")
            return self._in_query(node.this, node.args["expression"].this, "IN", place)
        raise NotVerified(
            "IN (SELECT …) inside of another expression is not verified for Spark SQL"
        )

    def _in_query(self, left: exp.Expr, query: exp.Expr, word: str, place: Place) -> Value:
        value = self.value(left, replace(place, predicates=False))
        inner, is_correlated = self._inner(query, place)
        if len(inner.columns) != 1:
            refuse("IN over several columns is not verified for Spark SQL")
        kind = inner.columns[0][1]
        if value.kind != kind and {value.kind.family, kind.family} != {INTEGER}:
            refuse("IN (SELECT …) of another type is not verified for Spark SQL")
        self.aligned([replace(value, constant=None), Value("", kind)])
        if is_correlated:
            self.use("subquery correlated in")
        self.use("subquery in")
        return Value(f"({value.sql} {word} ({inner.sql}))", BOOL)

    def _inner(self, node: exp.Expr, place: Place) -> tuple[Relation, bool]:
        """A query inside a condition, and whether it sees the query around it."""
        query = node.unnest()
        inner, scope = self.relation(query, place.scope)
        is_correlated = scope is not None and scope.outer_used
        if is_correlated and not _is_plain(query):
            refuse("a correlated query that gathers rows is not verified for Spark SQL")
        return inner, is_correlated

    def predicate(self, node: exp.Expr, place: Place) -> Value | None:
        if isinstance(node, exp.Subquery):
            return self._scalar(node, place)
        if not isinstance(node, exp.Exists):
            if isinstance(node, exp.In) and node.args.get("query") is not None:
                refuse("IN (SELECT …) outside of WHERE is not verified for Spark SQL")
            return None
        if not place.predicates:
            refuse("EXISTS outside of WHERE is not verified for Spark SQL")
        inner, is_correlated = self._inner(node.this, place)
        self.use("subquery correlated exists" if is_correlated else "subquery exists")
        return Value(f"(EXISTS ({inner.sql}))", BOOL)

    def _scalar(self, node: exp.Subquery, place: Place) -> Value:
        if not place.queries:
            refuse("a query in ON is not verified for Spark SQL")
        query = node.unnest()
        inner, scope = self.relation(query, place.scope)
        if len(inner.columns) != 1:
            refuse("a query of several columns as a value is not verified for Spark SQL")
        if scope is None or not scope.outer_used:
            self.use("subquery scalar")
        else:
            # In a SELECT list over a UNION, Spark 4.2 pushes it down and loses its columns.
            if scope.outer_unequal or not _is_one_row(query) or not place.predicates:
                refuse("a correlated query as a value, other than in WHERE, is not verified")
            self.use("subquery correlated scalar")
        return Value(f"({inner.sql})", inner.columns[0][1])


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    node = node.unnest()
    if isinstance(node, exp.And):
        return [*_conjuncts(node.this), *_conjuncts(node.args["expression"])]
    return [node]


def _has_in_query(node: exp.Expr) -> bool:
    """Whether a condition has IN (SELECT …) of its own, not of a query inside it."""
    for part in node.walk(prune=lambda n: isinstance(n, exp.Query) and n is not node):
        if isinstance(part, exp.In) and part.args.get("query") is not None:
            return True
        if isinstance(part, exp.Any | exp.All):
            return True
    return False


def _is_plain(query: exp.Expr) -> bool:
    """Whether a query only joins and filters."""
    if not isinstance(query, exp.Select) or any(query.args.get(key) for key in _GATHERING):
        return False
    return not any(item.find(exp.AggFunc, exp.Window) for item in query.expressions)


def _is_one_row(query: exp.Expr) -> bool:
    """Whether a query is one aggregate over all its rows."""
    if not isinstance(query, exp.Select) or any(query.args.get(key) for key in _GATHERING):
        return False
    return isinstance(query.expressions[0].unalias(), AGGREGATE_NODES)
