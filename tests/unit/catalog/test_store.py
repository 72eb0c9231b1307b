"""What only the SQLite catalog promises: its pragmas, and a start that nobody notices."""

from __future__ import annotations

from pathlib import Path

import pytest
from once import once

from tidemill.catalog.model import NewTable
from tidemill.catalog.store import Catalog
from tidemill.catalog.urls import sqlite_url
from tidemill.clock import FakeClock
from tidemill.types import Column, SqlType


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "catalog.db")


def test_sqlite_is_told_to_be_careful(url: str) -> None:
    catalog = Catalog.open(url, FakeClock(0))
    with catalog._connections.read() as reader, catalog._connections.write() as writer:
        for connection in (reader, writer):
            got = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            }
            assert got == {
                "journal_mode": "wal",
                "synchronous": 2,
                "foreign_keys": 1,
                "busy_timeout": 5_000,
            }
    catalog.close()


def test_snapshots_cannot_be_changed(url: str) -> None:
    catalog = Catalog.open(url, FakeClock(0))
    made = once(catalog).create_table(
        NewTable("t", "reference", (Column("a", SqlType("INTEGER")),), settings={"hot": "1 s"})
    )
    with pytest.raises(TypeError):
        catalog.snapshot().tables["u"] = made  # type: ignore[index]
    with pytest.raises(TypeError):
        made.given_settings["hot"] = "2 s"  # type: ignore[index]
    catalog.close()
