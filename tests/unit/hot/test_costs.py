"""What rows cost: start values, smoothing, and which place is cheaper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidemill.hot.costs import CHEAPER_RUNS, FILES, MEMORY, SPARK, START_NS, ScanCosts
from tidemill.smoothing import STEP_MAX, smoothed


def test_memory_and_files_have_start_values_and_spark_has_none() -> None:
    costs = ScanCosts()
    assert [(place, cost.value, cost.runs) for place, cost in costs.items()] == [
        (MEMORY, START_NS[MEMORY], 0),
        (FILES, START_NS[FILES], 0),
    ]
    assert costs.get(SPARK) is None


def test_measurements_take_the_place_of_a_start_value() -> None:
    costs = ScanCosts()
    for number in range(20):
        costs.note(MEMORY, 12.0, number)
    cost = costs.get(MEMORY)
    assert cost is not None
    assert cost.value == pytest.approx(12.0, rel=0.01)
    assert (cost.runs, cost.measured_at_us) == (20, 19)


def test_the_first_measurement_of_spark_is_its_cost() -> None:
    costs = ScanCosts()
    costs.note(SPARK, -3.0, 1)  # nonsense: the clock was set
    assert costs.get(SPARK) is None
    costs.note(SPARK, 800.0, 2)
    cost = costs.get(SPARK)
    assert cost is not None
    assert (cost.value, cost.runs) == (800.0, 1)


def test_one_slow_query_does_not_change_the_picture() -> None:
    costs = ScanCosts()
    for _ in range(50):
        costs.note(MEMORY, 10.0, 0)
    costs.note(MEMORY, 1e6, 0)
    cost = costs.get(MEMORY)
    assert cost is not None
    assert cost.value < 12


def test_memory_is_the_cheaper_place_unless_files_clearly_are() -> None:
    costs = ScanCosts()
    for _ in range(30):
        costs.note(MEMORY, 500.0, 0)
    assert costs.memory_is_cheaper  # of files nothing is known
    for _ in range(CHEAPER_RUNS - 1):
        costs.note(FILES, 40.0, 0)
    assert costs.memory_is_cheaper  # too little
    costs.note(FILES, 40.0, 0)
    assert not costs.memory_is_cheaper
    for _ in range(90):
        costs.note(MEMORY, 70.0, 0)
    assert costs.memory_is_cheaper  # a little more is no reason


@given(some.floats(1e-6, 1e9), some.floats(-1e12, 1e12), some.integers(0, 10**6))
def test_an_estimate_moves_by_a_bounded_step(old: float, found: float, runs: int) -> None:
    new = smoothed(old, found, runs)
    assert old / STEP_MAX * (1 - 1e-9) <= new <= old * STEP_MAX * (1 + 1e-9)
    if found > 0:
        assert min(old, found) * (1 - 1e-9) <= new <= max(old, found) * (1 + 1e-9)
