"""Aggregate calls in a tree: which nodes they are, and their parts by one shape.

sqlglot has a class for some aggregates and none for others, and wraps FILTER, IGNORE NULLS,
DISTINCT and ORDER BY around or into them. DuckDB knows them by name: a call is an aggregate when
the name that is printed is one of DuckDB's aggregates (a test compares the list with DuckDB's own).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from tidemill.sql.decompose.nodes import own_nodes
from tidemill.sql.decompose.plan import Refused

AGGREGATES = frozenset(
    (
        *("any_value", "approx_count_distinct", "approx_quantile", "approx_top_k", "arbitrary"),
        *("arg_max", "arg_max_null", "arg_max_nulls_last", "arg_min", "arg_min_null"),
        *("arg_min_nulls_last", "argmax", "argmin", "array_agg", "avg", "bit_and", "bit_or"),
        *("bit_xor", "bitstring_agg", "bool_and", "bool_or", "combine_aggr", "corr", "count"),
        *("count_if", "count_star", "countif", "covar_pop", "covar_samp", "decimal_average"),
        *("entropy", "favg", "first", "fsum", "group_concat", "histogram", "histogram_exact"),
        *("kahan_sum", "kurtosis", "kurtosis_pop", "last", "list", "listagg", "lttb", "mad"),
        *("max", "max_by", "mean", "median", "min", "min_by", "mode", "product", "quantile"),
        *("quantile_cont", "quantile_disc", "regr_avgx", "regr_avgy", "regr_count"),
        *("regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy"),
        *("reservoir_quantile", "sem", "skewness", "stddev", "stddev_pop", "stddev_samp"),
        *("string_agg", "sum", "sum_no_overflow", "sumkahan", "var_pop", "var_samp", "variance"),
        "variant_group_object",
    )
)
_SAME = {
    "arbitrary": "any_value",
    "argmax": "arg_max",
    "argmin": "arg_min",
    "array_agg": "list",
    "count_star": "count",
    "countif": "count_if",
    "group_concat": "string_agg",
    "listagg": "string_agg",
    "max_by": "arg_max",
    "mean": "avg",
    "min_by": "arg_min",
}
_WRAPPERS = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
_CALL = re.compile(r"([A-Za-z_]\w*)\(")


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate: ``name(DISTINCT arguments ORDER BY order) FILTER (WHERE filter)``.

    ``node`` is the call with everything around it. A star is no argument."""

    name: str
    arguments: tuple[exp.Expression, ...]
    order: tuple[exp.Ordered, ...]
    is_distinct: bool
    filter: exp.Expression | None
    node: exp.Expression


def aggregate_at(node: exp.Expr) -> AggregateCall | None:
    """The aggregate call whose outermost node this is; window functions are none."""
    if not isinstance(node, (exp.Func, *_WRAPPERS)) or _is_wrapped(node):
        return None
    if isinstance(node.parent, exp.Window) and node.arg_key == "this":
        return None
    inner: exp.Expr = node
    while isinstance(inner, _WRAPPERS):
        inner = inner.this
    name = duckdb_name(inner)
    if not isinstance(inner, exp.AggFunc) and name not in AGGREGATES:
        return None
    return _read(node, inner, _SAME.get(name, name))


def find_aggregates(node: exp.Expr) -> Iterator[AggregateCall]:
    """The aggregates of an expression, without those of subqueries."""
    for found in own_nodes(node):
        aggregate = aggregate_at(found)
        if aggregate is not None:
            yield aggregate


def need_arguments(aggregate: AggregateCall, count: int) -> None:
    """Refuse forms with more arguments, such as ``max(x, 3)``."""
    given = len(aggregate.arguments)
    if given != count:
        raise Refused(f"{aggregate.name} with {given} argument(s) is not split")


def _is_wrapped(node: exp.Expr) -> bool:
    return isinstance(node.parent, _WRAPPERS) and node.arg_key == "this"


def duckdb_name(node: exp.Expr) -> str:
    """The name under which DuckDB sees a call; empty for what is printed as an operator."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    is_operator = isinstance(node, exp.Binary) and not isinstance(node, exp.AggFunc)
    if not isinstance(node, exp.Func) or is_operator:
        return ""
    text = node.sql(dialect="duckdb", comments=False)
    found = _CALL.match(text)
    return found[1].lower() if found and _ends_with_call(text, found.end()) else ""


def _ends_with_call(text: str, start: int) -> bool:
    """Whether the parenthesis that opened just before ``start`` closes at the text's end."""
    depth, quote = 1, ""
    for at in range(start, len(text)):
        sign = text[at]
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in "()":
            depth += 1 if sign == "(" else -1
            if depth == 0:
                return at == len(text) - 1
    return False


def _read(outer: exp.Expr, inner: exp.Expr, name: str) -> AggregateCall:
    condition: exp.Expression | None = None
    node = outer
    while node is not inner:
        if isinstance(node, exp.Filter):
            condition = node.expression.this
        elif isinstance(node, exp.IgnoreNulls) and name in ("first", "last"):
            name += "_ignore_nulls"
        elif isinstance(node, (exp.RespectNulls, exp.WithinGroup)):
            name += "_within"  # no rule has such a name
        node = node.this
    arguments: list[exp.Expression] = []
    order: list[exp.Ordered] = []
    is_distinct = False
    for part in _parts(inner):
        if isinstance(part, exp.Order):
            order += part.expressions
            part = part.this
        if isinstance(part, exp.Distinct):
            is_distinct = True
            arguments += part.expressions
        elif part is not None and not isinstance(part, exp.Star):
            arguments.append(part)
    return AggregateCall(name, tuple(arguments), tuple(order), is_distinct, condition, outer)  # type: ignore[arg-type]


def _parts(node: exp.Expr) -> Iterator[exp.Expression]:
    for value in node.args.values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Expression):
                yield part
