"""Upkeep: who is told of rows, when a writer helps, and what becomes of a follower that fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from views_kit import COUNTED, agrees, append, make

from tidemill.engine import Database
from tidemill.views import upkeep as module
from tidemill.views.upkeep import Upkeep


@pytest.fixture
def upkeep(db: Database, monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    """An upkeep of the view's followers that does nothing by itself."""
    make(db, COUNTED)
    agrees(db, COUNTED)
    return Upkeep(followers_of(db), lambda follower: None)


def followers_of(db: Database) -> Any:
    def found(stream_id: int | None) -> Sequence[Any]:
        (live,) = db._views.live()
        return db._views.followers(live)

    return found


def lag_rows(db: Database) -> int:
    (live,) = db._views.live()
    return max(each.lag_rows for each in db._views.followers(live))


def hot(db: Database) -> Any:
    return db._hot[db.catalog.snapshot().get("s").table_id]


def test_a_few_rows_are_left_for_readers(db: Database, upkeep: Upkeep) -> None:
    append(db, 0, 10)
    upkeep.poke(hot(db))
    assert lag_rows(db) == 10


def test_a_writer_who_is_far_ahead_takes_them_in(
    db: Database, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LAG_ROWS_MAX", 5)
    append(db, 0, 5)
    upkeep.poke(hot(db))
    assert lag_rows(db) == 5
    append(db, 5, 1)
    upkeep.poke(hot(db))
    assert lag_rows(db) == 0
    assert agrees(db, COUNTED)


def test_what_has_gathered_is_taken_in_when_nothing_comes(db: Database, upkeep: Upkeep) -> None:
    append(db, 0, 10)
    upkeep._work(False)
    assert lag_rows(db) == 0


def test_while_rows_keep_coming_a_few_are_left(
    db: Database, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(db, 0, 10)
    upkeep.poke(hot(db))
    upkeep._work(False)
    assert lag_rows(db) == 10
    monkeypatch.setattr(module, "LAG_ROWS_WORTH", 10)
    upkeep.poke(hot(db))
    upkeep._work(True)
    assert lag_rows(db) == 0


def test_a_follower_that_fails_is_told_of_and_left_alone_for_a_while(
    db: Database, upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[object] = []
    tries: list[int] = []
    (follower,) = followers_of(db)(None)

    def broken(*given: object, **more: object) -> bool:
        tries.append(1)
        raise RuntimeError("no")

    monkeypatch.setattr(follower, "follow", broken)
    watched = Upkeep(followers_of(db), failed.append)
    append(db, 0, 10)
    watched._work(False)
    watched._work(False)
    assert (failed, len(tries)) == ([follower], 1)


def test_streams_without_followers_cost_nothing(db: Database) -> None:
    Upkeep(lambda _: (), lambda _: None).poke(hot(db))
