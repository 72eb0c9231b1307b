"""Starts after every kind of end."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hot_kit import (
    NOW_US,
    QUICK,
    SECOND_US,
    accepted,
    held,
    make_table,
    open_hot,
    rows_of,
)
from hypothesis import given
from hypothesis import strategies as st

from tidemill.catalog.model import Table
from tidemill.clock import FakeClock
from tidemill.errors import CorruptLogError
from tidemill.hot.ending import END_FILE
from tidemill.hot.log import SystemFiles, list_segments, segment_path
from tidemill.hot.recovery import Recovered, recover
from tidemill.hot.table import HotTable
from tidemill.types import Column, SqlType

pytestmark = pytest.mark.usefixtures("small_blocks")


def rows(first: int, count: int = 2) -> list[tuple[int, int, str, float]]:
    return [(NOW_US + n, n, "x", 0.5) for n in range(first, first + count)]


def start(table: Table, folder: Path, clock: FakeClock | None = None) -> tuple[HotTable, Recovered]:
    hot = HotTable(table, clock or FakeClock(NOW_US), 0)
    return hot, recover(hot, folder, 1 << 20, SystemFiles())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_log(folder: Path, frames: int, segment_bytes: int = 1 << 20) -> list[int]:
    """Two rows a frame; answers where each frame of the last segment begins."""
    hot = open_hot(make_table(), folder, segment_bytes=segment_bytes)
    starts = []
    for n in range(frames):
        before = hot.log.size_bytes()
        hot.append(accepted(rows(2 * n)))
        starts.append(before)
    starts.append(hot.log.size_bytes())
    hot.close()
    return starts


@pytest.mark.parametrize("kind", ["batch", "row"])
def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path, kind: str) -> None:
    hot = open_hot(make_table(), tmp_path)
    hot.append(accepted(rows(0)))
    hot.append(accepted(rows(2), source="s", offset=1))
    whole = hot.log.size_bytes()
    if kind == "batch":
        hot.append(accepted(rows(4), source="s", offset=2))
    else:
        assert hot.append_row(rows(4)[0])
    full = hot.log.size_bytes()
    hot.close()
    (tmp_path / END_FILE).unlink()  # as if it had been killed
    [segment] = list_segments(tmp_path)
    data = segment.path.read_bytes()
    for size in range(whole, full):
        segment.path.write_bytes(data[:size])
        hot, found = start(make_table(), tmp_path)
        assert found.torn_bytes == size - whole
        assert found.log_bytes == segment.path.stat().st_size == whole
        assert (found.rows, found.frames) == (4, 2)
        assert held(hot) == rows(0, 4)
        assert hot.offsets.newest() == {"s": 1}
        hot.close()
    segment.path.write_bytes(data[:whole] + b"\0" * 4_096)
    hot, found = start(make_table(), tmp_path)
    assert found.torn_bytes == 4_096
    hot.append(accepted(rows(4)))
    hot.close()
    hot, _ = start(make_table(), tmp_path)
    assert held(hot) == rows(0, 6)
    hot.close()


def test_a_flipped_byte_in_the_middle_stops_the_start(tmp_path: Path) -> None:
    starts = write_log(tmp_path, 3)
    [segment] = list_segments(tmp_path)
    data = segment.path.read_bytes()
    first = len(data) - (starts[-1] - starts[1]) - (starts[2] - starts[1])
    for at in (0, 5, first, first + 9, first + 40, starts[2] - 1):
        damaged = bytearray(data)
        damaged[at] ^= 1
        segment.path.write_bytes(damaged)
        before = contents(tmp_path)
        with pytest.raises(CorruptLogError) as caught:
            start(make_table(), tmp_path)
        assert segment.path.name in caught.value.message
        assert "at byte" in caught.value.message
        assert caught.value.hint
        assert contents(tmp_path) == before


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_flipped_bit_in_the_last_frame_stops_the_start(tmp_path: Path, is_closed: bool) -> None:
    starts = write_log(tmp_path, 2)
    [segment] = list_segments(tmp_path)
    if not is_closed:
        (tmp_path / END_FILE).unlink()  # as if it had been killed
    good = segment.path.read_bytes()
    for bit in range(8 * starts[1], 8 * starts[2]):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        segment.path.write_bytes(bad)
        with pytest.raises(CorruptLogError, match=f"at byte {starts[1]}:"):
            start(make_table(), tmp_path)
        assert segment.path.read_bytes() == bad


def test_a_damaged_record_of_the_end_harms_nobody(tmp_path: Path) -> None:
    write_log(tmp_path, 2)
    good = (tmp_path / END_FILE).read_bytes()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        (tmp_path / END_FILE).write_bytes(bad)
        hot, _ = start(make_table(), tmp_path)
        assert held(hot) == rows(0, 4)
        hot.close()


def test_the_offset_of_the_damage_is_named(tmp_path: Path) -> None:
    starts = write_log(tmp_path, 4)
    [segment] = list_segments(tmp_path)
    data = bytearray(segment.path.read_bytes())
    data[starts[2] + 50] ^= 255
    segment.path.write_bytes(data)
    with pytest.raises(CorruptLogError, match=f"at byte {starts[2]}:"):
        start(make_table(), tmp_path)


@pytest.mark.parametrize("left", [0, 10, 31, -1])
def test_a_torn_segment_that_is_not_the_last_stops_the_start(tmp_path: Path, left: int) -> None:
    write_log(tmp_path, 6, segment_bytes=1)
    path = list_segments(tmp_path)[2].path
    path.write_bytes(path.read_bytes()[:left])
    before = contents(tmp_path)
    with pytest.raises(CorruptLogError, match=path.name):
        start(make_table(), tmp_path)
    assert contents(tmp_path) == before


def test_a_segment_without_its_state_stops_the_start(tmp_path: Path) -> None:
    write_log(tmp_path / "a", 1)
    write_log(tmp_path / "b", 1)
    (tmp_path / "b" / END_FILE).unlink()
    [one], [other] = list_segments(tmp_path / "a"), list_segments(tmp_path / "b")
    data = other.path.read_bytes()
    size = one.path.read_bytes().rindex(b"TMf1")
    other.path.write_bytes(data[size:])
    with pytest.raises(CorruptLogError, match="does not begin with its state"):
        start(make_table(), tmp_path / "b")
    other.path.write_bytes(data + data)
    with pytest.raises(CorruptLogError, match=f"byte {len(data)}"):
        start(make_table(), tmp_path / "b")


def test_an_empty_last_segment_is_an_interrupted_beginning(tmp_path: Path) -> None:
    write_log(tmp_path, 2)
    segment_path(tmp_path, 2, 5).touch()
    hot, _ = start(make_table(), tmp_path)
    assert held(hot) == rows(0, 4)
    hot.append(accepted(rows(4)))
    assert [s.number for s in list_segments(tmp_path)] == [1, 2]
    hot.close()
    hot, _ = start(make_table(), tmp_path)
    assert held(hot) == rows(0, 6)
    hot.close()


def test_a_torn_state_at_the_end_goes(tmp_path: Path) -> None:
    write_log(tmp_path, 2)
    whole = list_segments(tmp_path)[0].path.read_bytes()
    segment_path(tmp_path, 2, 5).write_bytes(whole[:60])
    hot, found = start(make_table(), tmp_path)
    assert found.torn_bytes == 60
    assert [s.number for s in list_segments(tmp_path)] == [1]
    hot.close()


def test_no_log_is_an_empty_table(tmp_path: Path) -> None:
    hot, found = start(make_table(), tmp_path / "none")
    assert (found.rows, found.frames, found.log_bytes, found.torn_bytes) == (0, 0, 0, 0)
    assert found.elapsed_s >= 0
    hot.close()


def test_a_log_of_other_columns_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path, 1)
    columns = (Column("ts", SqlType("TIMESTAMP"), False), Column("k", SqlType("INTEGER")))
    with pytest.raises(CorruptLogError, match="other columns"):
        start(make_table(columns=columns), tmp_path)


SETTINGS = st.fixed_dictionaries(
    {
        "late": st.sampled_from(["accept", "divert"]),
        "rejected": st.just("divert"),
        "on_conflict": st.sampled_from(["reject", "ignore", "replace"]),
        "clock": st.sampled_from(["wall", "event"]),
    }
)


@QUICK
@given(st.integers(0, 2**32), SETTINGS, st.booleans(), st.sampled_from([200, 2_000, 1 << 20]))
def test_a_replay_gives_the_same_table(
    seed: int, settings: dict[str, str], has_key: bool, segment_bytes: int
) -> None:
    picker = random.Random(seed)
    table = make_table(settings, (), ("ts", "k") if has_key else (), delay_us=20 * SECOND_US)
    clock = FakeClock(NOW_US)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hot = open_hot(table, folder, clock, segment_bytes=segment_bytes)
        for _ in range(30):
            clock.advance(picker.choice((0, 1)))
            made = [
                (
                    clock.now_us() + picker.choice((-30, -5, 0, 1, 7_200)) * SECOND_US,
                    picker.randint(0, 5),
                    picker.choice(("", "é", None)),
                    picker.choice((0.5, None, float("inf"))),
                )
                for _ in range(picker.choice((0, 1, 1, 3, 20)))
            ]
            if len(made) == 1 and hot.append_row(made[0]):
                continue
            rejects = (('{"bad": 1}', "why"),) * picker.choice((0, 0, 2))
            offset = picker.choice((None, picker.randint(0, 6)))
            hot.append(accepted(made, table, rejects, None if offset is None else "s", offset))
            if picker.random() < 0.3:
                hot.view()
        before = snapshot_of(hot)
        hot.close()
        again = open_hot(table, folder, clock, segment_bytes=segment_bytes)
        assert snapshot_of(again) == before
        assert again.append_row((clock.now_us(), 9, "", 0.0)) == (not has_key)
        again.close()


def snapshot_of(hot: HotTable) -> tuple[Any, ...]:
    view = hot.view()
    return (
        rows_of(view.whole(True)),
        view.published_seq,
        hot.counters.dump(),
        hot.offsets.dump(),
        hot.progress.newest_us,
        hot.start().next_seq,
        hot.published.late.table().to_pylist(),
        hot.published.rejected.table().to_pylist(),
    )


@pytest.mark.parametrize("policy", ["reject", "replace"])
def test_segments_go_with_retention_and_nothing_else_does(tmp_path: Path, policy: str) -> None:
    settings = {"retention": "1 minute", "late": "divert", "on_conflict": policy}
    table = make_table(settings, (), ("ts", "k") if policy == "replace" else (), 30 * SECOND_US)
    clock = FakeClock(NOW_US)
    hot = open_hot(table, tmp_path, clock, segment_bytes=1_000)
    for n in range(100):
        clock.advance(2)
        now = clock.now_us()
        times = (now - SECOND_US, now, now - 40 * SECOND_US)
        made = [(time_us, n, "", 0.0) for time_us in times]
        hot.append(accepted(made, table, source="s", offset=3 * n))
        if policy == "replace" and n % 3 == 0:
            hot.append(accepted([(now, n, "new", 0.0)]))
        hot.expire()
    segments = list_segments(tmp_path)
    assert 1 < len(segments) < 40
    assert segments[0].number > 20
    before = snapshot_of(hot)
    rows_in = hot.counters.rows_in
    hot.close()
    again = open_hot(table, tmp_path, clock, segment_bytes=1_000)
    after = snapshot_of(again)
    assert after[1:6] == before[1:6]
    cut_us = clock.now_us() - 60 * SECOND_US
    young = [[row for row in rows if row[0] >= cut_us] for rows in (before[0], after[0])]
    assert young[0] == young[1], "older rows may go or stay with their block"
    assert len(young[0]) > 50
    late = before[6]
    assert len(late) > 0
    assert after[6][-len(late) :] == late
    assert again.append(accepted([], table, source="s", offset=297)).is_repeat
    assert again.append(accepted([], table, source="s", offset=0)).is_repeat
    assert not again.append(accepted([], table, source="s", offset=1)).is_repeat
    assert again.counters.rows_in == rows_in
    again.close()


def test_a_replaced_row_does_not_come_back_when_its_replacement_expired(tmp_path: Path) -> None:
    """The segment that says "row 1 was replaced" stays as long as the one that holds row 1."""
    settings = {"retention": "1 minute", "on_conflict": "replace", "max_future": "forever"}
    table = make_table(settings, (), ("ts", "k"))
    clock = FakeClock(NOW_US)
    hot = open_hot(table, tmp_path, clock, segment_bytes=1)
    young = NOW_US + 3_600 * SECOND_US
    first = [(NOW_US, 0, "old", 0.0)] + [(young, n, "young", 0.0) for n in range(16)]
    hot.append(accepted(first))
    hot.append(accepted([(NOW_US, 0, "new", 0.0)] + [(NOW_US + n, 1, "", 0.0) for n in range(16)]))
    hot.append(accepted([(young, n, "tail", 0.0) for n in range(20, 40)]))
    hot.append(accepted([(young, n, "tail", 0.0) for n in range(40, 60)]))
    clock.advance(120)
    hot.expire()
    seen = held(hot)
    assert (NOW_US, 0, "old", 0.0) not in seen
    hot.close()
    again = open_hot(table, tmp_path, clock)
    assert (NOW_US, 0, "old", 0.0) not in held(again)
    again.close()
