"""Where a kept query reads streams, and which of them is answered."""

from __future__ import annotations

import pytest
from kept_kit import OTHER, SNAPSHOT, S, body
from sqlglot import exp

from tidemill.errors import QueryError, UnsupportedError
from tidemill.views.kept.reads import (
    check_reads,
    depends_on,
    leading,
    reads_of,
    reads_others,
    table_names,
    wrapped,
)


def names(text: str) -> list[tuple[str, str | None]]:
    return [(read.table.name, read.function) for read in reads_of(body(text), SNAPSHOT)]


def test_streams_and_their_windows_are_reads() -> None:
    assert names("SELECT * FROM s, RECENT(o, rows => 1) AS x, cars") == [
        ("s", None),
        ("o", "RECENT"),
    ]
    assert names("SELECT k FROM cars WHERE k IN (SELECT k FROM s)") == [("s", None)]


def test_a_with_query_of_that_name_is_no_stream() -> None:
    assert names("WITH s AS (SELECT 1 AS k) SELECT * FROM s") == []
    assert names("WITH s AS (SELECT k FROM s) SELECT * FROM s") == [("s", None)]


def test_a_read_has_a_time_and_a_name() -> None:
    plain, window = reads_of(body("SELECT * FROM s AS x, RECENT(o, rows => 1)"), SNAPSHOT)
    assert (plain.alias, plain.time.name) == ("x", "ts")
    assert (window.alias, window.time.name) == ("o", "ts")


def test_the_stream_in_from_is_the_one_that_is_answered() -> None:
    reads = reads_of(body("SELECT * FROM cars JOIN o ON true, (SELECT * FROM s) AS q"), SNAPSHOT)
    assert leading(reads).table is S
    only_joined = reads_of(body("SELECT * FROM cars JOIN o ON true"), SNAPSHOT)
    assert leading(only_joined).table is OTHER


def test_what_else_a_query_reads() -> None:
    assert reads_others(body("SELECT * FROM s JOIN cars USING (k)"), SNAPSHOT)
    assert not reads_others(body("SELECT * FROM s, o"), SNAPSHOT)
    assert table_names(body("WITH q AS (SELECT * FROM s) SELECT * FROM q")) == {"s", "q"}


def test_dependence_on_a_table() -> None:
    assert depends_on(S, S.table_id, SNAPSHOT)
    assert not depends_on(S, OTHER.table_id, SNAPSHOT)


def test_reads_that_no_slide_can_do() -> None:
    check_reads(reads_of(body("SELECT * FROM s"), SNAPSHOT))
    with pytest.raises(QueryError, match="reads none"):
        check_reads(reads_of(body("SELECT * FROM cars"), SNAPSHOT))
    sessions = "SELECT * FROM SESSION(s, ts, INTERVAL '1' MINUTE)"
    with pytest.raises(UnsupportedError, match="sessions"):
        check_reads(reads_of(body(sessions), SNAPSHOT))


def test_a_read_as_a_subquery_keeps_its_name() -> None:
    (read,) = reads_of(body("SELECT * FROM s AS x"), SNAPSHOT)
    made = wrapped(read, exp.true(), exp.column("k").as_("again"))
    assert made.sql("duckdb") == "(SELECT *, k AS again FROM s WHERE TRUE) AS x"
    (read,) = reads_of(body("SELECT * FROM RECENT(s, rows => 1)"), SNAPSHOT)
    assert wrapped(read, exp.true()).alias == "s"
