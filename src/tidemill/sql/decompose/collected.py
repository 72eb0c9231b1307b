"""Aggregates whose state is a collection: it grows with the values, and says so (``growing``).

- DISTINCT keeps the distinct values;
- list, string_agg, first and last with ORDER BY keep entries of a value and its order keys;
- histogram keeps keys and counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tidemill.sql.decompose.calls import AggregateCall, need_arguments
from tidemill.sql.decompose.nodes import (
    call,
    cast,
    column,
    field,
    filtered,
    named,
    nested,
    not_null,
    ordered,
    struct,
    text,
)
from tidemill.sql.decompose.plan import Refused, sql_of
from tidemill.sql.decompose.states import States

_ITEM = "tm_item"
_OF_SETS = frozenset(
    (
        *("count", "sum", "avg", "product", "bit_xor", "var_pop", "var_samp", "variance", "sem"),
        *("stddev", "stddev_pop", "stddev_samp", "skewness", "kurtosis", "kurtosis_pop"),
        *("fsum", "favg", "kahan_sum", "sumkahan"),
    )
)


def as_set(aggregate: AggregateCall, states: States) -> exp.Expression:
    """An aggregate of DISTINCT values: ``list_aggregate`` over the set of them."""
    name = aggregate.name
    if len(aggregate.arguments) != 1 or aggregate.order or name not in _OF_SETS:
        raise Refused(f"{name} with DISTINCT is split only with one argument and no ORDER BY")
    (value,) = aggregate.arguments
    values = states.add(
        filtered(
            call("list", exp.Distinct(expressions=[value.copy()])),
            aggregate.filter,
            not_null(value.copy()),
        ),
        lambda state: call("list_distinct", _gathered(state)),
        grows=f"the distinct values of {sql_of(value)}",
    )
    if name == "count":
        return cast(call("coalesce", call("len", values), exp.Literal.number(0)), "BIGINT")
    return call("list_aggregate", values, text(name))


def one_in_order(aggregate: AggregateCall, states: States) -> exp.Expression:
    """first, last and any_value with ORDER BY: the entry that comes first, or last."""
    need_arguments(aggregate, 1)
    name = aggregate.name
    if not aggregate.order:
        raise Refused(f"{name.partition('_')[0]} without ORDER BY takes the rows as they come")
    take = "last" if name.startswith("last") else "first"
    skips_null = name == "any_value" or name.endswith("_ignore_nulls")
    has_value = not_null(aggregate.arguments[0].copy()) if skips_null else None
    order = [part.copy() for part in aggregate.order]
    state = states.add(
        filtered(call(take, ordered(_entry(aggregate), order)), aggregate.filter, has_value),
        lambda state: filtered(
            call(take, ordered(state, _order_of(aggregate, state))), not_null(state.copy())
        ),
    )
    return field(state, "v")


def all_in_order(aggregate: AggregateCall, states: States) -> exp.Expression:
    """list and string_agg with ORDER BY: entries in any order, put in order at the end."""
    name = aggregate.name
    if not aggregate.order:
        raise Refused(f"{name} without ORDER BY takes the rows as they come")
    if aggregate.is_distinct:
        raise Refused(f"{name} with DISTINCT and ORDER BY needs all rows together")
    value, *rest = aggregate.arguments
    has_value = not_null(value.copy()) if name == "string_agg" else None
    state = states.add(
        filtered(call("list", _entry(aggregate)), aggregate.filter, has_value),
        _gathered,
        grows=f"the values of {sql_of(value)}",
    )
    item = column(_ITEM)
    arguments = [field(item, "v"), *(part.copy() for part in rest)]
    arguments[-1] = ordered(arguments[-1], _order_of(aggregate, item))
    return _over_items(state, [call(name, *arguments)])


def histogram(aggregate: AggregateCall, states: States) -> exp.Expression:
    """Entries of key and count; merging adds up the counts of a key."""
    need_arguments(aggregate, 1)
    (value,) = aggregate.arguments
    key, count = field(column(_ITEM), "key"), field(column(_ITEM), "value")

    def by_key(node: exp.Expression) -> exp.Expression:
        return call("list", ordered(node.copy(), [exp.Ordered(this=key.copy())]))

    def add_up(state: exp.Expression) -> exp.Expression:
        total = cast(call("sum", count.copy()), "UBIGINT")
        counts = _over_items(state, [named(key.copy(), "tm_key"), named(total, "tm_count")]).this
        counts.set("group", exp.Group(expressions=[exp.Literal.number(1)]))
        pair = struct(key=column("tm_key"), value=column("tm_count"))
        pairs = exp.Select(expressions=[call("list", pair)], from_=exp.From(this=nested(counts)))
        return exp.Subquery(this=pairs)

    state = states.add(
        call("map_entries", filtered(call("histogram", value.copy()), aggregate.filter)),
        _gathered,
        add_up,
        grows=f"the distinct values of {sql_of(value)}",
    )
    return _over_items(state, [call("map", by_key(key), by_key(count))])


def _gathered(state: exp.Expression) -> exp.Expression:
    return call("flatten", call("list", state))


def _over_items(items: exp.Expression, results: Sequence[exp.Expression]) -> exp.Subquery:
    """``(SELECT results FROM (SELECT unnest(items) AS tm_item))``: aggregates over one list."""
    inner = exp.Select(expressions=[named(exp.Explode(this=items), _ITEM)])
    return exp.Subquery(
        this=exp.Select(expressions=list(results), from_=exp.From(this=nested(inner)))
    )


def _entry(aggregate: AggregateCall) -> exp.Expression:
    """A value with its order keys."""
    keys = {f"o{at}": part.this.copy() for at, part in enumerate(aggregate.order)}
    return struct(v=aggregate.arguments[0].copy(), **keys)


def _order_of(aggregate: AggregateCall, entry: exp.Expression) -> list[exp.Expression]:
    """The ORDER BY of an aggregate, over its entries."""
    parts: list[exp.Expression] = []
    for at, part in enumerate(aggregate.order):
        again = part.copy()
        again.set("this", field(entry.copy(), f"o{at}"))
        parts.append(again)
    return parts
