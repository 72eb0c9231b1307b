"""What the pages of Figures 19 to 21 are made of."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    """A module of the benchmarks."""
    monkeypatch.syspath_prepend(str(ROOT))

    def by_name(name: str) -> ModuleType:
        return importlib.import_module(f"benchmarks.{name}")

    return by_name


def test_the_time_of_a_query_is_shared_out_by_what_its_rows_cost(load) -> None:
    figures, mixing = load("mixed_figures"), load("mixing")
    asked = [
        mixing.Asked("a", 0, 0, 0.010, rows=100, file_rows=0),
        mixing.Asked("a", 0, 0, 0.030, rows=100, file_rows=50),
    ]
    shares = figures.Shares.of(asked, {"memory": 10.0, "files": 30.0})
    assert shares.query_ms == pytest.approx(20)
    assert shares.files_ms == pytest.approx(0.75 * 30 / 2)
    assert shares.memory_only == 0.5
    assert figures.Shares.of([], {}) is None


def test_a_window_knows_which_of_its_rows_are_in_files(load) -> None:
    span = load("mixing").Span(0, 10, before=100, upto=150)
    assert [span.rows_up_to(number) for number in (0, 100, 120, 150, 900)] == [0, 0, 20, 50, 50]


def test_throughput_is_told_apart_by_moves(load) -> None:
    figures, mixing = load("mixed_figures"), load("mixing")
    told = mixing.Told(seconds=10.0, moves=[(2.0, 4.0, 5)])
    told.appended = [(float(second), 100 if 2 <= second < 4 else 200) for second in range(10)]
    assert figures.rate_of(told, True) == 100
    assert figures.rate_of(told, False) == 200
    assert figures.rate_of(mixing.Told(seconds=1.0), True) is None


def test_the_rates_are_those_of_the_paper(load) -> None:
    figures = load("mixed_figures")
    assert figures.RATES_19[:3] == (30_000, 60_000, 90_000)  # doubled, tripled
    assert figures.RATES_21 == (45_000, 10_000, 45_000, 20_000, 45_000)
    assert figures.RATE_20 == 35_000
