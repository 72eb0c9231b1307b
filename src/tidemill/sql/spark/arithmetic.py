"""Arithmetic: + - * / // % on numbers, and dates and times moved by constants.

Every operator has a function from its operands to the allow-list's entry and the answer. Whole
numbers overflow with an error in both engines (Spark runs in ANSI mode); ``/`` is a division of
doubles in DuckDB, and one by zero is infinite; decimals are widened so that Spark, too, keeps every
digit.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tidemill.sql.spark import oracle
from tidemill.sql.spark.casts import guarded, implicit, in_years
from tidemill.sql.spark.kinds import (
    BIGINT,
    DATE,
    DAY,
    DECIMAL,
    DECIMAL_DIGITS_MAX,
    EXACT,
    FLOAT,
    INTEGER,
    MOMENT,
    MOMENT_TZ,
    TIMES,
    TIMESTAMPTZ,
    Kind,
    decimal,
)
from tidemill.sql.spark.values import NotVerified, Value, asked_kind, refuse

Answer = tuple[str, Value]

MICROS_PER_DAY = 86_400_000_000
DAYS_MAX = 4_000_000


def interval_text(node: exp.Expr) -> str | None:
    """DuckDB's text of a constant interval; None for other nodes."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Interval | exp.Func):
        return None
    if node.find(exp.Column, exp.Query, exp.Placeholder, exp.Star):
        if isinstance(node, exp.Interval):
            refuse("an interval that is no constant is not verified for Spark SQL")
        return None
    text = node.sql(dialect="duckdb")
    return text if oracle.type_of(text) == "INTERVAL" else None


def _is_interval(value: Value) -> bool:
    return value.sql == ""


def parts_of(value: Value) -> oracle.IntervalParts:
    parts = oracle.interval_of(value.constant or "")
    if parts is None:
        refuse(f"the interval {value.constant} is not verified for Spark SQL")
    return parts


