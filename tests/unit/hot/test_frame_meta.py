"""Metas of frames: the bytes of the log are what they always were."""

from __future__ import annotations

from pathlib import Path

import ormsgpack
import pyarrow as pa
import pytest
from hot_kit import NOW_US, SECOND_US, held, make_table, open_hot

from tidemill.catalog.model import Package
from tidemill.clock import FakeClock
from tidemill.errors import CorruptLogError
from tidemill.hot import frame
from tidemill.hot.counters import Counters
from tidemill.hot.frame import Frame
from tidemill.hot.frame_meta import (
    AppendMeta,
    FrameKind,
    SectionSize,
    TableState,
    decode_meta,
    encode_meta,
)
from tidemill.hot.log import segment_path
from tidemill.hot.offsets import SourceOffsets

# Segments that were written before metas had types: of a table with a primary key, where rows were
# replaced, late, rejected and came from a file, and of one with single rows.
SEGMENTS = Path(__file__).parent / "segments"
BOOT_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
PACKAGE = Package("f.csv", 12, "abc", "loaded", None, 1, 0, 0, NOW_US, "appended", "")


def frames(name: str) -> list[Frame]:
    buffer = pa.py_buffer((SEGMENTS / name).read_bytes())
    places = [at for at, _ in frame.places(memoryview(buffer))]
    return [frame.read_at(buffer, at) for at in places]


def test_a_segment_of_old_is_understood() -> None:
    state, first, second = frames("keyed.tml")
    schema = make_table().schema.serialize().to_pybytes()
    assert state.meta == TableState(1, schema, Counters(), None, {}, 0, BOOT_ID)
    assert first.meta == AppendMeta(NOW_US + 1, NOW_US, source="s", offset=7)
    assert second.meta == AppendMeta(NOW_US + 1, NOW_US, replaced=(1,), packages=(PACKAGE,))
    assert [section.name for section in second.sections] == ["s", "l", "r"]


def test_single_rows_of_old_are_understood() -> None:
    _, first, second, batch = frames("plain.tml")
    assert first.meta == AppendMeta(NOW_US, NOW_US, rows=((NOW_US, 1, "é", None),))
    assert second.meta == AppendMeta(NOW_US + 1, NOW_US, rows=((NOW_US + 1, None, None, 0.25),))
    assert [first.meta.kind, batch.meta.kind] == [FrameKind.ROWS, FrameKind.BATCH]


@pytest.mark.parametrize("name", ["keyed.tml", "plain.tml"])
def test_a_segment_is_written_as_of_old(name: str) -> None:
    written = [
        part
        for read in frames(name)
        for part in frame.encode(read.first_seq, read.meta, read.sections)
    ]
    assert b"".join(written) == (SEGMENTS / name).read_bytes()


def test_a_table_of_old_is_recovered(tmp_path: Path) -> None:
    content = (SEGMENTS / "keyed.tml").read_bytes()
    segment_path(tmp_path, 1, 1).write_bytes(content)
    given = {"late": "divert", "rejected": "divert", "on_conflict": "replace"}
    table = make_table(given, (), ("ts", "k"), 10 * SECOND_US)
    hot = open_hot(table, tmp_path, FakeClock(NOW_US))
    assert held(hot, with_seq=True) == [(NOW_US + 1, 2, None, None, 2), (NOW_US, 1, "b", 1.5, 3)]
    assert hot.counters == Counters(5, 3, 1, 1, 0, 0, 1)
    assert hot.packages == (PACKAGE,)
    assert hot.offsets.of("s") == SourceOffsets(None, (7,), (7,))
    hot.close()


def test_a_state_is_read_as_written() -> None:
    offsets = {"s": SourceOffsets(3, (4, 9), (6, 9)), "é": SourceOffsets(None, (0,), (0,))}
    state = TableState(7, b"schema", Counters(5, 4, 1), 12, offsets, 8, BOOT_ID)
    assert decode_meta(FrameKind.STATE, memoryview(encode_meta(state))).meta == state


def test_sections_are_named_behind_the_meta() -> None:
    sections = (SectionSize("s", 120), SectionSize("l", 8))
    decoded = decode_meta(FrameKind.BATCH, memoryview(encode_meta(AppendMeta(1, 2), sections)))
    assert decoded.sections == sections


def test_the_earliest_logs_did_not_say_when() -> None:
    old = ormsgpack.packb({"n": 1, "g": 0, "k": 0, "p": [], "s": None, "f": None, "x": []})
    assert decode_meta(FrameKind.BATCH, memoryview(old)).meta == AppendMeta(1, None)


def test_an_unknown_kind_is_refused_and_never_taken_for_a_torn_end() -> None:
    with pytest.raises(CorruptLogError, match="kind 9"):
        decode_meta(9, memoryview(encode_meta(AppendMeta(1, 2))))
