"""Time partitions: ``[lo, hi)`` in UTC microseconds, counted from 1970 in both directions.

A partition's folder is named after its begin, so that people find their way; the catalog, not the
name, says what is in it.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import numpy.typing as npt

US_MIN, US_MAX = -(2**63), 2**63 - 1
DAY_US = 86_400_000_000

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
