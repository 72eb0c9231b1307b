"""The algebra: for each aggregate its states, how they merge, and the value they end in.

1. **itself**: sum, min, max, bool_and … of partial results is the result (here);
2. **exported**: variance, covariance, regression, sketches: DuckDB's own states (``exported``);
3. **collected**: sets for DISTINCT, values with their order keys for ORDER BY, histograms
   (``collected``).

avg is an exact sum and a count, divided the way DuckDB divides.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tidemill.sql.decompose import collected, exported
from tidemill.sql.decompose.calls import AggregateCall, need_arguments
from tidemill.sql.decompose.nodes import call, cast, field, filtered, not_null, struct, text
from tidemill.sql.decompose.plan import Merge, Refused
from tidemill.sql.decompose.states import States

Rule = Callable[[AggregateCall, States], exp.Expression]


def split_aggregate(aggregate: AggregateCall, states: States) -> exp.Expression:
    """Note the states of an aggregate; answers its value over one merged state."""
    name = aggregate.name
    if name in _REASONS:
        raise Refused(f"{name} {_REASONS[name]}")
    rule = _RULES.get(name)
    if rule is None:
        raise Refused(f"no way is known to compute {name} from parts")
    if aggregate.is_distinct and name not in _BLIND_TO_REPEATS:
        return collected.as_set(aggregate, states)
    return rule(aggregate, states)


def _fold(name: str) -> Merge:
    return lambda state: call(name, state)


def _total(kind: str) -> Merge:
    """The sum of counts, 0 of none."""
    return lambda state: cast(call("coalesce", call("sum", state), exp.Literal.number(0)), kind)


def _itself(aggregate: AggregateCall, states: States) -> exp.Expression:
    if aggregate.name in ("min", "max") and len(aggregate.arguments) == 2:
        return _first_few(aggregate, states)
    need_arguments(aggregate, 1)
    return states.add(aggregate.node.copy(), _fold(_FOLDS[aggregate.name]))


def _first_few(aggregate: AggregateCall, states: States) -> exp.Expression:
    """max(x, k) and min(x, k): the first k of all lists of k, NULL of none."""
    return states.add(aggregate.node.copy(), _first_of_lists(aggregate))


def _first_of_lists(aggregate: AggregateCall) -> Merge:
    """The first k entries of lists of k, the last argument of the aggregate; those of a struct are
    in the order of its first field."""
    name, count = aggregate.name, aggregate.arguments[-1]
    if not isinstance(count, exp.Literal) or not count.is_int:
        raise Refused(f"{name} of the first k is split for a plain number k")
    order = text("DESC" if name.endswith("max") else "ASC")

    def merge(state: exp.Expression) -> exp.Expression:
        lists = filtered(call("list", state), not_null(state.copy()))
        entries = call("flatten", lists)
        if aggregate.is_distinct:
            entries = call("list_distinct", entries)
        ordered = call("list_sort", entries, order.copy())
        return call("list_slice", ordered, exp.Literal.number(1), count.copy())

    return merge


def _count(aggregate: AggregateCall, states: States) -> exp.Expression:
    kind = "UINTEGER" if aggregate.name == "regr_count" else "BIGINT"
    return states.add(aggregate.node.copy(), _total(kind))


def _avg(aggregate: AggregateCall, states: States) -> exp.Expression:
    """DuckDB divides exact sums (of integers, of decimals) in long doubles, others in doubles.

    So exact sums end in DuckDB's own avg; a decimal's digits without the point are the number that
    it sums. What ``typeof`` says is known when the query is bound: one branch is left to run."""
    need_arguments(aggregate, 1)
    (value,) = aggregate.arguments
    total = states.add(filtered(call("sum", value.copy()), aggregate.filter), _fold("sum"))
    count = states.add(filtered(call("count", value.copy()), aggregate.filter), _total("BIGINT"))
    kind = call("typeof", total)
    digits = call("replace", cast(total.copy(), "VARCHAR"), text("."), text(""))
    state = struct(
        count=cast(count, "UBIGINT"),
        value=exp.TryCast(this=digits, to=exp.DataType.build("HUGEINT", dialect="duckdb")),
    )
    is_decimal = call("starts_with", kind.copy(), text("DECIMAL"))
    summed = exp.Case(ifs=[exp.If(this=is_decimal, true=kind.copy())], default=text("HUGEINT"))
    exact = call("finalize", exported.as_state(state, "avg", [summed]))
    plain = exp.Div(this=total.copy(), expression=count.copy())
    is_double = exp.EQ(this=kind, expression=text("DOUBLE"))
    return exp.Case(ifs=[exp.If(this=is_double, true=plain)], default=exact)


def _argument_of_extreme(aggregate: AggregateCall, states: States) -> exp.Expression:
    """arg_min and arg_max: the value, and the key that it had."""
    name = aggregate.name
    if name in ("arg_min", "arg_max") and len(aggregate.arguments) == 3:
        return _arguments_of_extremes(aggregate, states)
    need_arguments(aggregate, 2)
    value, key = aggregate.arguments
    extreme = "min" if name.startswith("arg_min") else "max"
    has_value = None if name.endswith("_null") else not_null(value.copy())
    keys = states.add(
        filtered(call(extreme, key.copy()), aggregate.filter, has_value), _fold(extreme)
    )
    return states.add(aggregate.node.copy(), lambda state: call(name, state, keys.copy()))


def _arguments_of_extremes(aggregate: AggregateCall, states: States) -> exp.Expression:
    """arg_max(x, y, k) and arg_min(x, y, k): the first k pairs, of which the values are shown."""
    if aggregate.is_distinct:
        raise Refused(f"{aggregate.name}(x, y, k) with DISTINCT is not split")
    value, key, count = aggregate.arguments
    merge = _first_of_lists(aggregate)
    pair = struct(o=key.copy(), v=value.copy())
    pairs = call(aggregate.name, pair, key.copy(), count.copy())
    state = states.add(filtered(pairs, aggregate.filter, not_null(value.copy())), merge)
    name = exp.to_identifier("tm_pair")
    shown = exp.Lambda(this=field(exp.Column(this=name.copy()), "v"), expressions=[name])
    return call("list_transform", state, shown)


def _any_value(aggregate: AggregateCall, states: States) -> exp.Expression:
    rule: Rule = collected.one_in_order if aggregate.order else _itself
    return rule(aggregate, states)


_FOLDS = {
    **{name: name for name in ("sum", "min", "max", "bool_and", "bool_or", "product")},
    **{name: name for name in ("bit_and", "bit_or", "bit_xor", "any_value")},
    "count_if": "sum",
}
_BLIND_TO_REPEATS = frozenset(
    (
        *("min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "any_value", "first", "last"),
        *("arg_min", "arg_max", "arg_min_null", "arg_max_null", "approx_count_distinct"),
        *("first_ignore_nulls", "last_ignore_nulls", "list", "string_agg"),
    )
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_FOLDS, _itself),
    **dict.fromkeys(("count", "regr_count"), _count),
    "avg": _avg,
    **dict.fromkeys(("arg_min", "arg_max", "arg_min_null", "arg_max_null"), _argument_of_extreme),
    "any_value": _any_value,
    **dict.fromkeys(exported.LAYOUTS, exported.in_doubles),
    "approx_quantile": exported.approx_quantile,
    **dict.fromkeys(
        ("first", "last", "first_ignore_nulls", "last_ignore_nulls"), collected.one_in_order
    ),
    **dict.fromkeys(("list", "string_agg"), collected.all_in_order),
    "histogram": collected.histogram,
}
_ALL_VALUES = "needs all values of a group together"
_REASONS = {
    **dict.fromkeys(("median", "mad", "quantile", "quantile_cont", "lttb"), _ALL_VALUES),
    **dict.fromkeys(("quantile_disc", "reservoir_quantile"), _ALL_VALUES),
    "entropy": "adds up logarithms of counts in an order of its own",
    "mode": "takes the value that came first among equally frequent ones",
    "approx_top_k": "keeps counters that depend on the order of the rows",
}
