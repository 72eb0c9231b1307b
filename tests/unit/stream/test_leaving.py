"""Leaving: which rows of the log are rows of the table when they leave memory."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hot"))

from hot_kit import NOW_US, accepted, make_table, open_hot
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.clock import FakeClock
from tidemill.hot.table import HotTable
from tidemill.stream.leaving import Leaving, Live, leaving, live_of

PACKAGE_ROWS = 1 << 30  # numbers that a load sets apart for each package


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 4)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 4)


def _rows(*keys: int, at_us: int = NOW_US) -> list[tuple[int, int, str, float]]:
    return [(at_us, key, f"s{key}", 0.5) for key in keys]


def _keyed(folder: Path, **settings: str) -> HotTable:
    table = make_table({"on_conflict": "replace", **settings}, primary_key=("ts", "k"))
    return open_hot(table, folder)


def _put(hot: HotTable, *keys: int) -> None:
    hot.append(accepted(_rows(*keys), hot.table))


def _alive(live: Live, last: int) -> list[int]:
    seqs = np.arange(1, last + 1, dtype=np.int64)
    return seqs[live.mask(seqs)].tolist()


@given(
    spans=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), max_size=5),
    seqs=st.lists(st.integers(-3, 60), max_size=40),
)
@settings(max_examples=60, deadline=None, database=None)
def test_the_mask_says_what_ranges_say(spans: list[tuple[int, int]], seqs: list[int]) -> None:
    ranges, at = [], 1
    for gap, more in spans:
        ranges.append((at + gap, at + gap + more))
        at += gap + more + 1
    live = Live(tuple(ranges))
    found = live.mask(np.array(seqs, dtype=np.int64)).tolist()
    wanted = [any(a <= seq <= b for a, b in ranges) for seq in seqs]
    assert found == wanted


def test_rows_in_order_are_one_range(tmp_path: Path, small_blocks: None) -> None:
    hot = _keyed(tmp_path)
    for first in range(0, 15, 3):
        _put(hot, first, first + 1, first + 2)
    view = hot.view()
    assert view.blocks
    assert live_of(view, 15) == Live(((1, 15),))
    assert live_of(view, 7) == Live(((1, 7),))
    assert live_of(view, 0) == Live(())
    hot.close()


def test_replaced_rows_are_not_alive(tmp_path: Path, small_blocks: None) -> None:
    """In blocks, in the tail, at the edges of a part, and a whole part."""
    hot = _keyed(tmp_path)
    _put(hot, 0, 1, 2, 3)
    _put(hot, 4, 5)
    _put(hot, 0, 3, 5)  # 7, 8, 9 replace 1, 4, 6
    wanted = [2, 3, 5, 7, 8, 9]
    assert _alive(live_of(hot.view(), 9), 20) == wanted
    for upto in range(10):
        assert _alive(live_of(hot.view(), upto), 20) == [seq for seq in wanted if seq <= upto]
    _put(hot, 1, 2)
    assert _alive(live_of(hot.view(), 11), 20) == [5, 7, 8, 9, 10, 11]
    hot.close()


def test_expired_blocks_are_not_alive(tmp_path: Path, small_blocks: None) -> None:
    clock = FakeClock(NOW_US)
    hot = open_hot(make_table({"retention": "1 minute"}), tmp_path, clock)
    hot.append(accepted(_rows(1, 2, 3, 4), hot.table))
    clock.advance(120)
    hot.append(accepted(_rows(5, 6, at_us=clock.now_us()), hot.table))
    hot.expire()
    assert _alive(live_of(hot.view(), 6), 10) == [5, 6]
    hot.close()


@pytest.mark.parametrize("packages", [1, 100])
@pytest.mark.parametrize("sealed", [False, True])
def test_numbers_of_loads_cost_no_memory(
    tmp_path: Path,
    packages: int,
    sealed: bool,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two small appends around a load become one part with a gap of 2³⁰ for each package."""
    if sealed:
        request.getfixturevalue("small_blocks")
    hot = _keyed(tmp_path)
    _put(hot, 0, 1, 2)
    hot.reserve(packages * PACKAGE_ROWS, lambda *_: None)
    _put(hot, 3, 4, 5)
    made: list[int] = []
    arange = np.arange

    def counted(*given: int, **more: object) -> np.ndarray:
        made.append(given[1] - given[0] if len(given) > 1 else given[0])
        assert made[-1] < 1_000, "an array as long as the gap"
        return arange(*given, **more)

    monkeypatch.setattr("tidemill.stream.leaving.np.arange", counted)
    view = hot.view()
    assert any(part.seqs is not None for part in (*view.blocks, *view.tail))
    live = live_of(view, view.published_seq)
    monkeypatch.undo()
    first = packages * PACKAGE_ROWS + 4
    assert live.mask(np.array([1, 3, 4, first - 1, first, first + 2, first + 3])).tolist() == [
        True,
        True,
        False,
        False,
        True,
        True,
        False,
    ]
    hot.close()


def test_all_that_is_published_leaves(tmp_path: Path) -> None:
    hot = _keyed(tmp_path)
    _put(hot, 0, 1, 2)
    _put(hot, 1)  # 4 replaces 2
    found = leaving(hot, None)
    assert found == Leaving(0, 4, Live(((1, 1), (3, 4))), Live(((2, 2),)), frozenset({2}))
    assert leaving(hot, 3).live == Live(((1, 1), (3, 3)))
    assert leaving(hot, 99).upto_seq == 4
    hot.close()


def test_what_left_is_released(tmp_path: Path) -> None:
    hot = _keyed(tmp_path)
    _put(hot, 0, 1, 2)
    leaving(hot, 2).release(hot)
    assert hot.view().whole(True).column("_seq").to_pylist() == [3]
    _put(hot, 0)  # 4 replaces 1, which files hold
    hot.published.remove([1])
    assert leaving(hot, None).deleted == frozenset({1})
    hot.close()
