"""The local protocol: one request, one response, any number of times over one connection.

A frame is a prefix (magic, length of the header, length of the body), a JSON header and a body of
Arrow IPC. A request's body holds its parameters (one row) or the rows to append. A response's body
is not counted in the prefix: an Arrow IPC stream follows a header that says ``"rows": true``, and
ends itself, so that an answer of any size is sent without a copy.

Everything that comes in is bounded. What is no frame, or too large, ends the connection.
"""

from __future__ import annotations

import io
import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from tidemill.errors import Position, TidemillError, UnsupportedError

MAGIC = b"TDM1"
PREFIX = struct.Struct(">4sII")
HEADER_BYTES_MAX = 16 * 1024 * 1024
BODY_BYTES_MAX = 256 * 1024 * 1024

Parameters = Sequence[object] | Mapping[str, object] | None


class ProtocolError(TidemillError):
    """The other side does not speak the protocol, or says too much at once."""

    code = "protocol"


class TooManyConnectionsError(TidemillError):
    """The server serves as many connections as it may."""

    code = "too_many_connections"


class InternalError(TidemillError):
    """A failure that is nobody's statement's fault."""

    code = "internal"


def pack(header: Mapping[str, object], body: bytes | memoryview = b"") -> bytes:
    """The bytes of a frame up to its body."""
    text = json.dumps(header).encode()
    check_sizes(len(text), len(body))
    return PREFIX.pack(MAGIC, len(text), len(body)) + text


def read_prefix(prefix: bytes) -> tuple[int, int]:
    """The lengths of the header and of the body that follow."""
    magic, header_bytes, body_bytes = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise ProtocolError("this is not Tidemill's local protocol")
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


def read_header(text: bytes) -> dict[str, Any]:
    """A header's JSON object."""
    try:
        header = json.loads(text)
    except ValueError as error:
        raise ProtocolError("the header of a frame is not JSON", detail=str(error)) from error
    if not isinstance(header, dict):
        raise ProtocolError("the header of a frame is no JSON object")
    return header


def receive(connection: socket.socket, size: int) -> bytearray:
    """Exactly so many bytes; ConnectionError when the other side goes away before."""
    received = bytearray(size)
    view = memoryview(received)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the connection ended in the middle of a frame")
        view = view[count:]
    return received


def encode_table(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = io.BytesIO()
    write_table(sink, table)
    return sink.getvalue()


def write_table(sink: BinaryIO, table: pa.Table) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def read_table(source: Any) -> pa.Table:
    try:
        with pa.ipc.open_stream(source) as reader:
            return reader.read_all()
    except pa.ArrowInvalid as error:
        raise ProtocolError("the rows of a frame are not Arrow", detail=str(error)) from error


def encode_params(params: Parameters) -> tuple[str | None, bytes]:
    """Parameters as their kind and one Arrow row, which keeps their types."""
    if params is None:
        return None, b""
    named = isinstance(params, Mapping)
    items = list(params.items()) if isinstance(params, Mapping) else list(enumerate(params))
    try:
        columns = [pa.array([value]) for _, value in items]
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise UnsupportedError(
            "a parameter cannot be sent to the process that owns the warehouse",
            detail=str(error),
            hint="give it as text and cast it in the statement",
        ) from error
    row = pa.table(columns, names=[str(name) for name, _ in items])
    return ("named" if named else "listed"), encode_table(row) if items else b""


def decode_params(kind: str | None, body: bytes | bytearray) -> Parameters:
    """What ``encode_params`` was given."""
    if kind is None:
        return None
    if not body:
        return {} if kind == "named" else []
    row = read_table(body).to_pylist()[0]
    return row if kind == "named" else list(row.values())


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
