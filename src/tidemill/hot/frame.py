"""Frames: how one accepted batch is written in the log, and read again.

A frame is a fixed header, a small msgpack *meta* and the Arrow IPC bytes of the batch, padded to
eight bytes:

    magic | kind | body length | crc32 | first sequence number | meta length | meta | sections

The checksum covers all that follows it. One frame is one acknowledgement: the rows stored, the
rows diverted to ``$late`` and ``$rejected``, the source's offset and the counters stand or fall
together. Kind ARROW carries record batches; kind ROWS carries single rows as msgpack, because
building an Arrow batch for one row costs ten times more than the rest of its way.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ormsgpack
import pyarrow as pa

ARROW = 1
ROWS = 2
STATE = 3  # the first frame of a segment: the table's state before it

STORED, LATE, REJECTED = "s", "l", "r"

_MAGIC = b"TMf1"
_HEADER = struct.Struct("<4sIQIIQ")  # magic, kind, body bytes, crc32, meta bytes, first seq
_CHECKED = struct.Struct("<IQIQ")  # kind, body bytes, meta bytes, first seq
HEADER_BYTES = _HEADER.size
_ALIGN = 8
_PADS = [b"\0" * count for count in range(_ALIGN)]


@dataclass(frozen=True)
class Frame:
    """A frame as read: ``sections`` are (name, buffer) pairs in the order written."""

    kind: int
    first_seq: int
    meta: Mapping[str, Any]
    sections: tuple[tuple[str, pa.Buffer], ...]
    size: int


class TornError(Exception):
    """The bytes at an offset are no whole frame; whether that is a torn tail, the reader says."""


def encode(
    kind: int, first_seq: int, meta: Mapping[str, Any], sections: list[tuple[str, pa.Buffer]]
) -> list[bytes | memoryview]:
    """The buffers of a frame, ready for one gathered write."""
    packed = ormsgpack.packb({**meta, "x": [[name, part.size] for name, part in sections]})
    parts: list[bytes | memoryview] = [packed, _PADS[-len(packed) % _ALIGN]]
    for _, part in sections:
        parts += [memoryview(part), _PADS[-part.size % _ALIGN]]
    body_bytes = sum(len(part) for part in parts)
    crc = zlib.crc32(_CHECKED.pack(kind, body_bytes, len(packed), first_seq))
    for part in parts:
        crc = zlib.crc32(part, crc)
    return [_HEADER.pack(_MAGIC, kind, body_bytes, crc, len(packed), first_seq), *parts]


def encode_row(first_seq: int, row: tuple[Any, ...], newest_us: int | None, at_us: int) -> bytes:
    """A frame with one stored row, in as few steps as possible."""
    packed = ormsgpack.packb({"n": newest_us, "a": at_us, "o": (row,)})
    body = packed + _PADS[-len(packed) % _ALIGN]
    crc = zlib.crc32(body, zlib.crc32(_CHECKED.pack(ROWS, len(body), len(packed), first_seq)))
    return _HEADER.pack(_MAGIC, ROWS, len(body), crc, len(packed), first_seq) + body


def read_at(buffer: pa.Buffer, offset: int) -> Frame:
    """The frame at an offset; TornError if there is none that is whole."""
    view = memoryview(buffer)
    if offset + HEADER_BYTES > view.nbytes:
        raise TornError("the header of the frame is cut")
    magic, kind, body_bytes, crc, meta_bytes, first_seq = _HEADER.unpack_from(view, offset)
    if magic != _MAGIC or meta_bytes > body_bytes:
        raise TornError("there is no frame")
    start = offset + HEADER_BYTES
    if start + body_bytes > view.nbytes:
        raise TornError("the body of the frame is cut")
    body = view[start : start + body_bytes]
    fields = _CHECKED.pack(kind, body_bytes, meta_bytes, first_seq)
    if zlib.crc32(body, zlib.crc32(fields)) != crc:
        raise TornError("the checksum of the frame is wrong")
    meta = ormsgpack.unpackb(body[:meta_bytes])
    sections, at = [], start + meta_bytes + -meta_bytes % _ALIGN
    for name, size in meta.get("x", ()):
        sections.append((name, buffer.slice(at, size)))
        at += size + -size % _ALIGN
    return Frame(kind, first_seq, meta, tuple(sections), HEADER_BYTES + body_bytes)


def peek(view: memoryview, offset: int) -> tuple[int, int]:
    """Size and first sequence number of the frame at an offset, its checksum not looked at."""
    if offset + HEADER_BYTES > view.nbytes:
        raise TornError("the header of the frame is cut")
    magic, _, body_bytes, _, _, first_seq = _HEADER.unpack_from(view, offset)
    if magic != _MAGIC:
        raise TornError("there is no frame")
    return HEADER_BYTES + body_bytes, first_seq


def has_frame_after(buffer: pa.Buffer, offset: int) -> bool:
    """Whether any whole frame begins behind an offset: then what stands there is no torn tail."""
    data = memoryview(buffer)
    window = bytes(data[offset:])
    at = window.find(_MAGIC, 1)
    while at >= 0:
        try:
            read_at(buffer, offset + at)
        except (TornError, ValueError):
            at = window.find(_MAGIC, at + 1)
        else:
            return True
    return False
