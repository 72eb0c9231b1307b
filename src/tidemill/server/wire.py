"""The local protocol: one request, one response, any number of times over one connection.

A frame is a prefix (magic, length of the header, length of the body), a JSON header and a body.

1. A request's body holds values (``values``: parameters, rows as Python has them) or an Arrow IPC
   stream (rows to append). Both lengths are in the prefix, and bounded.
2. A response's body is not counted in the prefix: after a header that says ``"body": true`` follow
   chunks of at most ``CHUNK_BYTES``, each with its length before it. A chunk of length zero ends
   the body; ``BROKEN`` in place of a length says that it cannot be completed, and a frame with the
   error follows. So an answer of any size is sent without a copy of the whole.
3. Nothing is allocated for what has not arrived: a length is a promise, memory follows the bytes.

What is no frame, or too large, is answered with an error, and ends the connection. This module
and ``connection`` need nothing beyond the standard library: a client starts fast.
"""

from __future__ import annotations

import io
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidemill.errors import Position, ProtocolError, TidemillError

MAGIC = b"TDM2"
PREFIX = struct.Struct(">4sII")
LENGTH = struct.Struct(">I")
BROKEN = 0xFFFF_FFFF
HEADER_BYTES_MAX = 16 * 1024 * 1024
BODY_BYTES_MAX = 256 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
_RECEIVE_BYTES = 256 * 1024


def pack(header: Mapping[str, object], body_bytes: int = 0) -> bytes:
    """The bytes of a frame up to its body."""
    text = json.dumps(header).encode()
    check_sizes(len(text), body_bytes)
    return PREFIX.pack(MAGIC, len(text), body_bytes) + text


def read_prefix(prefix: bytes) -> tuple[int, int]:
    """The lengths of the header and of the body that follow."""
    magic, header_bytes, body_bytes = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise ProtocolError(
            "this is not Tidemill's local protocol",
            hint="the process that owns the warehouse may run another version of Tidemill",
        )
    check_sizes(header_bytes, body_bytes)
    return header_bytes, body_bytes


def check_sizes(header_bytes: int, body_bytes: int) -> None:
    """Refuses what is beyond the bounds, on either side."""
    if header_bytes > HEADER_BYTES_MAX or body_bytes > BODY_BYTES_MAX:
        raise ProtocolError(
            f"a request of {header_bytes + body_bytes:,} bytes is too large",
            detail=f"the text may have {HEADER_BYTES_MAX:,} bytes and the rows {BODY_BYTES_MAX:,}",
            hint="send the rows in smaller batches",
        )


def read_header(text: bytes | bytearray) -> dict[str, Any]:
    """A header's JSON object."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("the header of a frame is not JSON", detail=str(error)) from error
    if not isinstance(header, dict):
        raise ProtocolError("the header of a frame is no JSON object")
    return header


def receive(
    connection: socket.socket,
    size: int,
    *,
    deadline: float | None = None,
    arrived: Callable[[int], None] = lambda count: None,
) -> bytearray:
    """Exactly so many bytes, in memory that grows as they arrive.

    ``arrived`` hears of each piece and may raise. ConnectionError when the other side goes away
    before, TimeoutError when the bytes are not there at the ``deadline`` (of time.monotonic)."""
    received = bytearray()
    while len(received) < size:
        if deadline is not None:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
        piece = connection.recv(min(size - len(received), _RECEIVE_BYTES))
        if not piece:
            raise ConnectionError("the connection ended in the middle of a frame")
        arrived(len(piece))
        received += piece
    return received


class ChunkWriter(io.RawIOBase):
    """The body of a response, as a file to write. Small writes are gathered into chunks; what is
    gathered when the body fails is never sent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._gathered = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(self._gathered) + len(view) <= CHUNK_BYTES:
            self._gathered += view
            return len(view)
        self._send_gathered()
        for start in range(0, len(view), CHUNK_BYTES):
            self._send(view[start : start + CHUNK_BYTES])
        return len(view)

    def finish(self) -> None:
        """Say that the body is complete."""
        self._send_gathered()
        self._connection.sendall(LENGTH.pack(0))

    def give_up(self, error: TidemillError) -> None:
        """Say that it never will be, and why."""
        self._connection.sendall(LENGTH.pack(BROKEN) + pack({"ok": False, "error": told(error)}))

    def _send_gathered(self) -> None:
        if self._gathered:
            self._send(memoryview(self._gathered))
            self._gathered = bytearray()

    def _send(self, chunk: memoryview) -> None:
        self._connection.sendall(LENGTH.pack(len(chunk)))
        self._connection.sendall(chunk)


class ChunkReader(io.RawIOBase):
    """The body of a response, as a file to read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = 0
        self.is_complete = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.is_complete or (not self._left and not self._next_chunk()):
            return 0
        view = memoryview(buffer).cast("B")[: self._left]
        count = self._connection.recv_into(view)
        if not count:
            raise ConnectionError("the connection ended in the middle of an answer")
        self._left -= count
        return count

    def _next_chunk(self) -> bool:
        (length,) = LENGTH.unpack(receive(self._connection, LENGTH.size))
        if length == BROKEN:
            header_bytes, _ = read_prefix(bytes(receive(self._connection, PREFIX.size)))
            header = read_header(receive(self._connection, header_bytes))
            self.is_complete = True
            raise decode_error(header.get("error") or {})
        if length > CHUNK_BYTES:
            raise ProtocolError(f"a chunk of {length:,} bytes is too large")
        self._left = length
        self.is_complete = not length
        return bool(length)


def told(error: TidemillError) -> dict[str, object]:
    """An error as it travels: texts beyond all bounds are cut."""
    fields = error.as_dict()
    return {
        name: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value
        for name, value in fields.items()
    }


TEXT_CHARS_MAX = 1_000_000


def decode_error(fields: Mapping[str, Any]) -> TidemillError:
    """The error that ``TidemillError.as_dict`` described, as the class of its code."""
    position = None
    if line := fields.get("line"):
        position = Position(line, fields.get("column") or 1, fields.get("words") or "")
    kinds = {kind.code: kind for kind in reversed([*_kinds(TidemillError)])}
    kind = kinds.get(str(fields.get("code")))
    error = (kind or TidemillError)(
        str(fields.get("message")),
        detail=fields.get("detail"),
        hint=fields.get("hint"),
        position=position,
    )
    if kind is None:
        error.code = str(fields.get("code"))
    return error


def _kinds(root: type[TidemillError]) -> Iterator[type[TidemillError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)
