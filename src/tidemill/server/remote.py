"""The client of the local server: a database that another process owns, with the same surface."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.catalog.owner import Owner
from tidemill.errors import CatalogError, ClosedError
from tidemill.hot.intake import AppendResult
from tidemill.result import Result
from tidemill.server import wire

CONNECT_TIMEOUT_S = 10.0


class RemoteDatabase:
    """A connection to the process that owns a warehouse. Thread-safe, one request at a time.

    A connection that broke, or whose answer was not read to the end, is replaced with the next
    request.
    """

    def __init__(self, path: Path, owner: Mapping[str, object]) -> None:
        self.path = path
        self.owner_info = dict(owner)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False
        self._number = 0

    def sql(self, text: str, params: wire.Parameters = None) -> Result:
        """Runs statements where the warehouse is; the result of the last one."""
        kind, body = wire.encode_params(params)
        header, table = self._request({"sql": text, "params": kind}, body)
        return Result(
            table if table is not None else pa.table({}),
            list(header["types"]),
            str(header["message"]),
            float(header["elapsed_s"]),
        )

    def append(
        self,
        table: str,
        rows: pa.Table | pa.RecordBatch,
        *,
        source: str | None = None,
        offset: int | None = None,
        rejects: Sequence[tuple[str, str]] = (),
    ) -> AppendResult:
        """Appends Arrow rows; ``rejects`` are texts that are no rows, each with its reason."""
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        request = {"append": table, "source": source, "offset": offset, "rejects": list(rejects)}
        header, _ = self._request(request, wire.encode_table(rows))
        return AppendResult(**header["appended"])

    def cancel(self) -> None:
        """Hang up on the statement under way: the owner notices, and breaks it off."""
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the connection; harmless to repeat."""
        with self._lock:
            self._closed = True
            self._drop()

    def __enter__(self) -> RemoteDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(
        self, request: Mapping[str, object], body: bytes
    ) -> tuple[dict[str, Any], pa.Table | None]:
        with self._lock:
            if self._closed:
                raise ClosedError("the connection was closed")
            self._number += 1
            frame = wire.pack({"id": self._number, **request}, body)
            try:
                header, table = self._exchange(frame, body)
            except (ConnectionError, wire.ProtocolError, pa.ArrowException, OSError) as error:
                self._drop()
                raise ClosedError(
                    "the process that owns the warehouse ended the connection",
                    detail=str(error),
                    hint="it may have stopped; the same command opens the warehouse itself then",
                ) from error
            except BaseException:  # interrupted: what is left of the answer belongs to nobody
                self._drop()
                raise
            if not header.get("ok"):
                if header.get("id") != self._number:
                    self._drop()  # the server refused more than this request
                raise wire.decode_error(header.get("error") or {})
            return header, table

    def _exchange(self, frame: bytes, body: bytes) -> tuple[dict[str, Any], pa.Table | None]:
        connection = self._connected()
        # A server that refuses says why and closes; that is worth more than our failed write.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(frame)
            connection.sendall(body)
        prefix = wire.receive(connection, wire.PREFIX.size)
        header_bytes, _ = wire.read_prefix(bytes(prefix))
        header = wire.read_header(bytes(wire.receive(connection, header_bytes)))
        if not header.get("rows"):
            return header, None
        with connection.makefile("rb") as source:
            return header, wire.read_table(source)

    def _connected(self) -> socket.socket:
        if self._socket is None:
            fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                fresh.settimeout(CONNECT_TIMEOUT_S)
                fresh.connect(str(self.owner_info["socket"]))
                fresh.settimeout(None)
            except OSError:
                fresh.close()
                raise
            self._socket = fresh
        return self._socket

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def connect(path: str | Path) -> RemoteDatabase:
    """The warehouse in a folder, through the process that owns it."""
    folder = Path(path)
    owner = Owner.read(folder)
    if owner is None:
        raise CatalogError(
            f'no process owns warehouse "{folder}"', hint="open it with tidemill.open"
        )
    if not owner.get("socket"):
        raise CatalogError(
            f'process {owner.get("pid")} owns warehouse "{folder}" and takes no connections',
            detail=f"its command is: {owner.get('command')}",
            hint="end that process, or ask it to serve",
        )
    return RemoteDatabase(folder, owner)
