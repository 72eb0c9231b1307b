"""Up to where the answers of rows that wait for partners are complete."""

from __future__ import annotations

import pytest

from tidemill.views.kept import waiting
from tidemill.views.kept.waiting import OldestWaiting


class Rows:
    """Rows by number, with their times."""

    def __init__(self, *times: int) -> None:
        self.times = times
        self.looked: list[tuple[int, int]] = []

    def least(self, low: int, high: int) -> int | None:
        self.looked.append((low, high))
        return min(self.times[low:high], default=None)


def test_nothing_earlier_comes_than_the_oldest_row_that_waits() -> None:
    rows = Rows(50, 30, 40)
    assert OldestWaiting().until(0, 3, 100, rows.least) == 30


def test_with_nothing_waiting_it_is_the_clock() -> None:
    assert OldestWaiting().until(0, 0, 100, Rows().least) == 100
    waited = OldestWaiting()
    assert waited.until(2, 2, 70, Rows(1, 2).least) == 70


def test_a_stretch_counts_until_its_last_row_was_answered() -> None:
    rows, waited = Rows(10, 20, 30, 40), OldestWaiting()
    assert waited.until(0, 2, 100, rows.least) == 10
    assert waited.until(1, 4, 100, rows.least) == 10
    assert waited.until(2, 4, 100, rows.least) == 30
    assert waited.until(4, 4, 100, rows.least) == 100


def test_each_row_is_looked_at_once() -> None:
    rows, waited = Rows(10, 20, 30, 40), OldestWaiting()
    for low, high in ((0, 2), (1, 2), (1, 4), (3, 4)):
        waited.until(low, high, 100, rows.least)
    assert rows.looked == [(0, 2), (2, 4)]


def test_it_does_not_go_back() -> None:
    rows, waited = Rows(50, 5), OldestWaiting()
    assert waited.until(0, 1, 100, rows.least) == 50
    assert waited.until(0, 2, 100, rows.least) == 50


def test_stretches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "STRETCHES_MAX", 2)
    rows, waited = Rows(10, 20, 30), OldestWaiting()
    for high in (1, 2, 3):
        waited.until(0, high, 100, rows.least)
    # The first two are one by now: the time of the first holds for both.
    assert waited.until(1, 3, 100, rows.least) == 10
    assert waited.until(2, 3, 100, rows.least) == 30
