"""The local server: lets other processes of the same user ask a warehouse that this one owns.

1. It listens on a Unix domain socket that only the user may open: ``tidemill.sock`` in the
   warehouse's folder, or in a temporary folder where that path is too long for a socket. The
   owner's file says where.
2. One thread accepts, and watches the connections whose statements run: a statement whose client
   went away is broken off. It sleeps while nothing happens.
3. Each connection has a thread of its own, up to ``CONNECTIONS_MAX``. One more takes the place
   of the one that has been idle longest; where all are busy, it is told so and closed.
4. A connection that breaks off, sends what is no frame, is slow in the middle of one or stops
   reading its answer is closed. Neither the others nor the database notice.
5. ``close`` lets running statements end for ``CLOSE_GRACE_S``, breaks off the rest, and ends
   every connection.

``requests`` carries the requests out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidemill.engine import Database
from tidemill.errors import ProtocolError, TidemillError, TooManyConnectionsError
from tidemill.server import wire
from tidemill.server.connection import IDLE_CLOSED
from tidemill.server.requests import Answer, Requests

SOCKET_FILE = "tidemill.sock"
SOCKET_PATH_BYTES_MAX = 100
CONNECTIONS_MAX = 64
# A client may be silent between requests for as long as it likes, but not within one.
FRAME_TIMEOUT_S = 60.0
BODY_BYTES_PER_S_MIN = 1_000_000
# Bytes of requests that have arrived and are not carried out yet, of all connections together.
ARRIVED_BYTES_MAX = 1024 * 1024 * 1024
CLOSE_GRACE_S = 1.0
CLOSE_TIMEOUT_S = 10.0
CANCEL_EVERY_S = 0.2
ACCEPT_PAUSE_S = 0.05
ADMIT_WAIT_S = 0.2

_GONE = select.EPOLLRDHUP | select.EPOLLONESHOT
_Arrived = Callable[[int], None]


@dataclass(eq=False)
class _Client:
    """A connection: its thread, since when it is idle (None while a request is on its way), what
    it calls itself, and whether it gave its place to another."""

    socket: socket.socket
    thread: threading.Thread | None = None
    idle_since: float | None = None
    is_running: bool = False
    token: str | None = None
    is_evicted: bool = False


class LocalServer:
    """Serves one database until it is closed; close it before the database."""

    def __init__(
        self,
        database: Database,
        *,
        connections_max: int = CONNECTIONS_MAX,
        frame_timeout_s: float = FRAME_TIMEOUT_S,
        arrived_bytes_max: int = ARRIVED_BYTES_MAX,
    ) -> None:
        self._database = database
        self._requests = Requests(database, self._cancel)
        self._connections_max = connections_max
        self._frame_timeout_s = frame_timeout_s
        self._arrived_bytes_max = arrived_bytes_max
        self._arrived_bytes = 0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._clients: dict[int, _Client] = {}
        self._closing = False
        self._pid = os.getpid()
        self._folder: Path | None = None
        self.path = database.path.absolute() / SOCKET_FILE
        try:
            self._listener = _listen(self.path)
        except OSError:  # the path is too long, or the file system has no sockets
            self._folder = Path(tempfile.mkdtemp(prefix="tidemill-"))
            self.path = self._folder / SOCKET_FILE
            self._listener = _listen(self.path)
        self._poll = select.epoll()
        self._woken, self._wake = socket.socketpair()
        self._poll.register(self._listener, select.EPOLLIN)
        self._poll.register(self._woken, select.EPOLLIN)
        self._acceptor = threading.Thread(target=self._listen, name="tidemill-local", daemon=True)
        self._acceptor.start()
        database.owner.update(socket=str(self.path))

    @property
    def connection_count(self) -> int:
        with self._lock:
            return len(self._clients)

    @property
    def arrived_bytes(self) -> int:
        """What has arrived of requests that are not carried out yet."""
        with self._lock:
            return self._arrived_bytes

    def close(self) -> None:
        """Ends listening and every connection; harmless to repeat."""
        with self._lock:
            if self._closing or os.getpid() != self._pid:  # a forked child closes nothing of ours
                return
            self._closing = True
            self._database.owner.update(socket=None)
            self.path.unlink(missing_ok=True)
            self._changed.wait_for(lambda: not self._running(), CLOSE_GRACE_S)
            clients = list(self._clients.values())
        self._wake.send(b"x")
        for client in clients:
            with contextlib.suppress(OSError):
                client.socket.shutdown(socket.SHUT_RDWR)
        with self._changed:
            deadline = time.monotonic() + CLOSE_TIMEOUT_S
            while self._clients and time.monotonic() < deadline:
                for client in self._running():
                    self._interrupt(client)
                self._changed.wait(CANCEL_EVERY_S)
        self._acceptor.join(CLOSE_TIMEOUT_S)
        for used in (self._poll, self._listener, self._woken, self._wake):
            used.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the thread that accepts and watches

    def _listen(self) -> None:
        gone: set[int] = set()
        while not self._closing:
            for number, _ in self._poll.poll(CANCEL_EVERY_S if gone else None):
                if number == self._listener.fileno():
                    self._accept()
                elif number != self._woken.fileno():
                    gone.add(number)
            gone &= self._break_off(gone)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            time.sleep(ACCEPT_PAUSE_S)  # no descriptors are left, perhaps
            return
        self._admit(connection)

    def _break_off(self, gone: set[int]) -> set[int]:
        """Interrupt the statements of clients that went away; answers which still run."""
        with self._lock:
            running = {
                number: client
                for number in gone
                if (client := self._clients.get(number)) is not None and client.is_running
            }
            for client in running.values():
                self._interrupt(client)
        return set(running)

    def _interrupt(self, client: _Client) -> None:
        if client.thread is not None and client.thread.ident is not None:
            self._database.cancel(client.thread.ident)

    def _cancel(self, token: str) -> None:
        """Break off what the connection of that name runs."""
        with self._lock:
            for client in self._running():
                if client.token == token:
                    self._interrupt(client)

    def _running(self) -> list[_Client]:
        return [client for client in self._clients.values() if client.is_running]

    def _admit(self, connection: socket.socket) -> None:
        with self._lock:
            if not self._has_room():  # a client that has just been answered is idle in a moment
                self._changed.wait_for(self._has_room, ADMIT_WAIT_S)
            if not self._closing and len(self._clients) < self._connections_max:
                client = _Client(connection, idle_since=time.monotonic())
                client.thread = threading.Thread(
                    target=self._serve, args=(client,), name="tidemill-client", daemon=True
                )
                self._clients[connection.fileno()] = client
                client.thread.start()
                return
        error = TooManyConnectionsError(
            f"the warehouse already serves {self._connections_max} connections",
            hint="wait for a statement to end, and try again",
        )
        with connection:
            _refuse(connection, error)

    def _has_room(self) -> bool:
        """Whether another connection can be had; the one that has been idle longest may give its
        place, and comes back when it is needed."""
        if self._closing or len(self._clients) < self._connections_max:
            return True
        idle = [client for client in self._clients.values() if client.idle_since is not None]
        if not idle:
            return False
        client = min(idle, key=lambda client: client.idle_since or 0.0)
        client.is_evicted, client.idle_since = True, None
        del self._clients[client.socket.fileno()]
        _refuse(client.socket, _EvictedError("the connection gave its place to another"))
        with contextlib.suppress(OSError):
            client.socket.shutdown(socket.SHUT_RDWR)
        return True

    # -- the thread of a connection

    def _serve(self, client: _Client) -> None:
        number = client.socket.fileno()
        try:
            with client.socket:
                while self._serve_one(client):
                    pass
                self._forget(number, client)
        except OSError:
            pass  # the client is gone, and with it whoever wanted the answer
        finally:
            self._forget(number, client)

    def _forget(self, number: int, client: _Client) -> None:
        """Before the socket is closed: its number may belong to another one then."""
        with self._changed:
            if self._clients.get(number) is client:
                del self._clients[number]
            self._changed.notify_all()

    def _serve_one(self, client: _Client) -> bool:
        """Answers one request; false when there will be no other on this connection."""
        connection = client.socket
        connection.settimeout(None)
        first = connection.recv(1)
        with self._lock:
            if not first or client.is_evicted or self._closing:
                return False
            client.idle_since = None
        taken = 0

        def arrived(count: int) -> None:
            nonlocal taken
            self._take(count)
            taken += count

        try:
            answer = self._receive_and_run(client, first, arrived)
        except ProtocolError as error:
            _refuse(connection, error)
            return False
        finally:
            self._take(-taken)
        connection.settimeout(self._frame_timeout_s)
        answer.send(connection)
        with self._changed:
            client.idle_since = time.monotonic()
            self._changed.notify_all()
        return True

    def _receive_and_run(self, client: _Client, first: bytes, arrived: _Arrived) -> Answer:
        connection = client.socket
        deadline = time.monotonic() + self._frame_timeout_s
        prefix = first + wire.receive(connection, wire.PREFIX.size - 1, deadline=deadline)
        header_bytes, body_bytes = wire.read_prefix(prefix)
        deadline += (header_bytes + body_bytes) / BODY_BYTES_PER_S_MIN
        text = wire.receive(connection, header_bytes, deadline=deadline, arrived=arrived)
        request = wire.read_header(text)
        body = wire.receive(connection, body_bytes, deadline=deadline, arrived=arrived)
        self._start(client, request.get("token"))
        try:
            return self._requests.answer(request, body)
        finally:
            self._stop(client)

    def _start(self, client: _Client, token: object) -> None:
        with self._lock:
            client.is_running = True
            client.token = token if isinstance(token, str) else None
            self._poll.register(client.socket, _GONE)

    def _stop(self, client: _Client) -> None:
        with self._changed:
            client.is_running = False
            self._poll.unregister(client.socket)
            self._changed.notify_all()

    def _take(self, count: int) -> None:
        with self._lock:
            if count > 0 and self._arrived_bytes + count > self._arrived_bytes_max:
                raise ProtocolError(
                    "the requests of all connections together are too large",
                    detail=f"{self._arrived_bytes_max:,} bytes may wait to be carried out",
                    hint="send the rows in smaller batches, or later",
                )
            self._arrived_bytes += count


class _EvictedError(TidemillError):
    """The connection was closed while it was idle; the client makes another and asks again."""

    code = IDLE_CLOSED


def _refuse(connection: socket.socket, error: TidemillError) -> None:
    """Say why the connection ends, to a client that listens."""
    frame = wire.pack({"ok": False, "closed": True, "error": wire.told(error)})
    with contextlib.suppress(OSError):
        connection.send(frame, socket.MSG_DONTWAIT)


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
