"""When rows move: the policies are functions of what was measured, so that is what is given."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidemill.pipeline.estimates import FILL_SHARE_MIN, Flow
from tidemill.pipeline.policy import (
    ADAPTIVE,
    LEAD_TIMES,
    MANUAL,
    PERIODIC,
    RELIEF,
    Measured,
    Rules,
    choose,
    is_worth,
    relieved,
)

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOT_US = 10 * MINUTE_US
MB = 1_000_000
RULES = Rules(PERIODIC, MINUTE_US, 0.6, 16 * MB, HOT_US)
QUIET = Measured(0, 0, 1_000 * MB, Flow(), 0)


def at_rate(mb_s: float, **more: float) -> Flow:
    return Flow(mb_s * MB, **more)


@pytest.mark.parametrize("policy", [PERIODIC, ADAPTIVE])
@pytest.mark.parametrize(
    ("since_us", "is_due"), [(0, False), (MINUTE_US - 1, False), (MINUTE_US, True)]
)
def test_the_period_decides_while_memory_is_far_from_full(
    policy: str, since_us: int, is_due: bool
) -> None:
    choice = choose(replace(RULES, policy=policy), replace(QUIET, since_move_us=since_us))
    assert (choice.is_due, choice.is_forced) == (is_due, False)
    assert choice.kept.keep_us == HOT_US
    assert ("not passed" in choice.reason) != is_due


def test_adaptive_moves_when_a_move_would_just_end_before_memory_is_full() -> None:
    """min(p, t_full): 20 MB are left until θ_b is reached, at 4 MB/s for 5 s; a move takes 2.5 s,
    and begins early enough for one that takes twice as long."""
    rules = replace(RULES, policy=ADAPTIVE)
    flow = at_rate(4.0, move_s=2.5)
    filling = replace(QUIET, held_bytes=580 * MB, flow=flow)
    assert choose(rules, filling).is_due
    assert "memory would be full in 5 s, and a move takes 2.5 s" in choose(rules, filling).reason
    assert choose(rules, filling).full_us == 5 * SECOND_US
    left = LEAD_TIMES * flow.lead_s * 4.0 * MB
    earlier = replace(filling, held_bytes=int(600 * MB - left - 1))
    assert not choose(rules, earlier).is_due
    assert choose(rules, replace(earlier, since_move_us=MINUTE_US)).is_due
    assert not choose(replace(rules, policy=PERIODIC), filling).is_due


@pytest.mark.parametrize("policy", [PERIODIC, ADAPTIVE, MANUAL])
def test_at_the_fill_the_oldest_rows_go_whatever_the_policy(policy: str) -> None:
    rules = replace(RULES, policy=policy)
    below = choose(rules, replace(QUIET, held_bytes=600 * MB - 1))
    assert not below.is_forced
    full = choose(rules, replace(QUIET, held_bytes=600 * MB))
    assert full.is_due
    assert full.is_forced
    assert full.kept.keep_us == 0
    assert full.release_bytes == 600 * MB * (1 - RELIEF)
    assert "60 %" in full.reason
    fuller = choose(rules, replace(QUIET, held_bytes=1_000 * MB))
    assert 1_000 * MB - fuller.release_bytes == RELIEF * 600 * MB


def test_manual_never_moves_by_itself() -> None:
    choice = choose(replace(RULES, policy=MANUAL), replace(QUIET, since_move_us=100 * MINUTE_US))
    assert not choice.is_due
    assert "when asked" in choice.reason


def test_adaptive_keeps_the_window_that_most_queries_read() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    ages = [30 * MINUTE_US] * 99 + [9_000 * MINUTE_US]  # one query that reads much is no habit
    measured = replace(QUIET, since_move_us=MINUTE_US, flow=at_rate(0.1), window_ages_us=ages)
    choice = choose(rules, measured)
    assert choice.is_due
    assert choice.kept.keep_us == 33 * MINUTE_US  # a tenth more
    assert "recent queries read the last 1800 s" in choice.reason
    assert choose(replace(rules, policy=PERIODIC), measured).kept.keep_us == HOT_US


def test_a_window_shorter_than_hot_changes_nothing() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    choice = choose(rules, replace(QUIET, window_ages_us=[MINUTE_US] * 10))
    assert choice.kept.keep_us == HOT_US


def test_a_window_that_does_not_fit_is_not_kept() -> None:
    """30 minutes at 0.4 MB/s are 720 MB, more than θ_b leaves; at 0.2 MB/s they fit."""
    rules = replace(RULES, policy=ADAPTIVE)
    measured = replace(QUIET, flow=at_rate(0.4), window_ages_us=[30 * MINUTE_US])
    choice = choose(rules, measured)
    assert choice.kept.keep_us == HOT_US
    assert "do not fit" in choice.reason
    assert choose(rules, replace(measured, flow=at_rate(0.2))).kept.keep_us == 33 * MINUTE_US


def test_of_several_windows_those_that_fit_are_kept() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    ages = [20 * MINUTE_US] * 8 + [900 * MINUTE_US] * 8
    measured = replace(QUIET, flow=at_rate(0.2), window_ages_us=ages)
    assert choose(rules, measured).kept.keep_us == 22 * MINUTE_US


def test_a_full_memory_moves_even_what_queries_read() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    measured = replace(QUIET, held_bytes=700 * MB, window_ages_us=[30 * MINUTE_US])
    choice = choose(rules, measured)
    assert choice.is_forced
    assert choice.kept.keep_us == 0


@pytest.mark.parametrize(("movable", "worth"), [(0, False), (16 * MB - 1, False), (16 * MB, True)])
def test_a_move_of_little_is_not_worth_it(movable: int, worth: bool) -> None:
    why_not = is_worth(RULES, movable)
    assert (why_not is None) == worth
    if why_not is not None:
        assert "not worth a move, 16,000,000 would be" in why_not


# -- windows by count


COUNTED = replace(
    QUIET, held_bytes=100 * MB, held_rows=1_000_000, since_move_us=MINUTE_US
)  # 100 bytes a row


def test_adaptive_keeps_the_rows_that_queries_count() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    counts = [5_000] * 99 + [900_000_000]
    choice = choose(rules, replace(COUNTED, window_rows=counts))
    assert choice.kept.keep_rows == 5_500  # a tenth more
    assert choice.kept.keep_us == HOT_US
    assert "recent queries read the newest 5,000 rows" in choice.reason
    assert choose(replace(rules, policy=PERIODIC), COUNTED).kept.keep_rows == 0


def test_a_count_that_does_not_fit_is_not_kept() -> None:
    """600 MB are the fill, 90 % of it is for windows: 5.4 million rows of 100 bytes."""
    rules = replace(RULES, policy=ADAPTIVE)
    choice = choose(rules, replace(COUNTED, window_rows=[5_000_000]))
    assert choice.kept.keep_rows == 0
    assert "do not fit" in choice.reason
    assert choose(rules, replace(COUNTED, window_rows=[4_900_000])).kept.keep_rows == 5_390_000


def test_both_kinds_of_windows_are_kept_unless_one_is_no_habit() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    ages = [30 * MINUTE_US] * 20
    both = replace(COUNTED, window_ages_us=ages, window_rows=[7_000] * 20, flow=at_rate(0.1))
    kept = choose(rules, both).kept
    assert (kept.keep_us, kept.keep_rows, len(kept.reasons)) == (33 * MINUTE_US, 7_700, 2)
    assert choose(rules, replace(both, window_rows=[7_000])).kept.keep_rows == 0
    assert choose(rules, replace(both, window_ages_us=ages[:1])).kept.keep_us == HOT_US


def test_windows_are_not_kept_where_files_cost_no_more_than_memory() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    measured = replace(COUNTED, window_rows=[5_000], memory_is_cheaper=False)
    choice = choose(rules, measured)
    assert choice.kept.keep_rows == 0
    assert "cost queries no more" in choice.reason
    assert choice.is_due


# -- the fill as a function of the arrival rate


def test_the_fill_is_smaller_where_rows_arrive_fast() -> None:
    """A move takes 4.75 s and a look 0.25 s; at 120 MB/s memory must hold 600 MB meanwhile."""
    rules = replace(RULES, policy=PERIODIC)
    held = replace(QUIET, held_bytes=450 * MB)
    assert not choose(rules, held).is_forced
    fast = choose(rules, replace(held, flow=at_rate(120.0, move_s=4.75)))
    assert fast.is_forced
    assert fast.fill_share == pytest.approx(0.4)
    assert "filled to 45 %, and 40 % is the most" in fast.reason
    assert 450 * MB - fast.release_bytes == pytest.approx(RELIEF * 400 * MB, rel=1e-6)
    fastest = choose(rules, replace(held, flow=at_rate(1_000.0)))
    assert fastest.fill_share == FILL_SHARE_MIN * 0.6


def test_a_burst_of_late_counts_like_a_rate() -> None:
    calm = at_rate(1.0, peak_bytes_s=120.0 * MB, move_s=4.75)
    assert choose(RULES, replace(QUIET, flow=calm)).fill_share == pytest.approx(0.4)


def test_contention_makes_memory_full_sooner() -> None:
    held = replace(QUIET, held_bytes=300 * MB)
    plain = choose(RULES, replace(held, flow=at_rate(10.0))).full_us
    busy = choose(RULES, replace(held, flow=at_rate(10.0, arrival_factor=2.0))).full_us
    assert plain is not None
    assert busy == plain / 2


def test_a_move_that_frees_less_than_it_takes_is_made_larger() -> None:
    full = replace(QUIET, held_bytes=600 * MB, flow=Flow(move_factor=0.75))
    assert choose(RULES, full).release_bytes == 400 * MB  # to free 300
    assert choose(RULES, replace(full, flow=Flow(move_factor=0.25))).release_bytes == 600 * MB


# -- postponing


def test_adaptive_moves_are_postponed_while_they_take_too_much_time_and_memory_has_room() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    slow = replace(QUIET, flow=at_rate(1.0, move_s=6.0, moves=1), since_move_us=MINUTE_US)
    choice = choose(rules, slow)
    assert not choice.is_due
    assert "has passed; postponed: a move takes 6 s, so that 120 s lie between two" in choice.reason
    assert choose(rules, replace(slow, since_move_us=2 * MINUTE_US)).is_due
    assert choose(replace(rules, policy=PERIODIC), slow).is_due
    unseen = replace(slow, flow=replace(slow.flow, moves=0))  # how long moves take is a guess
    assert choose(rules, unseen).is_due
    filling = replace(slow, held_bytes=545 * MB)  # 60 MB more arrive in one more period
    assert choose(rules, filling).is_due


# -- whatever was measured

_bytes = some.integers(0, 10**12)
_rates = some.floats(0, 1e10)
_flows = some.builds(
    Flow,
    _rates,
    _rates,
    some.floats(0.05, 600),
    some.floats(0.25, 4),
    some.floats(0.25, 4),
    some.integers(0, 9),
)
_measured = some.builds(
    Measured,
    some.just(0),
    _bytes,
    some.integers(1_000_000, 10**12),
    _flows,
    some.integers(0, 10**12),
    some.integers(0, 10**9),
    some.lists(some.integers(0, 10**13), max_size=20),
    some.lists(some.integers(0, 10**10), max_size=20),
    some.booleans(),
)
_rules = some.builds(
    Rules,
    some.sampled_from([PERIODIC, ADAPTIVE, MANUAL]),
    some.integers(1, 10**12),
    some.floats(0.05, 0.95),
    some.integers(0, 10**10),
    some.integers(1, 10**12),
)


@given(_rules, _measured)
def test_the_bound_of_memory_always_wins(rules: Rules, measured: Measured) -> None:
    """Whatever the policy, the windows and the costs: a memory at its fill moves, and a move that
    frees what it takes brings it to ``RELIEF`` of that; and the fill is never above the setting."""
    choice = choose(rules, measured)
    assert FILL_SHARE_MIN * rules.fill_max <= choice.fill_share <= rules.fill_max
    fill_bytes = choice.fill_share * measured.memory_bytes
    if measured.held_bytes >= rules.fill_max * measured.memory_bytes:
        assert choice.is_forced
    assert choice.is_forced == (measured.held_bytes >= fill_bytes)
    if choice.is_forced:
        assert choice.is_due
        assert choice.kept.keep_us == choice.kept.keep_rows == 0
        freed = choice.release_bytes * measured.flow.move_factor
        left = measured.held_bytes - freed
        assert left <= RELIEF * fill_bytes + 4 or choice.release_bytes == measured.held_bytes


@given(_rules, _measured)
def test_nothing_chosen_is_negative_or_more_than_there_is(rules: Rules, measured: Measured) -> None:
    for choice in (choose(rules, measured), relieved(rules, measured)):
        assert 0 <= choice.release_bytes <= measured.held_bytes
        assert choice.full_us is None or choice.full_us >= 0
        assert choice.kept.keep_us >= 0
        assert choice.kept.keep_rows >= 0
        assert choice.reason


@given(_rules, _measured)
def test_what_is_kept_fits_in_memory(rules: Rules, measured: Measured) -> None:
    choice = choose(rules, measured)
    room = choice.fill_share * measured.memory_bytes
    kept = choice.kept
    assert kept.keep_rows * measured.row_bytes <= room + measured.row_bytes
    if kept.keep_us > rules.hot_us:
        assert kept.keep_us / 1e6 * measured.flow.arriving_bytes_s <= room * (1 + 1e-9)
