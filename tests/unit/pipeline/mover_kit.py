"""Streaming tables with rows of a chosen age, for the tests of the mover."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "hot"))

from hot_kit import NOW_US as NOW_US
from hot_kit import accepted, make_table, open_hot

from tidemill.clock import FakeClock
from tidemill.hot.table import HotTable

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US


def hot_table(folder: Path, at: FakeClock, **settings: str) -> HotTable:
    return open_hot(make_table(settings), folder, at)


def put(hot: HotTable, *ages_s: float) -> None:
    """Rows so many seconds old, as one batch."""
    now_us = hot._clock.now_us()
    rows = [(now_us - int(age * SECOND_US), n, "s", 0.5) for n, age in enumerate(ages_s)]
    hot.append(accepted(rows, hot.table))
