"""Constant folding: the Python value of a constant expression, without asking DuckDB.

``constant`` answers only when it is sure to agree with DuckDB (in a session whose time zone is
UTC); otherwise ``NOT_CONSTANT``, which costs an optimisation and never an answer.
TIMESTAMP is a datetime without a zone, TIMESTAMPTZ one in UTC, a fixed INTERVAL a timedelta.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from enum import Enum
from fractions import Fraction
from typing import Final
from uuid import UUID

from sqlglot import exp

from tidemill.clock import from_us
from tidemill.sql.intervals import (
    Interval,
    function_unit,
    interval_unit,
    parse_interval,
    unit_interval,
)
from tidemill.sql.params import Params, placeholder_value
from tidemill.sql.tokens import words
from tidemill.types import SqlType


class NotConstant(Enum):
    """The answer when a value is not known for sure before the query runs."""

    NOT_CONSTANT = "not constant"


NOT_CONSTANT: Final = NotConstant.NOT_CONSTANT

_TIMESTAMP = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?"
    r"(Z|[+-]\d{2}(?::?\d{2})?)?)?\s*"
)
_USUAL_LENGTH = len("2024-01-01 00:00:00")
_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_FRACTION = re.compile(r"[+-]?\d{1,18}\.\d{1,18}")
_EXACT = Context(prec=76)
_DOUBLE_EXACT_MAX = 2**53
_DECIMAL_DIGITS_MAX = 38

_INT_BITS = {
    "TINYINT": 8,
    "SMALLINT": 16,
    "INT": 32,
    "BIGINT": 64,
    "INT128": 128,
}
_UINT_BITS = {"UTINYINT": 8, "USMALLINT": 16, "UINT": 32, "UBIGINT": 64, "UINT128": 128}
_PLAIN = (int, float, str, Decimal, date, time, timedelta, bytes, UUID)


def constant(
    node: exp.Expression, params: Params = None, now_us: int | None = None
) -> object | NotConstant:
    """The value of an expression that has one; ``now_us`` is what now() means."""
    try:
        value = _fold(node, params, now_us)
        if isinstance(value, Interval):
            return timedelta(microseconds=value.us) if value.months == 0 else NOT_CONSTANT
        return value
    except (ArithmeticError, ValueError, TypeError):
        return NOT_CONSTANT


def fixed_us(node: exp.Expression, params: Params = None) -> int | None:
    """The microseconds of an interval of fixed length; None for anything else."""
    value = constant(node, params)
    if not isinstance(value, timedelta):
        return None
    return value // timedelta(microseconds=1)


def _fold(node: exp.Expression, params: Params, now_us: int | None) -> object | NotConstant:
    handler = _HANDLERS.get(type(node))
    return handler(node, params, now_us) if handler else NOT_CONSTANT


_Handler = Callable[[exp.Expression, Params, "int | None"], object]


def _literal(node: exp.Expression, params: Params, now_us: int | None) -> object:
    text = str(node.this)
    if node.args.get("is_string"):
        return text
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _boolean(node: exp.Expression, params: Params, now_us: int | None) -> object:
    return bool(node.this)


def _null(node: exp.Expression, params: Params, now_us: int | None) -> object:
    return None


def _inner(node: exp.Expression, params: Params, now_us: int | None) -> object:
    return _fold(node.this, params, now_us)


def _negative(node: exp.Expression, params: Params, now_us: int | None) -> object:
    value = _fold(node.this, params, now_us)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, Interval)):
        return NOT_CONSTANT
    return _EXACT.minus(value) if isinstance(value, Decimal) else -value


def _placeholder(node: exp.Expression, params: Params, now_us: int | None) -> object:
    if params is None:
        return NOT_CONSTANT
    value = placeholder_value(node, params)
    if isinstance(value, timedelta):
        return Interval(0, value // timedelta(microseconds=1))
    return value if value is None or isinstance(value, _PLAIN) else NOT_CONSTANT


def _interval(node: exp.Expression, params: Params, now_us: int | None) -> object:
    assert isinstance(node, exp.Interval)
    unit = interval_unit(node)
    value = _fold(node.this, params, now_us) if node.this is not None else NOT_CONSTANT
    if unit is None:
        return (parse_interval(value) or NOT_CONSTANT) if isinstance(value, str) else NOT_CONSTANT
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    # Within the text DuckDB takes the fraction of any unit, before a unit that of seconds.
    is_taken = node.args.get("fraction_in_string") or unit.upper() in ("SECOND", "SECONDS")
    if isinstance(value, str) and is_taken and _FRACTION.fullmatch(value):
        return unit_interval(Fraction(value), unit) or NOT_CONSTANT
    if isinstance(value, int) and not isinstance(value, bool):
        return unit_interval(value, unit) or NOT_CONSTANT
    return NOT_CONSTANT


def _function(node: exp.Expression, params: Params, now_us: int | None) -> object:
    name, arguments = node.name.upper(), node.expressions
    if name in _NOW and not arguments:
        return _now(node, params, now_us)
    unit = function_unit(name)
    if unit is not None and len(arguments) == 1:
        value = _fold(arguments[0], params, now_us)
        if isinstance(value, int) and not isinstance(value, bool):
            return unit_interval(value, unit) or NOT_CONSTANT
    return NOT_CONSTANT


_NOW = frozenset({"NOW", "GET_CURRENT_TIMESTAMP", "TRANSACTION_TIMESTAMP"})


def _now(node: exp.Expression, params: Params, now_us: int | None) -> object:
    return NOT_CONSTANT if now_us is None else from_us(now_us).replace(tzinfo=UTC)


def _local_now(node: exp.Expression, params: Params, now_us: int | None) -> object:
    return NOT_CONSTANT if now_us is None else from_us(now_us)


def _today(node: exp.Expression, params: Params, now_us: int | None) -> object:
    return NOT_CONSTANT if now_us is None else from_us(now_us).date()


def _sum(node: exp.Expression, params: Params, now_us: int | None) -> object:
    left, right = _fold(node.this, params, now_us), _fold(node.expression, params, now_us)
    if left is NOT_CONSTANT or right is NOT_CONSTANT:
        return NOT_CONSTANT
    sign = 1 if isinstance(node, exp.Add) else -1
    if isinstance(left, Interval) and isinstance(right, date) and sign == 1:
        left, right = right, left
    if isinstance(right, Interval):
        span = right if sign == 1 else -right
        if isinstance(left, Interval):
            return left + span
        return span.after(_at_midnight(left)) if isinstance(left, date) else NOT_CONSTANT
    if type(left) is date and _is_int(right):
        return left + timedelta(days=sign * right)  # type: ignore[operator]
    if isinstance(left, datetime) and isinstance(right, datetime):
        same = (left.tzinfo is None) == (right.tzinfo is None)
        if sign == 1 or not same:
            return NOT_CONSTANT
        return Interval(0, (left - right) // timedelta(microseconds=1))
    if _is_exact(left) and _is_exact(right):
        return _exact(left, right, _EXACT.add if sign == 1 else _EXACT.subtract)
    return NOT_CONSTANT


def _product(node: exp.Expression, params: Params, now_us: int | None) -> object:
    left, right = _fold(node.this, params, now_us), _fold(node.expression, params, now_us)
    if isinstance(right, Interval):
        left, right = right, left
    if isinstance(left, Interval) and _is_int(right):
        return left.times(right)  # type: ignore[arg-type]
    if _is_exact(left) and _is_exact(right):
        return _exact(left, right, _EXACT.multiply)
    return NOT_CONSTANT


def _exact(left: object, right: object, operation: Callable[[Decimal, Decimal], Decimal]) -> object:
    assert isinstance(left, (int, Decimal))
    assert isinstance(right, (int, Decimal))
    result = operation(Decimal(left), Decimal(right))
    if len(result.as_tuple().digits) > _DECIMAL_DIGITS_MAX:
        return NOT_CONSTANT
    return int(result) if isinstance(left, int) and isinstance(right, int) else result


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_exact(value: object) -> bool:
    return _is_int(value) or isinstance(value, Decimal)


def _at_midnight(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


def _truncated(node: exp.Expression, params: Params, now_us: int | None) -> object:
    value = _fold(node.this, params, now_us)
    unit = node.args.get("unit")
    if not isinstance(value, datetime) or unit is None or node.args.get("zone") is not None:
        return NOT_CONSTANT
    return truncate(value, unit.name.upper())


def truncate(moment: datetime, unit: str) -> datetime | NotConstant:
    """date_trunc, for the units that people use."""
    zero: dict[str, dict[str, int]] = {
        "SECOND": {"microsecond": 0},
        "MINUTE": {"microsecond": 0, "second": 0},
        "HOUR": {"microsecond": 0, "second": 0, "minute": 0},
        "DAY": {"microsecond": 0, "second": 0, "minute": 0, "hour": 0},
    }
    if unit in zero:
        return moment.replace(**zero[unit])  # type: ignore[arg-type]
    day = moment.replace(**zero["DAY"])  # type: ignore[arg-type]
    if unit == "WEEK":
        return day - timedelta(days=day.weekday())
    if unit == "MONTH":
        return day.replace(day=1)
    if unit == "YEAR":
        return day.replace(day=1, month=1)
    return NOT_CONSTANT


def _cast(node: exp.Expression, params: Params, now_us: int | None) -> object:
    value = _fold(node.this, params, now_us)
    target = node.args.get("to")
    if value is NOT_CONSTANT or not isinstance(target, exp.DataType) or node.args.get("format"):
        return NOT_CONSTANT
    if value is None:
        return None
    kind = target.this.value if isinstance(target.this, Enum) else ""
    if kind in _INT_BITS or kind in _UINT_BITS:
        return _to_int(value, kind)
    if kind == "DECIMAL":
        return _to_decimal(value, [int(param.name) for param in target.expressions])
    caster = _CASTERS.get(str(kind))
    return caster(value) if caster else NOT_CONSTANT


def _to_int(value: object, kind: str) -> object:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int):
        return NOT_CONSTANT
    number = int(value)
    if kind in _UINT_BITS:
        return number if 0 <= number < 2 ** _UINT_BITS[kind] else NOT_CONSTANT
    limit = 2 ** (_INT_BITS[kind] - 1)
    return number if -limit <= number < limit else NOT_CONSTANT


def _to_decimal(value: object, shape: list[int]) -> object:
    width, scale = shape if len(shape) == 2 else (shape[0], 0) if shape else (18, 3)
    if not _is_exact(value):
        return NOT_CONSTANT
    assert isinstance(value, (int, Decimal))
    number = Decimal(value)
    if abs(number) >= Decimal(10) ** (width - scale):
        return NOT_CONSTANT
    rounded = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    return rounded if rounded == number else NOT_CONSTANT


def _to_double(value: object) -> object:
    if _is_int(value) and abs(value) > _DOUBLE_EXACT_MAX:  # type: ignore[arg-type]
        return NOT_CONSTANT
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return float(value)
    return NOT_CONSTANT


def _to_text(value: object) -> object:
    return value if isinstance(value, str) else NOT_CONSTANT


def _to_bool(value: object) -> object:
    return value if isinstance(value, bool) else NOT_CONSTANT


def _to_timestamp(value: object) -> object:
    if isinstance(value, str):
        moment = parse_timestamp(value)
        # DuckDB drops the offset of a TIMESTAMP in some forms: leave those to it.
        return moment if moment is not None and moment.tzinfo is None else NOT_CONSTANT
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return _at_midnight(value) if isinstance(value, date) else NOT_CONSTANT


def _to_timestamptz(value: object) -> object:
    if isinstance(value, str):
        value = parse_timestamp(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return _at_midnight(value).replace(tzinfo=UTC) if isinstance(value, date) else NOT_CONSTANT


def _to_date(value: object) -> object:
    if isinstance(value, str):
        moment = parse_timestamp(value)
        midnight = moment is not None and ":" not in value
        return moment.date() if moment is not None and midnight else NOT_CONSTANT
    if isinstance(value, datetime):
        return value.astimezone(UTC).date() if value.tzinfo else value.date()
    return value if isinstance(value, date) else NOT_CONSTANT


def _to_interval(value: object) -> object:
    if isinstance(value, str):
        return parse_interval(value) or NOT_CONSTANT
    return value if isinstance(value, Interval) else NOT_CONSTANT


def _to_uuid(value: object) -> object:
    if isinstance(value, UUID):
        return value
    return UUID(value) if isinstance(value, str) and len(value) == 36 else NOT_CONSTANT


def parse_timestamp(text: str) -> datetime | None:
    """The usual ISO forms, with or without time and offset; None for anything unusual."""
    if len(text) == _USUAL_LENGTH and text[4:17:3] == "-- ::":
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass  # what is wrong with it is found below
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0").ljust(6, "0")),
        )
    except ValueError:
        return None
    if zone is None:
        return moment
    if zone == "Z":
        return moment.replace(tzinfo=UTC)
    hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
    offset = timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1)
    try:
        return (moment - offset).replace(tzinfo=UTC)
    except OverflowError:
        return None


def comparable(value: object, type_: SqlType) -> object | NotConstant:
    """The value as one of the column's own domain, when comparing it so is what DuckDB does.

    A text next to a TIMESTAMP column is a timestamp, a whole number next to a DOUBLE a float;
    what would make DuckDB cast the column instead is NOT_CONSTANT.
    """
    if value is None or value is NOT_CONSTANT:
        return value
    try:
        return _comparable(value, type_.name)
    except (ArithmeticError, ValueError, TypeError):
        return NOT_CONSTANT


def _comparable(value: object, name: str) -> object:
    if name in INTEGER_TYPES:
        if isinstance(value, str):
            return int(value) if _INTEGER.fullmatch(value) else NOT_CONSTANT
        if isinstance(value, Decimal):
            return int(value) if value == value.to_integral_value() else value
        return value if _is_int(value) else NOT_CONSTANT
    if name in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "DATE", "DOUBLE", "BOOLEAN", "UUID"):
        if name == "DATE" and isinstance(value, datetime):
            return NOT_CONSTANT
        if name == "DOUBLE" and isinstance(value, Decimal):
            return NOT_CONSTANT
        return _CASTERS[_KIND_OF[name]](value)
    if name == "VARCHAR":
        return _to_text(value)
    if name.startswith("DECIMAL"):
        return value if _is_exact(value) else NOT_CONSTANT
    return NOT_CONSTANT


INTEGER_TYPES = words(
    "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT"
)
_KIND_OF = {
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
    "DATE": "DATE",
    "DOUBLE": "DOUBLE",
    "BOOLEAN": "BOOLEAN",
    "UUID": "UUID",
}
_CASTERS: Mapping[str, Callable[[object], object]] = {
    "TIMESTAMP": _to_timestamp,
    "TIMESTAMPNTZ": _to_timestamp,
    "DATETIME": _to_timestamp,
    "TIMESTAMPTZ": _to_timestamptz,
    "DATE": _to_date,
    "DOUBLE": _to_double,
    "BOOLEAN": _to_bool,
    "VARCHAR": _to_text,
    "TEXT": _to_text,
    "INTERVAL": _to_interval,
    "UUID": _to_uuid,
}
_HANDLERS: Mapping[type[exp.Expression], _Handler] = {
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Paren: _inner,
    exp.Neg: _negative,
    exp.Placeholder: _placeholder,
    exp.Parameter: _placeholder,
    exp.Interval: _interval,
    exp.Anonymous: _function,
    exp.CurrentTimestamp: _now,
    exp.Localtimestamp: _local_now,
    exp.CurrentDate: _today,
    exp.Add: _sum,
    exp.Sub: _sum,
    exp.Mul: _product,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.TimestampTrunc: _truncated,
    exp.DateTrunc: _truncated,
}
