"""Frames: what is written is read, and nothing else is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hot_kit import QUICK
from hypothesis import given
from hypothesis import strategies as st

from tidemill.hot import frame
from tidemill.hot.frame import Section
from tidemill.hot.frame_meta import AppendMeta, FrameMeta

META = st.builds(
    AppendMeta,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 9),
    st.integers(0, 9),
    st.lists(st.integers(1, 2**63 - 1), max_size=3).map(tuple),
    st.none() | st.text(max_size=3),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
SECTIONS = st.lists(st.tuples(st.sampled_from("slr"), st.binary(max_size=50)), max_size=4)
PLAIN = AppendMeta(1, 2)


def encode(seq: int, meta: FrameMeta, sections: list[tuple[str, bytes]]) -> bytes:
    parts = [Section(name, pa.py_buffer(data)) for name, data in sections]
    return b"".join(frame.encode(seq, meta, parts))


@QUICK
@given(st.integers(0, 2**63), META, SECTIONS)
def test_roundtrip(seq: int, meta: AppendMeta, sections: list[tuple[str, bytes]]) -> None:
    whole = encode(seq, meta, sections)
    assert len(whole) % 8 == 0
    read = frame.read_at(pa.py_buffer(b"12345678" + whole + b"rest"), 8)
    assert (read.first_seq, read.meta, read.size) == (seq, meta, len(whole))
    assert [(each.name, each.content.to_pybytes()) for each in read.sections] == sections
    assert [each.to_pybytes() for each in read.contents("s")] == [
        data for name, data in sections if name == "s"
    ]


def test_a_row_alone() -> None:
    row = (5, None, "é\0", 1.5, b"\xff", True, 2**64 - 1)
    whole = frame.encode_row(7, row, 5, 9)
    read = frame.read_at(pa.py_buffer(whole), 0)
    assert (read.first_seq, read.meta) == (7, AppendMeta(5, 9, rows=(row,)))
    assert b"".join(frame.encode(7, read.meta)) == whole


def test_every_cut_is_torn() -> None:
    whole = encode(3, PLAIN, [("s", b"hello")])
    for length in range(len(whole)):
        with pytest.raises(frame.TornError):
            frame.read_at(pa.py_buffer(whole[:length]), 0)


def test_every_flipped_byte_is_torn() -> None:
    whole = encode(3, PLAIN, [("s", b"hello")])
    for at in range(len(whole)):
        for bit in (1, 128):
            damaged = bytearray(whole)
            damaged[at] ^= bit
            with pytest.raises(frame.TornError):
                frame.read_at(pa.py_buffer(bytes(damaged)), 0)


def test_a_frame_behind_the_damage_is_found() -> None:
    whole = encode(3, PLAIN, [("s", b"TMf1 TMf1")])
    assert not frame.has_frame_after(pa.py_buffer(whole), 0)
    assert not frame.has_frame_after(pa.py_buffer(whole + whole[:-1]), 0)
    assert frame.has_frame_after(pa.py_buffer(b"TMf1x" + whole), 0)
    assert frame.has_frame_after(pa.py_buffer(whole + whole), 0)
