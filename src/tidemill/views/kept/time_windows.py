"""Windows of time in the order of arrival: what ``RECENT(t, INTERVAL …)`` holds as of each row.

The window of a row ends at its time and holds rows that arrived before it or are itself; rows that
came later are not in it, however old they are. So it is the same whether a row is answered at
once, in a batch or after a restart.

1. A batch is cut where its times lie farther apart than a window is long, so that a late row does
   not have everything between read.
2. For such a part the stream is read once, from the start of its oldest window on.
3. The window of each row is a stretch of that, in the order of time, without what came later. Rows
   go on together as long as their windows have no more than ``WINDOW_ROWS_MAX`` rows.

What is read has a bound as well. Beyond it there are no windows here, and the query itself reads
the stream for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from tidemill.hot import keys
from tidemill.types import SEQ
from tidemill.views.kept.holding import Numbers, numbers
from tidemill.views.kept.tagging import ROW, TIME

# Rows of all windows that are evaluated together, and of the stretch that they are made from.
WINDOW_ROWS_MAX = 1_000_000
_STRETCH_ROWS_MAX = 4_096

Read = Callable[[int, int, int, int], pa.Table]
"""Rows of a stream from a time to another, up to a number, and how many at most."""


class TimeWindows:
    def __init__(self, time: str, size_us: int, read: Read) -> None:
        self._time = time
        self._size_us = size_us
        self._read = read

    def of(self, rows: pa.Table) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """New rows, in the order of arrival and in parts, each with the windows of its rows; None
        if these are too large."""
        times = numbers(rows, self._time)
        for start, end in stretches(times, self._size_us):
            part = rows.slice(start, end - start)
            held = self._around(times[start:end], int(rows.column(SEQ)[end - 1].as_py()))
            if held is None:
                yield part, None
            else:
                yield from self._cut(part, times[start:end], held)

    def _around(self, times: Numbers, seq: int) -> pa.Table | None:
        """What the windows of some rows are made from, by time and arrival."""
        low_us, high_us = int(times.min()) - self._size_us, int(times.max())
        held = self._read(low_us, high_us, seq, WINDOW_ROWS_MAX + 1)
        if held.num_rows > WINDOW_ROWS_MAX:
            return None
        held = held.combine_chunks()
        order = np.lexsort((numbers(held, SEQ), numbers(held, self._time)))
        return held.take(keys.row_numbers(order))

    def _cut(
        self, part: pa.Table, times: Numbers, held: pa.Table
    ) -> Iterator[tuple[pa.Table, pa.Table]]:
        of_held = numbers(held, self._time)
        first = np.searchsorted(of_held, times - self._size_us, side="left")
        lengths = np.searchsorted(of_held, times, side="right") - first
        start = 0
        while start < len(times):
            total = np.cumsum(lengths[start:])
            end = start + max(int(np.searchsorted(total, WINDOW_ROWS_MAX, side="right")), 1)
            rows = part.slice(start, end - start)
            yield rows, self._windows(rows, held, first[start:end], lengths[start:end])
            start = end

    def _windows(
        self, rows: pa.Table, held: pa.Table, first: Numbers, lengths: Numbers
    ) -> pa.Table:
        """The windows of some rows, one after the other, each row with its instant's tags."""
        of = np.repeat(np.arange(len(first)), lengths)
        ends = np.cumsum(lengths)
        at = np.arange(len(of)) - (ends - lengths)[of] + first[of]
        seqs = numbers(rows, SEQ)
        was_there = numbers(held, SEQ)[at] <= seqs[of]
        of, at = of[was_there], at[was_there]
        instants = keys.array_of(seqs[of], pa.int64())
        moments = rows.column(self._time).take(keys.row_numbers(of))
        windows = held.take(keys.row_numbers(at))
        return windows.append_column(ROW, instants).append_column(TIME, moments)


def stretches(times: Numbers, span_us: int) -> Iterator[tuple[int, int]]:
    """Where runs of times begin and end that lie within a span of each other.

    >>> list(stretches(np.array([1, 3, 2, 9, 8]), 2))
    [(0, 3), (3, 5)]
    """
    start = 0
    while start < len(times):
        rest = times[start : start + _STRETCH_ROWS_MAX]
        spread = np.maximum.accumulate(rest) - np.minimum.accumulate(rest)
        end = start + int(np.searchsorted(spread, span_us, side="right"))
        yield start, end
        start = end
