"""DuckDB as the authority on its own rules: the type of an expression, the value of a constant.

Which type ``tiny + 1`` has, what ``'1.5'`` means beside a DECIMAL, what ``DATE '2024-03-01' +
INTERVAL 11 HOUR`` is: nothing of that is written down a second time here. An empty DuckDB is asked,
and what it says of types is remembered, for they depend on nothing but the text.

The DuckDB is one for the process and one thread's at a time. It is not a thread's own: a process
that forks (as pyspark does to start Java) drops what belongs to other threads, in the child, and
DuckDB does not survive being closed there.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import duckdb

from tidemill.config import DUCKDB_CLOSED
from tidemill.types import literal, quote

TYPES_KEPT = 4_096
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Constant:
    """A constant's type and its text, which a cast turns into the same value again."""

    type_name: str
    text: str | None

    @property
    def sql(self) -> str:
        """The constant as DuckDB would read it."""
        if self.text is None:
            return "NULL" if self.type_name == '"NULL"' else f"CAST(NULL AS {self.type_name})"
        return f"CAST({literal(self.text)} AS {self.type_name})"


@dataclass(frozen=True)
class IntervalParts:
    """An INTERVAL as DuckDB adds it: months first, then days, then microseconds."""

    months: int
    days: int
    micros: int


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """The DuckDB that is asked: empty, with the settings of the one that answers queries."""
    connection = duckdb.connect(config={"threads": 1, **DUCKDB_CLOSED})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _ask(query: str, params: list[object] | None = None) -> tuple[Any, ...] | None:
    """One row, or None if the question is an error."""
    try:
        with _LOCK:
            found = _connection().execute(query, params).fetchone()
    except (duckdb.Error, TypeError, OverflowError, ValueError):
        return None
    return tuple(found) if found is not None else None


@lru_cache(maxsize=TYPES_KEPT)
def type_of(expression: str) -> str | None:
    """The type of an expression without columns; None if DuckDB does not accept it."""
    try:
        with _LOCK:
            return str(_connection().sql(f"SELECT {expression}").types[0])
    except duckdb.Error:
        return None


def value_of(expression: str, *, name: str | None = None) -> Constant | None:
    """What a constant expression is; None if it is an error or nothing that Spark knows."""
    typed = name or type_of(expression)
    if typed is None:
        return None
    shown = {
        "TIMESTAMP WITH TIME ZONE": f"timezone('UTC', {expression})",
        "BLOB": f"hex({expression})",
    }
    row = _ask(f"SELECT CAST({shown.get(typed, expression)} AS VARCHAR)")
    return None if row is None else Constant(typed, row[0])


def interval_of(expression: str) -> IntervalParts | None:
    """The parts of a constant of type INTERVAL."""
    if type_of(expression) != "INTERVAL":
        return None
    parts = (
        "datepart('year', i) * 12 + datepart('month', i), datepart('day', i), "
        "(datepart('hour', i) * 60 + datepart('minute', i)) * 60000000 + datepart('microsecond', i)"
    )
    row = _ask(f"SELECT {parts} FROM (SELECT {expression} AS i)")
    return None if row is None or None in row else IntervalParts(*map(int, row))


def parameter_of(value: object) -> Constant | None:
    """A parameter's value with the type that DuckDB gives it."""
    row = _ask("SELECT typeof($1), CAST($1 AS VARCHAR)", [value])
    return None if row is None else Constant(row[0], row[1])


def describe(
    query: str, tables: Mapping[str, Mapping[str, str]]
) -> Sequence[tuple[str, str]] | None:
    """The columns of a query over tables of these columns; None if DuckDB does not accept it."""
    with _LOCK:
        connection = _connection()
        connection.execute("BEGIN")
        try:
            for name, columns in tables.items():
                listed = ", ".join(f"{quote(column)} {kind}" for column, kind in columns.items())
                connection.execute(f"CREATE TEMP TABLE {quote(name)} ({listed})")
            relation = connection.sql(query)
            return list(zip(relation.columns, map(str, relation.types), strict=True))
        except duckdb.Error:
            return None
        finally:
            connection.execute("ROLLBACK")
