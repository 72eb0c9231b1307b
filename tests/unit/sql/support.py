"""Tables for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import duckdb
from sqlglot import exp

from tidemill.sql.calls import Tables
from tidemill.sql.params import Params, check_params, placeholder_key, value_of
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query
from tidemill.sql.windows import Now, Rewritten, rewrite_deferred
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


def bound_values(rewritten: Rewritten, now: Now) -> dict[str, datetime]:
    """The values of a query's windows."""
    return {bound.name: bound.value(now) for bound in rewritten.bounds}


def rewrite(
    query: exp.Expression, tables: Tables, now: Now, params: Params = None
) -> exp.Expression:
    """The query with stream windows as subqueries, and their ends as literals."""
    made = rewrite_deferred(query, tables, params)
    bounds = {bound.name: bound for bound in made.bounds}
    for node in list(made.query.find_all(exp.Placeholder)):
        bound = bounds.get(node.name)
        if bound is not None:
            text = bound.value(now).replace(tzinfo=None).isoformat(sep=" ")
            node.replace(exp.Literal.string(f"{text}+00:00" if bound.has_zone else text))
    return made.query


def to_duckdb(query: exp.Expression, params: Params) -> tuple[exp.Expression, dict[str, object]]:
    """The query with parameters ``$p1``, ``$p2`` …, as DuckDB takes them, and their values."""
    tree = query.copy()
    nodes = list(tree.find_all(exp.Placeholder, exp.Parameter))
    keys = list(dict.fromkeys(placeholder_key(node) for node in nodes))
    check_params(keys, params)
    names = {key: f"p{at}" for at, key in enumerate(keys, 1)}
    for node in nodes:
        node.replace(exp.Placeholder(this=names[placeholder_key(node)]))
    return tree, {name: value_of(key, params) for key, name in names.items()}


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
