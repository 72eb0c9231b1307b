"""Frames: how one accepted batch is written in the log, and read again.

A frame is a fixed header, a small *meta* (``frame_meta``) and the Arrow IPC bytes of the batch,
padded to eight bytes:

    magic | kind | body length | crc32 | first sequence number | meta length | meta | sections

The checksum covers all that follows it. One frame is one acknowledgement: the rows stored, the
rows diverted to ``$late`` and ``$rejected``, the source's offset and the counters stand or fall
together. Single rows stand in the meta, because building an Arrow batch for one row costs ten
times more than the rest of its way.

A large batch is written from the producer's own buffers, which somebody may still change. Its
checksum is taken from the file when all else stands there, and the header goes last (``Layout``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from tidemill.checksums import crc32
from tidemill.hot.frame_meta import (
    FrameKind,
    FrameMeta,
    Row,
    SectionSize,
    decode_meta,
    encode_meta,
    encode_rows_meta,
)
from tidemill.hot.message import Message

STORED, LATE, REJECTED, CORRECTIONS = "s", "l", "r", "c"  # what sections hold

_MAGIC = b"TMf1"
_HEADER = struct.Struct("<4sIQIIQ")  # magic, kind, body bytes, crc32, meta bytes, first seq
_CHECKED = struct.Struct("<IQIQ")  # kind, body bytes, meta bytes, first seq
HEADER_BYTES = _HEADER.size
_ALIGN = 8
_PADS = [b"\0" * count for count in range(_ALIGN)]
_ROWS = int(FrameKind.ROWS)

Content: TypeAlias = pa.Buffer | Message


@dataclass(frozen=True, slots=True)
class Section:
    """Bytes behind the meta: a record batch of rows stored, late or rejected."""

    name: str
    content: Content


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as read, with its sections in the order written."""

    first_seq: int
    meta: FrameMeta
    sections: tuple[Section, ...]
    size: int

    def contents(self, name: str) -> list[Content]:
        """The sections of one name."""
        return [section.content for section in self.sections if section.name == name]


class TornError(Exception):
    """The bytes at an offset are no whole frame; whether that is a torn tail, the reader says."""


@dataclass(frozen=True)
class Layout:
    """A frame without its header: ``parts`` are its body, ``places`` say where in the frame each
    section begins."""

    kind: int
    first_seq: int
    meta_bytes: int
    parts: tuple[bytes | memoryview, ...]
    places: tuple[int, ...]

    @cached_property
    def body_bytes(self) -> int:
        return sum(len(part) for part in self.parts)

    def header(self, body: Iterable[bytes | memoryview]) -> bytes:
        """The header of the frame whose body has these bytes."""
        fields = (self.kind, self.body_bytes, self.meta_bytes, self.first_seq)
        crc = crc32(_CHECKED.pack(*fields))
        for part in body:
            crc = crc32(part, crc)
        return _HEADER.pack(
            _MAGIC, self.kind, self.body_bytes, crc, self.meta_bytes, self.first_seq
        )


def lay_out(first_seq: int, meta: FrameMeta, sections: Sequence[Section]) -> Layout:
    packed = encode_meta(meta, [SectionSize(each.name, each.content.size) for each in sections])
    parts: list[bytes | memoryview] = [packed, _PADS[-len(packed) % _ALIGN]]
    places, at = [], HEADER_BYTES + len(packed) + -len(packed) % _ALIGN
    for section in sections:
        content, size = section.content, section.content.size
        pieces = content.parts if isinstance(content, Message) else (content,)
        parts += [memoryview(piece) for piece in pieces]
        parts.append(_PADS[-size % _ALIGN])
        places.append(at)
        at += size + -size % _ALIGN
    return Layout(int(meta.kind), first_seq, len(packed), tuple(parts), tuple(places))


def encode(
    first_seq: int, meta: FrameMeta, sections: Sequence[Section] = ()
) -> list[bytes | memoryview]:
    """The buffers of a frame, ready for one gathered write."""
    laid = lay_out(first_seq, meta, sections)
    return [laid.header(laid.parts), *laid.parts]


def encode_row(first_seq: int, row: Row, newest_us: int | None, at_us: int) -> bytes:
    """A frame with one stored row, in as few steps as possible."""
    packed = encode_rows_meta((row,), newest_us, at_us)
    body = packed + _PADS[-len(packed) % _ALIGN]
    crc = crc32(body, crc32(_CHECKED.pack(_ROWS, len(body), len(packed), first_seq)))
    return _HEADER.pack(_MAGIC, _ROWS, len(body), crc, len(packed), first_seq) + body


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
    if crc32(body, crc32(fields)) != crc:
        raise TornError("the checksum of the frame is wrong")
    decoded = decode_meta(kind, body[:meta_bytes])
    sections, at = [], start + meta_bytes + -meta_bytes % _ALIGN
    for each in decoded.sections:
        sections.append(Section(each.name, buffer.slice(at, each.size)))
        at += each.size + -each.size % _ALIGN
    return Frame(first_seq, decoded.meta, tuple(sections), HEADER_BYTES + body_bytes)


def peek(view: memoryview, offset: int) -> tuple[int, int]:
    """Size and first sequence number of the frame at an offset, its checksum not looked at."""
    if offset + HEADER_BYTES > view.nbytes:
        raise TornError("the header of the frame is cut")
    magic, _, body_bytes, _, _, first_seq = _HEADER.unpack_from(view, offset)
    if magic != _MAGIC:
        raise TornError("there is no frame")
    return HEADER_BYTES + body_bytes, first_seq


def places(view: memoryview) -> Iterator[tuple[int, int]]:
    """Where the frames of a segment begin, and their first sequence numbers, up to what is not
    written yet."""
    offset = 0
    while offset < view.nbytes:
        try:
            size, first_seq = peek(view, offset)
        except TornError:
            return
        yield offset, first_seq
        offset += size


def is_torn(buffer: pa.Buffer, offset: int) -> bool:
    """Whether what stands at an offset, where no whole frame is, can be one that a killed process
    left unfinished: its bytes end too early, or its header, which goes last, is not there yet."""
    view = memoryview(buffer)[offset:]
    header = bytes(view[:HEADER_BYTES])
    if not any(header):
        return True
    if header[: len(_MAGIC)] != _MAGIC[: len(header)]:
        return False
    if len(header) < HEADER_BYTES:
        return True
    _, kind, body_bytes, crc, meta_bytes, first_seq = _HEADER.unpack(header)
    there = view.nbytes - HEADER_BYTES
    if body_bytes <= there:
        return False
    # All of it may be there, and its length be what is damaged.
    fields = _CHECKED.pack(kind, there, meta_bytes, first_seq)
    return bool(crc32(view[HEADER_BYTES:], crc32(fields)) != crc)


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
