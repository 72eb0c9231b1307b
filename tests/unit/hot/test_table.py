"""A streaming table against a plain model of it."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hot_kit import (
    NOW_US,
    ORDERED_K,
    QUICK,
    SECOND_US,
    accepted,
    held,
    make_batch,
    make_table,
    open_hot,
)
from hypothesis import given
from hypothesis import strategies as st

from tidemill.clock import FakeClock
from tidemill.errors import (
    BackpressureError,
    ClosedError,
    DuplicateKeyError,
    LateRowsError,
    RowsRejectedError,
)
from tidemill.hot.environment import NoHistory, Relief
from tidemill.hot.intake import Accepted
from tidemill.hot.primary import Key
from tidemill.hot.table import ROW_BYTES_MAX, HotTable
from tidemill.subscribers import Subscribers

pytestmark = pytest.mark.usefixtures("small_blocks")

Row = tuple[Any, ...]
DELAY_US = 10 * SECOND_US


@dataclass
class Model:
    """What a table does, said as simply as possible."""

    settings: dict[str, str]
    has_key: bool
    rows: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    rejected: int = 0
    ignored: int = 0
    replaced: int = 0
    stored: int = 0

    def append(self, rows: list[Row], watermark: int) -> type[RowsRejectedError] | None:
        """Take a batch, or answer the error that refuses it as a whole."""
        good, late = [], []
        for row in rows:
            (late if row[0] < watermark and self.settings["late"] != "accept" else good).append(row)
        rejected, ignored, replaced = 0, 0, 0
        diverts = self.settings["rejected"] == "divert"
        if self.settings["late"] == "reject" and late:
            if not diverts:
                return LateRowsError
            rejected, late = len(late), []
        kept, held = [], list(self.rows)
        if self.has_key:
            policy = self.settings["on_conflict"]
            for row in good:
                known = {key(r): r for r in held}
                own = {key(r): r for r in kept}
                if policy == "replace":
                    if key(row) in own:
                        kept.remove(own[key(row)])
                        replaced += 1
                    elif key(row) in known:
                        held.remove(known[key(row)])
                        replaced += 1
                    kept.append(row)
                elif key(row) in known or key(row) in own:
                    if policy == "reject" and not diverts:
                        return DuplicateKeyError
                    rejected += policy == "reject"
                    ignored += policy == "ignore"
                else:
                    kept.append(row)
            good = kept
        self.rows = held + good
        self.late += late
        self.stored += len(rows) - len(late) - rejected - ignored
        self.rejected += rejected + ignored
        self.ignored += ignored
        self.replaced += replaced
        return None


def key(row: Row) -> Row:
    return row[:2]


SETTINGS = st.fixed_dictionaries(
    {
        "late": st.sampled_from(["accept", "divert", "reject"]),
        "rejected": st.sampled_from(["error", "divert"]),
        "on_conflict": st.sampled_from(["reject", "ignore", "replace"]),
    }
)


@QUICK
@given(st.integers(0, 2**32), SETTINGS, st.booleans())
def test_any_history(seed: int, settings: dict[str, str], has_key: bool) -> None:
    picker = random.Random(seed)
    table = make_table(settings, (ORDERED_K,), ("ts", "k") if has_key else (), DELAY_US)
    clock, model = FakeClock(NOW_US), Model(settings, has_key)
    with tempfile.TemporaryDirectory() as name:
        hot = open_hot(table, Path(name), clock)
        for number in range(30):
            clock.advance(picker.choice((0, 0, 3)))
            late_s = picker.choice((0, 0, 0, 20))
            rows = [
                (
                    clock.now_us() - picker.randint(0, late_s) * SECOND_US,
                    picker.randint(0, 6),
                    f"{number}.{at}",
                    0.5,
                )
                for at in range(picker.choice((0, 1, 2, 9)))
            ]
            before = hot.counters.dump()
            wanted = model.append(rows, clock.now_us() - DELAY_US)
            if wanted is not None:
                with pytest.raises(wanted, match="nothing was stored") as caught:
                    hot.append(accepted(rows))
                assert caught.value.detail
                assert caught.value.hint
                assert hot.counters.dump() == before
            else:
                result = hot.append(accepted(rows))
                assert result.rows_in == len(rows)
                assert result.rows_in == result.stored + result.late + result.rejected
            if picker.random() < 0.3:
                assert held(hot) == model.rows
        assert held(hot) == model.rows
        counters = hot.counters
        assert counters.rows_in == counters.stored + counters.late + counters.rejected
        assert counters.stored == model.stored
        assert counters.late == len(model.late) == hot.published.late.table().num_rows
        assert counters.rejected == model.rejected
        assert counters.ignored == model.ignored
        assert counters.replaced == model.replaced
        assert model.rejected - model.ignored == hot.published.rejected.table().num_rows
        hot.close()


def test_a_source_and_offset_is_stored_once(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path)
    order = [5, 3, 5, 4, 3, 0, 0, 5]
    results = [
        hot.append(accepted([(NOW_US, n, "", 0.0)], source="s", offset=n)).is_repeat for n in order
    ]
    assert results == [False, False, True, False, True, False, True, True]
    assert hot.append(accepted([(NOW_US, 5, "", 0.0)], source="z", offset=5)).stored == 1
    assert [row[1] for row in held(hot)] == [5, 3, 4, 0, 5]
    hot.close()
    again = open_hot(make_table(), tmp_path)
    repeat = again.append(accepted([(NOW_US, 9, "", 0.0)], source="s", offset=4))
    assert (repeat.is_repeat, repeat.rows_in, repeat.stored) == (True, 1, 0)
    assert again.counters.rows_in == 5
    again.close()


def test_a_refused_batch_may_be_sent_again_under_its_offset(tmp_path: Path) -> None:
    hot = open_hot(make_table({"late": "reject"}, delay_us=DELAY_US), tmp_path)
    with pytest.raises(LateRowsError):
        hot.append(accepted([(NOW_US - 60 * SECOND_US, 1, "", 0.0)], source="s", offset=1))
    assert hot.append(accepted([(NOW_US, 1, "", 0.0)], source="s", offset=1)).stored == 1
    hot.close()


def test_rejects_come_along(tmp_path: Path) -> None:
    hot = open_hot(make_table({"rejected": "divert"}), tmp_path)
    result = hot.append(
        accepted([(NOW_US, 1, "", 0.0)], rejects=(('{"k": "x"}', "bad k"), ("1", "bad")))
    )
    assert (result.rows_in, result.stored, result.rejected) == (3, 1, 2)
    kept = hot.published.rejected.table().to_pylist()
    assert [(row["_row"], row["_reason"]) for row in kept] == [
        ('{"k": "x"}', "bad k"),
        ("1", "bad"),
    ]
    hot.close()


def test_row_by_row_is_the_same_as_together(tmp_path: Path) -> None:
    rows = [(NOW_US + n, n if n % 3 else None, "é" * (n % 4), n / 2) for n in range(50)]
    one, other = open_hot(make_table(), tmp_path / "1"), open_hot(make_table(), tmp_path / "2")
    for row in rows:
        assert one.append_row(row)
        if row[3] == 10.0:
            assert len(held(one)) == 21
    for at in range(0, 50, 7):
        other.append(accepted(rows[at : at + 7]))
    for hot, folder in ((one, "1"), (other, "2")):
        assert held(hot) == rows
        assert hot.counters.dump()["stored"] == 50
        assert hot.progress.newest_us == NOW_US + 49
        hot.close()
        again = open_hot(make_table(), tmp_path / folder)
        assert held(again, with_seq=True) == [(*row, seq) for seq, row in enumerate(rows, 1)]
        again.close()


def test_rows_that_must_go_the_long_way(tmp_path: Path) -> None:
    hot = open_hot(make_table(delay_us=DELAY_US), tmp_path)
    assert not hot.append_row((NOW_US - 60 * SECOND_US, 1, "", 0.0)), "late"
    assert not hot.append_row((NOW_US, 1, "x" * ROW_BYTES_MAX, 0.0)), "large"
    assert hot.append_row((NOW_US, 1, "x", 0.0))
    assert hot.counters.rows_in == 1
    hot.close()
    with pytest.raises(ClosedError):
        hot.append_row((NOW_US, 1, "x", 0.0))
    with pytest.raises(ClosedError):
        hot.append(accepted([(NOW_US, 1, "x", 0.0)]))
    keyed = open_hot(make_table(primary_key=("ts", "k")), tmp_path / "keyed")
    assert not keyed.append_row((NOW_US, 1, "x", 0.0))
    keyed.close()


def test_the_callers_buffer_is_the_callers(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path)
    numbers = np.arange(10, dtype=np.int64)
    times = np.full(10, NOW_US, dtype=np.int64)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.Array.from_buffers(pa.timestamp("us"), 10, [None, pa.py_buffer(times)]),
            pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(numbers)]),
            pa.array(["x"] * 10),
            pa.array([0.5] * 10),
        ],
        schema=make_table().schema,
    )
    hot.append(Accepted((batch,)))
    numbers[:] = -1
    times[:] = 0
    assert [row[1] for row in held(hot)] == list(range(10))
    assert {row[0] for row in held(hot)} == {NOW_US}
    hot.close()


def test_a_slice_of_a_batch(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path)
    rows = [(NOW_US + n, n, str(n), 0.5) for n in range(20)]
    hot.append(Accepted((make_batch(rows).slice(5, 3), make_batch(rows).slice(19))))
    assert held(hot) == [*rows[5:8], rows[19]]
    hot.close()


def test_believed_times_of_several_batches(tmp_path: Path) -> None:
    """The newest is the newest of all, also around 1970."""
    hot = open_hot(make_table({"clock": "event"}), tmp_path)
    parts = [make_batch([(time_us, 1, "", 0.0)]) for time_us in (0, -5)]
    hot.append(Accepted(tuple(parts)))
    assert hot.progress.newest_us == 0
    hot.append(accepted([(NOW_US + 7_200 * SECOND_US, 1, "", 0.0)]))
    assert hot.progress.newest_us == 0, "further ahead than max_future"
    hot.close()


# -- memory

TIGHT = {"memory": "1 MB", "retention": "1 minute"}
WIDE = "x" * 5_000


def fill(hot: HotTable, time_us: int) -> int:
    for count in range(1_000):
        try:
            hot.append(accepted([(time_us, 1, WIDE, 0.0)] * 5))
        except BackpressureError:
            return count
    raise AssertionError("the memory has no bound")


def test_at_the_bound_the_writer_gets_an_error(tmp_path: Path) -> None:
    hot = open_hot(make_table(TIGHT), tmp_path, wait_us=0)
    assert fill(hot, NOW_US) > 10
    assert 900_000 < hot.nbytes <= 1_000_000
    with pytest.raises(BackpressureError, match="is full") as caught:
        hot.append(accepted([(NOW_US, 1, WIDE, 0.0)] * 20))
    assert caught.value.hint
    with pytest.raises(BackpressureError, match="larger than the memory"):
        hot.append(accepted([(NOW_US, 1, WIDE, 0.0)] * 300))
    assert not hot.append_row((NOW_US, 1, "", 0.0)) or hot.nbytes <= 1_000_000
    assert hot.counters.rows_in == hot.counters.stored == len(held(hot))
    hot.close()


@pytest.mark.parametrize("policy", ["reject", "replace"])
def test_retention_makes_room_even_before_a_block_is_full(tmp_path: Path, policy: str) -> None:
    """Wide rows fill the memory long before there are enough of them for a block."""
    clock = FakeClock(NOW_US)
    table = make_table(
        {**TIGHT, "on_conflict": policy}, (), ("ts", "k") if policy == "replace" else ()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.hot.published.BLOCK_ROWS", 122_880)
        hot = open_hot(table, tmp_path, clock, wait_us=0)
        for n in range(1_000):
            hot.append(
                accepted([(clock.now_us(), n, WIDE, 0.0)] * (1 if policy == "replace" else 2))
            )
            clock.advance(2)
    assert hot.counters.rejected == 0
    assert len(held(hot)) >= 30
    assert hot.nbytes <= 1_000_000
    hot.close()


def test_replaced_rows_give_their_memory_back_without_a_reader(tmp_path: Path) -> None:
    table = make_table({"memory": "1 MB", "on_conflict": "replace"}, (), ("ts", "k"))
    hot = open_hot(table, tmp_path, wait_us=0)
    for n in range(300):
        hot.append(accepted([(NOW_US, n % 3, WIDE, float(n))]))
    assert sorted(row[3] for row in held(hot)) == [297.0, 298.0, 299.0]
    assert hot.nbytes < 100_000
    hot.close()


def test_a_waiting_writer_goes_on_when_there_is_room(tmp_path: Path) -> None:
    clock = FakeClock(NOW_US)
    hot = open_hot(make_table(TIGHT), tmp_path, clock, wait_us=0)
    fill(hot, NOW_US)
    hot._room.wait_s = 20.0
    waits = threading.Event()
    stored: list[int] = []
    wait_for = hot._room._freed.wait_for

    def waiting(predicate: Any, timeout: float | None = None) -> bool:
        waits.set()
        return wait_for(predicate, timeout)

    hot._room._freed.wait_for = waiting  # type: ignore[method-assign]
    writer = threading.Thread(
        target=lambda: stored.append(
            hot.append(accepted([(NOW_US + 90 * SECOND_US, 7, WIDE, 0.0)] * 10)).stored
        )
    )
    writer.start()
    assert waits.wait(10)
    clock.advance(120)
    assert hot.expire() > 0
    writer.join(10)
    assert stored == [10]
    hot.close()


def test_more_memory_lets_a_waiting_writer_go_on(tmp_path: Path) -> None:
    hot = open_hot(make_table(TIGHT), tmp_path, wait_us=0)
    fill(hot, NOW_US)
    hot.set_table(make_table({"memory": "4 MB"}))
    assert hot.append(accepted([(NOW_US, 7, WIDE, 0.0)] * 10)).stored == 10
    hot.close()


def test_what_is_counted_comes_back_to_what_is_held(tmp_path: Path) -> None:
    """After many appends by many threads the sum of bytes is that of the blocks and pieces."""
    hot = open_hot(make_table(indexes=(ORDERED_K,)), tmp_path)
    run_threads(hot, 4, 60, reads=True)
    view = hot.view()
    exact = sum(block.nbytes for block in view.blocks)
    exact += sum(piece.batch.nbytes for piece in view.tail)
    assert hot.nbytes == exact
    hot.close()


# -- threads


def run_threads(hot: HotTable, writers: int, appends: int, reads: bool) -> None:
    errors: list[BaseException] = []
    done = threading.Event()

    def write(number: int) -> None:
        try:
            for n in range(appends):
                hot.append(
                    accepted(
                        [(NOW_US + n, number, f"{n}.{at}", 0.5) for at in range(3)],
                        source=str(number),
                        offset=n,
                    )
                )
        except BaseException as error:
            errors.append(error)

    def read() -> None:
        try:
            last = 0
            while not done.is_set():
                view = hot.view()
                seqs = view.whole(True).column("_seq").to_pylist()
                assert seqs == list(range(1, len(seqs) + 1)), "no gap, no row twice"
                assert len(seqs) >= last
                assert view.rows == len(seqs)
                last = len(seqs)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    readers = [threading.Thread(target=read)] if reads else []
    for thread in (*threads, *readers):
        thread.start()
    for thread in threads:
        thread.join(30)
    done.set()
    for thread in readers:
        thread.join(30)
    assert errors == []


@pytest.mark.parametrize("durability", ["sync", "none"])
def test_readers_see_a_growing_whole(tmp_path: Path, durability: str) -> None:
    table = make_table({"durability": durability}, (ORDERED_K,))
    hot = open_hot(table, tmp_path, segment_bytes=20_000)
    run_threads(hot, 3, 40, reads=True)
    assert hot.counters.stored == len(held(hot)) == 360
    for number in range(3):
        mine = [row[2] for row in held(hot) if row[1] == number]
        assert mine == [f"{n}.{at}" for n in range(40) for at in range(3)], "a thread's order"
    before = held(hot, with_seq=True)
    hot.close()
    again = open_hot(table, tmp_path)
    assert held(again, with_seq=True) == before
    again.close()


def test_repeats_by_many_threads_are_stored_once(tmp_path: Path) -> None:
    hot = open_hot(make_table({"durability": "sync"}), tmp_path)
    errors: list[BaseException] = []
    stored: list[int] = []

    def work() -> None:
        try:
            for n in range(40):
                result = hot.append(accepted([(NOW_US, n, "", 0.0)], source="s", offset=n))
                stored.append(result.stored)
                assert any(row[1] == n for row in held(hot)), "acknowledged means visible"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert sum(stored) == 40
    assert sorted(row[1] for row in held(hot)) == list(range(40))
    hot.close()


@pytest.mark.parametrize("policy", ["ignore", "replace"])
def test_keys_stay_unique_while_readers_come_and_blocks_are_made(
    tmp_path: Path, policy: str
) -> None:
    hot = open_hot(make_table({"on_conflict": policy}, (), ("ts", "k")), tmp_path)
    errors: list[BaseException] = []
    done = threading.Event()

    def write(number: int) -> None:
        try:
            for n in range(80):
                rows = [(NOW_US + (7 * n + at) % 40, 1, f"{number}.{n}", 0.0) for at in range(5)]
                hot.append(accepted(rows))
        except BaseException as error:
            errors.append(error)

    def read() -> None:
        try:
            while not done.is_set():
                keys = [row[:2] for row in held(hot)]
                assert len(keys) == len(set(keys))
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join(30)
    done.set()
    reader.join(30)
    assert errors == []
    assert len(held(hot)) == 40
    counters = hot.counters
    assert counters.stored - counters.replaced == 40
    assert counters.rows_in == 3 * 80 * 5
    before = held(hot, with_seq=True)
    hot.close()
    again = open_hot(make_table({"on_conflict": policy}, (), ("ts", "k")), tmp_path)
    assert held(again, with_seq=True) == before
    again.close()


def test_indices_come_and_go(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path)
    hot.append(accepted([(NOW_US + n, n, "", 0.0) for n in range(100)]))
    plain = hot.nbytes
    hot.set_table(make_table(indexes=(ORDERED_K,)))
    assert all(ORDERED_K.index_id in block.directories for block in hot.view().blocks)
    assert hot.nbytes > plain
    hot.append(accepted([(NOW_US + n, n, "", 0.0) for n in range(100)]))
    hot.set_table(make_table())
    assert all(not block.directories for block in hot.view().blocks)
    assert len(held(hot)) == 200
    hot.close()


class Moving(NoHistory):
    """An environment that says what it is told to of moves."""

    def __init__(self) -> None:
        self.answer: Callable[[HotTable], Relief] = lambda _: Relief()
        self.calls = 0  # for room

    def make_room(self, hot: HotTable) -> None:
        self.calls += 1

    def relief(self, hot: HotTable) -> Relief:
        return self.answer(hot)


def test_keys_are_looked_for_in_history(tmp_path: Path) -> None:
    class History(NoHistory):
        def find_keys(self, hot: HotTable, batch: pa.RecordBatch) -> dict[Key, int]:
            assert hot.primary is not None
            return dict.fromkeys(hot.primary.keys_of(batch), 7)

    table = make_table({"on_conflict": "reject"}, (), ("ts", "k"))
    hot = open_hot(table, tmp_path, environment=History())
    with pytest.raises(DuplicateKeyError):
        hot.append(accepted([(NOW_US, 1, "", 0.0)], table))
    hot.close()


def test_listeners_are_told_of_rows_that_can_be_read(tmp_path: Path) -> None:
    heard: list[int] = []
    listeners = Subscribers[HotTable]()
    listeners.add(lambda hot: heard.append(len(held(hot))))
    hot = open_hot(make_table(), tmp_path, listeners=listeners)
    hot.append(accepted([(NOW_US, 1, "", 0.0)] * 2))
    assert hot.append_row((NOW_US, 1, "", 0.0))
    hot.listeners.tell(hot)
    hot.close()
    again = open_hot(make_table(), tmp_path, listeners=listeners)  # what is replayed is not news
    again.close()
    assert heard == [2, 3, 3]


def test_a_writer_waits_as_long_as_a_move_is_under_way(tmp_path: Path) -> None:
    moving = Moving()
    hot = open_hot(make_table(TIGHT), tmp_path, wait_us=0, environment=moving)
    fill(hot, NOW_US)
    asked: list[int] = []

    def relief(table: HotTable) -> Relief:
        asked.append(1)
        if len(asked) == 3:
            table.release(table.view().published_seq, frozenset(), frozenset())
        return Relief(is_coming=len(asked) < 5)

    moving.answer, moving.calls = relief, 0
    assert hot.append(accepted([(NOW_US, 1, WIDE, 0.0)] * 20)).stored == 20
    assert (len(asked), moving.calls) == (3, 4)
    hot.close()


def test_a_move_that_failed_is_the_reason_that_memory_is_full(tmp_path: Path) -> None:
    moving = Moving()
    hot = open_hot(make_table(TIGHT), tmp_path, wait_us=0, environment=moving)
    fill(hot, NOW_US)
    moving.answer = lambda _: Relief(failure="the last move failed: the disk is full")
    with pytest.raises(BackpressureError, match="is full") as caught:
        hot.append(accepted([(NOW_US, 1, WIDE, 0.0)] * 20))
    assert "the disk is full" in str(caught.value.detail)
    hot.close()
