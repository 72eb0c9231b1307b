"""Expressions: a node of DuckDB's tree in, Spark SQL of a known kind out.

1. A constant (nothing but literals, casts and arithmetic) is evaluated by DuckDB and becomes one
   typed literal.
2. A column is looked up in its scope.
3. Anything else is translated by the one function that is listed for its node; what has none is
   not verified.

Operands are brought to one kind first, by DuckDB's rules for it, so that Spark's own implicit
casts never decide anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from tidemill.sql.spark import arithmetic
from tidemill.sql.spark.allowed import Ledger
from tidemill.sql.spark.casts import explicit, implicit
from tidemill.sql.spark.functions import ANONYMOUS, FUNCTIONS
from tidemill.sql.spark.kinds import (
    BOOL,
    BOOLEAN,
    DECIMAL_DIGITS_MAX,
    EXACT,
    NULL,
    TEXT,
    VARCHAR,
    WHOLE,
    Kind,
    decimal,
)
from tidemill.sql.spark.literals import text_literal
from tidemill.sql.spark.scopes import Field, Place, SparkScope
from tidemill.sql.spark.values import (
    NotVerified,
    Value,
    common_kind,
    constant_value,
    kind_named,
    null_value,
    refuse,
    what,
)
from tidemill.types import SqlType

# What a constant may be made of: DuckDB evaluates it, so only what is the same whenever and
# wherever it is evaluated.
_FOLDED = (
    exp.Literal,
    exp.Boolean,
    exp.Null,
    exp.Paren,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.IntDiv,
    exp.Mod,
    exp.DPipe,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
    exp.Interval,
    exp.IntervalSpan,
    exp.Var,
    exp.TimestampTrunc,
    exp.DateTrunc,
    exp.Coalesce,
)
_FOLDED_CALLS = frozenset({"to_microseconds", "make_timestamp", "make_timestamptz", "epoch_us"})
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
# Signs that no LIKE pattern has but by malice; one that the pattern lacks becomes its escape.
_ESCAPES = ("\\", "|", "~", "\x01")


def is_constant(node: exp.Expr) -> bool:
    """Whether DuckDB can say now what a node is."""
    return all(
        isinstance(part, _FOLDED)
        or (isinstance(part, exp.Anonymous) and part.name.lower() in _FOLDED_CALLS)
        for part in node.walk()
    ) and not isinstance(node, exp.Interval | exp.DataType | exp.Var)


@dataclass(frozen=True)
class Relation:
    """A query in Spark SQL, whose columns are c0, c1 …, and what they are in DuckDB."""

    sql: str
    columns: tuple[tuple[str | None, Kind], ...]


class Expressions:
    """Translates expressions; queries inside them are the business of ``queries``."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.reads: dict[str, dict[str, None]] = {}

    def relation(
        self, node: exp.Expr, outer: SparkScope | None
    ) -> tuple[Relation, SparkScope | None]:
        raise NotImplementedError

    def aggregate(self, node: exp.Expr, place: Place) -> Value | None:
        raise NotImplementedError

    def predicate(self, node: exp.Expr, place: Place) -> Value | None:
        raise NotImplementedError

    # -- the ways in

    def value(self, node: exp.Expr, place: Place) -> Value:
        """The value of any expression."""
        if isinstance(node, exp.Paren):
            return self.value(node.this, place)
        if isinstance(node, exp.Null):
            return null_value()
        if is_constant(node):
            found = constant_value(node.sql(dialect="duckdb"))
            self.check(found.kind)
            return found
        if isinstance(node, exp.Column):
            return self._column(node, place)
        special = self.predicate(node, place) or self.aggregate(node, place)
        if special is not None:
            return special
        translate = _NODES.get(type(node))
        if translate is not None:
            return translate(self, node, place)
        return self._call(node, place)

    def condition(self, node: exp.Expr, place: Place) -> Value:
        """A value that is true, false or unknown."""
        found = self.value(node, place)
        if found.kind.family == NULL:
            return implicit(found, BOOL)
        if found.kind.family != BOOLEAN:
            refuse(f"a condition of type {found.kind.name} is not verified for Spark SQL")
        return found

    def values(self, nodes: list[exp.Expr], place: Place) -> list[Value]:
        return [self.value(node, place) for node in nodes]

    def read(self, field: Field) -> None:
        """Notes that a column of a table is needed."""
        for view, column in field.origins:
            self.reads.setdefault(view, {})[column] = None

    def use(self, entry: str) -> None:
        self.ledger.use(entry)

    def check(self, kind: Kind) -> Kind:
        """Notes the use of a type."""
        if kind.family != NULL:
            self.use(f"type {kind.name.partition('(')[0]}")
        return kind

    # -- columns and calls

    def _column(self, node: exp.Column, place: Place) -> Value:
        if isinstance(node.this, exp.Star):
            refuse("a star inside an expression is not verified for Spark SQL")
        name = node.name.lower()
        field = place.scope.find(node)
        alias = place.aliases.get(name) if not node.table else None
        if field is not None:
            if alias is not None and place.strict and alias.sql != field.sql:
                refuse(f'"{node.name}" is a column and an alias')
            self.read(field)
            found = field.value()
        elif alias is not None:
            self.use(place.alias_entry)
            found = alias
        else:
            outer = place.scope.find_outer(node)
            if outer is None:
                refuse(f'column "{node.name}" is not found in its scope')
            self.read(outer)
            found = outer.value()
        self.check(found.kind)
        return found

    def _call(self, node: exp.Expr, place: Place) -> Value:
        if isinstance(node, exp.Anonymous):
            found = ANONYMOUS.get(node.name.lower())
            arguments = list(node.expressions)
        else:
            found = FUNCTIONS.get(type(node))
            arguments = []
        if found is None:
            refuse(f"{what(node)} is not verified for Spark SQL")
        if not isinstance(node, exp.Anonymous):
            known = {*found.arguments, *found.ignored, *found.constants}
            for key, given in node.args.items():
                if given and key not in known:
                    refuse(f"{what(node)} with {key} is not verified for Spark SQL")
            arguments = [node.args[key] for key in found.arguments if node.args.get(key)]
        if found.spread:
            arguments += list(node.expressions)
        values = [self.argument(argument, place) for argument in arguments]
        constants = {key: node.text(key) for key in found.constants}
        self.use(f"function {found.name}")
        answer = found.build(values, constants)
        return Value(answer.sql, self.check(answer.kind), answer.constant)

    def argument(self, node: exp.Expr, place: Place) -> Value:
        """An argument; an interval is handed on as DuckDB's text."""
        interval = arithmetic.interval_text(node)
        if interval is not None:
            return Value("", null_value().kind, interval)
        return self.value(node, place)

    # -- comparisons

    def aligned(self, values: list[Value]) -> list[Value]:
        """The values in the kind in which DuckDB compares them."""
        common = common_kind(values)
        if common.family == NULL:
            refuse("a comparison of NULLs is not verified for Spark SQL")
        families = {value.kind.family for value in values} - {NULL}
        if common.family == TEXT and families != {TEXT}:
            refuse("a comparison of a text with something else is not verified for Spark SQL")
        if common.family not in EXACT:
            self.use(f"compare {common.family}")
            return [implicit(value, common) for value in values]
        self.use("compare number")
        values = [v if v.kind.family in EXACT else implicit(v, common) for v in values]
        if all(v.kind.family in WHOLE and "DECIMAL" not in v.kind.spark for v in values):
            return values  # Spark widens whole numbers and loses nothing
        scale = max(value.kind.scale for value in values)
        digits = max(value.kind.width - value.kind.scale for value in values)
        if digits + scale > DECIMAL_DIGITS_MAX:
            refuse("a comparison of more than 38 digits is not verified for Spark SQL")
        target = decimal(digits + scale, scale)
        return [Value(f"CAST({value.sql} AS {target.spark})", target) for value in values]

    def compared(self, sign: str, left: Value, right: Value) -> Value:
        one, two = self.aligned([left, right])
        return Value(f"({one.sql} {sign} {two.sql})", BOOL)

    def unified(self, values: list[Value]) -> tuple[list[Value], Kind]:
        """The values in the one kind that a CASE or COALESCE of them has."""
        common = common_kind(values)
        if common.family == NULL:
            refuse("an expression of NULLs only is not verified for Spark SQL")
        families = {value.kind.family for value in values} - {NULL}
        if common.family == TEXT and families != {TEXT}:
            refuse("a text in one place with something else is not verified for Spark SQL")
        return [implicit(value, common) for value in values], self.check(common)


