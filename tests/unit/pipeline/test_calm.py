"""Whether statements leave the machine time."""

from __future__ import annotations

import pytest

from tidemill.pipeline.calm import BUSY_SHARE, LOOK_EVERY_S, WAIT_MAX_S, Calm


class Day:
    """A clock, and statements that run for a share of its time."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.busy_s = 7.0
        self.calm = Calm(lambda: self.busy_s, lambda: self.now_s)

    def pass_s(self, seconds: float, share: float) -> bool:
        self.now_s += seconds
        self.busy_s += seconds * share
        return self.calm.is_calm()


def test_a_new_process_is_calm() -> None:
    assert Day().calm.is_calm()


@pytest.mark.parametrize(
    ("share", "is_calm"), [(0.0, True), (0.1, True), (0.6, False), (1.0, False)]
)
def test_it_is_the_share_of_the_time_in_which_statements_run(share: float, is_calm: bool) -> None:
    assert Day().pass_s(LOOK_EVERY_S, share) is is_calm


def test_a_moment_is_looked_at_as_a_whole() -> None:
    day = Day()
    assert day.pass_s(LOOK_EVERY_S / 2, 1.0)
    assert not day.pass_s(LOOK_EVERY_S / 2, BUSY_SHARE / 4)  # of all of it more than the share
    assert not day.pass_s(LOOK_EVERY_S, 1.0)
    assert day.pass_s(LOOK_EVERY_S, 0.0)


def test_a_process_that_is_never_calm_is_taken_for_calm_now_and_then() -> None:
    day = Day()
    seen = [day.pass_s(LOOK_EVERY_S, 1.0) for _ in range(int(3 * WAIT_MAX_S / LOOK_EVERY_S))]
    assert seen.count(True) == 3
    assert not any(seen[: int(WAIT_MAX_S / LOOK_EVERY_S) - 1])
