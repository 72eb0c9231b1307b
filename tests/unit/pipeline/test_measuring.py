"""Measuring arrivals and moves; the test tells the time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidemill.pipeline.estimates import MOVE_S_START
from tidemill.pipeline.measuring import FACTOR_MAX, FACTOR_MIN, Contention, FlowMeter

SECOND_US = 1_000_000


class Table:
    """Arrivals at a rate, looked at four times a second."""

    def __init__(self) -> None:
        self.now_us, self.stored = 0, 0
        self.meter = FlowMeter(0, 0)

    def arrive(self, seconds: float, rows_s: float) -> None:
        for _ in range(round(seconds * 4)):
            self.now_us += SECOND_US // 4
            self.stored += round(rows_s / 4)
            self.meter.look(self.stored, self.now_us)

    def move(self, held: int, moved: int, seconds: float, rows_s: float, left: int) -> None:
        """A move of rows of 10 bytes."""
        self.meter.begin(self.now_us, held, 10.0, moved)
        self.arrive(seconds, rows_s)
        self.meter.end(self.now_us, left)


def test_a_steady_rate_is_found() -> None:
    table = Table()
    table.arrive(60, 1_000)
    flow = table.meter.flow(10.0)
    assert flow.rate_bytes_s == pytest.approx(10_000, rel=0.01)
    assert flow.peak_bytes_s == pytest.approx(10_000, rel=0.01)
    assert (flow.arrival_factor, flow.move_factor, flow.move_s) == (1.0, 1.0, MOVE_S_START)


def test_a_burst_is_remembered_for_minutes_and_the_rate_forgets_it() -> None:
    table = Table()
    table.arrive(60, 1_000)
    table.arrive(5, 20_000)
    table.arrive(60, 1_000)
    flow = table.meter.flow(1.0)
    assert flow.rate_bytes_s == pytest.approx(1_000, rel=0.02)
    assert 8_000 < flow.peak_bytes_s < 11_000  # half of it is left after a minute
    table.arrive(600, 1_000)
    assert table.meter.flow(1.0).peak_bytes_s == pytest.approx(1_000, rel=0.05)


def test_a_look_at_the_same_moment_changes_nothing() -> None:
    meter = FlowMeter(5, 0)
    meter.look(1_000, 5)
    meter.look(1_000, 4)  # people set clocks back
    assert meter.rate_rows_s == 0
    assert meter.stored == 0


def test_what_arrives_beside_a_move_corrects_the_rate() -> None:
    table = Table()
    factors = []
    for _ in range(14):
        table.arrive(60, 1_000)
        table.move(10**6, 10**6, 4, 3_000, 0)
        table.arrive(60, 1_000)
        factors.append(table.meter.flow(10.0).arrival_factor)
    assert factors == sorted(factors)
    assert 1 < factors[0] < 2
    assert factors[-1] == pytest.approx(3.0, rel=0.1)


def test_what_moves_free_corrects_what_they_take() -> None:
    """Two million bytes are planned and three go: the index goes along."""
    table = Table()
    for _ in range(8):
        table.move(10 * 10**6, 2 * 10**6, 2, 0, 7 * 10**6)
    assert table.meter.flow(10.0).move_factor == pytest.approx(1.5, rel=0.05)
    assert table.meter.flow(10.0, 2 * 10**6).move_factor == pytest.approx(1.5, rel=0.05)
    assert table.meter.flow(10.0, 2 * 10**9).move_factor == 1.0  # nothing is known of such


def test_how_long_moves_take() -> None:
    table = Table()
    for _ in range(10):
        table.move(0, 0, 3, 0, 0)
    assert table.meter.flow(1.0).move_s == pytest.approx(3.0, rel=0.01)
    table.move(0, 0, 300, 0, 0)  # one that had to wait is not the rule
    assert table.meter.flow(1.0).move_s < 4


def test_a_move_that_failed_teaches_nothing() -> None:
    table = Table()
    table.arrive(60, 1_000)
    before = table.meter.flow(10.0)
    table.meter.begin(table.now_us, 10**6, 10.0, 10**6)
    table.meter.end(table.now_us + 20 * SECOND_US, 10**6, is_good=False)
    table.meter.end(table.now_us + 40 * SECOND_US, 0)  # nothing was begun
    assert table.meter.flow(10.0) == before


def test_factors_are_kept_by_magnitude() -> None:
    contention = Contention()
    for _ in range(50):
        contention.note(1_000, 3.0)
        contention.note(1_000_000, 0.5)
    assert contention.factor(1_200) == pytest.approx(3.0, rel=0.01)
    assert contention.factor(900_000) == pytest.approx(0.5, rel=0.01)
    assert contention.factor(5_000) == pytest.approx(3.0, rel=0.01)  # the nearest
    assert contention.factor(10**12) == 1.0


@given(
    some.lists(
        some.tuples(
            some.floats(0, 1e15), some.floats(-1e6, 1e9, allow_nan=False, allow_infinity=False)
        )
    ),
    some.floats(0, 1e15),
)
def test_a_factor_is_bounded_whatever_was_measured(
    measured: list[tuple[float, float]], size: float
) -> None:
    contention = Contention()
    for at, ratio in measured:
        contention.note(at, ratio)
    assert FACTOR_MIN <= contention.factor(size) <= FACTOR_MAX
    assert len(contention._factors) <= 64
