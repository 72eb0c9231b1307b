"""Assigning: what SET gives to columns."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.errors import Position, SqlSyntaxError, UnsupportedError
from tidemill.sql.names import position_of
from tidemill.types import Column


def assignments(
    expressions: Iterable[exp.Expr],
    table: Table,
    position: Position | None,
    name: str | None = None,
) -> dict[str, exp.Expression]:
    """The new values of an UPDATE, by column in lower case; ``name`` is what the statement calls
    the table."""
    own = {table.name.lower(), (name or table.name).lower()}
    found: dict[str, exp.Expression] = {}
    for each in expressions:
        if not isinstance(each, exp.EQ):
            raise SqlSyntaxError("SET gives columns values", hint="SET a = 1", position=position)
        pairs = [(each.this, each.expression)]
        if isinstance(each.this, exp.Tuple):
            values = each.expression
            if not isinstance(values, exp.Tuple) or len(values.expressions) != len(
                each.this.expressions
            ):
                raise UnsupportedError(
                    "UPDATE sets several columns from something that is no list",
                    hint="SET a = …, b = …",
                    position=position,
                )
            pairs = list(zip(each.this.expressions, values.expressions, strict=True))
        for target, value in pairs:
            if not isinstance(target, exp.Column) or (
                target.table and target.table.lower() not in own
            ):
                raise SqlSyntaxError(
                    f'SET names columns of table "{table.name}"', position=position
                )
            column = table.get_column(target.name, position_of(target) or position)
            if column.name.lower() in found:
                raise SqlSyntaxError(
                    f'column "{column.name}" is set twice', position=position_of(target)
                )
            found[column.name.lower()] = default_of(column) if is_default(value) else value
    return found


def is_default(value: exp.Expr) -> bool:
    """Whether a value is the word DEFAULT."""
    if isinstance(value, exp.Column):
        named = value.this
        is_quoted = isinstance(named, exp.Identifier) and bool(named.args.get("quoted"))
        return not value.table and not is_quoted and value.name.upper() == "DEFAULT"
    return isinstance(value, exp.Var) and value.name.upper() == "DEFAULT"


def default_of(column: Column) -> exp.Expression:
    """The expression that a column has by default."""
    found: exp.Expr = exp.maybe_parse(column.default or "NULL", dialect="duckdb")
    assert isinstance(found, exp.Expression)
    return found
