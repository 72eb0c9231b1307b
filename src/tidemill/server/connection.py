"""A client's connection to the process that owns a warehouse: requests out, answers in.

``tidemill sql`` uses it as it is, ``remote`` builds the whole interface of a database on it. It
imports the standard library alone, so that a command that only asks starts at once.

A connection names itself with a token. By it the server finds the session again (what SET set)
after the connection had to be replaced, and the statement that ``cancel`` breaks off. Requests
are sent one at a time, whatever the number of threads.
"""

from __future__ import annotations

import contextlib
import io
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidemill.catalog.owner import Owner
from tidemill.errors import CatalogError, ClosedError, ProtocolError, TidemillError
from tidemill.server import wire
from tidemill.text_result import TextResult

CONNECT_TIMEOUT_S = 10.0
START_WAIT_S = 5.0
START_LOOK_S = 0.05
IDLE_CLOSED = "idle_closed"
ATTEMPTS_MAX = 20  # of a request on a connection that gave its place to another
_READ_BYTES = 1024 * 1024


class Connection:
    """A connection. A failed one is replaced with the next request."""

    def __init__(self, path: Path, owner: Mapping[str, object]) -> None:
        self.path = path
        self.owner_info = dict(owner)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._body: wire.ChunkReader | None = None
        self._closed = False
        self._token = secrets.token_hex(16)
        self._connect()

    def request(
        self, request: Mapping[str, object], body: bytes | memoryview = b""
    ) -> tuple[dict[str, Any], io.BufferedReader | None]:
        """One exchange: the answer's header, and its body to read before the next request."""
        with self._lock:
            if self._closed:
                raise ClosedError("the connection was closed")
            frame = wire.pack({"token": self._token, **request}, len(body))
            header = self._exchanged(frame, body)
            if not header.get("ok"):
                raise wire.decode_error(header.get("error") or {})
            if not header.get("body"):
                return header, None
            assert self._socket is not None
            self._body = wire.ChunkReader(self._socket)
            return header, io.BufferedReader(self._body, _READ_BYTES)

    def sql_text(
        self, text: str, params: object = None, *, form: str = "text", rows_max: int | None = None
    ) -> TextResult:
        """Runs statements and takes the last one's rows as texts (see ``Database.sql_text``)."""
        request = {"sql": text, "form": form, "rows_max": rows_max, "values": params}
        header, body = self.request(request)
        return TextResult(
            tuple(header["columns"]),
            tuple(header["types"]),
            str(header["message"]),
            float(header["elapsed_s"]),
            int(header["rowcount"]),
            self._chunks(body),
        )

    def cancel(self) -> None:
        """Break off the statement that this connection waits for, if there is one."""
        with contextlib.suppress(OSError, TidemillError), self._fresh() as beside:
            beside.sendall(wire.pack({"cancel": self._token}))
            wire.receive(beside, wire.PREFIX.size)

    def close(self) -> None:
        """Ends the connection; harmless to repeat."""
        with self._lock:
            self._closed = True
            self._drop()

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Reading an answer: what breaks off becomes an error of ours, and a fresh connection."""
        try:
            yield
        except TidemillError as error:
            if isinstance(error, ProtocolError):
                self._drop()
            raise
        except (OSError, ValueError) as error:
            self._drop()
            raise _ended(error) from error
        except BaseException:  # interrupted: the rest of the answer belongs to nobody
            self._drop()
            raise

    def _chunks(self, body: io.BufferedReader | None) -> Iterator[list[list[str | None]]]:
        if body is not None:
            with self.guarded():
                for line in body:
                    yield json.loads(line)

    def _exchanged(self, frame: bytes, body: bytes | memoryview) -> dict[str, Any]:
        if self._body is not None and not self._body.is_complete:
            self._drop()  # nobody read the last answer to its end
        self._body = None
        with self.guarded():
            for _ in range(ATTEMPTS_MAX):
                header = self._exchange(frame, body)
                error = header.get("error") or {}
                if error.get("code") != IDLE_CLOSED:
                    break
                self._drop()  # the server closed it before it saw the request; so it may again
            if not header.get("ok") and header.get("closed"):
                self._drop()
            return header

    def _exchange(self, frame: bytes, body: bytes | memoryview) -> dict[str, Any]:
        connection = self._socket or self._connect()
        # A server that refuses says why and closes; that is worth more than our failed write.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(frame)
            connection.sendall(body)
        prefix = wire.receive(connection, wire.PREFIX.size)
        header_bytes, _ = wire.read_prefix(bytes(prefix))
        return wire.read_header(wire.receive(connection, header_bytes))

    def _connect(self) -> socket.socket:
        try:
            self._socket = self._fresh()
        except OSError as error:
            raise _ended(error) from error
        return self._socket

    def _fresh(self) -> socket.socket:
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fresh.settimeout(CONNECT_TIMEOUT_S)
            fresh.connect(str(self.owner_info["socket"]))
            fresh.settimeout(None)
        except OSError:
            fresh.close()
            raise
        return fresh

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._body = None


def find_owner(folder: Path, wait_s: float = START_WAIT_S) -> dict[str, object] | None:
    """The owner of a warehouse, once it serves; None when nobody owns it.

    An owner that is still starting, or already closing, is waited for."""
    deadline = time.monotonic() + wait_s
    while (owner := Owner.read(folder)) is not None:
        if owner.get("socket") or owner.get("serves") is False or time.monotonic() > deadline:
            return owner
        time.sleep(START_LOOK_S)
    return None


def connect_owner(folder: Path, owner: Mapping[str, object]) -> Connection:
    """A connection to an owner that ``find_owner`` found."""
    if not owner.get("socket"):
        off = owner.get("serves") is False
        raise CatalogError(
            f'process {owner.get("pid")} owns warehouse "{folder}" and takes no connections',
            detail=f"its command is: {owner.get('command')}",
            hint="it was opened with serve_local = 'off'; end that process, or open it without"
            if off
            else "it may still be starting; try again",
        )
    return Connection(folder, owner)


def _ended(error: BaseException) -> ClosedError:
    return ClosedError(
        "the process that owns the warehouse ended the connection",
        detail=str(error),
        hint="it may have stopped; whether the statement was carried out is not known",
    )
