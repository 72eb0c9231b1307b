"""Faults of the databases, as real as they can be had, and what is said of them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from once import once
from sqlalchemy import exc

from tidemill.catalog.faults import fault
from tidemill.catalog.model import NewTable
from tidemill.catalog.store import Catalog
from tidemill.catalog.urls import sqlite_url
from tidemill.clock import FakeClock
from tidemill.errors import CatalogError
from tidemill.types import Column, SqlType

NOBODY = 65_534


def table(name: str) -> NewTable:
    return NewTable(name, "reference", (Column("a", SqlType("INTEGER")),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "catalog.db"
    catalog = Catalog.open(sqlite_url(path), FakeClock(0))
    for number in range(50):
        once(catalog).create_table(table(f"t{number}"))
    catalog.close()
    return path


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write anywhere; be nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def refused(path: Path, words: str) -> CatalogError:
    with pytest.raises(CatalogError, match=words) as caught:
        Catalog.open(sqlite_url(path), FakeClock(0))
    assert str(path) in caught.value.message
    assert caught.value.detail
    assert caught.value.hint
    return caught.value


def test_a_missing_folder(tmp_path: Path) -> None:
    refused(tmp_path / "missing" / "catalog.db", "cannot be opened")


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    refused(tmp_path, "cannot be opened")


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    path.write_bytes(b"PAR1" * 4_096)
    refused(path, "not a SQLite database")
    assert path.read_bytes() == b"PAR1" * 4_096


@pytest.mark.parametrize("keep", [100, 4_096, 20_000])
def test_a_file_that_was_cut(file: Path, keep: int) -> None:
    os.truncate(file, keep)
    refused(file, r"is damaged|is not a SQLite|incomplete")


def test_a_file_with_scribbles(file: Path) -> None:
    size = file.stat().st_size
    with file.open("r+b") as handle:
        for at in range(4_096, size, 4_096):
            handle.seek(at)
            handle.write(b"\xff" * 2_000)
    refused(file, "is damaged")


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o555, 0o444), (0o777, 0o444)])
def test_a_place_that_may_not_be_written(file: Path, folder_mode: int, file_mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:  # tmp_path lies in a folder private to us
        copy = Path(shutil.copy(file, folder))
        copy.chmod(file_mode)
        Path(folder).chmod(folder_mode)
        with without_privileges():
            refused(copy, r"cannot be opened|may not be")
        Path(folder).chmod(0o700)


def test_a_full_disk_changes_nothing_and_work_goes_on_after(file: Path) -> None:
    catalog = Catalog.open(sqlite_url(file), FakeClock(0))
    writer = catalog._connections._writer
    pages = writer.exec_driver_sql("PRAGMA page_count").scalar()
    writer.exec_driver_sql(f"PRAGMA max_page_count = {pages}").close()
    writer.rollback()
    with pytest.raises(CatalogError, match="no space left") as caught:
        _fill(catalog)
    before = catalog.snapshot()
    assert "space" in caught.value.hint
    assert len(before.tables) == before.snapshot_id < 1_000
    writer.exec_driver_sql("PRAGMA max_page_count = 1000000").close()
    writer.rollback()
    once(catalog).create_table(table("after"))
    snapshot = catalog.snapshot()
    catalog.close()
    again = Catalog.open(sqlite_url(file), FakeClock(0))
    assert again.snapshot() == snapshot
    again.close()


def _fill(catalog: Catalog) -> None:
    for number in range(1_000):
        once(catalog).create_table(table(f"more{number}"))


def test_another_program_that_holds_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.catalog.connections.BUSY_WAIT_S", 0.05)
    stranger = sqlite3.connect(file, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    try:
        refused(file, "locked by another program")
    finally:
        stranger.close()
    Catalog.open(sqlite_url(file), FakeClock(0)).close()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (psycopg.errors.DiskFull, "no space left"),
        (psycopg.errors.InsufficientPrivilege, "may not be"),
        (psycopg.errors.AdminShutdown, "lost its connection"),
        (psycopg.errors.ConnectionFailure, "lost its connection"),
        (psycopg.errors.InvalidPassword, "refused the login"),
        (psycopg.errors.TooManyConnections, "no connection left"),
        (psycopg.errors.DataCorrupted, "is damaged"),
        (psycopg.errors.UndefinedTable, "is incomplete"),
        (psycopg.errors.ReadOnlySqlTransaction, "may not be"),
        (psycopg.errors.DivisionByZero, "failed"),
    ],
)
def test_what_postgres_says(kind: type[psycopg.Error], words: str) -> None:
    wrapped = exc.DBAPIError("SELECT 1", {}, kind("it\nsaid s3cret"))
    error = fault('"db"', wrapped, "s3cret")
    assert words in error.message
    assert error.detail == "it said ***"
    assert error.hint
