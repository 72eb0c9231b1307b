"""Partitions of times far and near, and the folders named after them."""

from __future__ import annotations

import numpy as np
import pytest
from history_kit import HOUR_US, QUICK
from hypothesis import given
from hypothesis import strategies as st

from tidemill.history.partitions import (
    DAY_US,
    US_MAX,
    US_MIN,
    folder_name,
    partition_numbers,
    partition_of,
)

TIMES = st.integers(US_MIN + 1, US_MAX)
SIZES = st.sampled_from([1, 7, 1_000_000, HOUR_US, DAY_US, 365 * DAY_US])


@QUICK
@given(TIMES, SIZES)
def test_a_partition_holds_its_times(time_us: int, size_us: int) -> None:
    low, high = partition_of(time_us, size_us)
    assert US_MIN <= low <= time_us <= high <= US_MAX
    assert time_us < high or high == US_MAX
    if low > US_MIN and high < US_MAX:
        assert high - low == size_us
        assert low % size_us == 0
        assert partition_of(low, size_us) == partition_of(high - 1, size_us) == (low, high)


@QUICK
@given(st.lists(TIMES, min_size=2, max_size=5), SIZES)
def test_equal_numbers_are_equal_partitions(times_us: list[int], size_us: int) -> None:
    numbers = partition_numbers(np.array(times_us, np.int64), size_us).tolist()
    partitions = [partition_of(time_us, size_us) for time_us in times_us]
    for a, b in zip(range(len(times_us)), range(1, len(times_us)), strict=False):
        assert (numbers[a] == numbers[b]) == (partitions[a] == partitions[b])


@pytest.mark.parametrize(
    ("lo_us", "name"),
    [
        (-62_135_596_800_000_000, "00010101T000000Z"),
        (-62_135_596_800_000_001, "-62135596800000001"),
        (253_402_300_799_999_999, "99991231T235959999999Z"),
        (253_402_300_800_000_000, "253402300800000000"),
        (-1, "19691231T235959999999Z"),
        (US_MIN, str(US_MIN)),
    ],
)
def test_folders(lo_us: int, name: str) -> None:
    assert folder_name(lo_us) == name
