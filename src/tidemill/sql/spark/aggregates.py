"""Aggregates and windows: sums that keep DuckDB's types, and frames that mean the same rows.

DuckDB sums whole numbers in 128 bits, Spark in 64; so the sum is one of decimals. Averages are a
sum and a count. Whatever depends on the order of rows must say that order: without ORDER BY both
engines may take any, and DuckDB takes the one in which rows arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from tidemill.sql.spark import oracle
from tidemill.sql.spark.arithmetic import interval_sql
from tidemill.sql.spark.casts import implicit
from tidemill.sql.spark.expressions import Expressions
from tidemill.sql.spark.kinds import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    EXACT,
    FLOAT,
    INTEGER,
    NULL,
    TIMESTAMP,
    TIMESTAMPTZ,
    WHOLE,
    Kind,
)
from tidemill.sql.spark.scopes import Place
from tidemill.sql.spark.values import Value, asked_kind, refuse, what

# A sum has ten digits more than its terms: 28 hold any whole number, and leave the most room.
_TERM = "DECIMAL(28,0)"
ROWS_MAX = 1_000_000_000

# What an aggregate becomes, given the value, whether DISTINCT stands before it, and what follows
# the call: a FILTER or an OVER.
Build = Callable[[Value, str, str], Value]


def _asked(name: str, value: Value) -> Kind:
    return asked_kind(f"{name}({{}})", replace(value, constant=None))


def _sum(value: Value, distinct: str, after: str) -> Value:
    family, sql = value.kind.family, value.sql
    kind = _asked("sum", value)
    if family in WHOLE and value.kind.name != "HUGEINT":
        sql = f"CAST({sql} AS {_TERM})"
    elif family == BOOLEAN:
        sql = f"CAST(CAST({sql} AS INT) AS {_TERM})"
    elif family == FLOAT:
        return Value(f"sum(CAST({sql} AS DOUBLE)){after}", DOUBLE)
    return Value(f"CAST(sum({distinct}{sql}){after} AS {kind.spark})", kind)


def _avg(value: Value, distinct: str, after: str) -> Value:
    count = f"nullif(count({value.sql}){after}, 0)"
    total = _sum(value, "", after).sql
    return Value(f"(CAST({total} AS DOUBLE) / {count})", DOUBLE)


def _same_kind(name: str) -> Build:
    def build(value: Value, distinct: str, after: str) -> Value:
        return Value(f"{name}({value.sql}){after}", value.kind)

    return build


def _count(value: Value, distinct: str, after: str) -> Value:
    return Value(f"count({distinct}{value.sql}){after}", BIGINT)


def _count_if(value: Value, distinct: str, after: str) -> Value:
    """In DuckDB a sum of ones and zeros: NULL, not zero, where nothing is true or false."""
    return replace(_sum(value, "", after), kind=_asked("count_if", value))


def _spread(name: str) -> Build:
    def build(value: Value, distinct: str, after: str) -> Value:
        return Value(f"{name}(CAST({value.sql} AS DOUBLE)){after}", DOUBLE)

    return build


_ANY_FAMILY = frozenset(
    [
        "boolean",
        "integer",
        "unsigned",
        "huge",
        "decimal",
        "float",
        "text",
        "blob",
        "uuid",
        "date",
        "timestamp",
        "timestamptz",
    ]
)
_SUMMED = EXACT | {FLOAT}
_TRUTH = frozenset({BOOLEAN})
_AGGREGATES: dict[type[exp.Expr], tuple[str, frozenset[str], Build]] = {
    exp.Count: ("count", _ANY_FAMILY, _count),
    exp.Sum: ("sum", _SUMMED | _TRUTH, _sum),
    exp.Avg: ("avg", _SUMMED - {"huge"}, _avg),
    exp.Min: ("min", _ANY_FAMILY, _same_kind("min")),
    exp.Max: ("max", _ANY_FAMILY, _same_kind("max")),
    exp.LogicalAnd: ("bool_and", _TRUTH, _same_kind("bool_and")),
    exp.LogicalOr: ("bool_or", _TRUTH, _same_kind("bool_or")),
    exp.CountIf: ("count_if", _TRUTH, _count_if),
    exp.Stddev: ("stddev", frozenset({INTEGER}), _spread("stddev_samp")),
    exp.StddevSamp: ("stddev", frozenset({INTEGER}), _spread("stddev_samp")),
    exp.StddevPop: ("stddev_pop", frozenset({INTEGER}), _spread("stddev_pop")),
    exp.Variance: ("variance", frozenset({INTEGER}), _spread("var_samp")),
    exp.VariancePop: ("var_pop", frozenset({INTEGER}), _spread("var_pop")),
}
AGGREGATE_NODES = tuple(_AGGREGATES)

_RANKS: dict[type[exp.Expr], tuple[str, Kind]] = {
    exp.RowNumber: ("row_number", BIGINT),
    exp.Rank: ("rank", BIGINT),
    exp.DenseRank: ("dense_rank", BIGINT),
    exp.PercentRank: ("percent_rank", DOUBLE),
    exp.CumeDist: ("cume_dist", DOUBLE),
}
_PICKS: dict[type[exp.Expr], str] = {
    exp.FirstValue: "first_value",
    exp.LastValue: "last_value",
    exp.NthValue: "nth_value",
    exp.Lag: "lag",
    exp.Lead: "lead",
}


class Aggregates(Expressions):
    """Expressions that gather rows."""

    def aggregate(self, node: exp.Expr, place: Place) -> Value | None:
        if isinstance(node, exp.Window):
            return self._window(node, place)
        if isinstance(node, exp.Filter):
            self.use("aggregate filter")
            condition = self.condition(node.args["expression"].this, place)
            return self._gathered(node.this, place, f" FILTER (WHERE {condition.sql})")
        if type(node) in _AGGREGATES:
            return self._gathered(node, place, "")
        return None

    def _gathered(self, node: exp.Expr, place: Place, after: str) -> Value:
        if type(node) not in _AGGREGATES:
            refuse(f"{what(node)} is not verified for Spark SQL")
        name, families, build = _AGGREGATES[type(node)]
        for key, given in node.args.items():
            if given and key not in ("this", "big_int"):
                refuse(f"{what(node)} with {key} is not verified for Spark SQL")
        argument, distinct = node.this, ""
        if isinstance(argument, exp.Star) and isinstance(node, exp.Count):
            if any(argument.args.values()):
                refuse("count of a part of * is not verified for Spark SQL")
            self.use("aggregate count star")
            return Value(f"count(*){after}", BIGINT)
        if isinstance(argument, exp.Distinct):
            if len(argument.expressions) != 1 or " OVER " in after:
                refuse("this use of DISTINCT in an aggregate is not verified for Spark SQL")
            argument, distinct = argument.expressions[0], "DISTINCT "
        if isinstance(argument, exp.Order | exp.Limit | exp.IgnoreNulls | exp.HavingMax):
            refuse("an aggregate in an order is not verified for Spark SQL")
        value = self.value(argument, place)
        if value.kind.family not in families:
            refuse(f"{name} of {value.kind.name} is not verified for Spark SQL")
        self.use(f"aggregate {_entry(name, value.kind, distinct)}")
        return Value((found := build(value, distinct, after)).sql, self.check(found.kind))

    # -- windows

    def _window(self, node: exp.Window, place: Place) -> Value:
        node = self._named(node, place)
        for key, given in node.args.items():
            if given and key not in ("this", "partition_by", "order", "spec", "over"):
                refuse(f"a window with {key} is not verified for Spark SQL")
        function = node.this
        order = node.args.get("order")
        over = self._over(node, place)
        rank = _RANKS.get(type(function))
        if rank is not None:
            name, kind = rank
            self._need_order(name, order)
            if function.expressions:
                refuse(f"{name} of something is not verified for Spark SQL")
            self.use(f"window {name}")
            return Value(f"CAST({name}() OVER ({over}) AS {kind.spark})", self.check(kind))
        if isinstance(function, exp.Ntile):
            self._need_order("ntile", order)
            self.use("window ntile")
            count = _whole(function.this, 1)
            return Value(f"CAST(ntile({count}) OVER ({over}) AS BIGINT)", self.check(BIGINT))
        if type(function) in _PICKS:
            self._need_order(_PICKS[type(function)], order)
            return self._pick(function, place, over)
        if isinstance(function, exp.Filter):
            refuse("a window with FILTER is not verified for Spark SQL")
        self.use("window aggregate")
        return self._gathered(function, place, f" OVER ({over})")

    def _named(self, node: exp.Window, place: Place) -> exp.Window:
        alias = node.args.get("alias")
        if alias is None:
            return node
        named = place.windows.get(alias.name.lower())
        if named is None or named.args.get("alias"):
            refuse(f'window "{alias.name}" is not verified for Spark SQL')
        if any(node.args.get(key) for key in ("partition_by", "order", "spec")):
            refuse("a window that extends another one is not verified for Spark SQL")
        self.use("window named")
        found = named.copy()
        found.set("this", node.this)
        found.set("over", "OVER")
        return found

    def _need_order(self, name: str, order: exp.Expr | None) -> None:
        if order is None:
            refuse(f"{name} without ORDER BY takes rows in no certain order")

    def _pick(self, node: exp.Expr, place: Place, over: str) -> Value:
        name = _PICKS[type(node)]
        for key, given in node.args.items():
            if given and key not in ("this", "offset", "default"):
                refuse(f"{name} with {key} is not verified for Spark SQL")
        value = self.value(node.this, place)
        if value.kind.family == NULL:
            refuse(f"{name} of NULL is not verified for Spark SQL")
        arguments = [value.sql]
        offset = node.args.get("offset")
        if offset is not None:
            arguments.append(str(_whole(offset, 1 if name == "nth_value" else 0)))
        default = node.args.get("default")
        if default is not None:
            arguments.append(implicit(self.value(default, place), value.kind).sql)
        self.use(f"window {name}")
        return Value(f"{name}({', '.join(arguments)}) OVER ({over})", value.kind)

    def _over(self, node: exp.Window, place: Place) -> str:
        parts = []
        keys = [self.grouped(self.value(key, place)) for key in node.args.get("partition_by") or []]
        if keys:
            parts.append(f"PARTITION BY {', '.join(keys)}")
        order = node.args.get("order")
        ordered = order.expressions if order is not None else []
        if ordered:
            parts.append(f"ORDER BY {', '.join(self._ordered(key, place) for key in ordered)}")
        spec = node.args.get("spec")
        if spec is not None:
            if not ordered:
                refuse("a frame without ORDER BY takes rows in no certain order")
            parts.append(self._frame(spec, ordered, place))
        return " ".join(parts)

    def _ordered(self, node: exp.Expr, place: Place) -> str:
        value = self.value(node.this, place)
        if value.constant is not None:
            refuse("an order by a constant is not verified for Spark SQL")
        return self.sorted(value, node)

    def grouped(self, value: Value) -> str:
        """A value to group by."""
        if value.constant is not None:
            refuse("a group by a constant is not verified for Spark SQL")
        self.use(f"group {value.kind.family}")
        return value.sql

    def sorted(self, value: Value, ordered: exp.Expr) -> str:
        """A value to sort by; where NULLs go is always said."""
        if ordered.args.get("with_fill"):
            refuse("an order with FILL is not verified for Spark SQL")
        self.use(f"sort {value.kind.family}")
        way = "DESC" if ordered.args.get("desc") else "ASC"
        nulls = "FIRST" if ordered.args.get("nulls_first") else "LAST"
        return f"{value.sql} {way} NULLS {nulls}"

    def _frame(self, spec: exp.Expr, ordered: list[exp.Expr], place: Place) -> str:
        kind = str(spec.args.get("kind") or "").upper()
        if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
            refuse(f"the frame {spec.sql(dialect='duckdb')} is not verified for Spark SQL")
        self.use(f"window {kind.lower()}")
        bounds = []
        for name in ("start", "end"):
            bound, side = spec.args.get(name), str(spec.args.get(f"{name}_side") or "")
            if bound is None:
                bound, side = "CURRENT ROW", ""
            if isinstance(bound, str):
                bounds.append(f"{bound} {side}".strip())
            elif kind == "ROWS":
                bounds.append(f"{_whole(bound, 0)} {side}")
            else:
                bounds.append(f"{self._range_bound(bound, ordered, place)} {side}")
        return f"{kind} BETWEEN {bounds[0]} AND {bounds[1]}"

    def _range_bound(self, bound: exp.Expr, ordered: list[exp.Expr], place: Place) -> str:
        key = self.value(ordered[0].this, place).kind if len(ordered) == 1 else None
        parts = oracle.interval_of(bound.sql(dialect="duckdb"))
        if key is None or key.family not in (TIMESTAMP, TIMESTAMPTZ) or parts is None:
            refuse("a range other than of times and an interval is not verified for Spark SQL")
        if parts.months or parts.days < 0 or parts.micros < 0:
            refuse("a range of months is not verified for Spark SQL")
        self.use("window range interval")
        return interval_sql(parts.days, parts.micros)


def _entry(name: str, kind: Kind, distinct: str) -> str:
    if distinct:
        if name in ("min", "max", "bool_and", "bool_or"):
            return name
        if name not in ("count", "sum") or (name == "sum" and kind.family not in EXACT):
            refuse(f"{name}(DISTINCT) is not verified for Spark SQL")
        return f"{name} distinct"
    if name == "sum":
        return f"sum {kind.family if kind.family in (FLOAT, BOOLEAN) else 'number'}"
    return name


def _whole(node: exp.Expr, low: int) -> int:
    """A constant whole number."""
    text = node.sql(dialect="duckdb")
    if not text.isdigit() or not low <= int(text) <= ROWS_MAX:
        refuse(f"the number {text} is not verified for Spark SQL")
    return int(text)