# -- one function for each node


def _compare(self: Expressions, node: exp.Expr, place: Place) -> Value:
    left, right = node.this, node.args["expression"]
    if isinstance(left, exp.Tuple) or isinstance(right, exp.Tuple):
        return _compare_rows(self, node, place)
    sign = _COMPARISONS[type(node)]
    return self.compared(sign, self.value(left, place), self.value(right, place))


def _compare_rows(self: Expressions, node: exp.Expr, place: Place) -> Value:
    """DuckDB compares rows as structs, in which NULL equals NULL."""
    left, right = node.this, node.args["expression"]
    if not (isinstance(node, exp.EQ) and isinstance(left, exp.Tuple)):
        refuse("a comparison of rows other than = is not verified for Spark SQL")
    if not isinstance(right, exp.Tuple) or len(left.expressions) != len(right.expressions):
        refuse("a comparison of a row with something else is not verified for Spark SQL")
    self.use("operator row =")
    pairs = zip(left.expressions, right.expressions, strict=True)
    equal = [self.compared("<=>", self.value(a, place), self.value(b, place)) for a, b in pairs]
    return Value("(" + " AND ".join(value.sql for value in equal) + ")", BOOL)


def _distinct_from(self: Expressions, node: exp.Expr, place: Place) -> Value:
    self.use("operator distinct from")
    values = self.values([node.this, node.args["expression"]], place)
    same = self.compared("<=>", *values)
    return same if isinstance(node, exp.NullSafeEQ) else Value(f"(NOT {same.sql})", BOOL)


