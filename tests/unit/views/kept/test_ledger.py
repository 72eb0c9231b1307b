"""The ledger: answers once, and how far the query came, also without any."""

from __future__ import annotations

import pytest
from kept_kit import KEPT, FakeEnvironment, counted

from tidemill.views.kept import ledger as module
from tidemill.views.kept.ledger import Ledger

NOTHING = counted()


def make(environment: FakeEnvironment, is_noted: bool = False) -> Ledger:
    return Ledger(environment, KEPT, "kept:9", is_noted)


def test_answers_are_stored_under_their_offset() -> None:
    environment = FakeEnvironment()
    ledger = make(environment)
    assert ledger.reached is None
    ledger.store(counted(1, 2), 5)
    ledger.store(counted(3), 6)
    assert [(offset, rows.num_rows) for offset, rows in environment.stored] == [(5, 2), (6, 1)]
    assert (ledger.reached, ledger.rows_out, environment.noted) == (6, 3, [])


def test_another_ledger_goes_on_behind_what_was_stored() -> None:
    environment = FakeEnvironment()
    make(environment).store(counted(1), 5)
    assert make(environment).reached == 5


def test_evaluations_without_answers_are_noted_at_the_end() -> None:
    environment = FakeEnvironment()
    ledger = make(environment)
    ledger.store(NOTHING, 5)
    ledger.store(NOTHING, 6)
    assert (environment.noted, ledger.reached) == ([], 6)
    ledger.close()
    ledger.close()
    assert environment.noted == [6]


def test_or_each_time_where_that_matters() -> None:
    environment = FakeEnvironment()
    ledger = make(environment, is_noted=True)
    ledger.store(NOTHING, 5)
    ledger.store(counted(1), 6)
    ledger.store(NOTHING, 7)
    assert environment.noted == [5, 7]


def test_and_now_and_then_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    environment, now = FakeEnvironment(), [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    ledger = make(environment)
    ledger.store(NOTHING, 5)
    now[0] += module.NOTE_EVERY_S
    ledger.store(NOTHING, 6)
    assert environment.noted == [6]


def test_the_newest_of_a_range() -> None:
    environment = FakeEnvironment()
    ledger = make(environment)
    assert ledger.newest_in(10, 20) == 9
    for offset in (3, 12, 13, 30):
        ledger.store(counted(1), offset)
    assert ledger.newest_in(10, 20) == 13
    assert ledger.newest_in(14, 20) == 13
    assert ledger.newest_in(4, 9) == 3
    assert ledger.newest_in(5, 9) == 4
