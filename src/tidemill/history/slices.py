"""Slices: where a file's rows are cut, by time and into row groups.

DuckDB skips only whole row groups, by their least and greatest values. A slice is a span of time of
a file; its rows are ordered by key (``arranging``), and it is cut evenly into row groups of at most
``GROUP_ROWS_MAX`` rows, each of a range of keys.

1. A slice is ``SHORT_US`` long, or as long as the table's partition if that is shorter, and begins
   at a round time.
2. Row groups cost something: each one all readers of its file, and a scan again. So a slice has
   ``SLICE_ROWS_MIN`` rows at least, and a file about ``SLICES_MAX`` slices at most; slices are made
   longer until it is so, beyond the partition if it must be. Parts of a partition that are longer
   than ``LONG_US`` serve no short window: they must fill a row group.
3. Bursts and gaps change nothing: a slice of less than half of that joins its neighbour.

So a window of time meets row groups of the rows that it needs and of two slices at most. What was
measured is in docs/design/20261118-time-order.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

GROUP_ROWS_MAX = 122_880
SLICE_ROWS_MIN = 2_048
SLICES_MAX = 256
SHORT_US, LONG_US = 600_000_000, 3_600_000_000
_PARTITIONS = (1, *(each << at for at in range(40) for each in (2, 3)))  # in a long slice

_ENDLESS = 1 << 62

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Slices:
    """Where slices end among rows in order of time, and where they would if they were whole
    partitions, which fill several row groups."""

    ends: list[int]
    longer: list[int] | None = None


def slice_ends(times_us: Times, partition_us: int, group_rows: int = GROUP_ROWS_MAX) -> Slices:
    """The slices of rows in order of time.

    >>> hour = np.arange(0, 3_600_000_000, 250_000)  # four rows a second
    >>> slice_ends(hour, 3_600_000_000).ends  # by ten minutes
    [2400, 4800, 7200, 9600, 12000, 14400]
    """
    count = len(times_us)
    least = max(min(SLICE_ROWS_MIN, group_rows), count // SLICES_MAX)
    if count < 2 * least:
        return Slices([count])
    parts = _parts(partition_us)
    cell_us = partition_us // parts
    numbers = times_us // cell_us
    ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, count)
    cells = numbers[ends - 1]

    def is_enough(size: int) -> bool:
        """Whether slices of so many cells have rows enough."""
        is_short = size * cell_us <= LONG_US or size % parts == 0
        wanted = least if is_short else max(least, group_rows)
        return count >= wanted * _distinct(cells // size)

    def joined(size: int) -> list[int]:
        """The ends of such slices."""
        at = np.flatnonzero(np.diff(cells // size))
        return _joined([*ends[at].tolist(), count], least // 2)

    size = next(filter(is_enough, _sizes(parts)), _ENDLESS)
    is_large = count > group_rows * _distinct(cells // parts)
    return Slices(joined(size), joined(parts) if size < parts and is_large else None)


@lru_cache(maxsize=64)
def _parts(partition_us: int) -> int:
    """How many of the shortest slices a partition has: equal ones, at round times.

    >>> [_parts(minutes * 60_000_000) for minutes in (1, 10, 15, 60, 1_440)]
    [1, 1, 2, 6, 144]
    """
    parts = -(-partition_us // SHORT_US)
    return parts if partition_us % parts == 0 else 1


@lru_cache(maxsize=64)
def _sizes(parts: int) -> tuple[int, ...]:
    """How many of the shortest slices may become one: parts of a partition, or whole ones."""
    return (
        *(size for size in range(1, parts) if parts % size == 0),
        *(parts * partitions for partitions in _PARTITIONS),
    )


def group_ends(slices: Sequence[int], group_rows: int) -> Iterator[int]:
    """Where row groups end, if slices end so.

    >>> list(group_ends([10, 17], 4))
    [3, 6, 10, 13, 17]
    """
    for start, end in spans_of(slices):
        parts = -(-(end - start) // group_rows)
        yield from (start + (end - start) * at // parts for at in range(1, parts + 1))


def spans_of(ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Begin and end of each part."""
    return zip([0, *ends], ends, strict=False)


def _distinct(numbers: Times) -> int:
    """How many numbers there are in a row that is in order."""
    return 1 + int(np.count_nonzero(np.diff(numbers)))


def _joined(ends: Sequence[int], least: int) -> list[int]:
    """The ends of slices, those of too few rows joined to the next, or at the end to the last."""
    kept: list[int] = []
    for end in ends:
        if end - (kept[-1] if kept else 0) >= least:
            kept.append(end)
    return [*kept[:-1], ends[-1]]
