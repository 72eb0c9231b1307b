"""The estimates of document 000 §IV-C: by hand, and whatever is put in."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from tidemill.pipeline.estimates import (
    FILL_SHARE_MIN,
    LOOK_EVERY_S,
    Flow,
    fill_share,
    full_us,
    moves_until_full,
    stays_after,
    stays_bytes,
)

MB = 1e6


def test_the_fill_leaves_room_for_what_arrives_until_a_move_has_ended() -> None:
    """1,000 MB, a move of 1.75 s seen within 0.25 s: at 250 MB/s that is 500 MB."""
    assert LOOK_EVERY_S == 0.25
    flow = Flow(250 * MB, move_s=1.75)
    assert fill_share(0.9, 1_000_000_000, flow) == pytest.approx(0.5)
    assert fill_share(0.4, 1_000_000_000, flow) == 0.4
    assert fill_share(0.9, 1_000_000_000, Flow(1_000 * MB, move_s=1.75)) == FILL_SHARE_MIN * 0.9
    assert fill_share(0.9, 1_000_000_000, Flow()) == 0.9


def test_memory_is_full_when_what_is_left_has_arrived() -> None:
    assert full_us(0, 100 * MB, Flow(10 * MB)) == 10_000_000
    assert full_us(50 * MB, 100 * MB, Flow(10 * MB, arrival_factor=2.0)) == 2_500_000
    assert full_us(100 * MB, 100 * MB, Flow()) == 0
    assert full_us(0, 100 * MB, Flow()) is None


def test_equation_four() -> None:
    """B(t') = B + λt - (t/p + 1)·k, with λ and k weighted for contention."""
    flow = Flow(6 * MB, arrival_factor=1.5, move_factor=0.5)
    for periods in range(6):
        t = periods * 10.0
        wanted = 500 * MB + 6 * MB * 1.5 * t - (periods + 1) * 20 * MB * 0.5
        assert stays_after(500 * MB, 20 * MB, 10.0, periods, flow) == pytest.approx(wanted)


def test_a_move_cannot_take_what_is_not_there() -> None:
    assert stays_after(5 * MB, 20 * MB, 10.0, 0, Flow()) == 0
    assert stays_after(5 * MB, 100 * MB, 10.0, 7, Flow(6 * MB)) == 0
    assert stays_bytes(5 * MB, 20 * MB, Flow(1 * MB, move_s=3.0)) == 3 * MB


def test_moves_that_take_less_than_what_arrives_end_in_a_full_memory() -> None:
    flow = Flow(6 * MB)
    assert moves_until_full(100 * MB, 10 * MB, 10.0, 140 * MB, flow) == 1
    assert moves_until_full(100 * MB, 10 * MB, 10.0, 200 * MB, flow) == 2
    assert moves_until_full(100 * MB, 60 * MB, 10.0, 200 * MB, flow) is None
    assert moves_until_full(100 * MB, 60 * MB, 10.0, 90 * MB, flow) == 1
    assert moves_until_full(0, 0, 10.0, 1e15, Flow(1.0)) is None  # not within any plan


_sizes = some.floats(0, 1e13)
_flows = some.builds(
    Flow,
    some.floats(0, 1e11),
    some.floats(0, 1e11),
    some.floats(0.05, 600),
    some.floats(0.25, 4),
    some.floats(0.25, 4),
)


@given(_sizes, _sizes, some.floats(0, 1e5), some.integers(0, 50), _flows)
def test_no_estimate_is_negative(
    held: float, moved: float, period_s: float, periods: int, flow: Flow
) -> None:
    assert stays_bytes(held, moved, flow) >= 0
    assert stays_after(held, moved, period_s, periods, flow) >= 0
    full = full_us(held, moved, flow)
    assert full is None or full >= 0


@given(some.floats(0.05, 0.95), some.integers(1, 10**13), _flows)
def test_the_fill_stays_within_its_bounds(fill_max: float, memory: int, flow: Flow) -> None:
    share = fill_share(fill_max, memory, flow)
    assert FILL_SHARE_MIN * fill_max <= share <= fill_max


@given(some.floats(0.05, 0.95), some.integers(1, 10**13), _flows, some.floats(1, 100))
def test_the_fill_never_grows_with_the_rate(
    fill_max: float, memory: int, flow: Flow, times: float
) -> None:
    faster = Flow(
        flow.rate_bytes_s * times,
        flow.peak_bytes_s * times,
        flow.move_s,
        flow.arrival_factor,
        flow.move_factor,
    )
    assert fill_share(fill_max, memory, faster) <= fill_share(fill_max, memory, flow)


@given(_sizes, _sizes, some.floats(0.1, 1e3), _flows)
def test_a_larger_move_leaves_less(held: float, moved: float, more: float, flow: Flow) -> None:
    assert stays_bytes(held, moved * (1 + more), flow) <= stays_bytes(held, moved, flow)


@given(_sizes, _sizes, some.floats(1, 1e4), _sizes, _flows)
def test_full_is_when_the_recursion_says_so(
    held: float, moved: float, period_s: float, fill: float, flow: Flow
) -> None:
    assume(flow.rate_bytes_s > 1)
    moves = moves_until_full(held, moved, period_s, fill, flow)
    arriving = flow.arriving_bytes_s * period_s
    for number in range(1, 20):
        before_next = stays_after(held, moved, period_s, number - 1, flow) + arriving
        if moves is None or number < moves:
            assert before_next <= fill * (1 + 1e-9)
        elif number == moves:
            assert before_next >= fill * (1 - 1e-9)
