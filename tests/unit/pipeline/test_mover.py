"""The mover: how far a move goes, and what it decides when it looks at a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hot"))

from hot_kit import NOW_US, accepted, make_table, open_hot

from tidemill.clock import FakeClock
from tidemill.errors import BackpressureError
from tidemill.hot.table import HotTable
from tidemill.pipeline.mover import (
    FAILED,
    MOVED,
    RETRY_AFTER_S,
    WAITS,
    Boundary,
    Mover,
    older_than,
    oldest,
)

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_US)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 4)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 4)


def _hot(folder: Path, at: FakeClock, **settings: str) -> HotTable:
    return open_hot(make_table(settings), folder, at)


def _put(hot: HotTable, *ages_s: float) -> None:
    """Rows so many seconds old, as one batch."""
    now_us = hot._clock.now_us()
    rows = [(now_us - int(age * SECOND_US), n, "s", 0.5) for n, age in enumerate(ages_s)]
    hot.append(accepted(rows, hot.table))


def _upto(hot: HotTable, keep_s: float) -> tuple[int, int]:
    boundary = older_than(hot, hot.view(), int(keep_s * SECOND_US))
    return boundary.upto_seq, boundary.rows


# -- boundaries


def test_nothing_is_older_in_an_empty_table(tmp_path: Path, clock: FakeClock) -> None:
    for kind in ("wall", "event"):
        hot = _hot(tmp_path / kind, clock, clock=kind)
        assert older_than(hot, hot.view(), 0) == Boundary(0, 0, 0)
        assert oldest(hot.view(), 1_000) == Boundary(0, 0, 0)
        hot.close()


@pytest.mark.parametrize("kind", ["wall", "event"])
def test_rows_in_order_are_cut_at_their_age(
    tmp_path: Path, clock: FakeClock, small_blocks: None, kind: str
) -> None:
    hot = _hot(tmp_path, clock, clock=kind)
    for first in range(100, 0, -5):
        _put(hot, *range(first, first - 5, -1))
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
    hot = _hot(tmp_path, clock, clock=kind, late="accept")
    _put(hot, 30, 3_000, 29, 28)
    _put(hot, 10, 5_000, 9, 0)
    assert _upto(hot, 20) == (4, 4)
    assert _upto(hot, 29.5) == (2, 2)
    assert _upto(hot, 10) == (6, 6)
    hot.close()


def test_a_row_from_the_future_keeps_nothing_back_on_a_wall_clock(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    hot = _hot(tmp_path, clock, clock="wall", max_future="forever")
    _put(hot, 0, -100_000, 0)
    assert _upto(hot, 60) == (0, 0)
    clock.advance(90)
    _put(hot, 50, 0)
    assert _upto(hot, 60) == (3, 3)  # by their arrival; the fourth arrived just now
    clock.advance(60)
    assert _upto(hot, 60) == (5, 5)
    hot.close()


def test_a_row_from_the_future_holds_an_event_table_back_until_time_has_come(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    """Unbelievable times do not move an event clock, so such a row is younger than now."""
    hot = _hot(tmp_path, clock, clock="event", max_future="1 hour")
    _put(hot, 100, -50_000, 90, 0)
    assert _upto(hot, 60) == (1, 1)
    hot.close()


def test_gaps_in_the_numbers_do_not_move_the_boundary(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    """Numbers that loads were given, and rows that were replaced."""
    table = make_table({"clock": "wall", "on_conflict": "replace"}, primary_key=("ts", "k"))
    hot = open_hot(table, tmp_path, clock)
    reserved: list[tuple[int, int]] = []
    _put(hot, 100, 90, 80)
    hot.reserve(1 << 30, lambda *span: reserved.append(span))
    _put(hot, 70, 60, 50, 40, 30)
    first = (1 << 30) + 4
    assert reserved == [(4, first - 1)]
    assert _upto(hot, 80) == (3, 3)
    assert _upto(hot, 60) == (first + 1, 5)
    _put(hot, 100)  # replaces the first row, which has the same time and key
    assert _upto(hot, 80) == (3, 2)
    assert _upto(hot, 60) == (first + 1, 4)
    assert oldest(hot.view(), 1).upto_seq >= 3
    hot.close()


def test_the_oldest_bytes_are_taken_in_whole_parts(
    tmp_path: Path, clock: FakeClock, small_blocks: None
) -> None:
    hot = _hot(tmp_path, clock)
    for _ in range(5):
        _put(hot, 5, 4, 3, 2)
    view = hot.view()
    size = int(view.blocks[0].batch.nbytes)
    assert oldest(view, 0) == Boundary(0, 0, 0)
    assert oldest(view, 1) == Boundary(4, 4, size)
    assert oldest(view, size) == Boundary(4, 4, size)
    assert oldest(view, size + 1).upto_seq == 8
    assert oldest(view, 1_000 * size).upto_seq == 20
    hot.close()


# -- decisions


@dataclass
class FakeMove:
    """A move that ends when the test says so."""

    job_id: str
    failure: BaseException | None = None
    is_done: bool = False

    def done(self) -> bool:
        return self.is_done

    def error(self) -> BaseException | None:
        return self.failure


@dataclass
class Moves:
    """Takes the mover's orders and carries none out."""

    asked: list[tuple[int, str]] = field(default_factory=list)
    started: list[FakeMove] = field(default_factory=list)
    refuses: bool = False

    def start(self, hot: HotTable, upto_seq: int, reason: str) -> FakeMove:
        if self.refuses:
            raise BackpressureError("no")
        self.asked.append((upto_seq, reason))
        self.started.append(FakeMove(f"job {len(self.asked)}"))
        return self.started[-1]


