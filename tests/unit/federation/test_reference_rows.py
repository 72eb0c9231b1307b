"""Rows of small queries over reference tables: kept while no reference table changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.federation import reference_rows
from tidemill.federation.plan import Plan
from tidemill.federation.planner import make_plan
from tidemill.federation.reference_rows import ReferenceRows
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("rows") / "w"
    with Database(path, Settings(DATABASE_SETTINGS, {"spark_master": "inline"})) as opened:
        opened.sql("CREATE TABLE r (a INT); CREATE STREAMING TABLE s (ts TIMESTAMP, a INT)")
        yield opened


def plan(db: Database, text: str) -> Plan:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return make_plan(statement.body, db.catalog.snapshot())


class Reader:
    """Counts how often rows are read, and at which count of changes."""

    def __init__(self) -> None:
        self.changes = 0
        self.read = 0
        self.rows = ReferenceRows(lambda: self.changes)

    def get(self, plan: Plan, **values: object) -> int:
        def read() -> pa.Table:
            self.read += 1
            return pa.table({"n": [self.read]})

        return int(self.rows.get(plan, values, read).column(0)[0].as_py())


def test_rows_are_kept_until_a_change(db: Database) -> None:
    reader, query = Reader(), plan(db, "SELECT a FROM r")
    assert [reader.get(query) for _ in range(3)] == [1, 1, 1]
    reader.changes = 2
    assert [reader.get(query) for _ in range(2)] == [2, 2]
    reader.changes = 3  # a change is being made
    assert [reader.get(query) for _ in range(2)] == [3, 4]
    reader.changes = 4
    assert [reader.get(query) for _ in range(2)] == [5, 5]


def test_other_values_are_other_rows(db: Database) -> None:
    reader, query = Reader(), plan(db, "SELECT a FROM r WHERE a = $1")
    assert [reader.get(query, x=x) for x in (1, 2, 1, True, 1.0, 1)] == [1, 2, 1, 3, 4, 1]
    assert [reader.get(query, x=[1]) for _ in range(2)] == [5, 6]  # has no hash


@pytest.mark.parametrize("text", ["SELECT a FROM s", "SELECT a FROM r WHERE now() > '2024-01-01'"])
def test_what_moves_by_itself_is_not_kept(db: Database, text: str) -> None:
    reader, query = Reader(), plan(db, text)
    assert [reader.get(query) for _ in range(2)] == [1, 2]


def test_a_change_while_rows_are_read(db: Database) -> None:
    reader, query = Reader(), plan(db, "SELECT a FROM r")

    def read() -> pa.Table:
        reader.changes += 2
        return pa.table({"n": [7]})

    assert reader.rows.get(query, {}, read).num_rows == 1
    assert reader.get(query) == 1  # those rows may be older than the count


def test_bounds(db: Database, monkeypatch: Any) -> None:
    monkeypatch.setattr(reference_rows, "QUERIES_MAX", 2)
    reader, query = Reader(), plan(db, "SELECT a FROM r WHERE a = $1")
    assert [reader.get(query, x=x) for x in (1, 2, 3)] == [1, 2, 3]
    assert [reader.get(query, x=x) for x in (2, 3, 1)] == [2, 3, 4]
    monkeypatch.setattr(reference_rows, "QUERY_BYTES_MAX", 7)
    assert [reader.get(query, x=9) for _ in range(2)] == [5, 6]
