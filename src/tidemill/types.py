"""Column types: DuckDB's names in SQL, Arrow's layouts in memory, in the log and in files.

The mapping is exact in both directions: DuckDB reads every Arrow type below as the SQL type it
stands for, so a row is decoded once and never loses anything on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa

from tidemill.errors import DefinitionError, did_you_mean

_HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
_UHUGEINT = pa.opaque(pa.binary(16), "uhugeint", "DuckDB")

_ARROW_BY_ID: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "hugeint": _HUGEINT,
    "utinyint": pa.uint8(),
    "usmallint": pa.uint16(),
    "uinteger": pa.uint32(),
    "ubigint": pa.uint64(),
    "uhugeint": _UHUGEINT,
    "float": pa.float32(),
    "double": pa.float64(),
    "varchar": pa.string(),
    "blob": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", tz="UTC"),
    "interval": pa.month_day_nano_interval(),
    "uuid": pa.uuid(),
    "json": pa.json_(),
}

SEQ = "_seq"  # the hidden column of a streaming table: the number of arrival
NESTING_MAX = 50  # Arrow writes and reads no more than 64 levels

TIME_TYPES = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")


@dataclass(frozen=True)
class SqlType:
    """A SQL type by its canonical DuckDB name.

    >>> SqlType.parse("int").name, SqlType.parse("decimal(10, 2)[]").arrow
    ('INTEGER', ListType(list<item: decimal128(10, 2)>))
    """

    name: str

    @classmethod
    def parse(cls, text: str) -> SqlType:
        try:
            duck = duckdb.sqltype(text)
            if _levels(duck) > NESTING_MAX:
                raise DefinitionError(
                    f"a type is nested more than {NESTING_MAX} levels deep",
                    hint="keep deeper values as JSON",
                )
            name = _canonical(duck)
        except (duckdb.Error, KeyError, ValueError) as error:
            known = [*(key.upper() for key in _ARROW_BY_ID), "STRING", "INT", "TEXT", "TIMESTAMPTZ"]
            raise DefinitionError(
                f'type "{text}" does not exist or is not supported',
                hint=did_you_mean(text, known) or "docs/sql.md lists the types",
            ) from error
        return cls(name)

    @cached_property
    def arrow(self) -> pa.DataType:
        return _arrow(duckdb.sqltype(self.name))

    @property
    def is_time(self) -> bool:
        return self.name in TIME_TYPES

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Column:
    """A column: its name, type, whether it may be NULL, and its DEFAULT as SQL text."""

    name: str
    type: SqlType
    nullable: bool = True
    default: str | None = None

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type.arrow, nullable=self.nullable)


def quote(name: str) -> str:
    """An identifier in double quotes, safe for any text.

    >>> print(quote('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string literal in single quotes, safe for any text."""
    return "'" + text.replace("'", "''") + "'"


def _arrow(duck: Any) -> pa.DataType:
    kind = duck.id
    children = dict(duck.children) if kind in _NESTED or kind == "decimal" else {}
    if kind == "decimal":
        return pa.decimal128(children["precision"], children["scale"])
    if kind == "list":
        return pa.list_(_arrow(children["child"]))
    if kind == "array":
        return pa.list_(_arrow(children["child"]), children["size"])
    if kind == "struct":
        return pa.struct([pa.field(name, _arrow(child)) for name, child in duck.children])
    if kind == "map":
        return pa.map_(_arrow(children["key"]), _arrow(children["value"]))
    return _ARROW_BY_ID[_name_of(duck)]


_NESTED = ("list", "array", "struct", "map")


def _levels(duck: Any) -> int:
    """How deep a type is nested, counted no further than to the bound."""
    deepest, rest = 0, [(duck, 0)]
    while rest:
        kind, level = rest.pop()
        deepest = max(deepest, level)
        if kind.id in _NESTED and level <= NESTING_MAX:
            step = 2 if kind.id == "map" else 1
            children = [child for _, child in kind.children if not isinstance(child, int)]
            rest += [(child, level + step) for child in children]
    return deepest


def _name_of(duck: Any) -> str:
    return str(duck).lower() if str(duck).lower() in _ARROW_BY_ID else duck.id


def _canonical(duck: Any) -> str:
    _arrow(duck)  # raises KeyError for a type we do not hold
    return str(duck)