def _mover(hot: HotTable, clock: FakeClock) -> tuple[Mover, Moves]:
    moves = Moves()
    mover = Mover({hot.table.table_id: hot}, clock, moves.start)
    mover.look()
    return mover, moves


def _actions(mover: Mover) -> Sequence[str]:
    return [record.action for record in mover.records()]


def test_it_moves_when_the_period_has_passed_and_one_at_a_time(
    tmp_path: Path, clock: FakeClock
) -> None:
    hot = _hot(tmp_path, clock, move="periodic", move_min="1 B", hot="10 seconds")
    mover, moves = _mover(hot, clock)
    _put(hot, 20, 15, 5)
    mover.look()
    assert moves.asked == []
    assert "not passed" in mover.records()[-1].reason
    clock.advance(60)
    mover.look()
    assert moves.asked == [(3, "the period has passed")]
    clock.advance(120)
    mover.look()  # the first is under way
    assert len(moves.asked) == 1
    moves.started[0].is_done = True
    mover.look()
    record = mover.records()[0]
    assert (record.action, record.rows, record.job_id) == (MOVED, 3, "job 1")
    assert record.policy == "periodic"
    assert record.keep_us == 10 * SECOND_US
    assert len(moves.asked) == 1  # the period begins anew when a move has ended
    hot.close()


def test_it_waits_when_a_move_is_not_worth_it(tmp_path: Path, clock: FakeClock) -> None:
    hot = _hot(tmp_path, clock, move="periodic", hot="10 seconds")
    mover, moves = _mover(hot, clock)
    _put(hot, 20)
    clock.advance(60)
    mover.look()
    assert moves.asked == []
    assert _actions(mover) == [WAITS]
    assert "not worth a move" in mover.records()[0].reason
    hot.close()


def test_a_move_that_failed_is_tried_again_after_a_while(tmp_path: Path, clock: FakeClock) -> None:
    hot = _hot(tmp_path, clock, move="periodic", move_min="1 B", hot="1 second", move_every="1 s")
    mover, moves = _mover(hot, clock)
    _put(hot, 20)
    clock.advance(2)
    mover.look()
    moves.started[0].is_done = True
    moves.started[0].failure = RuntimeError("the disk is full")
    clock.advance(2)
    mover.look()
    assert _actions(mover) == [FAILED]
    assert "the disk is full" in mover.records()[0].reason
    assert len(moves.asked) == 1
    clock.advance(RETRY_AFTER_S)
    mover.look()
    assert len(moves.asked) == 2
    moves.started[1].is_done = True
    moves.refuses = True
    clock.advance(2)
    mover.look()
    clock.advance(2)
    mover.look()  # refused: the queue is full
    assert FAILED in _actions(mover)[1:]
    hot.close()


