"""Replacements: what was replaced by which rows, as long as it is known."""

from __future__ import annotations

from tidemill.hot.replacements import Replacements


def test_what_rows_of_a_stretch_replaced() -> None:
    noted = Replacements()
    noted.note([3, 1], 10)
    noted.note([], 12)
    noted.note([2], 15)
    assert noted.between(0, 20) == [3, 1, 2]
    assert noted.between(9, 14) == [3, 1]
    assert noted.between(10, 15) == [2]
    assert noted.between(15, 30) == []
    assert len(noted) == 3


def test_what_has_moved_is_forgotten() -> None:
    noted = Replacements()
    noted.note([1], 10)
    noted.note([2], 15)
    noted.forget(12)
    assert noted.between(9, 20) is None
    assert noted.between(10, 20) == [2]


def test_a_move_without_replacements_forgets_nothing() -> None:
    noted = Replacements()
    noted.forget(100)
    assert noted.between(3, 200) == []


def test_what_was_moved_before_the_start_is_not_known() -> None:
    noted = Replacements(moved_seq=50)
    assert noted.between(49, 60) is None
    assert noted.between(50, 60) == []


def test_the_older_half_goes_when_there_are_too_many() -> None:
    noted = Replacements(limit=10)
    for at in range(11):
        noted.note([at], 100 + at)
    assert len(noted) == 5
    assert noted.forgotten_seq == 105
    assert noted.between(104, 200) is None
    assert noted.between(105, 200) == [6, 7, 8, 9, 10]
