"""What readers see while a block is being made, and which log segments are needed for it."""

from __future__ import annotations

from typing import Any

import pytest
from hot_kit import NOW_US, make_batch, make_table, rows_of

from tidemill.hot import published as module
from tidemill.hot.block import make_block
from tidemill.hot.piece import Piece
from tidemill.hot.published import Published
from tidemill.hot.side import rejected_batch
from tidemill.hot.unit import Unit

pytestmark = pytest.mark.usefixtures("small_blocks")


def unit(seq: int, count: int, replaced: tuple[int, ...] = ()) -> Unit:
    rows = [(NOW_US + n, n, "", 0.0) for n in range(seq, seq + count)]
    return Unit(seq, (make_batch(rows),), replaced=replaced)


def seqs(published: Published) -> list[int]:
    return [row[-1] for row in rows_of(published.view().whole(True))]


def test_a_reader_who_comes_while_a_block_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced rows of the tail must neither come back nor take their neighbours with them."""
    published = Published(make_table(), ())
    published.show(unit(1, 30))
    published.show(unit(31, 20))
    published.show(unit(51, 15, replaced=(*range(31, 51), 3)))
    expected = [n for n in range(1, 66) if not 31 <= n <= 50 and n != 3]
    seen: list[list[int]] = []

    def make(*arguments: Any) -> Any:
        seen.append(seqs(published))
        return make_block(*arguments)

    monkeypatch.setattr(module, "make_block", make)
    assert published.seal() == 65
    assert seen
    assert all(rows == expected for rows in seen)
    assert seqs(published) == expected
    assert sum(block.rows for block in published.view().blocks) == len(expected)


def test_what_the_log_is_needed_for() -> None:
    published = Published(make_table(), ())
    published.show(unit(1, 40))
    published.seal()
    published.show(unit(41, 40))
    assert published.needs(1, 41)
    assert published.expire(NOW_US + 41, 0) == 3
    assert not published.needs(1, 41)
    assert published.needs(1, 42)
    assert published.needs(41, 81), "nothing behind it is published yet"
    published.show(Unit(81, rows=((NOW_US, 1, "", 0.0),)))
    assert published.needs(81, 82)
    assert published.needs(41, 81)
    assert not published.needs(1, 41)


def test_segments_of_rows_set_aside_are_needed() -> None:
    """A frame that stores nothing has the number of the next row: that of the next segment too."""
    published = Published(make_table(), ())
    published.show(unit(1, 40))
    published.seal()
    rejected = rejected_batch([("{}", "why")], NOW_US)
    published.show(Unit(41, rejected=rejected))
    published.show(unit(41, 1))
    published.expire(NOW_US + 41, 0)
    assert published.needs(30, 41), "it was written before the segment that begins with row 41"
    assert not published.needs(20, 40)
    published.expire(NOW_US + 41, NOW_US + 1)
    assert not published.needs(30, 41)


def test_the_segment_before_an_unpublished_frame_is_needed() -> None:
    published = Published(make_table(), ())
    published.show(unit(1, 40))
    published.seal()
    published.expire(NOW_US + 41, 0)
    assert published.needs(1, 41), "a frame of the same segment may wait for its sync"
    assert not published.needs(1, 40)


def test_single_rows_wait_until_somebody_looks() -> None:
    published = Published(make_table(), ())
    for n in range(1, 6):
        published.show(Unit(n, rows=((NOW_US, n, "", 0.0),)))
    assert published._tail.pieces == ()
    assert seqs(published) == [1, 2, 3, 4, 5]
    assert len(published._tail.pieces) == 1
    assert published.view() is published.view()


def test_the_bytes_of_small_appends_are_few_pieces() -> None:
    published = Published(make_table(), ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_ROWS", 10**9)
        for n in range(1, 2_000):
            published.show(unit(n, 1))
    assert len(published._tail.pieces) <= 12
    assert seqs(published) == list(range(1, 2_000))


def test_nothing_is_left_behind_a_number_when_the_rows_behind_were_replaced() -> None:
    batch = make_batch([(NOW_US + n, n, "x", 0.5) for n in range(3)])
    piece = Piece(7, 9, batch).without_rows({9})
    block = make_block(1, 7, batch, (), "ts").without_rows({9}, ())
    assert block is not None
    for part in (piece.after(8), block.after(8, ())):
        assert part is None
    for part in (piece.after(7), block.after(7, ())):
        assert part is not None
        assert (part.first_seq, part.rows) == (8, 1)