def test_a_full_memory_is_relieved_whatever_the_age(
    tmp_path: Path, clock: FakeClock, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.config.MEMORY_BYTES_MIN", 1)
    hot = _hot(tmp_path, clock, move="manual", memory="4 kB", move_fill="0.5")
    mover, moves = _mover(hot, clock)
    while hot.nbytes < 2_000:
        mover.look()
        assert moves.asked == []
        _put(hot, 0, 0, 0, 0)
    mover.look()
    upto, reason = moves.asked[0]
    assert "memory is filled to" in reason
    assert 0 < upto < hot.view().published_seq
    hot.close()


def test_a_dropped_table_is_forgotten(tmp_path: Path, clock: FakeClock) -> None:
    hot = _hot(tmp_path, clock)
    tables = {hot.table.table_id: hot}
    mover = Mover(tables, clock, Moves().start)
    _put(hot, 1)
    mover.look()
    assert _actions(mover) == [WAITS]
    tables.clear()
    mover.look()
    assert mover.records() == []
    hot.close()


# -- processes that stay, and those that do not


@dataclass
class Life:
    """A process of which a test says whether it stays."""

    is_long: bool = False
    is_ready: bool = False
    needed: int = 0

    def foresee(self) -> None: ...

    def need(self) -> None:
        self.needed += 1

    def allows_background(self) -> bool:
        return self.is_ready


def _short(hot: HotTable, clock: FakeClock) -> tuple[Mover, Moves, Life]:
    moves, life = Moves(), Life()
    mover = Mover({hot.table.table_id: hot}, clock, moves.start, life)
    mover.look()
    return mover, moves, life


def test_a_move_that_can_wait_is_left_to_a_process_that_stays(
    tmp_path: Path, clock: FakeClock
) -> None:
    hot = _hot(tmp_path, clock, move="periodic", move_min="1 B", hot="10 seconds")
    mover, moves, life = _short(hot, clock)
    _put(hot, 20, 15, 5)
    clock.advance(60)
    mover.look()
    assert (moves.asked, life.needed) == ([], 0)
    assert "left to a process that stays" in mover.records()[-1].reason
    life.is_ready = True
    mover.look()
    assert len(moves.asked) == 1
    hot.close()


def test_a_memory_that_was_full_before_waits_and_one_that_is_filled_does_not(
    tmp_path: Path, clock: FakeClock, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.config.MEMORY_BYTES_MIN", 1)
    hot = _hot(tmp_path, clock, move="manual", memory="4 kB", move_fill="0.5")
    while hot.nbytes < 2_000:
        _put(hot, 0, 0, 0, 0)
    mover, moves, life = _short(hot, clock)
    mover.look()
    assert (moves.asked, life.needed) == ([], 0)
    clock.advance(1)
    _put(hot, 0)
    mover.look()
    assert len(moves.asked) == 1
    assert life.needed > 0
    assert mover.relief(hot).is_coming
    moves.started[0].is_done = True
    moves.started[0].failure = RuntimeError("the disk is full")
    mover.look()
    assert not mover.relief(hot).is_coming
    assert "the disk is full" in mover.relief(hot).failure
    hot.close()


def test_a_process_that_ends_lets_nobody_wait_for_a_move(
    tmp_path: Path, clock: FakeClock, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.config.MEMORY_BYTES_MIN", 1)
    hot = _hot(tmp_path, clock, move="manual", memory="4 kB", move_fill="0.5")
    mover, _ = _mover(hot, clock)
    while hot.nbytes < 2_000:
        _put(hot, 0, 0, 0, 0)
    mover.look()
    assert mover.relief(hot).is_coming
    mover.leave()
    assert not mover.relief(hot).is_coming
    assert "closed" in mover.relief(hot).failure
    hot.close()
