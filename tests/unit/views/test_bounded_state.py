"""The state of a follower: what it takes, and when it gives up."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tidemill.digests.batch import Rows
from tidemill.hot.view import AFTER_ALL_US, BEFORE_ALL_US
from tidemill.views.bounded_state import CHUNK_ROWS_MIN, BoundedState, Narrow, Share, TooLarge


class Counted:
    """A state that takes eight bytes for each row."""

    kind = "counted"

    def __init__(self) -> None:
        self.chunks: list[int] = []

    @property
    def nbytes(self) -> int:
        return 8 * sum(self.chunks)

    def absorb(self, rows: Rows) -> None:
        self.chunks.append(rows.table.num_rows)

    def absorb_partials(self, digest_id: int, partials: pa.Table) -> None:
        self.chunks.append(partials.num_rows)

    def growth(self, rows: int) -> int:
        return 8 * rows

    def table(self, digest_id: int) -> pa.Table:
        raise NotImplementedError

    def select(self, digest_id: int, source: str, narrow: Narrow, more: Sequence[str] = ()) -> str:
        raise NotImplementedError

    def is_steady(self, digest_id: int) -> bool:
        return False

    def groups(self, digest_id: int) -> int:
        return 0


def state_of(kept: Counted, cut_us: int = BEFORE_ALL_US) -> BoundedState:
    state = BoundedState("ts", lambda *_: pa.table({}))
    state.begin(kept, cut_us)
    return state


def rows(*times: int) -> Rows:
    return Rows(pa.table({"ts": pa.array(times, pa.timestamp("us"))}))


def many(count: int) -> Rows:
    return rows(*range(count))


def test_it_knows_the_times_of_its_rows() -> None:
    state = state_of(Counted())
    assert (state.oldest_us, state.newest_us) == (AFTER_ALL_US, BEFORE_ALL_US)
    state.take_rows(rows(5, 3))
    state.take_rows(rows(4, 9))
    assert (state.oldest_us, state.newest_us) == (3, 9)


def test_no_row_before_the_cut_is_taken() -> None:
    kept = Counted()
    state = state_of(kept, cut_us=4)
    state.take_rows(rows(1, 2, 3))
    assert kept.chunks == []
    assert state.newest_us == 3
    state.take_rows(rows(3, 4, 5))
    assert kept.chunks == [2]
    assert state.oldest_us == 4


def test_without_a_bound_rows_are_taken_at_once() -> None:
    kept = Counted()
    state_of(kept).take_rows(many(3 * CHUNK_ROWS_MIN))
    assert kept.chunks == [3 * CHUNK_ROWS_MIN]


def test_near_its_bound_it_takes_less_at_a_time_and_gives_up() -> None:
    kept = Counted()
    state = state_of(kept)
    state.shares = (Share(8 * 2 * CHUNK_ROWS_MIN, ()),)
    state.take_rows(many(2 * CHUNK_ROWS_MIN))
    assert kept.chunks == [2 * CHUNK_ROWS_MIN]
    with pytest.raises(TooLarge):
        state.take_rows(many(CHUNK_ROWS_MIN))
    assert kept.nbytes <= 8 * 2 * CHUNK_ROWS_MIN


def test_the_largest_room_that_a_view_leaves_counts() -> None:
    other = state_of(Counted())
    other.take_rows(many(100))
    state = state_of(Counted())
    assert state.room is None
    state.shares = (Share(1_000, (other,)), Share(900, ()))
    assert state.room == 900
    state.shares = (Share(1_000, (other,)),)
    assert state.room == 200


def test_dropped_it_holds_nothing() -> None:
    state = state_of(Counted())
    state.take_rows(many(10))
    state.drop()
    assert not state.is_built
    assert state.nbytes == 0
