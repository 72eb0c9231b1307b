"""Aggregates whose states DuckDB exports (EXPORT_STATE), merges (combine_aggr) and ends (finalize).

The states are structs of numbers, so they travel as Arrow and rest in files. DuckDB's threads merge
the same states in the same way, hence the answers are as near to DuckDB's as DuckDB's are to each
other: means and moments are merged stably (counts, means, sums of squared differences), the
registers of HyperLogLog exactly. The layouts below are those of DuckDB 2.0; ``to_aggregate_state``
refuses another one when the query is bound, so a change cannot pass unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tidemill.sql.decompose.calls import AggregateCall, need_arguments
from tidemill.sql.decompose.nodes import call, cast, column, filtered, text
from tidemill.sql.decompose.plan import Refused
from tidemill.sql.decompose.states import States

_VARIANCE = "STRUCT(count UBIGINT, mean DOUBLE, dsquared DOUBLE)"
_COVARIANCE = "STRUCT(count UBIGINT, meanx DOUBLE, meany DOUBLE, co_moment DOUBLE)"
_SLOPE = f"STRUCT(cov_pop {_COVARIANCE}, var_pop {_VARIANCE})"
_CORRELATION = f"STRUCT(cov_pop {_COVARIANCE}, dev_pop_x {_VARIANCE}, dev_pop_y {_VARIANCE})"
_DIGEST = (
    "STRUCT(count UBIGINT, min DOUBLE, max DOUBLE, centroids STRUCT(mean DOUBLE, weight DOUBLE)[])"
)
# How many arguments, and the state.
LAYOUTS: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("var_pop", "var_samp", "variance", "sem"), (1, _VARIANCE)),
    **dict.fromkeys(("stddev", "stddev_pop", "stddev_samp"), (1, _VARIANCE)),
    **dict.fromkeys(("covar_pop", "covar_samp"), (2, _COVARIANCE)),
    "corr": (2, _CORRELATION),
    **dict.fromkeys(("regr_avgx", "regr_avgy"), (2, "STRUCT(sum DOUBLE, count UBIGINT)")),
    "regr_slope": (2, _SLOPE),
    "regr_intercept": (2, f"STRUCT(count UBIGINT, sum_x DOUBLE, sum_y DOUBLE, slope {_SLOPE})"),
    "regr_r2": (2, f"STRUCT(corr {_CORRELATION}, var_pop_x {_VARIANCE}, var_pop_y {_VARIANCE})"),
    **dict.fromkeys(("regr_sxx", "regr_syy"), (2, f"STRUCT(count UBIGINT, var_pop {_VARIANCE})")),
    "regr_sxy": (2, f"STRUCT(count UBIGINT, cov_pop {_COVARIANCE})"),
    "skewness": (1, "STRUCT(n UBIGINT, mean DOUBLE, m2 DOUBLE, m3 DOUBLE)"),
    **dict.fromkeys(
        ("kurtosis", "kurtosis_pop"),
        (1, "STRUCT(n UBIGINT, mean DOUBLE, m2 DOUBLE, m3 DOUBLE, m4 DOUBLE)"),
    ),
    **dict.fromkeys(("fsum", "kahan_sum", "sumkahan"), (1, "STRUCT(value DOUBLE, err DOUBLE)")),
    "favg": (1, "STRUCT(count UBIGINT, value DOUBLE, err DOUBLE)"),
    "approx_count_distinct": (1, "STRUCT(precision UTINYINT, registers UTINYINT[])"),
}


def as_state(
    node: exp.Expression,
    name: str,
    signature: Sequence[exp.Expression],
    constants: Sequence[exp.Expression] = (),
) -> exp.Expression:
    """A struct as the state of an aggregate over arguments of these types."""
    more = [exp.Array(expressions=list(constants))] if constants else []
    signature_list = exp.Array(expressions=list(signature))
    return call("to_aggregate_state", node, text(name), signature_list, *more)


def in_doubles(aggregate: AggregateCall, states: States) -> exp.Expression:
    """All of these compute in doubles, but HyperLogLog, which has hashed its input already."""
    name = aggregate.name
    arity, layout = LAYOUTS[name]
    need_arguments(aggregate, arity)

    def state_of(node: exp.Expression) -> exp.Expression:
        return as_state(node, name, [text("DOUBLE")] * arity)

    state = states.add(
        cast(_export(aggregate.node), layout),
        lambda state: cast(call("combine_aggr", state_of(state)), layout),
    )
    return call("finalize", state_of(state))


def approx_quantile(aggregate: AggregateCall, states: States) -> exp.Expression:
    """A t-digest, and beside it a NULL of the type that DuckDB computes with."""
    name = aggregate.name
    need_arguments(aggregate, 2)
    places = aggregate.arguments[1]
    is_list = isinstance(places, exp.Array)
    if not all(isinstance(at, exp.Literal) for at in (places.expressions if is_list else [places])):
        raise Refused("approx_quantile is split only where its quantiles are written as numbers")
    typed = filtered(call(name, *(part.copy() for part in aggregate.arguments)), exp.false())
    if is_list:
        typed = call("list_extract", typed, exp.Literal.number(1))
    witness = states.add(typed, lambda state: call("any_value", state))

    def state_of(node: exp.Expression, kind: exp.Expression) -> exp.Expression:
        signature = [call("typeof", kind), text("FLOAT[]" if is_list else "FLOAT")]
        return as_state(node, name, signature, [exp.Null(), places.copy()])

    state = states.add(
        cast(_export(aggregate.node), _DIGEST),
        lambda state: cast(call("combine_aggr", state_of(state, column(witness.name))), _DIGEST),
    )
    return call("finalize", state_of(state, witness))


def _export(node: exp.Expression) -> exp.Expression:
    """``(aggregate EXPORT_STATE)``: sqlglot has no node for it, but one that prints the same."""
    return exp.Paren(this=exp.Opclass(this=node.copy(), expression=exp.var("EXPORT_STATE")))
