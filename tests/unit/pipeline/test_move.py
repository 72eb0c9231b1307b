"""Planning a move: which frames of the log hold its rows, and what its tasks write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hot"))

from hot_kit import NOW_US, accepted, make_table, open_hot

from tidemill.catalog.model import FILE_LATE, FILE_REJECTED, FILE_REPLACED, FILE_ROWS
from tidemill.errors import CorruptLogError
from tidemill.history.storage import Storage
from tidemill.hot.table import HotTable
from tidemill.hot.view import HotView
from tidemill.pipeline.move import Move, frames_between, move_segments, plan_move
from tidemill.stream.leaving import Leaving
from tidemill.stream.relation import FileScan

SECOND_US = 1_000_000


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


# -- frames


def _firsts(path: Path, after: int, upto: int) -> list[int]:
    return [read.first_seq for read in frames_between(path, after, upto)]


def test_frames_of_a_span_and_those_that_reach_into_it(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path)
    for first in range(0, 30, 3):
        hot.append(accepted(_rows(first, first + 1, first + 2)))  # 1-3, 4-6, … 28-30
    hot.flush()
    path = hot.log.segments[0].path
    everything = list(range(1, 31, 3))
    assert set(_firsts(path, 0, 30)) >= set(everything)
    middle = _firsts(path, 4, 14)  # rows 5 to 14: in frames 4, 7, 10 and 13
    assert set(middle) >= {4, 7, 10, 13}
    assert not set(middle) & {19, 22, 25, 28}
    assert 1 in _firsts(path, 0, 1)
    hot.close()


def test_frames_of_a_segment_that_is_being_written(tmp_path: Path) -> None:
    """A frame behind the span may be half written; a move never looks at it."""
    hot = open_hot(make_table(), tmp_path / "log")
    sizes = []
    for first in range(0, 12, 3):
        hot.append(accepted(_rows(first, first + 1, first + 2)))
        hot.flush()
        sizes.append(hot.log.segments[0].path.stat().st_size)
    whole = hot.log.segments[0].path.read_bytes()
    hot.close()
    copy = tmp_path / "segment"
    for cut in range(sizes[2], sizes[3] + 1):  # every way in which the last frame can be torn
        copy.write_bytes(whole[:cut])
        assert {1, 4, 7} <= set(_firsts(copy, 0, 9))


def test_a_damaged_frame_ends_the_move(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path / "log")
    sizes = []
    for first in range(0, 9, 3):
        hot.append(accepted(_rows(first, first + 1, first + 2)))
        hot.flush()
        sizes.append(hot.log.segments[0].path.stat().st_size)
    whole = bytearray(hot.log.segments[0].path.read_bytes())
    hot.close()
    whole[(sizes[0] + sizes[1]) // 2] ^= 0xFF
    copy = tmp_path / "segment"
    copy.write_bytes(whole)
    with pytest.raises(CorruptLogError, match="damaged"):
        _firsts(copy, 0, 9)


# -- the plan and its tasks


def _plan(hot: HotTable, view: HotView, upto: int, folder: Path) -> Move:
    dead = hot.published.replaced_up_to(upto)
    rows = Leaving.of(view, upto, dead, dead)
    return plan_move("job", hot.table, rows, hot.log.segments, Storage(str(folder)), "a test")


def test_tasks_write_what_the_plan_says(tmp_path: Path, small_blocks: None) -> None:
    """Over several segments, with rows replaced in all of them."""
    table = make_table({"on_conflict": "replace"}, primary_key=("ts", "k"))
    hot = open_hot(table, tmp_path / "log", segment_bytes=4_000)
    for number in range(60):
        _put(hot, *[(number * 7 + at) % 40 for at in range(5)])
    hot.flush()
    assert len(hot.log.segments) > 2
    view = hot.view()
    for upto in (1, 137, 299, 300):
        move = _plan(hot, view, upto, tmp_path / f"data{upto}")
        done = [move_segments(task) for task in move.tasks]
        held = view.whole(True).column("_seq").to_pylist()
        assert sum(moved.rows for moved in done) == move.rows
        assert move.rows == sum(seq <= upto for seq in held)
        files = [file for moved in done for file in moved.files]
        assert sum(file.rows for file in files) == move.rows
        assert all(1 <= file.seq_min <= file.seq_max <= upto for file in files)
        assert f"sequence numbers 1 to {upto}" in move.explain()[1]
    hot.close()


def test_rows_that_gave_way_go_to_files_of_their_own(tmp_path: Path, small_blocks: None) -> None:
    """All that were ever seen: those that another row of their own append replaced were not."""
    table = make_table({"on_conflict": "replace"}, primary_key=("ts", "k"))
    hot = open_hot(table, tmp_path / "log", segment_bytes=4_000)
    unseen = set()
    for number in range(40):
        keys = [number % 7, *range(5, 9), number % 7]
        first = hot.view().published_seq + 1
        unseen |= {first + at for at, key in enumerate(keys) if key in keys[at + 1 :]}
        _put(hot, *keys)
    hot.flush()
    view = hot.view()
    held = set(view.whole(True).column("_seq").to_pylist())
    for upto in (3, 100, 240):
        storage = Storage(str(tmp_path / f"data{upto}"))
        move = _plan(hot, view, upto, tmp_path / f"data{upto}")
        done = [move_segments(task) for task in move.tasks]
        files = [file for moved in done for file in moved.replaced]
        assert {file.kind for file in files} <= {FILE_REPLACED}
        with storage.connect() as duck:
            sql = FileScan(tuple(files)).sql(storage, table, ["k"], with_seq=True)
            found = duck.sql(f"SELECT _seq FROM ({sql})").fetchall()
        gone = set(range(1, upto + 1)) - held
        assert sorted(seq for (seq,) in found) == sorted(gone - unseen)
    hot.close()


def test_what_was_set_aside_goes_with_the_first_row_of_its_frame(tmp_path: Path) -> None:
    table = make_table({"late": "divert", "rejected": "divert", "clock": "event"}, delay_us=0)
    hot = open_hot(table, tmp_path / "log")
    hot.append(accepted(_rows(1, 2, at_us=NOW_US), table))
    rows = [*_rows(3, 4, at_us=NOW_US + SECOND_US), *_rows(5, at_us=NOW_US - SECOND_US)]
    hot.append(accepted(rows, table, rejects=(('{"k": 6}', "bad"),)))
    hot.append(accepted((), table, rejects=(('{"k": 7}', "bad"),)))
    hot.flush()
    assert hot.view().published_seq == 4
    kinds = {}
    for upto in (2, 3, 4):
        move = _plan(hot, hot.view(), upto, tmp_path / f"data{upto}")
        files = [file for task in move.tasks for file in move_segments(task).files]
        kinds[upto] = {file.kind: file.rows for file in files}
    assert kinds[2] == {FILE_ROWS: 2}
    assert kinds[3] == {FILE_ROWS: 3, FILE_LATE: 1, FILE_REJECTED: 1}
    assert kinds[4] == {FILE_ROWS: 4, FILE_LATE: 1, FILE_REJECTED: 1}
    hot.close()


def test_an_empty_span_needs_no_task(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path / "log")
    rows = Leaving.of(hot.view(), 0)
    move = plan_move("job", hot.table, rows, (), Storage(str(tmp_path / "data")), "a test")
    assert (move.tasks, move.rows) == ((), 0)
    hot.close()
