"""The local server and its client, over a real socket."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import os
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
from tidemill.errors import CatalogError, ClosedError, TidemillError, UnsupportedError
from tidemill.hot.intake import AppendResult
from tidemill.server import wire
from tidemill.server.local import SOCKET_PATH_BYTES_MAX, LocalServer
from tidemill.server.remote import RemoteDatabase, connect


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with tidemill.open(tmp_path / "warehouse") as database:
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


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**62,
        1.5,
        "it's",
        b"\x00\xff",
        datetime.datetime(2024, 2, 29, 12, 0, 0, 123456),
        datetime.date(2024, 2, 29),
        decimal.Decimal("12.345"),
        [1, 2, 3],
        {"a": 1, "b": "x"},
    ],
    ids=repr,
)
def test_parameters_keep_their_types(client: RemoteDatabase, value: object) -> None:
    assert client.sql("SELECT ?", [value]).fetchall() == [(value,)]
    assert client.sql("SELECT $it", {"it": value}).fetchall() == [(value,)]


def test_a_parameter_that_cannot_travel_is_refused(client: RemoteDatabase) -> None:
    with pytest.raises(UnsupportedError):
        client.sql("SELECT ?", [object()])


def test_no_parameters_is_not_none() -> None:
    assert wire.decode_params(*wire.encode_params([])) == []
    assert wire.decode_params(*wire.encode_params({})) == {}
    assert wire.decode_params(*wire.encode_params(None)) is None


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
        with pytest.raises(wire.InternalError, match="RuntimeError: bug"):
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


def test_one_connection_too_many_is_refused(database: Database) -> None:
    with LocalServer(database, connections_max=1), connect(database.path) as first:
        first.sql("SELECT 1")
        with connect(database.path) as second:
            with pytest.raises(wire.TooManyConnectionsError, match="serves 1 connections"):
                second.sql("SELECT 1")
            first.close()
        # The place becomes free as soon as the server has seen the first one go.
        answer = None
        for _ in range(1_000):
            with connect(database.path) as third:
                try:
                    answer = third.sql("SELECT 3").fetchall()
                    break
                except wire.TooManyConnectionsError:
                    continue
        assert answer == [(3,)]


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        wire.PREFIX.pack(wire.MAGIC, 5, 0) + b"nonse",
        wire.PREFIX.pack(wire.MAGIC, 2, 0) + b"[]",
        wire.PREFIX.pack(wire.MAGIC, 2**31, 0),
        wire.PREFIX.pack(wire.MAGIC, 10, 2**32 - 1),
    ],
    ids=["http", "no json", "no object", "large header", "large body"],
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


@pytest.mark.parametrize("request_", [{}, {"sql": 1}, {"append": "t"}], ids=json.dumps)
def test_a_wrong_request_keeps_the_connection(
    server: LocalServer, request_: dict[str, object]
) -> None:
    with raw(server) as connection:
        for _ in range(2):
            connection.sendall(wire.pack({"id": 1, **request_}))
            assert read_error(connection)["code"] == "protocol"


def test_a_client_that_breaks_off_harms_nobody(server: LocalServer, client: RemoteDatabase) -> None:
    whole = wire.pack({"id": 1, "sql": "SELECT range FROM range(3000000)", "params": None})
    for cut in (1, 6, len(whole) - 1, len(whole)):
        with raw(server) as connection:
            connection.sendall(whole[:cut])
    assert client.sql("SELECT 1").fetchall() == [(1,)]


def test_the_socket_is_private(server: LocalServer, database: Database) -> None:
    assert server.path == database.path / "tidemill.sock"
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


def test_a_long_path_moves_the_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    with tidemill.open(folder) as database:
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
    with tidemill.open(tmp_path), pytest.raises(CatalogError, match="takes no connections"):
        connect(tmp_path)
