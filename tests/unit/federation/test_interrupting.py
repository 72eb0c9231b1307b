"""A request to break a query off is not lost, whenever it comes, and reaches no other query."""

from __future__ import annotations

import threading

import duckdb
import pytest

from tidemill.clock import FakeClock
from tidemill.executions import Executions
from tidemill.federation.interrupting import Interruptible

LONG = "SELECT count(*) FROM range(100000000) a, range(30) b WHERE a.range % 7 = b.range"


def interrupts() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "tidemill-interrupt"]


def test_a_request_before_the_query_begins_is_kept() -> None:
    """DuckDB itself forgets it when the query begins."""
    with duckdb.connect() as cursor, Executions("w", FakeClock(0)).begin(LONG) as execution:

        def run() -> None:
            with Interruptible(cursor):
                execution.cancel()
                cursor.execute(LONG).fetchall()

        with pytest.raises(duckdb.InterruptException):
            run()
        assert not interrupts(), "the thread that repeats the request has ended"
        assert cursor.execute("SELECT 42").fetchall() == [(42,)]


def test_without_a_request_there_is_no_thread() -> None:
    begun = Executions("w", FakeClock(0)).begin("SELECT 1")
    with duckdb.connect() as cursor, begun, Interruptible(cursor):
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
        assert not interrupts()


def test_without_an_execution_nothing_is_broken_off() -> None:
    with duckdb.connect() as cursor, Interruptible(cursor):
        assert cursor.execute("SELECT 1").fetchall() == [(1,)]
