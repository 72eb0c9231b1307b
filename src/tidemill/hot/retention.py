"""Retention: which rows of a streaming table may be seen.

A row is outside the retention when its time lies before the table's now minus its retention; a row
exactly as old as the retention is still inside. Now is what the table's clock says (``progress``).
A statement takes it once, at its beginning, together with what RECENT calls now.

Whatever reads rows asks here, whichever tier they are in. Blocks, files and log segments go some
time after their last row is outside, as a matter of space: that changes no answer.
"""

from __future__ import annotations

from tidemill.catalog.model import Table
from tidemill.clock import DATETIME_US_MIN


def horizon_us(table: Table, now_us: int | None) -> int | None:
    """The oldest time that may be seen; None if all may: there is no retention, or no now yet."""
    retention: int | None = table.settings["retention"]
    if retention is None or now_us is None:
        return None
    horizon = now_us - retention
    return horizon if horizon > DATETIME_US_MIN else None  # or it reaches back to year 1
