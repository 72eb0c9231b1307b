"""What tidemill.views and EXPLAIN tell of views."""

from __future__ import annotations

from datetime import datetime

from views_kit import COUNTED, START, append, make, read, status

from tidemill.clock import FakeClock
from tidemill.engine import Database


def test_a_view_without_rows(db: Database) -> None:
    make(db, COUNTED)
    found = status(db)
    assert (found["kind"], found["streams"]) == ("view", ["s"])
    assert (found["groups"], found["rows_in"], found["rows_out"]) == (0, 0, 0)
    assert (found["newest"], found["lag"], found["insert_ns_row"]) == (None, None, None)
    assert found["definition"] == COUNTED
    assert (found["history"], found["history_from"]) == (1.0, None)


def test_a_view_that_was_read(db: Database, clock: FakeClock) -> None:
    make(db, COUNTED)
    append(db, 0, 9)
    read(db)
    clock.advance(60)
    found = status(db)
    assert (found["groups"], found["rows_in"], found["rows_out"]) == (3, 9, 3)
    assert found["state"].startswith("dense")
    assert found["state_bytes"] > 0
    assert found["newest"] == datetime(2024, 5, 1, 10, 0, 8)
    assert found["lag"].total_seconds() == 52
    assert found["refresh_ms"] > 0
    assert found["last_error"] is None


def test_a_view_that_its_query_answers_says_why(db: Database) -> None:
    make(db, "SELECT sum(v * r.k) AS t FROM s JOIN r USING (k)")
    assert status(db)["state"].startswith("query: ")


def test_a_kept_query_stands_beside_views(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE q AS SELECT k, v FROM s WHERE v > 1 EVERY ROW")
    found = status(db, "q")
    assert (found["kind"], found["state"], found["streams"]) == ("kept", "EVERY ROW", ["s"])
    assert found["definition"] == "SELECT k, v FROM s WHERE v > 1"


def explained(db: Database, name: str = "v") -> str:
    return "\n".join(str(row[0]) for row in db.sql(f"EXPLAIN MATERIALIZED VIEW {name}").fetchall())


def test_explain_shows_the_split_and_what_is_joined(db: Database) -> None:
    make(db, "SELECT label, sum(v) AS t FROM s JOIN r USING (k) GROUP BY label")
    text = explained(db)
    assert 'view "v": ' in text
    assert 'reference table "r" is joined when the view is read' in text


def test_creation_has_a_time(db: Database) -> None:
    make(db, COUNTED)
    assert status(db)["created_at"].replace(tzinfo=None) == START
