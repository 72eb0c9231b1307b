"""For how long an answer holds that depends on now()."""

from __future__ import annotations

from datetime import datetime

import pytest
from catalog_tables import reference, snapshot_of, stream

from tidemill.clock import to_us
from tidemill.engine import Database
from tidemill.sql.maintain import ViewParts, split_view
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query
from tidemill.views.moments import AHEAD_US, SECOND_US, Moments

SNAPSHOT = snapshot_of(
    stream(1, "s", {"ts": "TIMESTAMP", "k": "INTEGER", "v": "DOUBLE"}),
    reference(2, "r", {"k": "INTEGER"}),
)
NOON = to_us(datetime(2024, 5, 1, 12))


def parts(text: str) -> ViewParts:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return split_view(statement.body, SNAPSHOT.find)


def counted(condition: str) -> Moments:
    return Moments.of(parts(f"SELECT k, count(*) FROM s WHERE {condition} GROUP BY k"))


def test_without_now_an_answer_holds_for_good(db: Database) -> None:
    moments = counted("v > 1")
    assert moments.steps == ()
    assert moments.until(db._duck, NOON, slides=False) is None


@pytest.mark.parametrize(
    "condition",
    [
        "ts >= date_trunc('week', now())::TIMESTAMP",
        "ts >= CAST(now() AS DATE)",
        "ts > time_bucket(INTERVAL '1' DAY, now()::TIMESTAMP)",
    ],
)
def test_now_in_steps(condition: str) -> None:
    steps = counted(condition).steps
    assert steps is not None
    assert len(steps) == 1


@pytest.mark.parametrize("condition", ["ts > now() - INTERVAL '1' HOUR", "ts <= now()"])
def test_now_that_moves_on(db: Database, condition: str) -> None:
    moments = counted(condition)
    assert moments.steps is None
    assert moments.until(db._duck, NOON, slides=False) == NOON - 1


def test_an_answer_holds_as_far_ahead_as_its_steps_are_the_same(db: Database) -> None:
    day = counted("ts >= CAST(now() AS DATE)")
    assert day.until(db._duck, NOON, slides=False) == NOON + AHEAD_US[-1]
    late = to_us(datetime(2024, 5, 1, 23, 59, 55))
    assert day.until(db._duck, late, slides=False) == late + SECOND_US
    last = to_us(datetime(2024, 5, 1, 23, 59, 59, 999_999))
    assert day.until(db._duck, last, slides=False) == last


def test_windows_that_slide_by_themselves_hold_for_now_alone(db: Database) -> None:
    assert Moments().until(db._duck, NOON, slides=True) == NOON - 1


def test_a_view_that_its_query_answers() -> None:
    text = "SELECT s.k, sum(v * r.k) AS t FROM s JOIN r USING (k) {} GROUP BY s.k"
    by_query = parts(text.format(""))
    assert not by_query.digests
    assert Moments.of(by_query).steps == ()
    assert Moments.of(parts(text.format("WHERE ts < CAST(now() AS DATE)"))).steps is None
