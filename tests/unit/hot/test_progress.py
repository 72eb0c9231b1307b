"""Now and the watermark, by the machine's clock and by the rows'."""

from __future__ import annotations

import numpy as np

from tidemill.clock import FakeClock
from tidemill.hot.progress import Progress

S = 1_000_000


def times(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_wall_clock() -> None:
    clock = FakeClock(100 * S)
    progress = Progress(clock, False, 5 * S, 10 * S)
    assert progress.now_us() == 100 * S
    assert progress.watermark_us() == 95 * S
    assert progress.upper_us() == 110 * S
    assert progress.lag_us() is None
    clock.set(50 * S)
    assert progress.watermark_us() == 95 * S, "a watermark never goes back"
    clock.set(101 * S)
    assert progress.watermark_us() == 96 * S
    progress.newest_us = 90 * S
    assert progress.lag_us() == 11 * S


def test_event_clock() -> None:
    progress = Progress(FakeClock(100 * S), True, 5 * S, None)
    assert progress.now_us() is None
    assert progress.watermark_us() is None
    assert progress.upper_us() is None
    progress.newest_us = progress.newest_of(times(3 * S, 20 * S, 7 * S))
    assert progress.now_us() == progress.upper_us() == 20 * S
    assert progress.watermark_us() == 15 * S
    progress.newest_us = progress.newest_of(times(1 * S))
    assert progress.now_us() == 20 * S


def test_without_watermark_there_is_none() -> None:
    progress = Progress(FakeClock(100), False, None, None)
    assert progress.watermark_us() is None
    assert progress.upper_us() is None


def test_times_too_far_ahead_move_nothing() -> None:
    progress = Progress(FakeClock(100 * S), True, 0, 10 * S)
    assert progress.newest_of(times(111 * S)) is None
    assert progress.newest_of(times(111 * S, 110 * S, 5 * S)) == 110 * S
    progress.newest_us = 50 * S
    assert progress.newest_of(times(200 * S)) == 50 * S
    assert progress.newest_of(times(200 * S, 60 * S)) == 60 * S
    assert progress.newest_of(times(200 * S, 40 * S)) == 50 * S


def test_one_row_is_as_many_rows() -> None:
    clock = FakeClock(100 * S)
    for limit in (None, 10 * S):
        for newest in (None, 0, 50 * S, 105 * S):
            progress = Progress(clock, True, 0, limit)
            progress.newest_us = newest
            for time_us in (-5, 0, 50 * S, 51 * S, 110 * S, 111 * S):
                assert progress.newest_of_one(time_us) == progress.newest_of(times(time_us))
