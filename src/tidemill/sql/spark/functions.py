"""Functions: each DuckDB function that is on the list, as Spark SQL that means the same.

A function here is its name on the list, the arguments that it takes from its node, and the text it
becomes. Where the engines differ on some inputs only (letters beyond ASCII, years beyond 9999),
those inputs raise an error in Spark, and the query takes another route.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from tidemill.sql.spark import oracle
from tidemill.sql.spark.arithmetic import MICROS_PER_DAY, parts_of
from tidemill.sql.spark.casts import implicit, in_ascii, in_years
from tidemill.sql.spark.kinds import (
    BIGINT,
    BOOL,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INTEGER,
    NULL,
    TEXT,
    TIMES,
    TIMESTAMP,
    TIMESTAMPTZ,
    TINYINT,
    VARCHAR,
    Kind,
)
from tidemill.sql.spark.values import Value, asked_kind, refuse

Build = Callable[[list[Value], Mapping[str, str]], Value]

# From here on every double is a whole number; below, Spark's BIGINT holds its whole part.
_WHOLE_FROM = 2**52
_SPLITS_MAX = 1_000_000
_UNITS = frozenset(
    [
        "MICROSECOND",
        "MILLISECOND",
        "SECOND",
        "MINUTE",
        "HOUR",
        "DAY",
        "WEEK",
        "MONTH",
        "QUARTER",
        "YEAR",
    ]
)
_MONDAY_US = 946_857_600_000_000  # 2000-01-03, where DuckDB's buckets begin


@dataclass(frozen=True)
class Function:
    """A listed function: which arguments of its node it takes, in order, and how it is built."""

    name: str
    build: Build
    arguments: tuple[str, ...] = ("this",)
    constants: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    spread: bool = False


def _need(value: Value, *families: str) -> Value:
    if value.kind.family not in families:
        refuse(f"a function of {value.kind.name} is not verified for Spark SQL")
    return value


def _texts(values: list[Value]) -> list[Value]:
    return [implicit(v, VARCHAR) if v.kind.family == NULL else _need(v, TEXT) for v in values]


def _number(value: Value, low: int, high: int) -> int:
    """A constant whole number between bounds."""
    try:
        number = int(value.constant or "")
    except ValueError:
        refuse("an argument that is no constant is not verified for Spark SQL")
    if not low <= number <= high:
        refuse(f"the argument {number} is not verified for Spark SQL")
    return number


# -- texts


def _text(template: str, kind: Kind = VARCHAR, *, ascii_only: bool = False) -> Build:
    def build(values: list[Value], _: Mapping[str, str]) -> Value:
        texts = _texts(values)
        sql = template.format(*(text.sql for text in texts))
        return Value(in_ascii(texts[0], sql) if ascii_only else sql, kind)

    return build


def _trim(values: list[Value], constants: Mapping[str, str]) -> Value:
    (text,) = _texts(values)
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(constants["position"].upper(), "trim")
    return Value(in_ascii(text, f"{name}({text.sql})"), VARCHAR)


def _substring(values: list[Value], _: Mapping[str, str]) -> Value:
    (text,) = _texts(values[:1])
    start = _number(values[1], 1, _SPLITS_MAX)
    if len(values) == 2:
        return Value(f"substring({text.sql}, {start})", VARCHAR)
    return Value(f"substring({text.sql}, {start}, {_number(values[2], 0, _SPLITS_MAX)})", VARCHAR)


def _side(name: str) -> Build:
    def build(values: list[Value], _: Mapping[str, str]) -> Value:
        (text,) = _texts(values[:1])
        return Value(f"{name}({text.sql}, {_number(values[1], 0, _SPLITS_MAX)})", VARCHAR)

    return build


def _split_part(values: list[Value], _: Mapping[str, str]) -> Value:
    text, delimiter = _texts(values[:2])
    if delimiter.constant in (None, "''"):
        refuse("split_part without a constant delimiter is not verified for Spark SQL")
    part = _number(values[2], 1, _SPLITS_MAX)
    return Value(f"split_part({text.sql}, {delimiter.sql}, {part})", VARCHAR)


def _concat(values: list[Value], _: Mapping[str, str]) -> Value:
    texts = ", ".join(text.sql for text in _texts(values))
    return Value(f"concat_ws('', {texts})", VARCHAR)


# -- numbers


def _abs(values: list[Value], _: Mapping[str, str]) -> Value:
    value = _need(values[0], INTEGER, DECIMAL, FLOAT)
    return Value(f"abs({value.sql})", value.kind)


def _sign(values: list[Value], _: Mapping[str, str]) -> Value:
    value = _need(values[0], INTEGER, DECIMAL)
    return Value(f"CAST(signum({value.sql}) AS TINYINT)", TINYINT)


def _whole_part(name: str) -> Build:
    def build(values: list[Value], _: Mapping[str, str]) -> Value:
        value = _need(values[0], INTEGER, DECIMAL, FLOAT)
        kind = asked_kind(f"{name}({{}})", value)
        if value.kind.family == FLOAT:
            part = f"CAST({name}({value.sql}) AS {kind.spark})"
            sql = f"(CASE WHEN abs({value.sql}) < {_WHOLE_FROM} THEN {part} ELSE {value.sql} END)"
            return Value(sql, kind)
        return Value(f"CAST({name}({value.sql}) AS {kind.spark})", kind)

    return build


def _round(values: list[Value], _: Mapping[str, str]) -> Value:
    value = _need(values[0], INTEGER, DECIMAL, FLOAT)
    digits = _number(values[1], 0, 38) if len(values) > 1 else 0
    if value.kind.family != DECIMAL and len(values) > 1:
        refuse("round to a number of digits other than of decimals is not verified for Spark SQL")
    kind = asked_kind(f"round({{}}, {digits})" if len(values) > 1 else "round({})", value)
    return Value(f"CAST(round({value.sql}, {digits}) AS {kind.spark})", kind)


def _sqrt(values: list[Value], _: Mapping[str, str]) -> Value:
    value = implicit(_need(values[0], INTEGER, DECIMAL, FLOAT), DOUBLE)
    return Value(f"sqrt({value.sql})", DOUBLE)


def _isnan(values: list[Value], _: Mapping[str, str]) -> Value:
    value = _need(values[0], FLOAT)
    return Value(f"(CASE WHEN {value.sql} IS NOT NULL THEN isnan({value.sql}) END)", BOOL)


# -- dates and times


def _zoned(value: Value) -> str:
    """A date or time as Spark's TIMESTAMP; the session's zone is UTC, so no hour moves."""
    return value.sql if value.kind.family == TIMESTAMPTZ else f"CAST({value.sql} AS TIMESTAMP)"


def _micros(value: Value) -> str:
    return f"unix_micros({_zoned(value)})"


def _unzoned(sql: str, kind: Kind) -> str:
    return sql if kind.family == TIMESTAMPTZ else f"CAST({sql} AS {kind.spark})"


def _date_trunc(values: list[Value], constants: Mapping[str, str]) -> Value:
    value = _need(values[0], *TIMES)
    unit = constants["unit"].upper()
    if unit not in _UNITS:
        refuse(f"date_trunc by {unit.lower()} is not verified for Spark SQL")
    kind = asked_kind(f"date_trunc('{unit}', {{}})", value)
    sql = _unzoned(f"date_trunc('{unit}', {_zoned(value)})", kind)
    return Value(in_years(value, sql), kind)


def _part(template: str, *families: str, kind: Kind = BIGINT) -> Build:
    def build(values: list[Value], _: Mapping[str, str]) -> Value:
        value = _need(values[0], *(families or TIMES))
        sql = template.format(value.sql, micros=_micros(value))
        return Value(in_years(value, f"CAST({sql} AS {kind.spark})"), kind)

    return build


_CLOCK = (TIMESTAMP, TIMESTAMPTZ)
_PARTS: dict[str, Build] = {
    "year": _part("year({})"),
    "month": _part("month({})"),
    "day": _part("day({})"),
    "hour": _part("hour({})", *_CLOCK),
    "minute": _part("minute({})", *_CLOCK),
    "second": _part("second({})", *_CLOCK),
    "quarter": _part("quarter({})"),
    "week": _part("weekofyear({})"),
    "dow": _part("(dayofweek({}) - 1)"),
    "isodow": _part("(weekday({}) + 1)"),
    "doy": _part("dayofyear({})"),
    "epoch": _part("(CAST({micros} AS DOUBLE) / 1000000)", DATE, TIMESTAMP, kind=DOUBLE),
}
_SYNONYMS = {"dayofweek": "dow", "weekofyear": "week", "dayofyear": "doy", "dayofmonth": "day"}


def _extract(values: list[Value], constants: Mapping[str, str]) -> Value:
    name = constants["this"].lower()
    build = _PARTS.get(_SYNONYMS.get(name, name))
    if build is None:
        refuse(f"extract({name}) is not verified for Spark SQL")
    return build(values, constants)


def _date_diff(values: list[Value], constants: Mapping[str, str]) -> Value:
    """How many borders of a unit lie between two times."""
    end, start = (_need(value, *TIMES) for value in values)
    if end.kind != start.kind:
        refuse("date_diff of two types is not verified for Spark SQL")
    unit = constants["unit"].upper()
    if unit == "DAY":
        sql = f"datediff({_day(end)}, {_day(start)})"
    elif unit == "MONTH":
        sql = f"(year({end.sql}) - year({start.sql})) * 12 + month({end.sql}) - month({start.sql})"
    elif unit == "YEAR":
        sql = f"year({end.sql}) - year({start.sql})"
    elif unit in _SECONDS and end.kind.family != DATE:
        # Microseconds since 0001-01-01, so that cutting off is rounding down.
        size = _SECONDS[unit] * 1_000_000
        shift = 719_162 * MICROS_PER_DAY
        sql = f"({_micros(end)} + {shift}) div {size} - ({_micros(start)} + {shift}) div {size}"
    else:
        refuse(f"date_diff by {unit.lower()} is not verified for Spark SQL")
    return Value(in_years(end, in_years(start, f"CAST({sql} AS BIGINT)")), BIGINT)


_SECONDS = {"HOUR": 3_600, "MINUTE": 60, "SECOND": 1}


def _day(value: Value) -> str:
    return value.sql if value.kind.family == DATE else f"CAST({value.sql} AS DATE)"


def _time_bucket(values: list[Value], _: Mapping[str, str]) -> Value:
    """The multiple of a width, since an origin, at or before a time."""
    width, value = values[0], _need(values[1], TIMESTAMP, TIMESTAMPTZ)
    parts = parts_of(width)
    size = parts.days * MICROS_PER_DAY + parts.micros
    if parts.months or size <= 0:
        refuse("time_bucket by months is not verified for Spark SQL")
    origin = str(_MONDAY_US)
    if len(values) > 2:
        found = oracle.value_of(f"epoch_us({values[2].constant})") if values[2].constant else None
        if found is None or found.text is None:
            refuse("time_bucket from an origin that is no constant is not verified for Spark SQL")
        origin = found.text
    micros = _micros(value)
    sql = f"timestamp_micros({micros} - pmod({micros} - ({origin}), {size}))"
    return Value(in_years(value, _unzoned(sql, value.kind)), value.kind)


def _epoch_us(values: list[Value], _: Mapping[str, str]) -> Value:
    value = _need(values[0], TIMESTAMP, TIMESTAMPTZ)
    return Value(in_years(value, _micros(value)), BIGINT)


_CONTAINS = _text("contains({}, {})", BOOL)
_TWO = ("this", "expression")

FUNCTIONS: dict[type[exp.Expr], Function] = {
    exp.Abs: Function("abs", _abs),
    exp.Sign: Function("sign", _sign),
    exp.Ceil: Function("ceil", _whole_part("ceil")),
    exp.Floor: Function("floor", _whole_part("floor")),
    exp.Round: Function("round", _round, ("this", "decimals")),
    exp.Sqrt: Function("sqrt", _sqrt),
    exp.IsNan: Function("isnan", _isnan),
    exp.Lower: Function("lower", _text("lower({})", ascii_only=True)),
    exp.Upper: Function("upper", _text("upper({})", ascii_only=True)),
    exp.Length: Function("length", _text("CAST(length({}) AS BIGINT)", BIGINT)),
    exp.Trim: Function("trim", _trim, constants=("position",)),
    exp.Substring: Function("substring", _substring, ("this", "start", "length")),
    exp.Left: Function("left", _side("left"), _TWO),
    exp.Right: Function("right", _side("right"), _TWO),
    exp.Replace: Function("replace", _text("replace({}, {}, {})"), (*_TWO, "replacement")),
    exp.StartsWith: Function("starts_with", _text("startswith({}, {})", BOOL), _TWO),
    exp.EndsWith: Function("ends_with", _text("endswith({}, {})", BOOL), _TWO),
    exp.Contains: Function("contains", _CONTAINS, _TWO),
    exp.StrPosition: Function(
        "instr", _text("CAST(instr({}, {}) AS BIGINT)", BIGINT), ("this", "substr")
    ),
    exp.SplitPart: Function("split_part", _split_part, ("this", "delimiter", "part_index")),
    exp.Concat: Function(
        "concat", _concat, (), ignored=("safe", "coalesce", "expressions"), spread=True
    ),
    exp.MD5: Function("md5", _text("md5(CAST({} AS BINARY))")),
    exp.SHA2: Function("sha256", _text("sha2(CAST({} AS BINARY), 256)"), constants=("length",)),
    exp.TimestampTrunc: Function("date_trunc", _date_trunc, constants=("unit",)),
    exp.DateTrunc: Function(
        "date_trunc", _date_trunc, constants=("unit",), ignored=("unabbreviate",)
    ),
    exp.Extract: Function("extract", _extract, ("expression",), constants=("this",)),
    exp.Year: Function("year", _PARTS["year"]),
    exp.Month: Function("month", _PARTS["month"]),
    exp.Day: Function("day", _PARTS["day"]),
    exp.DayOfMonth: Function("day", _PARTS["day"]),
    exp.Hour: Function("hour", _PARTS["hour"]),
    exp.Minute: Function("minute", _PARTS["minute"]),
    exp.Second: Function("second", _PARTS["second"]),
    exp.Quarter: Function("quarter", _PARTS["quarter"]),
    exp.Week: Function("week", _PARTS["week"]),
    exp.WeekOfYear: Function("week", _PARTS["week"]),
    exp.DayOfWeek: Function("dow", _PARTS["dow"]),
    exp.DayOfWeekIso: Function("isodow", _PARTS["isodow"]),
    exp.DayOfYear: Function("doy", _PARTS["doy"]),
    exp.TimeToUnix: Function("epoch", _PARTS["epoch"]),
    exp.DateDiff: Function(
        "date_diff", _date_diff, _TWO, constants=("unit",), ignored=("date_part_boundary",)
    ),
    exp.DateBin: Function("time_bucket", _time_bucket, (*_TWO, "unit")),
}
ANONYMOUS: dict[str, Function] = {
    "epoch_us": Function("epoch_us", _epoch_us),
    "time_bucket": Function("time_bucket", _time_bucket),
    "prefix": FUNCTIONS[exp.StartsWith],
    "suffix": FUNCTIONS[exp.EndsWith],
}
