"""The tail: rows and bytes are counted whatever form the rows have."""

from __future__ import annotations

import pytest
from hot_kit import NOW_US, make_batch, make_table

from tidemill.hot import tail as module
from tidemill.hot.tail import Tail
from tidemill.hot.unit import Unit


def row(number: int) -> tuple[object, ...]:
    return (NOW_US + number, number, "x", 0.5)


def single(seq: int) -> Unit:
    return Unit(seq, rows=(row(seq),))


def batch(seq: int, count: int) -> Unit:
    return Unit(seq, (make_batch([row(seq + at) for at in range(count)]),))


@pytest.fixture
def tail() -> Tail:
    return Tail(make_table().schema)


def seqs(tail: Tail) -> list[int]:
    return [seq for piece in tail.pieces for seq in piece.seq_column().tolist()]


def check(tail: Tail) -> None:
    held = sum(piece.rows for piece in tail.pieces)
    assert tail.rows == held + len(tail.waiting)
    assert tail.piece_bytes == sum(piece.nbytes for piece in tail.pieces)


def test_single_rows_wait_until_somebody_wants_them(tail: Tail) -> None:
    for seq in (1, 2, 3):
        tail.add(single(seq))
    assert (tail.pieces, len(tail.waiting), tail.rows) == ((), 3, 3)
    assert (tail.may_wait(1), tail.may_wait(2)) == (False, True)
    tail.gather()
    assert (seqs(tail), tail.waiting, tail.may_wait(9)) == ([1, 2, 3], [], False)
    check(tail)


def test_a_batch_goes_behind_the_rows_that_wait(tail: Tail) -> None:
    tail.add(single(1))
    tail.add(batch(2, 3))
    assert seqs(tail) == [1, 2, 3, 4]
    check(tail)


def test_rows_that_do_not_follow_each_other_are_pieces_of_their_own(tail: Tail) -> None:
    tail.add(single(1))
    tail.add(single(5))
    assert (seqs(tail), len(tail.waiting)) == ([1], 1)
    tail.gather()
    assert seqs(tail) == [1, 5]
    check(tail)


def test_many_rows_do_not_wait(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PENDING_MAX", 4)
    for seq in range(1, 6):
        tail.add(single(seq))
        check(tail)
    assert (seqs(tail), len(tail.waiting)) == ([1, 2, 3, 4], 1)


def test_replaced_and_moved_rows_leave(tail: Tail) -> None:
    tail.add(batch(1, 5))
    assert tail.remove({2, 4, 9}) == {2, 4}
    assert seqs(tail) == [1, 3, 5]
    check(tail)
    tail.release(3)
    assert seqs(tail) == [5]
    check(tail)
    tail.drop_first(1)
    assert (tail.pieces, tail.rows, tail.piece_bytes) == ((), 0, 0)
