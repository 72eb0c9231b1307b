"""Rows for views, and what is known of views."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tidemill.digests.definition import Digest
from tidemill.engine import Database

START = datetime(2024, 5, 1, 10)
COUNTED = "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k"


def append(db: Database, first: int, count: int, at: datetime = START, table: str = "s") -> None:
    """Rows of three keys, one each second."""
    numbers = range(first, first + count)
    db.append(table, [(at + timedelta(seconds=n), n % 3, float(n)) for n in numbers])


def make(db: Database, query: str, name: str = "v") -> None:
    db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def read(db: Database, name: str = "v") -> list[tuple[Any, ...]]:
    return sorted(db.sql(f"SELECT * FROM {name}").fetchall(), key=repr)


def agrees(db: Database, query: str, name: str = "v") -> bool:
    """Whether a view answers what its query answers."""
    return read(db, name) == sorted(db.sql(query).fetchall(), key=repr)


def status(db: Database, name: str = "v") -> dict[str, Any]:
    result = db.sql("SELECT * FROM tidemill.views WHERE view_name = ?", [name])
    (row,) = result.fetchall()
    return dict(zip(result.columns, row, strict=True))


def digests_of(db: Database, stream: str = "s") -> list[Digest]:
    snapshot = db.catalog.snapshot()
    return [Digest.of(each) for each in snapshot.digests_of(snapshot.get(stream).table_id)]
