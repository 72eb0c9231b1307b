"""The mover: what it decides when it looks at a table, and what it says of that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from mover_kit import NOW_US, SECOND_US, hot_table, put

from tidemill.clock import FakeClock
from tidemill.errors import BackpressureError
from tidemill.hot.table import HotTable
from tidemill.pipeline.decisions import FAILED, MOVED, WAITS
from tidemill.pipeline.mover import RETRY_AFTER_S, Mover


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_US)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 4)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 4)


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
    hot = hot_table(tmp_path, clock, move="periodic", move_min="1 B", hot="10 seconds")
    mover, moves = _mover(hot, clock)
    put(hot, 20, 15, 5)
    mover.look()
    assert moves.asked == []
    assert "not passed" in mover.records()[-1].reason
    clock.advance(60)
    mover.look()
    assert moves.asked == [(3, "the period of 60 s has passed")]
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
    hot = hot_table(tmp_path, clock, move="periodic", hot="10 seconds")
    mover, moves = _mover(hot, clock)
    put(hot, 20)
    clock.advance(60)
    mover.look()
    assert moves.asked == []
    assert _actions(mover) == [WAITS]
    assert "not worth a move" in mover.records()[0].reason
    hot.close()


def test_a_move_that_failed_is_tried_again_after_a_while(tmp_path: Path, clock: FakeClock) -> None:
    hot = hot_table(
        tmp_path, clock, move="periodic", move_min="1 B", hot="1 second", move_every="1 s"
    )
    mover, moves = _mover(hot, clock)
    put(hot, 20)
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
    hot = hot_table(tmp_path, clock, move="manual", memory="4 kB", move_fill="0.5")
    mover, moves = _mover(hot, clock)
    while hot.nbytes < 2_000:
        mover.look()
        assert moves.asked == []
        put(hot, 0, 0, 0, 0)
    mover.look()
    upto, reason = moves.asked[0]
    assert "memory is filled to" in reason
    assert 0 < upto < hot.view().published_seq
    hot.close()


def _begin_move(mover: Mover, clock: FakeClock, seconds: float = 60) -> None:
    clock.advance(seconds)
    mover.look()


def _end_move(mover: Mover, moves: Moves, hot: HotTable, clock: FakeClock, seconds: float) -> None:
    """The move that was begun last takes so long, and then its rows are gone."""
    clock.advance(seconds)
    hot.release(moves.asked[-1][0], frozenset(), frozenset())
    moves.started[-1].is_done = True
    mover.look()


def test_adaptive_keeps_what_queries_count(tmp_path: Path, clock: FakeClock) -> None:
    """As many rows as recent queries asked for, and a tenth more, stay however old they are."""
    hot = hot_table(tmp_path, clock, move_min="1 B", hot="1 second", clock="event")
    mover, moves = _mover(hot, clock)
    put(hot, *range(100, 0, -1))
    for _ in range(30):
        hot.windows.note_rows(clock.now_us(), 20)
    _begin_move(mover, clock)
    assert [upto for upto, _ in moves.asked] == [78]
    assert "recent queries read the newest 20 rows" in moves.asked[0][1]
    _end_move(mover, moves, hot, clock, 1)
    record = mover.records()[0]
    assert (record.keep_rows, record.rows, hot.view().rows) == (22, 78, 22)
    hot.close()


def test_windows_of_queries_that_nobody_asks_any_more_are_forgotten(
    tmp_path: Path, clock: FakeClock
) -> None:
    hot = hot_table(tmp_path, clock, move_min="1 B", hot="1 second", clock="event")
    mover, moves = _mover(hot, clock)
    put(hot, *range(100, 0, -1))
    hot.windows.note_rows(clock.now_us(), 20)
    _begin_move(mover, clock, 601)
    assert moves.asked[0][0] == 99  # all but the newest second
    hot.close()


def test_a_record_says_what_is_to_stay_and_what_stayed(tmp_path: Path, clock: FakeClock) -> None:
    hot = hot_table(tmp_path, clock, move="periodic", move_min="1 B", hot="50 seconds")
    mover, moves = _mover(hot, clock)
    put(hot, *range(100, 0, -1))
    held = hot.nbytes
    _begin_move(mover, clock)
    put(hot, 0, 0, 0)
    _end_move(mover, moves, hot, clock, 2)
    (record, *_) = mover.records()
    assert record.rows == 100
    assert record.stays_bytes is not None
    assert record.stayed_bytes == hot.nbytes
    assert record.stays_bytes <= held
    assert record.stays_from_us is None  # nothing that was there when it began
    assert record.fill_max == 0.6
    assert 0 < record.move_us <= 2 * SECOND_US
    hot.close()


def test_a_record_says_from_when_on_rows_stay(tmp_path: Path, clock: FakeClock) -> None:
    hot = hot_table(tmp_path, clock, move="periodic", move_min="1 B", hot="70 seconds")
    mover, moves = _mover(hot, clock)
    put(hot, *range(100, 0, -1))
    _begin_move(mover, clock)
    assert moves.asked[0][0] == 91
    _end_move(mover, moves, hot, clock, 1)
    assert mover.records()[0].stays_from_us == NOW_US - 9 * SECOND_US
    hot.close()


def test_forecasts_are_corrected_by_what_came(tmp_path: Path, clock: FakeClock) -> None:
    """While moves run, twice as many rows arrive as before them: c_λ learns it, and so does the
    estimate of what stays."""
    hot = hot_table(tmp_path, clock, move="periodic", move_min="1 B", hot="1 second")
    mover, moves = _mover(hot, clock)

    def arrive(seconds: int, rows: int) -> None:
        for _ in range(seconds):
            put(hot, *([0] * rows))
            clock.advance(1)
            mover.look()

    factors, wrong = [], []
    for turn in range(6):
        arrive(60, 50)
        assert len(moves.asked) == turn + 1
        arrive(2, 100)  # under way
        _end_move(mover, moves, hot, clock, 0)
        record = [r for r in mover.records() if r.action == MOVED][-1]
        assert record.stays_bytes is not None
        assert record.stayed_bytes is not None
        factors.append(record.arrival_factor)
        wrong.append(abs(record.stays_bytes - record.stayed_bytes) / record.stayed_bytes)
    assert factors[0] == 1.0
    assert 1.5 < factors[-1] <= 2.1
    assert wrong[-1] < wrong[0] / 2
    hot.close()


def test_adaptive_moves_are_postponed_when_they_take_long(tmp_path: Path, clock: FakeClock) -> None:
    """A move of 10 s every 60 s would take a sixth of the time; periodic ones go on."""
    for policy, wanted in (("adaptive", 1), ("periodic", 2)):
        hot = hot_table(tmp_path / policy, clock, move=policy, move_min="1 B", hot="1 second")
        mover, moves = _mover(hot, clock)
        put(hot, 10, 9, 8)
        _begin_move(mover, clock)
        _end_move(mover, moves, hot, clock, 10)
        put(hot, 10, 9, 8)
        _begin_move(mover, clock)
        assert len(moves.asked) == wanted, policy
        if policy == "adaptive":
            assert "postponed: a move takes 4 s, so that 80 s lie between two" in (
                mover.records()[-1].reason
            )
            _begin_move(mover, clock, 21)
            assert len(moves.asked) == 2
        hot.close()


def test_a_dropped_table_is_forgotten(tmp_path: Path, clock: FakeClock) -> None:
    hot = hot_table(tmp_path, clock)
    tables = {hot.table.table_id: hot}
    mover = Mover(tables, clock, Moves().start)
    put(hot, 1)
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
    hot = hot_table(tmp_path, clock, move="periodic", move_min="1 B", hot="10 seconds")
    mover, moves, life = _short(hot, clock)
    put(hot, 20, 15, 5)
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
    hot = hot_table(tmp_path, clock, move="manual", memory="4 kB", move_fill="0.5")
    while hot.nbytes < 2_000:
        put(hot, 0, 0, 0, 0)
    mover, moves, life = _short(hot, clock)
    mover.look()
    assert (moves.asked, life.needed) == ([], 0)
    clock.advance(1)
    put(hot, 0)
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
    hot = hot_table(tmp_path, clock, move="manual", memory="4 kB", move_fill="0.5")
    mover, _ = _mover(hot, clock)
    while hot.nbytes < 2_000:
        put(hot, 0, 0, 0, 0)
    mover.look()
    assert mover.relief(hot).is_coming
    mover.leave()
    assert not mover.relief(hot).is_coming
    assert "closed" in mover.relief(hot).failure
    hot.close()
