"""When rows move: the policies are functions of what was measured, so that is what is given."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.pipeline.policy import (
    ADAPTIVE,
    MANUAL,
    PERIODIC,
    RELIEF,
    Measured,
    Rules,
    choose,
    is_worth,
)

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOT_US = 10 * MINUTE_US
MB = 1_000_000
RULES = Rules(PERIODIC, MINUTE_US, 0.6, 16 * MB, HOT_US)
QUIET = Measured(0, 0, 1_000 * MB, 0.0, 0)


@pytest.mark.parametrize("policy", [PERIODIC, ADAPTIVE])
@pytest.mark.parametrize(
    ("since_us", "is_due"), [(0, False), (MINUTE_US - 1, False), (MINUTE_US, True)]
)
def test_the_period_decides_while_memory_is_far_from_full(
    policy: str, since_us: int, is_due: bool
) -> None:
    choice = choose(replace(RULES, policy=policy), replace(QUIET, since_move_us=since_us))
    assert (choice.is_due, choice.is_forced) == (is_due, False)
    assert choice.keep_us == HOT_US
    assert ("not passed" in choice.reason) != is_due


def test_adaptive_moves_at_t_full_if_that_comes_before_the_period() -> None:
    """min(p, t_full): 300 MB are left until θ_b is reached, at 6 MB/s in 50 s."""
    rules = replace(RULES, policy=ADAPTIVE)
    filling = replace(QUIET, held_bytes=300 * MB, rate_bytes_s=6.0 * MB)
    assert choose(rules, filling).is_due
    assert "full in 50 s" in choose(rules, filling).reason
    slower = replace(filling, rate_bytes_s=4.9 * MB)  # 61 s: the period comes first
    assert not choose(rules, slower).is_due
    assert not choose(replace(rules, policy=PERIODIC), filling).is_due


@pytest.mark.parametrize("policy", [PERIODIC, ADAPTIVE, MANUAL])
def test_at_the_fill_the_oldest_rows_go_whatever_the_policy(policy: str) -> None:
    rules = replace(RULES, policy=policy)
    below = choose(rules, replace(QUIET, held_bytes=600 * MB - 1))
    assert not below.is_forced
    full = choose(rules, replace(QUIET, held_bytes=600 * MB))
    assert full.is_due
    assert full.is_forced
    assert full.keep_us == 0
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
    measured = replace(QUIET, since_move_us=MINUTE_US, rate_bytes_s=0.1 * MB, window_ages_us=ages)
    choice = choose(rules, measured)
    assert choice.is_due
    assert choice.keep_us == 33 * MINUTE_US  # a tenth more
    assert "recent queries read the last 1800 s" in choice.reason
    assert choose(replace(rules, policy=PERIODIC), measured).keep_us == HOT_US


def test_a_window_shorter_than_hot_changes_nothing() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    choice = choose(rules, replace(QUIET, window_ages_us=[MINUTE_US] * 10))
    assert choice.keep_us == HOT_US


def test_a_window_that_does_not_fit_is_not_kept() -> None:
    """30 minutes at 0.4 MB/s are 720 MB, more than θ_b leaves; at 0.2 MB/s they fit."""
    rules = replace(RULES, policy=ADAPTIVE)
    measured = replace(QUIET, rate_bytes_s=0.4 * MB, window_ages_us=[30 * MINUTE_US])
    choice = choose(rules, measured)
    assert choice.keep_us == HOT_US
    assert "do not fit" in choice.reason
    assert choose(rules, replace(measured, rate_bytes_s=0.2 * MB)).keep_us == 33 * MINUTE_US


def test_of_several_windows_those_that_fit_are_kept() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    ages = [20 * MINUTE_US] * 8 + [900 * MINUTE_US] * 8
    measured = replace(QUIET, rate_bytes_s=0.2 * MB, window_ages_us=ages)
    assert choose(rules, measured).keep_us == 22 * MINUTE_US


def test_a_full_memory_moves_even_what_queries_read() -> None:
    rules = replace(RULES, policy=ADAPTIVE)
    measured = replace(QUIET, held_bytes=700 * MB, window_ages_us=[30 * MINUTE_US])
    choice = choose(rules, measured)
    assert choice.is_forced
    assert choice.keep_us == 0


@pytest.mark.parametrize(("movable", "worth"), [(0, False), (16 * MB - 1, False), (16 * MB, True)])
def test_a_move_of_little_is_not_worth_it(movable: int, worth: bool) -> None:
    why_not = is_worth(RULES, QUIET, movable)
    assert (why_not is None) == worth
    if why_not is not None:
        assert "not worth a move, 16,000,000 would be" in why_not
