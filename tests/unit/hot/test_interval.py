"""The interval index against a plain list of blocks."""

from __future__ import annotations

import random

import pytest
from hot_kit import QUICK, make_batch
from hypothesis import given
from hypothesis import strategies as st

from tidemill.hot import interval
from tidemill.hot.block import Block, make_block
from tidemill.hot.interval import BUCKETS_MAX, IntervalIndex

HOUR_US = 3_600_000_000


def block(block_id: int, low_us: int, high_us: int) -> Block:
    rows = [(low_us, 1, "", 0.0), (high_us, 1, "", 0.0)]
    return make_block(block_id, 2 * block_id, make_batch(rows), (), "ts")


def brute(blocks: dict[int, Block], low: int | None, high: int | None) -> list[int]:
    return [
        number
        for number, held in sorted(blocks.items())
        if (low is None or held.time_max_us >= low) and (high is None or held.time_min_us <= high)
    ]


def found(index: IntervalIndex, low: int | None, high: int | None) -> list[int]:
    return [held.block_id for held in index.find(low, high)]


def check(index: IntervalIndex, blocks: dict[int, Block], picker: random.Random) -> None:
    edges = [t for held in blocks.values() for t in (held.time_min_us, held.time_max_us)] or [0]
    for _ in range(5):
        low, high = picker.choice(edges), picker.choice(edges)
        low, high = low + picker.choice((-1, 0, 1)), high + picker.choice((-1, 0, 1))
        low, high = min(low, high), max(low, high)
        for span in ((low, high), (low, None), (None, high), (low, low)):
            assert found(index, *span) == brute(blocks, *span), span
    assert found(index, None, None) == sorted(blocks)
    assert index.bucket_count <= BUCKETS_MAX


@QUICK
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_any_history(seed: int, step: int) -> None:
    picker = random.Random(seed)
    index, blocks, number, now = IntervalIndex(), {}, 0, 0
    frozen: list[tuple[IntervalIndex, dict[int, Block]]] = []
    for _ in range(25):
        action = picker.random()
        if action < 0.15 and blocks:
            gone = picker.choice(sorted(blocks))
            index = index.changed(dropped=[blocks.pop(gone)])
        elif action < 0.25:
            frozen.append((index.freeze(), dict(blocks)))
        else:
            now += picker.choice((0, 1_000, 10_000_000, HOUR_US)) * step
            far = picker.random()
            start = now
            if far < 0.1:
                start = now + 10**6 * HOUR_US
            elif far < 0.25:
                start = picker.randint(-(10**15), now)
            span = picker.choice((0, 1, 5_000, 20_000_000, 30 * 24 * HOUR_US))
            number += 1
            blocks[number] = block(number, start, start + span)
            index = index.changed(added=[blocks[number]])
        check(index, blocks, picker)
    for old, held in frozen:
        check(old, held, picker)


def test_a_frozen_index_is_left_alone_and_an_unfrozen_one_is_changed_in_place() -> None:
    index = IntervalIndex().changed(added=[block(1, 0, 10)])
    assert index.changed(added=[block(2, 5, 6)]) is index
    index.freeze()
    other = index.changed(added=[block(3, 7, 8)])
    assert other is not index
    assert found(index, None, None) == [1, 2]
    assert found(other, None, None) == [1, 2, 3]
    assert other.changed(dropped=[block(3, 7, 8)]) is other


def test_buckets_stay_bounded_while_time_goes_on() -> None:
    index = IntervalIndex()
    for number in range(2_000):
        index = index.changed(added=[block(number, number * HOUR_US, number * HOUR_US + 1_000)])
        assert index.bucket_count <= BUCKETS_MAX
        assert len(index._strays) <= max(interval.STRAYS_MAX, index._strays_max)
    assert found(index, 1_500 * HOUR_US, 1_501 * HOUR_US) == [1500, 1501]
    assert index.width_us > interval.WIDTH_US_MIN


def test_a_moving_window_is_constant_work() -> None:
    """The newest comes, the oldest goes: the array neither grows nor widens."""
    index, held = IntervalIndex(), []
    for number in range(2_000):
        held.append(block(number, number * 1_000_000, number * 1_000_000 + 999_999))
        index = index.changed(added=[held[-1]])
        if len(held) > 10:
            index = index.changed(dropped=[held.pop(0)])
    assert index.bucket_count < 100
    assert len(index._buckets) <= 256
    assert found(index, None, None) == [b.block_id for b in held]


def test_after_everything_was_dropped_it_begins_anew() -> None:
    first = block(1, 0, 10**15)
    index = IntervalIndex().changed(added=[first]).changed(dropped=[first])
    assert index.bucket_count == 0
    index = index.changed(added=[block(2, 10**15, 10**15 + 1)])
    assert index.width_us == interval.WIDTH_US_MIN
    assert found(index, 10**15, 10**15) == [2]


@pytest.mark.parametrize("stray_first", [True, False])
def test_a_stray_from_last_year_does_not_fill_the_array(stray_first: bool) -> None:
    stray = block(1, -(10**13), 10**9)
    blocks = [block(n, n * 1_000_000, n * 1_000_000 + 500) for n in range(2, 30)]
    ordered = [stray, *blocks] if stray_first else [*blocks, stray]
    index = IntervalIndex().changed(added=ordered)
    assert found(index, 5_000_000, 5_000_100) == [1, 5]
    assert found(index, -(10**12), -(10**12)) == [1]
