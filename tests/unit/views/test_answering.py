"""Answers: served again while nothing changed, made anew when anything did."""

from __future__ import annotations

import pytest
from views_kit import COUNTED, agrees, append, make, read, status

from tidemill.clock import FakeClock
from tidemill.engine import Database
from tidemill.errors import ViewFailedError


def counts(db: Database) -> tuple[int, int]:
    """Answers that were made, and those that were served again."""
    found = status(db)
    return found["refreshes"], found["served"]


def test_an_answer_is_served_until_a_row_comes(db: Database) -> None:
    make(db, COUNTED)
    append(db, 0, 9)
    made, served = counts(db)
    for _ in range(3):
        read(db)
    assert counts(db) == (made + 1, served + 2)
    append(db, 9, 1)
    read(db)
    assert counts(db) == (made + 2, served + 2)


def test_a_change_of_a_reference_table_makes_another(db: Database) -> None:
    query = "SELECT label, sum(v) AS t FROM s JOIN r USING (k) GROUP BY label"
    make(db, query)
    append(db, 0, 9)
    read(db)
    db.sql("UPDATE r SET label = 'zero' WHERE k = 0")
    assert agrees(db, query)
    assert {row[0] for row in read(db)} == {"zero", "one"}


def test_now_makes_another_only_where_it_matters(db: Database, clock: FakeClock) -> None:
    make(db, COUNTED)
    append(db, 0, 9)
    read(db)
    made = counts(db)[0]
    clock.advance(3_600)
    read(db)
    assert counts(db)[0] == made
    make(db, "SELECT count(*) AS n FROM s WHERE ts <= now()", "w")
    read(db, "w")
    made = status(db, "w")["refreshes"]
    clock.advance(1)
    read(db, "w")
    assert status(db, "w")["refreshes"] == made + 1


def test_a_day_that_ends_makes_another(db: Database, clock: FakeClock) -> None:
    query = "SELECT count(*) AS n FROM s WHERE ts >= date_trunc('day', now())"
    make(db, query)
    append(db, 0, 9)
    assert read(db) == [(9,)]
    made = counts(db)[0]
    clock.advance(1)
    read(db)
    assert counts(db)[0] == made
    clock.advance(86_400)
    assert read(db) == [(0,)]


def test_views_beside_streams_are_of_one_moment(db: Database) -> None:
    make(db, "SELECT count(*) AS n FROM s")
    append(db, 0, 9)
    for count in range(9, 12):
        (row,) = db.sql("SELECT n, (SELECT count(*) FROM s) FROM v").fetchall()
        assert row == (count, count)
        append(db, count, 1)


def test_a_view_of_a_view(db: Database) -> None:
    make(db, COUNTED)
    make(db, "SELECT max(n) AS most FROM v", "w")
    append(db, 0, 10)
    assert read(db, "w") == [(4,)]
    assert db.sql("SELECT v.n FROM v, w WHERE v.n = w.most").fetchall() == [(4,)]


def test_names_that_the_view_gives(db: Database) -> None:
    db.sql("CREATE MATERIALIZED VIEW v (key, rows_) AS SELECT k, count(*) FROM s GROUP BY k")
    append(db, 0, 3)
    assert db.sql("SELECT * FROM v").columns == ["key", "rows_"]


def test_a_query_that_fails_on_its_rows_says_so_and_goes_on_after(db: Database) -> None:
    make(db, "SELECT k, sum(CAST(v AS TINYINT)) AS t FROM s GROUP BY k")
    append(db, 0, 3)
    read(db)
    append(db, 1_000, 1)
    with pytest.raises(ViewFailedError, match='view "v" failed'):
        read(db)
    assert "failed" in status(db)["state"] or status(db)["last_error"]
