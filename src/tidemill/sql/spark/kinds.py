"""Kinds: DuckDB's column types as Spark SQL holds them, without loss.

A kind is a DuckDB type, the family that rules its behaviour, and the Spark type that stands for
it. Two Spark types are not the ones of the same name: DuckDB's ``TIMESTAMP`` is ``TIMESTAMP_NTZ``,
and its ``TIMESTAMP WITH TIME ZONE`` is ``TIMESTAMP`` in a session whose time zone is UTC. What
Spark lacks lives in the nearest type that holds every value and orders them alike: unsigned
integers in wider signed ones or decimals, UUIDs in their canonical text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidemill.types import quote

BOOLEAN, INTEGER, UNSIGNED, HUGE = "boolean", "integer", "unsigned", "huge"
DECIMAL, FLOAT, TEXT, BLOB, UUID = "decimal", "float", "text", "blob", "uuid"
DATE, TIMESTAMP, TIMESTAMPTZ, NULL = "date", "timestamp", "timestamptz", "null"

WHOLE = frozenset({INTEGER, UNSIGNED, HUGE})
EXACT = WHOLE | {DECIMAL}
TIMES = frozenset({DATE, TIMESTAMP, TIMESTAMPTZ})

DECIMAL_DIGITS_MAX = 38
# A decimal of this many digits is a double without rounding twice, in both engines alike.
DOUBLE_DIGITS_MAX = 15

_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


@dataclass(frozen=True)
class Kind:
    """A DuckDB type, its family, Spark's type for it, and the digits of an exact number."""

    name: str
    family: str
    spark: str
    width: int = 0
    scale: int = 0


_KINDS = {
    kind.name: kind
    for kind in (
        Kind("BOOLEAN", BOOLEAN, "BOOLEAN"),
        Kind("TINYINT", INTEGER, "TINYINT", 3),
        Kind("SMALLINT", INTEGER, "SMALLINT", 5),
        Kind("INTEGER", INTEGER, "INT", 10),
        Kind("BIGINT", INTEGER, "BIGINT", 19),
        Kind("UTINYINT", UNSIGNED, "SMALLINT", 3),
        Kind("USMALLINT", UNSIGNED, "INT", 5),
        Kind("UINTEGER", UNSIGNED, "BIGINT", 10),
        Kind("UBIGINT", UNSIGNED, "DECIMAL(20,0)", 20),
        Kind("HUGEINT", HUGE, "DECIMAL(38,0)", 38),
        Kind("FLOAT", FLOAT, "FLOAT"),
        Kind("DOUBLE", FLOAT, "DOUBLE"),
        Kind("VARCHAR", TEXT, "STRING"),
        Kind("BLOB", BLOB, "BINARY"),
        Kind("UUID", UUID, "STRING"),
        Kind("DATE", DATE, "DATE"),
        Kind("TIMESTAMP", TIMESTAMP, "TIMESTAMP_NTZ"),
        Kind("TIMESTAMP WITH TIME ZONE", TIMESTAMPTZ, "TIMESTAMP"),
        Kind('"NULL"', NULL, "VOID"),
    )
}
BOOL = _KINDS["BOOLEAN"]
BIGINT = _KINDS["BIGINT"]
DOUBLE = _KINDS["DOUBLE"]
VARCHAR = _KINDS["VARCHAR"]
TINYINT = _KINDS["TINYINT"]
DAY = _KINDS["DATE"]
MOMENT = _KINDS["TIMESTAMP"]
MOMENT_TZ = _KINDS["TIMESTAMP WITH TIME ZONE"]
NULL_KIND = _KINDS['"NULL"']


def kind_of(name: str) -> Kind | None:
    """The kind of a DuckDB type by its canonical name; None if Spark SQL is never given it.

    >>> kind_of("UBIGINT").spark, kind_of("DECIMAL(9,2)").scale, kind_of("INTEGER[]")
    ('DECIMAL(20,0)', 2, None)
    """
    found = _KINDS.get(name)
    if found is not None:
        return found
    match = _DECIMAL.fullmatch(name)
    return decimal(int(match[1]), int(match[2])) if match else None


def decimal(width: int, scale: int) -> Kind:
    return Kind(f"DECIMAL({width},{scale})", DECIMAL, f"DECIMAL({width},{scale})", width, scale)


def type_names() -> tuple[str, ...]:
    """The DuckDB types that have a kind, DECIMAL by its bare name."""
    return (*(name for name in _KINDS if name != NULL_KIND.name), "DECIMAL")


def spark_type(name: str) -> str | None:
    """The Spark type of a view's column; None if the column is left out of the view."""
    kind = kind_of(name)
    return kind.spark if kind is not None and kind is not NULL_KIND else None


def given_expression(column: str, type_name: str) -> str:
    """DuckDB's expression for a column as Arrow data that Spark reads as ``spark_type``.

    >>> given_expression("h", "UBIGINT")
    'CAST("h" AS DECIMAL(20,0))'
    """
    kind = kind_of(type_name)
    assert kind is not None, type_name
    if kind.family in (UNSIGNED, HUGE):
        signed = {"INT": "INTEGER"}.get(kind.spark, kind.spark)
        return f"CAST({quote(column)} AS {signed})"
    if kind.family == UUID:
        return f"CAST({quote(column)} AS VARCHAR)"
    return quote(column)


def taken_expression(column: str, type_name: str) -> str:
    """DuckDB's expression for a column of Spark's answer, back in DuckDB's own type."""
    return f"CAST({quote(column)} AS {type_name})"
