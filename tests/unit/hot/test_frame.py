"""Frames: what is written is read, and nothing else is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hot_kit import QUICK
from hypothesis import given
from hypothesis import strategies as st

from tidemill.hot import frame

META = st.dictionaries(st.text("abc", max_size=3), st.integers(-(2**63), 2**64 - 1) | st.text())
SECTIONS = st.lists(st.tuples(st.sampled_from("slr"), st.binary(max_size=50)), max_size=4)


def encode(kind: int, seq: int, meta: dict, sections: list[tuple[str, bytes]]) -> bytes:
    parts = [(name, pa.py_buffer(data)) for name, data in sections]
    return b"".join(frame.encode(kind, seq, meta, parts))


@QUICK
@given(st.integers(1, 3), st.integers(0, 2**63), META, SECTIONS)
def test_roundtrip(
    kind: int, seq: int, meta: dict[str, object], sections: list[tuple[str, bytes]]
) -> None:
    meta = {name: value for name, value in meta.items() if name != "x"}
    whole = encode(kind, seq, meta, sections)
    assert len(whole) % 8 == 0
    read = frame.read_at(pa.py_buffer(b"12345678" + whole + b"rest"), 8)
    assert (read.kind, read.first_seq, read.size) == (kind, seq, len(whole))
    assert {name: value for name, value in read.meta.items() if name != "x"} == meta
    assert [(name, part.to_pybytes()) for name, part in read.sections] == sections


def test_a_row_alone() -> None:
    row = (5, None, "é\0", 1.5, b"\xff", True, 2**64 - 1)
    read = frame.read_at(pa.py_buffer(frame.encode_row(7, row, 5, 9)), 0)
    assert (read.kind, read.first_seq, read.meta["n"]) == (frame.ROWS, 7, 5)
    assert tuple(read.meta["o"][0]) == row


def test_every_cut_is_torn() -> None:
    whole = encode(frame.ARROW, 3, {"a": 1}, [("s", b"hello")])
    for length in range(len(whole)):
        with pytest.raises(frame.TornError):
            frame.read_at(pa.py_buffer(whole[:length]), 0)


def test_every_flipped_byte_is_torn() -> None:
    whole = encode(frame.ARROW, 3, {"a": 1}, [("s", b"hello")])
    for at in range(len(whole)):
        for bit in (1, 128):
            damaged = bytearray(whole)
            damaged[at] ^= bit
            with pytest.raises(frame.TornError):
                frame.read_at(pa.py_buffer(bytes(damaged)), 0)


def test_a_frame_behind_the_damage_is_found() -> None:
    whole = encode(frame.ARROW, 3, {}, [("s", b"TMf1 TMf1")])
    assert not frame.has_frame_after(pa.py_buffer(whole), 0)
    assert not frame.has_frame_after(pa.py_buffer(whole + whole[:-1]), 0)
    assert frame.has_frame_after(pa.py_buffer(b"TMf1x" + whole), 0)
    assert frame.has_frame_after(pa.py_buffer(whole + whole), 0)
