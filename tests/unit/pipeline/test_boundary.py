"""How far a move goes: by age, by count, by bytes, and never beyond what is published."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "hot"))

from hot_kit import make_table, open_hot
from mover_kit import NOW_US, SECOND_US, hot_table, put

from tidemill.clock import FakeClock
from tidemill.hot.table import HotTable
from tidemill.pipeline.boundary import Boundary, older_than, oldest, oldest_us


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_US)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 4)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 4)


def _upto(hot: HotTable, keep_s: float, keep_rows: int = 0) -> tuple[int, int]:
    boundary = older_than(hot, hot.view(), int(keep_s * SECOND_US), keep_rows)
    return boundary.upto_seq, boundary.rows


def test_nothing_is_older_in_an_empty_table(tmp_path: Path, clock: FakeClock) -> None:
    for kind in ("wall", "event"):
        hot = hot_table(tmp_path / kind, clock, clock=kind)
        assert older_than(hot, hot.view(), 0) == Boundary(0, 0, 0)
        assert oldest(hot.view(), 1_000) == Boundary(0, 0, 0)
        hot.close()


@pytest.mark.parametrize("kind", ["wall", "event"])
def test_rows_in_order_are_cut_at_their_age(
    tmp_path: Path, clock: FakeClock, small_blocks: None, kind: str
) -> None:
    hot = hot_table(tmp_path, clock, clock=kind)
    for first in range(100, 0, -5):
        put(hot, *range(first, first - 5, -1))
    newest_s = 1 if kind == "event" else 0  # "now" is then the newest row's time
    assert _upto(hot, 100 - newest_s) == (1, 1)
    assert _upto(hot, 51 - newest_s) == (50, 50)
    assert _upto(hot, 1_000) == (0, 0)
    assert _upto(hot, 1 - newest_s) == (100, 100)
    boundary = older_than(hot, hot.view(), 50 * SECOND_US)
    held = sum(int(p.batch.nbytes) for p in (*hot.view().blocks, *hot.view().tail))
    assert 0.3 * held < boundary.bytes < 0.7 * held
    hot.close()


@pytest.mark.parametrize("kind", ["wall", "event"])
def test_late_rows_go_with_those_around_them(
    tmp_path: Path, clock: FakeClock, small_blocks: None, kind: str
) -> None:
    """A late row is old enough at once; it waits only for those that came before it."""
    hot = hot_table(tmp_path, clock, clock=kind, late="accept")
    put(hot, 30, 3_000, 29, 28)
    put(hot, 10, 5_000, 9, 0)
    assert _upto(hot, 20) == (4, 4)
    assert _upto(hot, 29.5) == (2, 2)
    assert _upto(hot, 10) == (6, 6)
    hot.close()


def test_a_row_from_the_future_keeps_nothing_back_on_a_wall_clock(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    hot = hot_table(tmp_path, clock, clock="wall", max_future="forever")
    put(hot, 0, -100_000, 0)
    assert _upto(hot, 60) == (0, 0)
    clock.advance(90)
    put(hot, 50, 0)
    assert _upto(hot, 60) == (3, 3)  # by their arrival; the fourth arrived just now
    clock.advance(60)
    assert _upto(hot, 60) == (5, 5)
    hot.close()


def test_a_row_from_the_future_holds_an_event_table_back_until_time_has_come(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    """Unbelievable times do not move an event clock, so such a row is younger than now."""
    hot = hot_table(tmp_path, clock, clock="event", max_future="1 hour")
    put(hot, 100, -50_000, 90, 0)
    assert _upto(hot, 60) == (1, 1)
    hot.close()


def test_gaps_in_the_numbers_do_not_move_the_boundary(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    """Numbers that loads were given, and rows that were replaced."""
    table = make_table({"clock": "wall", "on_conflict": "replace"}, primary_key=("ts", "k"))
    hot = open_hot(table, tmp_path, clock)
    reserved: list[tuple[int, int]] = []
    put(hot, 100, 90, 80)
    hot.reserve(1 << 30, lambda *span: reserved.append(span))
    put(hot, 70, 60, 50, 40, 30)
    first = (1 << 30) + 4
    assert reserved == [(4, first - 1)]
    assert _upto(hot, 80) == (3, 3)
    assert _upto(hot, 60) == (first + 1, 5)
    put(hot, 100)  # replaces the first row, which has the same time and key
    assert _upto(hot, 80) == (3, 2)
    assert _upto(hot, 60) == (first + 1, 4)
    assert oldest(hot.view(), 1).upto_seq >= 3
    hot.close()


def test_the_oldest_bytes_are_taken_in_whole_parts(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    hot = hot_table(tmp_path, clock)
    for _ in range(5):
        put(hot, 5, 4, 3, 2)
    view = hot.view()
    size = int(view.blocks[0].batch.nbytes)
    assert oldest(view, 0) == Boundary(0, 0, 0)
    assert oldest(view, 1) == Boundary(4, 4, size)
    assert oldest(view, size) == Boundary(4, 4, size)
    assert oldest(view, size + 1).upto_seq == 8
    assert oldest(view, 1_000 * size).upto_seq == 20
    hot.close()


# -- windows by count


def test_the_newest_rows_stay_however_old_they_are(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    hot = hot_table(tmp_path, clock)
    for _ in range(5):
        put(hot, 500, 400, 300, 200)
    assert _upto(hot, 10) == (20, 20)
    assert _upto(hot, 10, keep_rows=7) == (13, 13)
    assert _upto(hot, 10, keep_rows=4) == (16, 16)
    assert _upto(hot, 10, keep_rows=20) == (0, 0)
    assert _upto(hot, 10, keep_rows=1_000) == (0, 0)
    hot.close()


def test_both_ages_and_counts_are_kept(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    hot = hot_table(tmp_path, clock)
    put(hot, *range(100, 0, -1))
    assert _upto(hot, 60, keep_rows=10) == (41, 41)  # the age keeps more
    assert _upto(hot, 60, keep_rows=80) == (20, 20)  # the count does
    hot.close()


# -- what stays


def test_the_oldest_time_that_stays(tmp_path: Path, clock: FakeClock, small_blocks: None) -> None:
    hot = hot_table(tmp_path, clock, late="accept")
    put(hot, 50, 40, 30, 20)  # a block
    put(hot, 10, 45, 9)  # a late row in the tail
    view = hot.view()

    def ages(seq: int) -> float | None:
        found = oldest_us(view, seq)
        return None if found is None else (NOW_US - found) / SECOND_US

    assert [ages(seq) for seq in (0, 1, 3, 4, 5, 6, 7)] == [50, 45, 45, 45, 45, 9, None]
    hot.close()


# -- whatever the rows


_ages = some.lists(
    some.lists(some.floats(-5_000, 5_000, allow_nan=False), min_size=1, max_size=9), max_size=8
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    _ages,
    some.sampled_from(["wall", "event"]),
    some.floats(0, 10_000),
    some.integers(0, 80),
    some.integers(0, 10_000),
)
def test_a_boundary_never_lies_beyond_what_is_published(
    small_blocks: None,
    batches: list[list[float]],
    kind: str,
    keep_s: float,
    keep_rows: int,
    wanted_bytes: int,
) -> None:
    clock = FakeClock(NOW_US)
    with tempfile.TemporaryDirectory() as folder:
        hot = hot_table(Path(folder), clock, clock=kind, max_future="forever")
        for ages in batches:
            put(hot, *ages)
            clock.advance(1)
        view = hot.view()
        found = older_than(hot, view, int(keep_s * SECOND_US), keep_rows)
        for boundary in (found, oldest(view, wanted_bytes)):
            assert view.moved_seq <= boundary.upto_seq <= view.published_seq
            assert boundary.rows == sum(
                len(range(p.first_seq, min(p.last_seq, boundary.upto_seq) + 1))
                for p in (*view.blocks, *view.tail)
            )
            assert boundary.bytes >= 0
        assert view.rows - found.rows >= min(keep_rows, view.rows)
        hot.close()
