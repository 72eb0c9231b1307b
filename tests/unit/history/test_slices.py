"""How rows lie in a file: slices of time, keys within them, row groups of sensible size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from history_kit import HOUR_US, NOW_US, QUICK
from hypothesis import given
from hypothesis import strategies as st

from tidemill.history.slices import (
    GROUP_ROWS_MAX,
    SLICE_ROWS_MIN,
    SLICES_MAX,
    group_ends,
    slice_ends,
    spans_of,
)

Times = npt.NDArray[np.int64]
MINUTE_US = 60_000_000
DAY_US = 24 * HOUR_US


def steady(rows: int, span_us: int) -> Times:
    return NOW_US + np.arange(rows, dtype=np.int64) * span_us // rows


def read_share(times: Times, partition_us: int, window_us: int) -> float:
    """The rows in slices that a window meets, beside those in it, for the worst of many windows."""
    ends = slice_ends(times, partition_us).ends
    spans = [(times[start], times[end - 1], end - start) for start, end in spans_of(ends)]
    worst = 0.0
    for low in np.linspace(times[0], times[-1] - window_us, 97).astype(np.int64).tolist():
        needed = int(np.count_nonzero((times >= low) & (times < low + window_us)))
        met = sum(rows for first, last, rows in spans if first < low + window_us and last >= low)
        worst = max(worst, met / needed)
    return worst


@pytest.mark.parametrize(
    ("a_second", "partition_us", "window_us"),
    [
        (6, 10 * MINUTE_US, 10 * MINUTE_US),
        (6, HOUR_US, 10 * MINUTE_US),
        (40, HOUR_US, 10 * MINUTE_US),
        (40, DAY_US, 10 * MINUTE_US),
        (330, HOUR_US, 10 * MINUTE_US),
        (40, MINUTE_US, MINUTE_US),
        (1, HOUR_US, 2 * HOUR_US),
    ],
)
def test_a_short_window_meets_few_other_rows(
    a_second: int, partition_us: int, window_us: int
) -> None:
    times = steady(a_second * 3_600 * 4, 4 * HOUR_US)
    assert read_share(times, partition_us, window_us) <= 2.01


def test_slices_begin_at_round_times() -> None:
    """Six rows a second: ten minutes are the least that has rows enough."""
    times = steady(6 * 3_600, HOUR_US)
    for partition_us in (10 * MINUTE_US, HOUR_US):
        begins = times[[start for start, _ in spans_of(slice_ends(times, partition_us).ends)]]
        assert (begins % (10 * MINUTE_US) == 0).all()
        assert len(begins) == 6


def test_a_file_has_few_slices() -> None:
    """Thirty days of ten rows a second: slices grow with the file."""
    times = steady(30 * 24 * 36_000, 30 * DAY_US)
    sizes = [end - start for start, end in spans_of(slice_ends(times, HOUR_US).ends)]
    assert SLICES_MAX / 2 < len(sizes) <= SLICES_MAX
    assert max(sizes) < 2 * min(sizes)


def test_long_parts_of_a_partition_serve_no_short_window() -> None:
    """A row every twenty seconds, by month: half a day has rows enough, and is no short window."""
    month_us = 30 * DAY_US
    times = NOW_US // month_us * month_us + np.arange(2 * 129_600, dtype=np.int64) * 20_000_000
    assert slice_ends(times, month_us).ends == [129_600, 259_200]
    dense = np.sort(np.concatenate([times + at for at in range(10)]))
    sizes = [end - start for start, end in spans_of(slice_ends(dense, month_us).ends)]
    assert min(sizes) >= GROUP_ROWS_MAX // 2
    assert len(sizes) > 10


def test_a_partition_of_several_row_groups_may_be_cut_by_key_alone() -> None:
    times = steady(1_000_000, 2 * HOUR_US)
    found = slice_ends(times, HOUR_US)
    assert len(found.ends) == 12
    assert found.longer == [500_000, 1_000_000]
    assert slice_ends(times, HOUR_US, 1_000_000).longer is None
    assert slice_ends(times, 10 * MINUTE_US).longer is None


def test_a_slow_table_has_slices_longer_than_its_partitions() -> None:
    times = steady(20_000, 30 * DAY_US)
    sizes = [end - start for start, end in spans_of(slice_ends(times, HOUR_US).ends)]
    assert len(sizes) > 3
    assert min(sizes) >= SLICE_ROWS_MIN // 2
    assert max(sizes) <= 4 * SLICE_ROWS_MIN


def test_bursts_and_gaps_make_no_tiny_row_groups() -> None:
    chance = np.random.default_rng(3)
    parts = [
        NOW_US + at * HOUR_US + np.sort(chance.integers(0, HOUR_US, rows))
        for at, rows in enumerate((50_000, 3, 0, 1, 200_000, 7, 0, 0, 12_000, 2))
    ]
    slices = slice_ends(np.concatenate(parts), HOUR_US).ends
    sizes = [end - start for start, end in spans_of(tuple(group_ends(slices, GROUP_ROWS_MAX)))]
    assert min(sizes) >= SLICE_ROWS_MIN // 2
    assert max(sizes) <= GROUP_ROWS_MAX


@pytest.mark.parametrize(
    "times",
    [
        [NOW_US] * 10_000,
        [-(2**63) + 1, *[NOW_US] * 5_000, 2**63 - 1],
        [*range(-(2**62), -(2**62) + 5_000), *range(2**62, 2**62 + 5_000)],
        [NOW_US],
    ],
)
def test_odd_times(times: list[int]) -> None:
    ends = slice_ends(np.array(times, np.int64), HOUR_US).ends
    assert ends[-1] == len(times)
    assert ends == sorted(set(ends))


@QUICK
@given(
    st.lists(st.integers(0, 10**7) | st.integers(-(2**62), 2**62), min_size=1, max_size=300),
    st.integers(1, 10**6),
    st.integers(1, 40),
)
def test_slices_and_row_groups_have_bounds(
    given_times: list[int], partition_us: int, group_rows: int
) -> None:
    times = np.sort(np.array(given_times, np.int64))
    slices = slice_ends(times, partition_us, group_rows).ends
    sizes = [end - start for start, end in spans_of(slices)]
    assert sum(sizes) == len(times)
    assert len(sizes) == 1 or min(sizes) >= min(SLICE_ROWS_MIN, group_rows) // 2
    groups = tuple(group_ends(slices, group_rows))
    assert set(slices) <= set(groups)
    assert all(0 < end - start <= group_rows for start, end in spans_of(groups))