def _logic(self: Expressions, node: exp.Expr, place: Place) -> Value:
    word = "AND" if isinstance(node, exp.And) else "OR"
    self.use(f"operator {word.lower()}")
    left = self.condition(node.this, place)
    right = self.condition(node.args["expression"], place)
    return Value(f"({left.sql} {word} {right.sql})", BOOL)


def _not(self: Expressions, node: exp.Expr, place: Place) -> Value:
    self.use("operator not")
    return Value(f"(NOT {self.condition(node.this, place).sql})", BOOL)


def _is(self: Expressions, node: exp.Expr, place: Place) -> Value:
    asked = node.args["expression"]
    if isinstance(asked, exp.Null):
        self.use("operator is null")
        return Value(f"({self.value(node.this, place).sql} IS NULL)", BOOL)
    if isinstance(asked, exp.Boolean):
        self.use("operator is true")
        truth = "TRUE" if asked.this else "FALSE"
        return Value(f"({self.condition(node.this, place).sql} IS {truth})", BOOL)
    raise NotVerified("IS with something else is not verified for Spark SQL")


def _between(self: Expressions, node: exp.Expr, place: Place) -> Value:
    if node.args.get("symmetric"):
        refuse("BETWEEN SYMMETRIC is not verified for Spark SQL")
    self.use("operator between")
    parts = self.values([node.this, node.args["low"], node.args["high"]], place)
    value, low, high = self.aligned(parts)
    return Value(f"({value.sql} BETWEEN {low.sql} AND {high.sql})", BOOL)


def _in(self: Expressions, node: exp.Expr, place: Place) -> Value:
    if not node.expressions or any(isinstance(i, exp.Tuple) for i in [node.this]):
        refuse("IN over something that is no list is not verified for Spark SQL")
    self.use("operator in list")
    value, *items = self.aligned(self.values([node.this, *node.expressions], place))
    return Value(f"({value.sql} IN ({', '.join(item.sql for item in items)}))", BOOL)


