"""The runner: one look at all tables, the rows that can matter, and an answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from warehouses import open_inline, quiet

from tidemill.clock import FakeClock, to_us
from tidemill.engine import Database
from tidemill.errors import TidemillError, UnsupportedError
from tidemill.federation.plan import Plan
from tidemill.federation.runner import Filled, Runner
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query

NOON = datetime(2024, 5, 1, 12)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Rows of two hours: one in a file, one in memory."""
    path: Path = tmp_path_factory.mktemp("runner") / "w"
    with quiet(), open_inline(path, FakeClock(to_us(NOON))) as opened:
        opened.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, v DOUBLE)")
        opened.sql("CREATE INDEX by_k ON s (k)")
        opened.sql(
            "CREATE STREAMING TABLE short (ts TIMESTAMP, k INTEGER) WITH (retention = '1 h')"
        )
        rows = "SELECT TIMESTAMP '2024-05-01 {}:00' + to_minutes(i), i % 6, i FROM range(60) r(i)"
        opened.sql(f"INSERT INTO s {rows.format(10)}")
        opened.sql("FLUSH s")
        opened.sql(f"INSERT INTO s {rows.format(11)}")
        opened.sql("INSERT INTO short VALUES ('2024-05-01 11:30', 1), ('2024-05-01 11:59', 2)")
        yield opened


@pytest.fixture
def runner(db: Database) -> Runner:
    return db._runner


def plan(db: Database, text: str) -> Plan:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return db._querying.plan(statement, None)


def rows(db: Database, filled: Filled) -> list[list[object]]:
    table, _ = db._runner.run_filled(filled)
    return [list(row.values()) for row in table.to_pylist()]


def test_files_and_memory_are_read_together(db: Database, runner: Runner) -> None:
    filled = runner.fill(plan(db, "SELECT count(*), max(v) FROM s"), None)
    assert rows(db, filled) == [[120, 59.0]]
    assert filled.manner == "DuckDB over hot blocks and files"
    assert filled.history_bytes > 0


def test_files_that_cannot_matter_are_not_read(db: Database, runner: Runner) -> None:
    filled = runner.fill(plan(db, "SELECT count(*) FROM s WHERE ts >= '2024-05-01 11:00'"), None)
    assert rows(db, filled) == [[60]]
    assert filled.manner == "DuckDB over hot blocks"


def test_an_index_selects_the_rows_in_memory(db: Database, runner: Runner) -> None:
    text = "SELECT sum(v) FROM s WHERE k = $1 AND ts >= '2024-05-01 11:00'"
    filled = runner.fill(plan(db, text), [3])
    (chosen,) = filled.selected
    assert chosen.wanted is not None
    assert [condition.column for condition in chosen.wanted.conditions] == ["k"]
    assert rows(db, filled) == [[3 + 9 + 15 + 21 + 27 + 33 + 39 + 45 + 51 + 57]]


def test_a_lookup_is_answered_without_duckdb(db: Database, runner: Runner) -> None:
    text = "SELECT ts, v FROM s WHERE k = 3 AND ts >= '2024-05-01 11:50'"
    filled = runner.fill(plan(db, text), None)
    assert filled.manner == "lookup: few rows, tested without DuckDB"
    assert rows(db, filled) == [
        [datetime(2024, 5, 1, 11, 51), 51.0],
        [datetime(2024, 5, 1, 11, 57), 57.0],
    ]


def test_a_statement_has_one_now(db: Database, runner: Runner) -> None:
    found = runner.run(plan(db, "SELECT now() = now(), now()"), None, to_us(NOON))[0].to_pylist()
    (same, now) = found[0].values()
    assert same
    assert now.replace(tzinfo=None) == NOON


def test_the_retention_hides_rows_as_of_that_now(db: Database, runner: Runner) -> None:
    query = plan(db, "SELECT k FROM short ORDER BY k")
    assert rows(db, runner.fill(query, None)) == [[1], [2]]
    later = to_us(datetime(2024, 5, 1, 12, 45))
    assert rows(db, runner.fill(query, None, later)) == [[2]]


def test_windows_end_at_that_now(db: Database, runner: Runner) -> None:
    query = plan(db, "SELECT count(*) FROM RECENT(s, INTERVAL '10' MINUTE)")
    at = to_us(datetime(2024, 5, 1, 10, 30))
    assert rows(db, runner.fill(query, None, at)) == [[11]]


def test_tables_that_are_named_twice_are_the_same_twice(db: Database, runner: Runner) -> None:
    filled = runner.fill(plan(db, "SELECT (SELECT count(*) FROM s) = count(*) FROM s"), None)
    assert rows(db, filled) == [[True]]


def test_a_large_answer_is_counted_while_it_comes(db: Database, runner: Runner) -> None:
    assert runner.fill(plan(db, "SELECT * FROM s"), None).may_be_large
    assert not runner.fill(plan(db, "SELECT count(*) FROM s"), None).may_be_large


def test_parameters_are_checked(db: Database, runner: Runner) -> None:
    with pytest.raises(TidemillError):
        runner.fill(plan(db, "SELECT * FROM s WHERE k = $1"), None)


def test_the_path_of_a_file_must_be_known(db: Database, runner: Runner) -> None:
    query = plan(db, "SELECT * FROM read_csv((SELECT 'a' || max(k) FROM s))")
    with pytest.raises(UnsupportedError, match="must be a constant"):
        runner.fill(query, None)
