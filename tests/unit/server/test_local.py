"""The local server and its client, over a real socket."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import resource
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill
from tidemill import Database
from tidemill.catalog.owner import Owner
from tidemill.errors import (
    CatalogError,
    ClosedError,
    InternalError,
    ProtocolError,
    TidemillError,
    TooManyConnectionsError,
)
from tidemill.result import AppendResult
from tidemill.server import wire
from tidemill.server.local import SOCKET_PATH_BYTES_MAX, LocalServer
from tidemill.server.remote import RemoteDatabase, connect


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with tidemill.open(tmp_path / "warehouse", serve_local="off") as database:
        yield database


@pytest.fixture
def server(database: Database) -> Iterator[LocalServer]:
    with LocalServer(database) as server:
        yield server


@pytest.fixture
def client(server: LocalServer, database: Database) -> Iterator[RemoteDatabase]:
    with connect(database.path) as client:
        yield client


def raw(server: LocalServer) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(10)
    connection.connect(str(server.path))
    return connection


def read_error(connection: socket.socket) -> dict[str, Any]:
    size, _ = wire.read_prefix(bytes(wire.receive(connection, wire.PREFIX.size)))
    error: dict[str, Any] = json.loads(wire.receive(connection, size))["error"]
    return error


def test_a_query_travels(client: RemoteDatabase) -> None:
    result = client.sql("SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, NULL ORDER BY a")
    assert result.fetchall() == [(1, "x"), (2, None)]
    assert result.columns == ["a", "b"]
    assert result.types == ["INTEGER", "VARCHAR"]
    assert (result.message, result.rowcount) == ("SELECT 2", 2)
    assert result.elapsed_s >= 0


def test_a_statement_without_rows_travels(client: RemoteDatabase) -> None:
    result = client.sql("CREATE TABLE t (a INT)")
    assert (result.message, result.fetchall()) == ("CREATE TABLE", [])


def test_a_large_answer_travels(client: RemoteDatabase) -> None:
    table = client.sql("SELECT range AS n, repeat('x', 50) AS s FROM range(300000)").arrow()
    assert table.num_rows == 300_000
    assert client.sql("SELECT 1").fetchall() == [(1,)]


def test_an_error_arrives_as_it_was_raised(client: RemoteDatabase, database: Database) -> None:
    def raised_by(asked: Database | RemoteDatabase) -> TidemillError:
        with pytest.raises(TidemillError) as caught:
            asked.sql("SELECT 1;\nSELEC 2")
        return caught.value

    there, here = raised_by(database), raised_by(client)
    assert type(there) is type(here)
    assert there.as_dict() == here.as_dict()
    assert here.position is not None
    assert client.sql("SELECT 1").fetchall() == [(1,)]


def test_an_error_of_unknown_code_keeps_its_code() -> None:
    error = wire.decode_error({"code": "from_the_future", "message": "what"})
    assert (error.code, error.message) == ("from_the_future", "what")


def test_a_bug_of_the_server_is_told_and_survived(
    client: RemoteDatabase, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("bug")

    with monkeypatch.context() as patch:
        patch.setattr(database, "sql", broken)
        with pytest.raises(InternalError, match="RuntimeError: bug"):
            client.sql("SELECT 1")
    assert client.sql("SELECT 1").fetchall() == [(1,)]


def test_rows_are_appended_once(client: RemoteDatabase) -> None:
    client.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, a INT)")
    moment = datetime.datetime(2024, 1, 1)
    rows = pa.table({"ts": [moment, moment], "a": pa.array([1, 2], pa.int32())})
    first = client.append("t", rows, source="file", offset=0)
    again = client.append("t", rows.to_batches()[0], source="file", offset=0)
    assert first == AppendResult(2, stored=2)
    assert again.is_repeat
    assert client.sql("SELECT count(*) FROM t").fetchall() == [(2,)]


def test_many_clients_ask_at_once(server: LocalServer, database: Database) -> None:
    answers: list[int] = []

    def ask(number: int) -> None:
        with connect(database.path) as client:
            for _ in range(5):
                answers.append(client.sql("SELECT CAST(? AS INT)", [number]).fetchall()[0][0])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == sorted(list(range(12)) * 5)


ENDLESS = "SELECT count(*) FROM range(1000000000000) a WHERE sin(a.range) > 2"


def test_one_connection_too_many_is_refused(database: Database) -> None:
    with LocalServer(database, connections_max=1), connect(database.path) as first:
        failures: list[TidemillError] = []

        def ask() -> None:
            while not failures:
                try:
                    first.sql(ENDLESS)
                except TooManyConnectionsError:  # the second one's statement was there before
                    continue
                except TidemillError as error:
                    failures.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        refused = False
        while not refused and not failures:  # as soon as the server has the first one's statement
            with connect(database.path) as second:
                try:
                    second.sql("SELECT 1")
                except TooManyConnectionsError:
                    refused = True
        while thread.is_alive():
            database.cancel()
            thread.join(0.05)
        assert refused
        assert failures[0].message == "the statement was cancelled"


def test_an_idle_connection_gives_its_place_and_comes_back(database: Database) -> None:
    with LocalServer(database, connections_max=1) as server:
        clients = [connect(database.path) for _ in range(5)]
        for number, client in enumerate(clients):
            client.sql(f"SET route = '{'local' if number % 2 else 'auto'}'")
        for number, client in enumerate(clients):  # what was SET is the client's, not the socket's
            told = client.sql("SHOW route").fetchall()
            assert told == [("local" if number % 2 else "auto",)]
        assert server.connection_count <= 1
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        wire.PREFIX.pack(wire.MAGIC, 5, 0) + b"nonse",
        wire.PREFIX.pack(wire.MAGIC, 2, 0) + b"[]",
        wire.PREFIX.pack(wire.MAGIC, 2**31, 0),
        wire.PREFIX.pack(wire.MAGIC, 10, 2**32 - 1),
        wire.pack({}) + b"",
        wire.pack({"token": "x", "sql": 1}),
        wire.pack({"token": "x", "append": "t"}),
        wire.pack({"token": "x", "append": "t", "rows": "arrow"}, 3) + b"abc",
        wire.pack({"token": "x", "append": "t", "rows": "values"}, 3) + b"\xc1\xc1\xc1",
        wire.pack({"token": "x", "append": "t", "rows": "values", "rejects": [[1]]}, 1) + b"\x90",
        wire.pack({"token": "x", "append": "t", "rows": "values", "offset": "1"}, 1) + b"\x90",
        wire.pack({"token": "x", "sql": "SELECT 1", "form": "text", "values": 3}),
        wire.pack({"token": ["x"], "sql": "SELECT 1"}),
        wire.PREFIX.pack(wire.MAGIC, 2_000_000, 0) + b"[" * 2_000_000,
        wire.PREFIX.pack(wire.MAGIC, 1_200_000, 0) + b'{"a":' * 240_000,
    ],
    ids=[
        "http",
        "no json",
        "no object",
        "large header",
        "large body",
        "empty",
        "number as sql",
        "no rows",
        "no arrow",
        "no values",
        "bad rejects",
        "bad offset",
        "bad values",
        "bad token",
        "deep lists",
        "deep objects",
    ],
)
def test_noise_is_answered_and_closed(
    server: LocalServer, client: RemoteDatabase, noise: bytes
) -> None:
    with raw(server) as connection:
        connection.sendall(noise)
        assert read_error(connection)["code"] == "protocol"
        with contextlib.suppress(ConnectionResetError):  # if some of the noise was left unread
            assert connection.recv(1) == b""
    assert client.sql("SELECT 1").fetchall() == [(1,)]


def test_a_client_that_breaks_off_harms_nobody(server: LocalServer, client: RemoteDatabase) -> None:
    whole = wire.pack({"token": "x", "sql": "SELECT range FROM range(3000000)"})
    for cut in (1, 6, len(whole) - 1, len(whole)):
        with raw(server) as connection:
            connection.sendall(whole[:cut])
    assert client.sql("SELECT 1").fetchall() == [(1,)]


def test_the_socket_is_private(server: LocalServer, database: Database) -> None:
    assert server.path == database.path / "tidemill.sock"
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


def test_a_long_path_moves_the_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    with tidemill.open(folder, serve_local="off") as database:
        with LocalServer(database) as server:
            assert len(os.fsencode(server.path)) <= SOCKET_PATH_BYTES_MAX
            with connect(folder) as client:
                assert client.sql("SELECT 1").fetchall() == [(1,)]
        assert not server.path.parent.exists()


def test_a_socket_left_by_a_dead_owner_is_replaced(database: Database) -> None:
    (database.path / "tidemill.sock").touch()
    with LocalServer(database), connect(database.path) as client:
        assert client.sql("SELECT 1").fetchall() == [(1,)]


def test_closing_ends_connections_and_removes_the_socket(database: Database) -> None:
    server = LocalServer(database)
    client = connect(database.path)
    client.sql("SELECT 1")
    server.close()
    server.close()
    assert server.connection_count == 0
    assert not server.path.exists()
    assert "socket" not in (Owner.read(database.path) or {})
    with pytest.raises(ClosedError):
        client.sql("SELECT 1")
    client.close()
    with pytest.raises(ClosedError):
        client.sql("SELECT 1")


def test_a_client_finds_a_server_that_came_back(database: Database) -> None:
    server = LocalServer(database)
    with connect(database.path) as client:
        client.sql("SELECT 1")
        server.close()
        with LocalServer(database):
            with pytest.raises(ClosedError):
                client.sql("SELECT 1")
            assert client.sql("SELECT 2").fetchall() == [(2,)]


def test_nobody_to_connect_to(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="no process owns"):
        connect(tmp_path)
    is_refused = pytest.raises(CatalogError, match="takes no connections")
    with tidemill.open(tmp_path, serve_local="off"), is_refused as caught:
        connect(tmp_path)
    assert "serve_local" in (caught.value.hint or "")


def test_what_is_promised_takes_no_memory(server: LocalServer, client: RemoteDatabase) -> None:
    """A prefix may say 256 MB; the owner holds what has arrived of it, which is nothing."""
    header = b'{"token": "x", "append": "t", "rows": "arrow"}'
    before = peak_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(raw(server))
            prefix = wire.PREFIX.pack(wire.MAGIC, len(header), wire.BODY_BYTES_MAX)
            connection.sendall(prefix + header + b"x" * 10)
        assert client.sql("SELECT 1").fetchall() == [(1,)]
        while server.arrived_bytes < 8 * (len(header) + 10):
            pass
        assert server.arrived_bytes == 8 * (len(header) + 10)
        assert peak_bytes() - before < 100_000_000
    while server.arrived_bytes:
        pass


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_requests_of_all_together_are_bounded(database: Database) -> None:
    with LocalServer(database, arrived_bytes_max=100_000) as server, raw(server) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(wire.PREFIX.pack(wire.MAGIC, 1_000_000, 0) + b" " * 1_000_000)
        assert "together" in read_error(connection)["message"]


def test_a_slow_client_is_given_up(database: Database) -> None:
    with LocalServer(database, frame_timeout_s=0.05) as server, raw(server) as connection:
        connection.sendall(wire.PREFIX.pack(wire.MAGIC, 1_000, 0) + b"{")
        assert connection.recv(1) == b""
        with connect(database.path) as client:
            assert client.sql("SELECT 1").fetchall() == [(1,)]


def test_closing_waits_for_nobody_who_is_slow(database: Database) -> None:
    """Half a frame, a statement without end, an answer that nobody reads."""
    server = LocalServer(database)
    with raw(server) as half, raw(server) as endless, raw(server) as unread:
        half.sendall(wire.PREFIX.pack(wire.MAGIC, 1_000, 0) + b"{")
        endless.sendall(wire.pack({"token": "x", "sql": ENDLESS}))
        unread.sendall(wire.pack({"token": "y", "sql": "SELECT range FROM range(5000000)"}))
        while server.connection_count < 3:
            pass
        server.close()
        assert server.connection_count == 0


def test_a_client_cancels_its_statement_and_keeps_its_session(client: RemoteDatabase) -> None:
    client.sql("SET route = 'local'")
    errors: list[TidemillError] = []

    def ask() -> None:
        with pytest.raises(TidemillError) as caught:
            client.sql(ENDLESS)
        errors.append(caught.value)

    thread = threading.Thread(target=ask)
    thread.start()
    while thread.is_alive():
        client.cancel()
        thread.join(0.05)
    assert errors[0].message == "the statement was cancelled"
    assert client.sql("SHOW route").fetchall() == [("local",)]


def test_an_answer_that_fails_half_way_says_why(
    client: RemoteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = client.sql_text("SELECT range FROM range(100000)")
    next(result.chunks)
    assert client.sql("SELECT 1").fetchall() == [(1,)]  # what was left unread harms nothing

    def failing(table: pa.Table) -> Iterator[list[list[str | None]]]:
        yield [["1"]]
        raise CatalogError("the disk is gone")

    monkeypatch.setattr("tidemill.as_text.text_chunks", failing)
    with pytest.raises(CatalogError, match="the disk is gone"):
        client.sql_text("SELECT 1").rows()
    monkeypatch.undo()
    assert client.sql("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("seed", range(40))
def test_noise_harms_nobody(server: LocalServer, client: RemoteDatabase, seed: int) -> None:
    """Random bytes, frames cut anywhere, lengths that lie, JSON without end."""
    chance = random.Random(seed)
    for _ in range(10):
        with raw(server) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(noise(chance))
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(65_536):
                    pass
    assert client.sql("SELECT 1").fetchall() == [(1,)]
    while server.connection_count > 1:
        pass
    assert server.arrived_bytes == 0


def noise(chance: random.Random) -> bytes:
    sizes = (0, 1, 20, 2**20, 2**28, 2**28 + 1, 2**31, 2**32 - 1)
    header = chance.choice(
        [
            {"token": "x", "sql": "SELECT 1"},
            {"token": "x", "sql": "SELECT 1", "form": chance.choice(["text", "json", "pdf", 1])},
            {"token": "x", "append": "t", "rows": chance.choice(["arrow", "values", "tuple", 7])},
            {"cancel": "x"},
            {"token": "x", "sql": "SELECT ?", "rows_max": -(2**70)},
            {"token": None},
        ]
    )
    body = chance.randbytes(chance.choice([0, 1, 30, 3_000]))
    frame = bytearray(wire.pack(header, len(body)) + body)
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randrange(200))
        case 1:
            return bytes(frame[: chance.randrange(len(frame))])
        case 2:
            prefix = wire.PREFIX.pack(wire.MAGIC, chance.choice(sizes), chance.choice(sizes))
            return prefix + chance.randbytes(40)
        case 3:
            for _ in range(chance.randint(1, 5)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            return bytes(frame)
        case 4:
            deep = chance.choice([b"[", b'{"a":', b'{"sql":[']) * chance.randint(1_000, 100_000)
            return wire.PREFIX.pack(wire.MAGIC, len(deep), 0) + deep
        case _:
            return bytes(frame) * chance.randint(1, 3)


def test_rows_that_cannot_be_in_the_bytes_are_refused(client: RemoteDatabase) -> None:
    """Rows of nothing but NULL take no bytes at all on the wire, and memory in a table."""
    client.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, a INT)")
    with pytest.raises(ProtocolError, match="rows are said to be in"):
        client.append("t", pa.table({"a": pa.nulls(10_000_000)}))
    assert client.sql("SELECT count(*) FROM t").fetchall() == [(0,)]
