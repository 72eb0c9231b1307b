"""Time partitions: ``[lo, hi)`` in UTC microseconds, counted from 1970 in both directions.

Rows that would fill very many partitions with very little each are written to longer ranges of time
(``suitable_us``), as compaction would join them later: a file costs a query more than the rows in
it, if those are few.

A partition's folder is named after its begin, so that people find their way; the catalog, not the
name, says what is in it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

US_MIN, US_MAX = -(2**63), 2**63 - 1
DAY_US = 86_400_000_000
RANGE_DAYS = (1, 7, 30, 365)  # what partitions are joined to
RANGE_US_MAX = RANGE_DAYS[-1] * DAY_US
PARTITIONS_MAX = 200  # more are made only if they hold ...
PARTITION_ROWS_MIN = 1_000_000  # ... this many rows on average

_EPOCH = dt.datetime(1970, 1, 1)
_NAMED_US = range(-62_135_596_800_000_000, 253_402_300_800_000_000)  # the years 1 to 9999


def partition_of(time_us: int, size_us: int) -> tuple[int, int]:
    """The partition of a time.

    Times can be infinite, which is the first and the last of all microseconds; bounds stay in 64
    bits all the same, so the partition of 'infinity' ends at it, and not after it.

    >>> partition_of(3_600_000_001, 3_600_000_000), partition_of(-1, 10)
    ((3600000000, 7200000000), (-10, 0))
    """
    low = time_us // size_us * size_us
    return max(low, US_MIN), min(low + size_us, US_MAX)


def partition_numbers(times_us: npt.NDArray[np.int64], size_us: int) -> npt.NDArray[np.int64]:
    """How many partitions each time is away from 1970; equal numbers, equal partitions."""
    return np.floor_divide(times_us, np.int64(size_us))


def suitable_us(times_us: npt.NDArray[np.int64], size_us: int, longest_us: int) -> int:
    """The length of the ranges in which rows of these times are written: that of a partition, or
    the shortest multiple of it under which they are not scattered.

    >>> hourly = np.arange(0, 180 * DAY_US, 3_600_000_000)
    >>> suitable_us(hourly, 3_600_000_000, RANGE_US_MAX) // DAY_US
    1
    """
    if not len(times_us) or (int(times_us.max()) - int(times_us.min())) // size_us < PARTITIONS_MAX:
        return size_us

    def count(step_us: int) -> int:
        return len(np.unique(partition_numbers(times_us, step_us)))

    return _shortest(size_us, longest_us, len(times_us), count)


def suitable_for_spans(
    spans_us: Iterable[tuple[int, int]], rows: int, size_us: int, longest_us: int
) -> int:
    """The same for rows of which only the first and the last time of each file are known."""
    spans = sorted(spans_us)

    def count(step_us: int) -> int:
        total, last = 0, None
        for low_us, high_us in spans:
            low, high = low_us // step_us, high_us // step_us
            if last is None or high > last:
                total += high - (low if last is None else max(low, last + 1)) + 1
                last = high
        return total

    return _shortest(size_us, longest_us, rows, count)


def _shortest(size_us: int, longest_us: int, rows: int, count: Callable[[int], int]) -> int:
    found = size_us
    for step_us in (size_us, *(-(-days * DAY_US // size_us) * size_us for days in RANGE_DAYS)):
        if step_us < found or step_us > max(longest_us, size_us):
            continue
        found, partitions = step_us, count(step_us)
        if partitions <= PARTITIONS_MAX or rows >= partitions * PARTITION_ROWS_MIN:
            break
    return found


def folder_name(lo_us: int) -> str:
    """The begin of a partition as text that sorts and that every file system takes.

    >>> folder_name(0), folder_name(1), folder_name(2**62)
    ('19700101T000000Z', '19700101T000000000001Z', '4611686018427387904')
    """
    if lo_us not in _NAMED_US:
        return str(lo_us)
    begin = _EPOCH + dt.timedelta(microseconds=lo_us)
    fraction = f"{begin.microsecond:06d}" if begin.microsecond else ""
    return f"{begin.year:04d}{begin:%m%dT%H%M%S}{fraction}Z"
