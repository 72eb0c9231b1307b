"""Tables for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import duckdb
from sqlglot import exp

from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query
from tidemill.types import Column, SqlType


@dataclass(frozen=True)
class FakeTable:
    name: str
    columns: tuple[Column, ...]
    time_column: str | None


def table(name: str, time_column: str | None, **columns: str) -> FakeTable:
    return FakeTable(
        name,
        tuple(
            Column(key, SqlType.parse(type_), key != time_column) for key, type_ in columns.items()
        ),
        time_column,
    )


def body(text: str) -> exp.Expression:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return statement.body


@lru_cache(maxsize=1)
def _database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def close() -> None:
    if _database.cache_info().currsize:
        _database().close()
        _database.cache_clear()


@contextmanager
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database; every test that opens one is rolled back."""
    connection = _database()
    connection.execute("BEGIN")
    try:
        yield connection
    finally:
        connection.execute("ROLLBACK")
