"""DuckDB as we keep it: after a fatal error the instance is made anew, with all it had."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidemill
from tidemill.clock import FakeClock
from tidemill.errors import QueryError
from tidemill.executions import Executions
from tidemill.federation.duck import Duck

NUMBERS = {"tm_numbers": pa.table({"a": [1, 2]})}
THREADS = "SELECT current_setting('threads'), current_setting('TimeZone')"


class Failing:
    """A cursor on which every statement is fatal."""

    def sql(self, *_: Any, **__: Any) -> None:
        raise duckdb.FatalException("FATAL Error: it broke\n\nStack Trace: 0x1")

    execute = sql


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[Duck]:
    made = Duck(tmp_path / "reference.duckdb", 1, 1 << 30)
    made.execute("CREATE TABLE reference.t1 (a INTEGER)")
    made.execute("INSERT INTO reference.t1 VALUES (7)")
    yield made
    made.close()


def break_once(duck: Duck, exact: bool) -> QueryError:
    duck.cursor(), duck.exact_cursor()
    cursors = duck._exact if exact else duck._plain
    cursors._held[threading.get_ident()] = Failing()
    with pytest.raises(QueryError, match="was started again") as caught:
        duck.query("SELECT 1", {}, {}, exact=exact)
    return caught.value


@pytest.mark.parametrize("exact", [False, True])
def test_a_fatal_error_costs_one_statement(duck: Duck, exact: bool) -> None:
    before = duck._connection
    error = break_once(duck, exact)
    assert error.detail == "FATAL Error: it broke"
    for is_exact in (exact, not exact):
        table, _ = duck.query("FROM tm_numbers", {}, NUMBERS, exact=is_exact)
        assert table.num_rows == 2
        table, _ = duck.query("FROM reference.t1", {}, {}, exact=is_exact)
        assert table.to_pylist() == [{"a": 7}]
    assert duck.execute(THREADS) == [(1, "UTC")]
    assert duck._connection is not before


def test_a_statement_for_its_effect(duck: Duck) -> None:
    duck._plain._held[threading.get_ident()] = Failing()
    with pytest.raises(QueryError, match="was started again"):
        duck.execute("SELECT 1")
    assert duck.execute("FROM reference.t1") == [(7,)]


def test_what_cannot_connect_tries_again(duck: Duck, tmp_path: Path) -> None:
    break_once(duck, exact=False)
    path, duck._reference_path = duck._reference_path, tmp_path / "none" / "x.duckdb"
    for _ in range(2):
        with pytest.raises(QueryError):
            duck.execute("SELECT 1")
    duck._reference_path = path
    assert duck.execute("FROM reference.t1") == [(7,)]


def test_other_errors_keep_the_instance(duck: Duck) -> None:
    before = duck._connection
    with pytest.raises(QueryError):
        duck.query("SELECT CAST('x' AS INTEGER)", {}, {})
    duck.execute("SELECT 1")
    assert duck._connection is before


def test_a_broken_cast_connection_is_replaced(tmp_path: Path) -> None:
    with tidemill.open(tmp_path / "w", threads=1) as db:
        db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, u UUID, d INTEGER DEFAULT (abs(-4)))")
        row = {"ts": "2024-01-01", "u": "12345678-0000-0000-0000-000000000000"}
        db.append("s", [row])
        db._writer.targets._casting._held[threading.get_ident()] = Failing()
        db.append("s", [row, row])
        db._writer.targets._casting._held[threading.get_ident()] = Failing()
        with pytest.raises(QueryError):
            db.append("s", [{"ts": "2024-01-01"}])
        db.append("s", [{"ts": "2024-01-01"}])
        assert db.sql("SELECT count(*), sum(d) FROM s").fetchone() == (4, 16)


ENDLESS = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000) b"


def test_a_query_is_broken_off_with_its_execution(duck: Duck) -> None:
    executions = Executions("w", FakeClock())
    with executions.begin(ENDLESS) as execution:
        threading.Timer(0.1, execution.cancel).start()
        with pytest.raises(QueryError, match="the statement was cancelled"):
            duck.query(ENDLESS, {}, {})
        for exact in (False, True):
            with pytest.raises(QueryError, match="cancelled"), duck.lent(exact=exact):
                pytest.fail("the execution was cancelled")
    assert duck.query("SELECT 1", {}, {})[0].num_rows == 1


def test_others_finish_before_the_instance_is_made_anew(duck: Duck) -> None:
    answers: list[int] = []
    with duck._in_use():  # a statement of another thread, still running
        break_once(duck, exact=False)
        later = threading.Thread(target=lambda: answers.append(len(duck.execute("SELECT 1"))))
        before = duck._connection
        later.start()
        assert duck._connection is before
    later.join(timeout=30)
    assert answers == [1]
    assert duck._connection is not before