def interval_sql(days: int, micros: int) -> str:
    """A literal of days and microseconds, whatever their signs."""
    total = days * MICROS_PER_DAY + micros
    sign, total = ("-" if total < 0 else ""), abs(total)
    days, rest = divmod(total, MICROS_PER_DAY)
    hours, rest = divmod(rest, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds, micros = divmod(rest, 1_000_000)
    text = f"{days} {hours:02}:{minutes:02}:{seconds:02}.{micros:06}"
    return f"INTERVAL {sign}'{text}' DAY TO SECOND"


def _moved(value: Value, by: Value, sign: int) -> Value:
    """A date or time moved by an interval, as a time: months first, then the rest."""
    if value.kind.family not in TIMES:
        refuse(f"adding an interval to {value.kind.name} is not verified for Spark SQL")
    parts = parts_of(by)
    kind = MOMENT_TZ if value.kind.family == TIMESTAMPTZ else MOMENT
    sql = implicit(value, kind).sql
    if parts.months:
        sql = f"({sql} + INTERVAL '{sign * parts.months}' MONTH)"
    if parts.days or parts.micros:
        sql = f"({sql} + {interval_sql(sign * parts.days, sign * parts.micros)})"
    return Value(in_years(value, sql), kind)


def _add(operands: list[Value]) -> Answer:
    left, right = operands
    if _is_interval(left):
        left, right = right, left
    if _is_interval(right):
        return "+ interval", _moved(left, right, 1)
    if left.kind.family == INTEGER and right.kind.family == DATE:
        left, right = right, left
    if left.kind.family == DATE and right.kind.family == INTEGER:
        return "+ days", _day(left, right, "date_add")
    return _numbers("+", left, right)


def _sub(operands: list[Value]) -> Answer:
    left, right = operands
    if _is_interval(right):
        return "- interval", _moved(left, right, -1)
    if left.kind.family == DATE and right.kind.family == INTEGER:
        return "- days", _day(left, right, "date_sub")
    if left.kind.family == DATE and right.kind.family == DATE:
        days = f"CAST(datediff({left.sql}, {right.sql}) AS BIGINT)"
        return "- dates", Value(in_years(left, in_years(right, days)), BIGINT)
    return _numbers("-", left, right)


def _day(day: Value, number: Value, function: str) -> Value:
    moved = in_years(day, f"{function}({day.sql}, CAST({number.sql} AS INT))")
    return Value(guarded(f"{number.sql} NOT BETWEEN -{DAYS_MAX} AND {DAYS_MAX}", moved), DAY)


def _mul(operands: list[Value]) -> Answer:
    return _numbers("*", *operands)


def _numbers(sign: str, left: Value, right: Value) -> Answer:
    if _is_interval(left) or _is_interval(right):
        refuse("arithmetic with intervals is not verified for Spark SQL")
    kind = asked_kind(f"{{}} {sign} {{}}", left, right)
    families = {left.kind.family, right.kind.family}
    if kind.family == INTEGER and families == {INTEGER}:
        one, two = implicit(left, kind), implicit(right, kind)
        return f"{sign} integer", Value(f"({one.sql} {sign} {two.sql})", kind)
    if kind.family == FLOAT:
        one, two = implicit(left, kind), implicit(right, kind)
        return f"{sign} float", Value(f"({one.sql} {sign} {two.sql})", kind)
    if kind.family == DECIMAL and families <= {DECIMAL, INTEGER}:
        one, two = _as_decimal(left), _as_decimal(right)
        _check_digits(sign, one.kind, two.kind)
        sql = f"CAST(({one.sql} {sign} {two.sql}) AS {kind.spark})"
        return f"{sign} decimal", Value(sql, kind)
    raise NotVerified(f"{left.kind.name} {sign} {right.kind.name} is not verified for Spark SQL")


def _as_decimal(value: Value) -> Value:
    return value if value.kind.family == DECIMAL else implicit(value, decimal(value.kind.width, 0))


def _check_digits(sign: str, left: Kind, right: Kind) -> None:
    """Spark gives up digits after the point when the answer has more than 38."""
    whole = max(left.width - left.scale, right.width - right.scale)
    digits = whole + max(left.scale, right.scale) + 1
    if sign == "*":
        digits = left.width + right.width + 1
    if digits > DECIMAL_DIGITS_MAX:
        refuse("decimal arithmetic of more than 38 digits is not verified for Spark SQL")


def _div(operands: list[Value]) -> Answer:
    left, right = operands
    kind = asked_kind("{} / {}", left, right)
    if kind.name != "DOUBLE":
        refuse(f"{left.kind.name} / {right.kind.name} is not verified for Spark SQL")
    one, two = implicit(left, kind), implicit(right, kind)
    by_zero = f"{one.sql} * pow({two.sql}, CAST('-1' AS DOUBLE))"  # keeps the sign of zero
    sql = f"(CASE WHEN {two.sql} = 0 THEN {by_zero} ELSE {one.sql} / {two.sql} END)"
    return "/", Value(sql, kind)


def _whole(entry: str, template: str) -> Callable[[list[Value]], Answer]:
    def build(operands: list[Value]) -> Answer:
        left, right = operands
        kind = asked_kind(f"{{}} {entry} {{}}", left, right)
        if kind.family != INTEGER or {left.kind.family, right.kind.family} != {INTEGER}:
            refuse(f"{left.kind.name} {entry} {right.kind.name} is not verified for Spark SQL")
        one, two = implicit(left, kind), implicit(right, kind)
        sql = template.format(one.sql, two.sql)
        return entry, Value(f"CAST(({sql}) AS {kind.spark})", kind)

    return build


def _neg(operands: list[Value]) -> Answer:
    (value,) = operands
    if value.kind.family not in (EXACT & {INTEGER, DECIMAL}) | {FLOAT}:
        refuse(f"- {value.kind.name} is not verified for Spark SQL")
    kind = asked_kind("-{}", value)
    return "negative", Value(f"CAST((- {value.sql}) AS {kind.spark})", kind)


BUILDERS: dict[type[exp.Expr], Callable[[list[Value]], Answer]] = {
    exp.Add: _add,
    exp.Sub: _sub,
    exp.Mul: _mul,
    exp.Div: _div,
    exp.IntDiv: _whole("//", "{} div {}"),
    exp.Mod: _whole("%", "{} % {}"),
    exp.Neg: _neg,
}
