"""Followers, by what views say of them: rows are taken in once, however they got to files."""

from __future__ import annotations

from datetime import timedelta

from views_kit import COUNTED, START, agrees, append, make, read, status

from tidemill.clock import FakeClock
from tidemill.engine import Database


def test_rows_are_taken_in_by_the_next_read(db: Database) -> None:
    make(db, COUNTED)
    append(db, 0, 9)
    assert agrees(db, COUNTED)
    assert status(db)["rows_in"] == 9
    append(db, 9, 6)
    assert status(db)["lag_rows"] == 6
    assert agrees(db, COUNTED)
    assert (status(db)["rows_in"], status(db)["lag_rows"]) == (15, 0)


def test_moved_rows_are_not_taken_in_again(db: Database) -> None:
    make(db, COUNTED)
    append(db, 0, 9)
    read(db)
    built = status(db)["rebuilds"]
    db.sql("FLUSH s")
    append(db, 9, 3)
    assert agrees(db, COUNTED)
    assert (status(db)["rows_in"], status(db)["rebuilds"]) == (12, built)


def test_rows_that_were_moved_before_they_were_taken_in_are_there(db: Database) -> None:
    make(db, COUNTED)
    read(db)
    append(db, 0, 9)
    db.sql("FLUSH s")
    append(db, 9, 3)
    assert agrees(db, COUNTED)


def test_a_view_of_rows_that_were_there_before_it(db: Database) -> None:
    append(db, 0, 9)
    db.sql("FLUSH s")
    append(db, 9, 3)
    make(db, COUNTED)
    db.sql("REFRESH MATERIALIZED VIEW v")
    assert agrees(db, COUNTED)
    assert status(db)["history"] == 1.0


def test_loaded_rows_are_taken_in(db: Database, tmp_path: object) -> None:
    make(db, COUNTED)
    append(db, 0, 9)
    read(db)
    path = f"{tmp_path}/rows.parquet"
    db.sql(f"COPY (SELECT ts, k + 10 AS k, v FROM s) TO '{path}' (FORMAT parquet)")
    db.sql(f"COPY s FROM '{path}'")
    assert agrees(db, COUNTED)
    assert len(read(db)) == 6


def test_rows_outside_the_retention_leave_the_state(db: Database, clock: FakeClock) -> None:
    db.sql(
        "CREATE STREAMING TABLE short (ts TIMESTAMP, k INTEGER, v DOUBLE) "
        "WITH (move = 'manual', retention = '1 h')"
    )
    query = COUNTED.replace("FROM s", "FROM short")
    make(db, query)
    append(db, 0, 30, START - timedelta(minutes=59), "short")
    assert len(read(db)) == 3
    clock.advance(60 + 15)
    assert agrees(db, query)
    assert sum(row[1] for row in read(db)) == 15  # that of the horizon itself is still seen
    clock.advance(3_600)
    assert read(db) == []


def test_a_state_that_may_not_be_so_large_is_given_up(db: Database) -> None:
    query = "SELECT v, count(*) AS n FROM s GROUP BY v"
    db.sql(f"CREATE MATERIALIZED VIEW v WITH (memory = '1 MB') AS {query}")
    append(db, 0, 60_000)
    assert len(read(db)) == 60_000
    assert status(db)["state"].startswith("query: more than its memory")
