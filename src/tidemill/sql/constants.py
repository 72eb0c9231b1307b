"""Which expressions are constant during a query, and which queries can be run twice alike."""

from __future__ import annotations

from sqlglot import exp

from tidemill.sql.calls import Tables
from tidemill.sql.scopes import Scope, base_table
from tidemill.sql.tokens import words

_CONSTANT = frozenset(
    {
        exp.Literal,
        exp.Boolean,
        exp.Null,
        exp.Neg,
        exp.Paren,
        exp.Add,
        exp.Sub,
        exp.Mul,
        exp.Div,
        exp.Cast,
        exp.TryCast,
        exp.DataType,
        exp.DataTypeParam,
        exp.Interval,
        exp.Var,
        exp.Placeholder,
        exp.Parameter,
        exp.CurrentTimestamp,
        exp.CurrentDate,
        exp.Localtimestamp,
        exp.TimestampTrunc,
        exp.DateTrunc,
    }
)
_FUNCTIONS = words(
    "now get_current_timestamp transaction_timestamp to_microseconds to_milliseconds to_seconds "
    "to_minutes to_hours to_days to_weeks to_months to_years make_timestamp make_timestamptz "
    "epoch_us"
)
_AGGREGATES = (exp.Min, exp.Max, exp.Count)
_PLAIN = (
    exp.Identifier,
    exp.Column,
    exp.Alias,
    exp.TableAlias,
    exp.Table,
    exp.From,
    exp.Join,
    exp.Where,
    exp.Select,
    exp.Union,
    exp.Intersect,
    exp.Except,
    exp.Subquery,
    exp.Group,
    exp.Having,
    exp.Distinct,
    exp.Star,
    exp.Connector,
    exp.Not,
    exp.Predicate,
    exp.Between,
    exp.In,
    exp.Is,
    exp.Tuple,
    exp.Values,
    exp.Mod,
    exp.Abs,
    exp.Lower,
    exp.Upper,
    exp.Coalesce,
    *_AGGREGATES,
)


def is_constant(node: exp.Expr) -> bool:
    """Whether an expression has one value for the whole query: no column, query or chance."""
    for part in node.walk():
        if isinstance(part, exp.Anonymous):
            if part.name.lower() not in _FUNCTIONS:
                return False
        elif type(part) not in _CONSTANT:
            return False
    return True


def is_repeatable_query(query: exp.Expression, tables: Tables) -> bool:
    """Whether a subquery can be run by itself and gives the same rows every time.

    It must read only known tables, use no column from outside, no WITH query from outside, and
    nothing whose answer depends on order or chance.
    """
    if not isinstance(query, (exp.Select, exp.SetOperation)):
        return False
    for part in query.walk():
        if not _is_plain(part):
            return False
        if isinstance(part, exp.Table) and base_table(part, tables) is None:
            return False
        if isinstance(part, exp.Select) and not _is_closed(part, tables):
            return False
    return True


def is_repeatable(condition: exp.Expr) -> bool:
    """Whether a condition on a row says the same every time: no query, no chance in it."""
    return all(_is_plain(part) and not isinstance(part, exp.Query) for part in condition.walk())


def is_repeatable_list(values: exp.Values) -> bool:
    """Whether a list of rows is constant."""
    return all(is_constant(part) for row in values.expressions for part in _cells(row))


def _cells(row: exp.Expr) -> list[exp.Expr]:
    return list(row.expressions) if isinstance(row, exp.Tuple) else [row]


def _is_plain(part: exp.Expr) -> bool:
    if isinstance(part, exp.Anonymous):
        return part.name.lower() in _FUNCTIONS
    return isinstance(part, (*_PLAIN, *_CONSTANT))


def _is_closed(select: exp.Select, tables: Tables) -> bool:
    """Every column of the SELECT itself comes from its own sources, all of them known tables."""
    scope = Scope(select, tables)
    if any(source.columns is None for source in scope.sources):
        return False
    if select.args.get("with_") or not scope.is_orderly or scope.shared_names is None:
        return False
    return all(
        isinstance(column.this, exp.Star) or scope.resolve(column) is not None
        for column in select.find_all(exp.Column)
        if column.find_ancestor(exp.Select) is select
    )
