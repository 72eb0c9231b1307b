"""What queries asked for is remembered, by time and by count."""

from __future__ import annotations

from tidemill.hot.view import Wanted
from tidemill.hot.windows import FORGET_AFTER_US, WINDOWS_MAX, Windows


def test_windows_by_time_and_by_count_are_kept_apart() -> None:
    windows = Windows()
    windows.note(0, 5_000)
    windows.note(1, -5)
    windows.note_rows(2, 100)
    assert windows.ages_us(10) == [5_000, 0]
    assert windows.row_counts(10) == [100]


def test_a_scan_is_noted_by_its_count_or_else_by_its_lower_end() -> None:
    windows = Windows()
    windows.note_scan(0, 1_000, Wanted(low_us=400))
    windows.note_scan(0, 1_000, Wanted(high_us=900))  # reaches back to the beginning
    windows.note_scan(0, None, Wanted(low_us=400))  # the table's clock has not begun
    windows.note_scan(0, 1_000, Wanted(low_us=400, newest=7))
    windows.note_scan(0, None, Wanted(newest=8))
    assert windows.ages_us(0) == [600]
    assert windows.row_counts(0) == [7, 8]


def test_old_ones_are_forgotten_and_no_more_than_some_are_held() -> None:
    windows = Windows()
    windows.note_rows(0, 1)
    for at in range(WINDOWS_MAX - 1):
        windows.note(1, at)
    assert windows.row_counts(FORGET_AFTER_US) == [1]
    assert windows.row_counts(FORGET_AFTER_US + 1) == []
    assert len(windows.ages_us(FORGET_AFTER_US + 1)) == WINDOWS_MAX - 1
    windows.note(1, 0)
    assert windows.row_counts(1) == []
