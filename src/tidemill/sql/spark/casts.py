"""Casts: from one kind to another, where Spark's answer is known to be DuckDB's.

The two engines cast a float to an integer by rounding to even and by cutting off, a decimal by
rounding away from zero and by cutting off; so the rounding is written out. Texts are not parsed by
Spark at all: constants are cast by DuckDB while the query is translated.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.sql.spark.kinds import (
    BOOLEAN,
    DATE,
    DECIMAL,
    DOUBLE_DIGITS_MAX,
    EXACT,
    FLOAT,
    HUGE,
    INTEGER,
    NULL,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    UNSIGNED,
    UUID,
    WHOLE,
    Kind,
)
from tidemill.sql.spark.values import NotVerified, Value, constant_value

Use = Callable[[str], None]

# Inputs outside are refused when the query runs: years BC, years past 9999 and infinities.
_RANGES = {
    DATE: ("DATE'0001-01-01'", "DATE'9999-12-31'"),
    TIMESTAMP: (
        "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
        "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
    ),
    TIMESTAMPTZ: ("TIMESTAMP'0001-01-01 00:00:00Z'", "TIMESTAMP'9999-12-31 23:59:59.999999Z'"),
}
OUTSIDE = "tidemill: a value is outside of what is verified for Spark SQL"


def guarded(condition: str, sql: str) -> str:
    """``sql``, or an error where ``condition`` holds: the caller then takes another route."""
    return f"CASE WHEN {condition} THEN raise_error('{OUTSIDE}') ELSE {sql} END"


def in_years(value: Value, sql: str) -> str:
    """``sql`` over a date or time whose year both engines understand alike."""
    low, high = _RANGES[value.kind.family]
    return guarded(f"{value.sql} NOT BETWEEN {low} AND {high}", sql)


def in_ascii(value: Value, sql: str) -> str:
    """``sql`` over a text without letters whose case or width the engines may see differently."""
    return guarded(f"octet_length({value.sql}) <> length({value.sql})", sql)


def implicit(value: Value, kind: Kind) -> Value:
    """A value as another kind where DuckDB casts without being asked."""
    if value.kind == kind:
        return value
    if value.constant is not None:
        return constant_value(f"CAST({value.constant} AS {kind.name})", kind)
    if value.kind.family == NULL or _widens(value.kind, kind):
        return Value(f"CAST({value.sql} AS {kind.spark})", kind)
    raise NotVerified(f"casting {value.kind.name} to {kind.name} is not verified for Spark SQL")


def _widens(source: Kind, target: Kind) -> bool:
    """Whether every value of one kind is in another, or rounds to it in one way only."""
    if source.family in WHOLE and target.family in EXACT:
        return source.width <= target.width - target.scale
    if source.family == DECIMAL and target.family == DECIMAL:
        digits = source.width - source.scale <= target.width - target.scale
        return digits and source.scale <= target.scale
    if source.family in (INTEGER, UNSIGNED) and target.family == FLOAT:
        return target.name == "DOUBLE" or source.family == INTEGER
    if source.family == DECIMAL and target.name == "DOUBLE":
        return source.width <= DOUBLE_DIGITS_MAX
    pair = (source.family, target.family)
    return pair in _WIDER or (source.name, target.name) == ("FLOAT", "DOUBLE")


_WIDER = {(DATE, TIMESTAMP), (DATE, TIMESTAMPTZ), (TIMESTAMP, TIMESTAMPTZ)}


def explicit(value: Value, kind: Kind, use: Use) -> Value:
    """``CAST(value AS kind)``."""
    if value.kind == kind:
        return value
    if value.constant is not None or value.kind.family == NULL:
        return implicit(value, kind)
    sql = _cast_sql(value, kind)
    use(f"cast {value.kind.family} to {kind.family}")
    return Value(sql, kind)


def _cast_sql(value: Value, kind: Kind) -> str:
    source, target, sql = value.kind.family, kind.family, value.sql
    plain = f"CAST({sql} AS {kind.spark})"
    if source == FLOAT and target == INTEGER:
        return f"CAST(rint({sql}) AS {kind.spark})"
    if source == DECIMAL and target == INTEGER:
        return f"CAST(round({sql}, 0) AS {kind.spark})"
    if (source, target) in _PLAIN or _widens(value.kind, kind):
        # Whether a day of a time exists, or a text of it, depends on the year.
        return in_years(value, plain) if (source, target) in _BY_YEAR else plain
    raise NotVerified(f"cast from {value.kind.name} to {kind.name} is not verified for Spark SQL")


_BY_YEAR = {(DATE, TEXT), (TIMESTAMP, TEXT), (TIMESTAMP, DATE), *_WIDER}
# Casts that mean the same in both: overflow is an error in both.
_PLAIN = {
    (INTEGER, INTEGER),
    (INTEGER, DECIMAL),
    (INTEGER, TEXT),
    (INTEGER, BOOLEAN),
    (UNSIGNED, INTEGER),
    (UNSIGNED, TEXT),
    (HUGE, INTEGER),
    (DECIMAL, DECIMAL),
    (DECIMAL, TEXT),
    (BOOLEAN, INTEGER),
    (BOOLEAN, TEXT),
    (DATE, TEXT),
    (TIMESTAMP, TEXT),
    (TIMESTAMP, DATE),
    (TIMESTAMPTZ, TIMESTAMP),
    (UUID, TEXT),
}
