"""Sliding windows: groups inside, rows at the edges; and the edge of the retention."""

from __future__ import annotations

from datetime import timedelta

import pytest
from views_kit import START, agrees, append, make, read, status

from tidemill.clock import FakeClock
from tidemill.engine import Database

WINDOWS = (
    "SELECT k, count(*) AS n, sum(v) AS t FROM RECENT(s, INTERVAL '90' SECOND) GROUP BY k",
    "SELECT k, count(*) AS n FROM s WHERE ts > now() - INTERVAL '70' SECOND GROUP BY k",
    "SELECT k, max(v) AS m FROM s WHERE ts >= now() - '2m'::INTERVAL AND ts < now() GROUP BY k",
    "SELECT k, count(*) AS n FROM s WHERE ts > date_trunc('minute', now()) GROUP BY k",
)


@pytest.mark.parametrize("query", WINDOWS)
def test_a_window_is_right_at_every_second(db: Database, clock: FakeClock, query: str) -> None:
    make(db, query)
    append(db, -200, 200)
    for _ in range(12):
        assert agrees(db, query)
        clock.advance(13)
    append(db, 0, 40)
    assert agrees(db, query)


@pytest.mark.parametrize("query", WINDOWS[:2])
def test_edges_are_read_from_files_too(db: Database, clock: FakeClock, query: str) -> None:
    make(db, query)
    append(db, -200, 200)
    db.sql("FLUSH s")
    for _ in range(4):
        assert agrees(db, query)
        clock.advance(17)


def test_a_window_slides_without_a_new_state(db: Database, clock: FakeClock) -> None:
    make(db, WINDOWS[0])
    append(db, -200, 200)
    read(db)
    before = status(db)["rebuilds"]
    for _ in range(5):
        clock.advance(7)
        read(db)
    assert status(db)["rebuilds"] == before


def test_rows_of_the_future_are_not_shown_yet(db: Database, clock: FakeClock) -> None:
    query = WINDOWS[0]
    make(db, query)
    append(db, 0, 60, START - timedelta(seconds=30))
    assert agrees(db, query)
    clock.advance(40)
    assert agrees(db, query)


def test_the_retention_cuts_panes_too(db: Database, clock: FakeClock) -> None:
    db.sql(
        "CREATE STREAMING TABLE short (ts TIMESTAMP, k INTEGER, v DOUBLE) "
        "WITH (move = 'manual', retention = '1 minute')"
    )
    query = "SELECT k, count(*) AS n FROM RECENT(short, INTERVAL '90' SECOND) GROUP BY k"
    make(db, query)
    append(db, -120, 120, table="short")
    for _ in range(4):
        assert agrees(db, query)
        clock.advance(11)
