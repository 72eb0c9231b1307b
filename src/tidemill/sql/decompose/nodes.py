"""Small builders of trees; functions are written by DuckDB's name, so none is translated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from tidemill.sql.decompose.plan import MERGE_SOURCE


def call(name: str, *arguments: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this=name, expressions=list(arguments))


def column(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def text(value: str) -> exp.Expression:
    return exp.Literal.string(value)


def cast(node: exp.Expression, kind: str) -> exp.Expression:
    return exp.cast(node, kind, dialect="duckdb")


def named(node: exp.Expression, name: str) -> exp.Alias:
    return exp.Alias(this=node, alias=exp.to_identifier(name, quoted=True))


def struct(**fields: exp.Expression) -> exp.Expression:
    pairs = [
        exp.PropertyEQ(this=exp.to_identifier(name), expression=value)
        for name, value in fields.items()
    ]
    return exp.Struct(expressions=pairs)


def field(node: exp.Expression, name: str) -> exp.Expression:
    return call("struct_extract", node, text(name))


def not_null(node: exp.Expression) -> exp.Expression:
    return exp.Not(this=exp.Is(this=node, expression=exp.Null()))


def filtered(node: exp.Expression, *conditions: exp.Expression | None) -> exp.Expression:
    """An aggregate with FILTER (WHERE all of the conditions)."""
    known = [condition.copy() for condition in conditions if condition is not None]
    if not known:
        return node
    return exp.Filter(this=node, expression=exp.Where(this=exp.and_(*known)))


def ordered(node: exp.Expression, order: Sequence[exp.Expression]) -> exp.Expression:
    """An aggregate's argument with its ORDER BY."""
    return exp.Order(this=node, expressions=list(order)) if order else node


def source() -> exp.From:
    return exp.From(this=exp.Table(this=exp.to_identifier(MERGE_SOURCE)))


def nested(select: exp.Select, alias: str = "tm_inner") -> exp.Subquery:
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(alias)))


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression without those of subqueries in it."""
    return node.walk(prune=lambda found: found is not node and isinstance(found, exp.Query))
