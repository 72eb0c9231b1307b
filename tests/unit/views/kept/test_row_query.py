"""What EVERY ROW runs: SQL over the windows of the rows that arrived, or a refusal."""

from __future__ import annotations

import pytest
from kept_kit import SNAPSHOT, definition

from tidemill.clock import from_us
from tidemill.errors import UnknownNameError, UnsupportedError
from tidemill.sql.now import NOW
from tidemill.types import Column, SqlType
from tidemill.views.kept.row_query import WINDOWS, RowQuery, arrived_query, row_query

RECENT = "RECENT(s, rows => 3, partition_by => k)"


def query(text: str, answer_time: Column | None = None) -> RowQuery:
    return row_query(definition(text, every_row=True), SNAPSHOT, answer_time)


def test_a_row_by_itself() -> None:
    found = query("SELECT k, v FROM s WHERE v > 1")
    assert found.rows == 1
    assert WINDOWS in found.single
    assert found.tagged is not None
    assert (found.uses_now, found.sides, found.before) == (False, (), ())
    assert found.time.name == "ts"


def test_a_window_of_rows_or_of_time() -> None:
    assert query(f"SELECT k, sum(v) FROM {RECENT} GROUP BY k").rows == 3
    spanned = query("SELECT k, sum(v) FROM RECENT(s, INTERVAL '1' HOUR) GROUP BY k")
    assert spanned.rows is None


def test_now_is_the_time_of_the_row() -> None:
    found = query("SELECT now() AS n, k FROM s")
    assert found.uses_now
    assert found.now(0) == {NOW: from_us(0).replace(tzinfo=found.now(0)[NOW].tzinfo)}  # type: ignore[attr-defined]
    assert query("SELECT k FROM s").now(0) == {}


def test_reference_tables_are_read_where_duckdb_has_them() -> None:
    found = query("SELECT label FROM s JOIN cars ON s.k = cars.k")
    assert 'reference.main."t3" AS cars' in found.single


def test_the_hidden_column_and_whole_rows_show_the_users_columns() -> None:
    assert "_seq" not in query("SELECT k FROM s").single
    found = query("SELECT s FROM s").single
    assert all(f'"{name}"' in found for name in ("ts", "k", "v"))


def test_answers_may_bring_a_time_of_their_own() -> None:
    own = query("SELECT ts, k FROM s", Column("ts", SqlType("TIMESTAMP")))
    assert own.tagged is not None
    assert "COALESCE" in own.tagged
    given = query("SELECT k FROM s")
    assert given.tagged is not None
    assert 'tm_time AS "ts"' in given.tagged


def test_what_cannot_be_tagged_is_asked_row_by_row() -> None:
    assert query(f"SELECT k, v FROM {RECENT} ORDER BY v LIMIT 1").tagged is None


def test_only_the_rows_own_time_is_needed_where_the_query_says_so() -> None:
    assert query("SELECT k FROM s WHERE ts = now() AND v > 1").is_narrow
    assert not query("SELECT k FROM s WHERE ts <= now() AND v > 1").is_narrow


def test_columns_of_the_row_before_are_at_hand() -> None:
    found = query(f"SELECT k, PREV(v) AS p FROM {RECENT}")
    assert [(each.rows, each.column) for each in found.before] == [(1, "v")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT count(*) FROM s", "one row at a time"),
        ("SELECT DISTINCT k FROM s", "one row at a time"),
        ("SELECT k FROM s LIMIT 1", "one row at a time"),
        ("SELECT lag(k) OVER (ORDER BY ts) FROM s", "one row at a time"),
        ("SELECT k FROM TUMBLE(s, ts, INTERVAL '1' HOUR)", "not read row by row"),
        ("SELECT k FROM s JOIN tidemill.tables ON true", "cannot read"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        query(text)


def test_a_table_that_does_not_exist() -> None:
    with pytest.raises(UnknownNameError):
        query("SELECT label FROM s JOIN nothing ON true")


def test_a_window_of_time_without_what_came_later() -> None:
    text = "SELECT k, sum(v) FROM RECENT(s, INTERVAL '1' HOUR) GROUP BY k"
    found = arrived_query(definition(text, every_row=True), SNAPSHOT).sql("duckdb")
    assert "_seq <= $tm_hi" in found
    assert "EXCLUDE (_seq)" in found