def _like(self: Expressions, node: exp.Expr, place: Place) -> Value:
    """DuckDB's LIKE has no escape sign unless one is given; Spark's always has one."""
    pattern = node.args["expression"]
    value = self.value(node.this, place)
    if value.kind.family != TEXT or not isinstance(pattern, exp.Literal) or not pattern.is_string:
        refuse("LIKE other than of a text and a constant is not verified for Spark SQL")
    text = str(pattern.this)
    escape = next((sign for sign in _ESCAPES if sign not in text), None)
    if escape is None:
        refuse("LIKE with this pattern is not verified for Spark SQL")
    self.use("operator like")
    return Value(f"({value.sql} LIKE {text_literal(text)} ESCAPE {text_literal(escape)})", BOOL)


def _case(self: Expressions, node: exp.Expr, place: Place) -> Value:
    self.use("operator case")
    ifs = node.args["ifs"] if isinstance(node, exp.Case) else [node]
    default = node.args.get("default") if isinstance(node, exp.Case) else node.args.get("false")
    given = node.this if isinstance(node, exp.Case) else None
    conditions = []
    for part in ifs:
        if given is None:
            conditions.append(self.condition(part.this, place))
        else:
            operands = self.values([given, part.this], place)
            conditions.append(self.compared("=", *operands))
    answers = [self.value(part.args["true"], place) for part in ifs]
    last = self.value(default, place) if default is not None else null_value()
    (*answers, last), kind = self.unified([*answers, last])
    pairs = zip(conditions, answers, strict=True)
    whens = " ".join(f"WHEN {c.sql} THEN {a.sql}" for c, a in pairs)
    return Value(f"(CASE {whens} ELSE {last.sql} END)", kind)


def _gather(name: str) -> Callable[[Expressions, exp.Expr, Place], Value]:
    def translate(self: Expressions, node: exp.Expr, place: Place) -> Value:
        self.use(f"operator {name}")
        values, kind = self.unified(self.values([node.this, *node.expressions], place))
        if len(values) == 1:
            return values[0]
        return Value(f"{name}({', '.join(value.sql for value in values)})", kind)

    return translate


def _nullif(self: Expressions, node: exp.Expr, place: Place) -> Value:
    self.use("operator nullif")
    values = self.values([node.this, node.args["expression"]], place)
    if values[0].kind.family == NULL:
        refuse("nullif of NULL is not verified for Spark SQL")
    equal = self.compared("=", *values)
    first = values[0]
    return Value(f"(CASE WHEN {equal.sql} THEN NULL ELSE {first.sql} END)", first.kind)


def _cast(self: Expressions, node: exp.Expr, place: Place) -> Value:
    if type(node) is not exp.Cast or node.args.get("format") or node.args.get("default"):
        refuse(f"{what(node)} is not verified for Spark SQL")
    name = SqlType.parse(node.args["to"].sql(dialect="duckdb")).name
    kind = self.check(kind_named(name, "a cast"))
    return explicit(self.value(node.this, place), kind, self.use)


def _concat_sign(self: Expressions, node: exp.Expr, place: Place) -> Value:
    self.use("operator ||")
    parts = [
        explicit(value, VARCHAR, self.use)
        if value.kind.family != NULL
        else implicit(value, VARCHAR)
        for value in self.values([node.this, node.args["expression"]], place)
    ]
    return Value(f"({parts[0].sql} || {parts[1].sql})", VARCHAR)


def _arithmetic(self: Expressions, node: exp.Expr, place: Place) -> Value:
    left, right = node.this, node.args.get("expression")
    operands = [self.argument(part, place) for part in (left, right) if part is not None]
    entry, answer = arithmetic.BUILDERS[type(node)](operands)
    self.use(f"operator {entry}")
    return Value(answer.sql, self.check(answer.kind))


_NODES: dict[type[exp.Expr], Callable[[Expressions, exp.Expr, Place], Value]] = {
    **dict.fromkeys(_COMPARISONS, _compare),
    **dict.fromkeys(arithmetic.BUILDERS, _arithmetic),
    exp.NullSafeEQ: _distinct_from,
    exp.NullSafeNEQ: _distinct_from,
    exp.And: _logic,
    exp.Or: _logic,
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.Case: _case,
    exp.If: _case,
    exp.Coalesce: _gather("coalesce"),
    exp.Greatest: _gather("greatest"),
    exp.Least: _gather("least"),
    exp.Nullif: _nullif,
    exp.Cast: _cast,
    exp.DPipe: _concat_sign,
}
