"""Statements can be broken off: by a call, and by a client that goes away."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

import tidemill
from tidemill.server import wire
from tidemill.server.local import LocalServer

ENDLESS = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000) b"


def test_a_statement_is_cancelled_and_the_next_one_runs(tmp_path: Path) -> None:
    errors: list[tidemill.TidemillError] = []
    with tidemill.open(tmp_path) as db:

        def ask() -> None:
            with pytest.raises(tidemill.TidemillError) as caught:
                db.sql(ENDLESS)
            errors.append(caught.value)

        thread = threading.Thread(target=ask)
        thread.start()
        while thread.is_alive():
            db.cancel(thread.ident)
            thread.join(0.05)
        assert errors[0].message == "the statement was cancelled"
        assert db.sql("SELECT 42").fetchall() == [(42,)]


def test_what_runs_is_shown_and_cancelled_by_its_number(tmp_path: Path) -> None:
    errors: list[tidemill.TidemillError] = []
    endless = f"  {ENDLESS}\n"
    with tidemill.open(tmp_path) as db:

        def ask() -> None:
            with pytest.raises(tidemill.TidemillError) as caught:
                db.sql(endless)
            errors.append(caught.value)

        thread = threading.Thread(target=ask)
        thread.start()
        asking = "SELECT query_id, statement, state FROM tidemill.queries ORDER BY query_id"
        while len(rows := db.sql(asking).fetchall()) < 2:
            thread.join(0.01)
        (number, text, state), (own, *_) = sorted(rows, key=lambda row: row[1] == asking)
        assert (text, state) == (ENDLESS, "running")
        assert own != number
        assert db.executions.cancel(number)
        thread.join(60)
        assert errors[0].message == "the statement was cancelled"
        assert [text for _, text, _ in db.sql(asking).fetchall()] == [asking]
        assert not db.executions.cancel(number)


def test_a_text_ends_with_the_statement_that_was_cancelled(tmp_path: Path) -> None:
    """Also if the request comes while none of its statements is within DuckDB."""
    with tidemill.open(tmp_path) as db:
        db.sql("CREATE TABLE r (a INT)")
        thread = threading.Thread(
            target=lambda: running(db, f"{ENDLESS}; INSERT INTO r VALUES (1)")
        )
        thread.start()
        while thread.is_alive():
            for execution in db.executions.running():
                execution.cancel()
            thread.join(0.01)
        assert db.sql("SELECT count(*) FROM r").fetchall() == [(0,)]


def running(db: tidemill.Database, text: str) -> None:
    with pytest.raises(tidemill.TidemillError, match="the statement was cancelled"):
        db.sql(text)


def test_a_client_that_goes_away_takes_its_statement_along(tmp_path: Path) -> None:
    with tidemill.open(tmp_path, serve_local="off") as db, LocalServer(db) as server:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(str(server.path))
        client.sendall(wire.pack({"token": "x", "sql": ENDLESS}))
        client.close()
        waited = threading.Event()
        for _ in range(200):
            if server.connection_count == 0:
                break
            waited.wait(0.05)
        assert server.connection_count == 0
        assert db.sql("SELECT 42").fetchall() == [(42,)]
