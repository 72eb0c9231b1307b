"""The local server: lets other processes of the same user ask a warehouse that this one owns.

1. It listens on a Unix domain socket that only the user may open: ``tidemill.sock`` in the
   warehouse's folder, or in a temporary folder where that path is too long for a socket. The
   owner's file says where.
2. One thread accepts; each connection has a thread of its own, up to ``CONNECTIONS_MAX``. One
   more is told so and closed.
3. A connection that breaks off, sends what is no frame, stops in the middle of one or stops
   reading its answer is closed. Neither the others nor the database notice.
4. A statement whose client went away is broken off: a watcher looks at the sockets of those that
   are running.
5. ``close`` breaks off what is running and ends every connection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.server import wire
from tidemill.session import Session

SOCKET_FILE = "tidemill.sock"
SOCKET_PATH_BYTES_MAX = 100
CONNECTIONS_MAX = 64
# A client may be silent between requests for as long as it likes, but not within one.
FRAME_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 10.0
WRITE_BUFFER_BYTES = 256 * 1024
WATCH_EVERY_S = 0.2

_CLOSED_BY_CLIENT = (ConnectionError, TimeoutError, BrokenPipeError)


class LocalServer:
    """Serves one database until it is closed; close it before the database."""

    def __init__(self, database: Database, *, connections_max: int = CONNECTIONS_MAX) -> None:
        self._database = database
        self._connections_max = connections_max
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._busy: dict[socket.socket, int] = {}
        self._stopping = threading.Event()
        self._closing = False
        self._folder: Path | None = None
        self.path = database.path.absolute() / SOCKET_FILE
        try:
            self._listener = _listen(self.path)
        except OSError:  # the path is too long, or the file system has no sockets
            self._folder = Path(tempfile.mkdtemp(prefix="tidemill-"))
            self.path = self._folder / SOCKET_FILE
            self._listener = _listen(self.path)
        self._acceptor = threading.Thread(
            target=self._accept_all, name="tidemill-local-accept", daemon=True
        )
        self._acceptor.start()
        self._watcher = threading.Thread(
            target=self._watch, name="tidemill-local-watch", daemon=True
        )
        self._watcher.start()
        database.owner.update(socket=str(self.path))

    @property
    def connection_count(self) -> int:
        with self._lock:
            return len(self._connections)

    def close(self) -> None:
        """Ends listening and every connection; harmless to repeat."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            connections = dict(self._connections)
        self._database.owner.update(socket=None)
        self._stopping.set()
        self._watcher.join(CLOSE_TIMEOUT_S)
        for ident in list(self._busy.values()):
            self._database.cancel(ident)
        for open_socket in (self._listener, *connections):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(CLOSE_TIMEOUT_S)
        self._listener.close()
        for thread in connections.values():
            thread.join(CLOSE_TIMEOUT_S)
        self.path.unlink(missing_ok=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        """Break off statements that nobody waits for any more."""
        while not self._stopping.wait(WATCH_EVERY_S):
            for connection in list(self._busy):
                if _is_gone(connection):
                    self._break_off(connection)

    def _break_off(self, connection: socket.socket) -> None:
        """Only while the statement runs: its thread's number may be another's a moment later."""
        with self._lock:
            if (thread := self._busy.get(connection)) is not None:
                self._database.cancel(thread)

    def _accept_all(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closing:
                    return
                continue  # a client that left before it was accepted
            self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        with self._lock:
            if not self._closing and len(self._connections) < self._connections_max:
                thread = threading.Thread(
                    target=self._serve, args=(connection,), name="tidemill-local", daemon=True
                )
                self._connections[connection] = thread
                thread.start()
                return
        with connection, contextlib.suppress(OSError):
            error = wire.TooManyConnectionsError(
                f"the warehouse already serves {self._connections_max} connections",
                hint="close one and try again",
            )
            connection.settimeout(1.0)
            connection.sendall(wire.pack({"ok": False, "error": error.as_dict()}))

    def _serve(self, connection: socket.socket) -> None:
        session = Session()
        try:
            with connection:
                while self._serve_one(connection, session):
                    pass
        except (OSError, *_CLOSED_BY_CLIENT):
            pass  # the client is gone, and with it whoever wanted the answer
        finally:
            with self._lock:
                self._connections.pop(connection, None)

    def _serve_one(self, connection: socket.socket, session: Session) -> bool:
        """Answers one request; false when there will be no other on this connection."""
        connection.settimeout(None)
        first = connection.recv(1)
        if not first:
            return False
        connection.settimeout(FRAME_TIMEOUT_S)
        try:
            rest = wire.receive(connection, wire.PREFIX.size - 1)
            header_bytes, body_bytes = wire.read_prefix(first + rest)
            request = wire.read_header(bytes(wire.receive(connection, header_bytes)))
            body = wire.receive(connection, body_bytes)
        except wire.ProtocolError as error:
            connection.sendall(wire.pack({"ok": False, "error": error.as_dict()}))
            return False
        self._busy[connection] = threading.get_ident()
        try:
            header, table = self._answer(request, body, session)
        finally:
            with self._lock:
                del self._busy[connection]
        _send(connection, header, table)
        return True

    def _answer(
        self, request: dict[str, Any], body: bytearray, session: Session
    ) -> tuple[dict[str, object], pa.Table | None]:
        number = request.get("id")
        try:
            header, table = self._run(request, body, session)
        except TidemillError as error:
            return {"id": number, "ok": False, "error": error.as_dict()}, None
        except Exception as error:
            failure = wire.InternalError(f"{type(error).__name__}: {error}")
            return {"id": number, "ok": False, "error": failure.as_dict()}, None
        return {"id": number, "ok": True, "rows": table is not None, **header}, table

    def _run(
        self, request: dict[str, Any], body: bytearray, session: Session
    ) -> tuple[dict[str, object], pa.Table | None]:
        match request:
            case {"sql": str(text)}:
                params = wire.decode_params(request.get("params"), body)
                result = self._database.sql(text, params, session=session)
                header = {
                    "message": result.message,
                    "types": list(result.types),
                    "elapsed_s": result.elapsed_s,
                }
                return header, result.arrow()
            case {"append": str(name)}:
                named = {
                    key: request[key]
                    for key in ("source", "offset")
                    if request.get(key) is not None
                }
                if rejects := request.get("rejects"):
                    named["rejects"] = [(str(text), str(reason)) for text, reason in rejects]
                outcome = self._database.append(name, wire.read_table(body), **named)
                return {"appended": dataclasses.asdict(outcome)}, None
        raise wire.ProtocolError("a request must have sql or append")


def _is_gone(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False  # silent, as it should be
    except OSError:
        return True


def _send(connection: socket.socket, header: dict[str, object], table: pa.Table | None) -> None:
    try:
        frame = wire.pack(header)
    except wire.ProtocolError:  # an error text beyond all bounds
        failure = wire.InternalError("the answer's header is too large")
        frame, table = wire.pack({"ok": False, "error": failure.as_dict()}), None
    connection.sendall(frame)
    if table is not None:
        with connection.makefile("wb", buffering=WRITE_BUFFER_BYTES) as sink:
            wire.write_table(cast(BinaryIO, sink), table)


def _listen(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    path.unlink(missing_ok=True)  # left by an owner that died; we own the warehouse now
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # before bind: the file is never open to others
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(CONNECTIONS_MAX)
    except OSError:
        listener.close()
        raise
    return listener
