"""DuckDB as the judge: what columns and types a text gives, over empty tables of the right shape.

The split works on names; only DuckDB knows types. Every part is bound once when a view is made, so
that what cannot run is refused then and not when rows arrive.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

import duckdb

from tidemill.clock import to_us
from tidemill.config import DUCKDB_CLOSED
from tidemill.sql.now import NOW
from tidemill.sql.windows import Bound, NowBounds
from tidemill.types import Column, quote

_MOMENTS = (datetime(2024, 2, 29, 23, 59, 59, 999_999), datetime(2023, 7, 1))
Columns = tuple[tuple[str, str], ...]


_lock = threading.Lock()


@lru_cache(maxsize=1)
def _database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1, **DUCKDB_CLOSED})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


class Binder:
    """A database that is empty but for the tables of one split; one split at a time.

    ``bounds`` are the parameters of windows."""

    def __init__(self, bounds: Iterable[Bound]) -> None:
        self._bounds = tuple(bounds)
        self._created: set[str] = set()

    def __enter__(self) -> Binder:
        _lock.acquire()
        self._connection = _database()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for name in self._created:
                self._connection.execute(f"DROP TABLE {quote(name)}")
        finally:
            _lock.release()

    def create(self, name: str, columns: Columns) -> None:
        """An empty table of that name, in place of an older one."""
        self._created.add(name)
        parts = ", ".join(f"{quote(column)} {kind}" for column, kind in columns)
        self._connection.execute(f"CREATE OR REPLACE TABLE {quote(name)} ({parts})")

    def columns(self, sql: str) -> Columns:
        """The names and types of a query's columns."""
        found = self._connection.sql(sql, params=self._values(sql, _MOMENTS[0]) or None)
        return tuple(zip(found.columns, map(str, found.types), strict=True))

    def moments_us(self, sql: str) -> list[int | None]:
        """A time computed from now, at a few moments; as microseconds since 1970, UTC."""
        query = f"SELECT epoch_us({sql})"
        return [
            self._connection.execute(query, self._values(query, now)).fetchall()[0][0]
            for now in _MOMENTS
        ]

    def _values(self, sql: str, now: datetime) -> dict[str, object]:
        moment = NowBounds(to_us(now), to_us(now))
        values: dict[str, object] = {NOW: now.replace(tzinfo=UTC)}
        values |= {bound.name: bound.value(lambda _: moment) for bound in self._bounds}
        return used_of(self._connection, sql, values)

    @property
    def now_us(self) -> list[int]:
        """The moments of ``moments_us``."""
        return [to_us(moment) for moment in _MOMENTS]


def used_of(
    connection: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, object]
) -> dict[str, object]:
    """The values of those parameters that a text has; DuckDB takes no others."""
    (statement,) = connection.extract_statements(sql)
    return {name: values[name] for name in statement.named_parameters}


def columns_of(columns: Iterable[Column]) -> Columns:
    return tuple((column.name, column.type.name) for column in columns)
