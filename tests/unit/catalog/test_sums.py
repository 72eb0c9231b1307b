"""A SQLite catalog that was damaged is not believed."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from once import once

from tidemill.catalog import sums
from tidemill.catalog.migrations import MIGRATIONS
from tidemill.catalog.model import FILE_ROWS, NewFile, NewTable
from tidemill.catalog.store import Catalog
from tidemill.catalog.sums import TABLE
from tidemill.catalog.urls import sqlite_url
from tidemill.clock import FakeClock
from tidemill.errors import CatalogError, TidemillError
from tidemill.types import Column, SqlType

COLUMNS = (Column("ts", SqlType("TIMESTAMP")), Column("x", SqlType("BIGINT")))


def opened(folder: Path) -> Catalog:
    return Catalog.open(sqlite_url(folder / "catalog.sqlite"), FakeClock(0))


def fill(catalog: Catalog, files: int = 20) -> int:
    new = NewTable("t", "streaming", COLUMNS, time_column="ts", watermark_delay_us=0)
    table_id = once(catalog).create_table(new).table_id
    for number in range(files):
        about = (0, 10, 5, 100, 1, 1, 9, 5 * number + 1, 5 * number + 5, "move")
        file = NewFile(f"1/{number}.parquet", FILE_ROWS, *about, checksums="AAAA")
        once(catalog).commit_files(table_id, [file], moved_seq=5 * number + 5, progress=str(number))
    once(catalog).alter_settings(table_id, {"memory": "64 MB"})
    once(catalog).rename_table(table_id, "u")
    once(catalog).set_meta("a", "b")
    once(catalog).set_meta("a", "c")
    return table_id


def test_every_change_keeps_the_sums(tmp_path: Path) -> None:
    catalog = opened(tmp_path)
    table_id = fill(catalog)
    catalog.verify()
    files = catalog.snapshot().history(table_id).files
    once(catalog).commit_files(table_id, drop=[file.file_id for file in files[:7]])
    once(catalog).expire_snapshots(10**15)
    catalog.verify()
    with suppress(RuntimeError), catalog.transaction() as change:
        change.set_meta("x", "y")
        raise RuntimeError
    assert catalog.records.get_meta("x") is None
    catalog.verify()
    catalog.close()
    again = opened(tmp_path)
    assert len(again.snapshot().history(table_id).files) == 13
    once(again).drop_table(table_id)
    again.verify()
    again.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE tidemill_files SET row_count = row_count + 1 WHERE file_id = 3",
        "DELETE FROM tidemill_moves WHERE moved_seq = 100",
        "UPDATE tidemill_columns SET type = 'INTEGER' WHERE name = 'x'",
        "INSERT INTO tidemill_marks VALUES (1, 2, 3)",
        "UPDATE tidemill_sums SET row_count = row_count + 1 WHERE name = 'tidemill_files'",
        "DELETE FROM tidemill_sums WHERE name = 'tidemill_files'",
        "DROP TABLE tidemill_marks",
        "DROP TABLE tidemill_sums",
    ],
)
def test_a_change_behind_its_back_is_found(tmp_path: Path, sql: str) -> None:
    catalog = opened(tmp_path)
    fill(catalog)
    catalog.close()
    with sqlite3.connect(tmp_path / "catalog.sqlite") as connection:
        connection.execute(sql)
    connection.close()
    with pytest.raises(CatalogError, match="is damaged") as caught:
        opened(tmp_path)
    assert "restore it from a copy" in (caught.value.hint or "")


def test_a_change_on_purpose_can_be_kept(tmp_path: Path) -> None:
    catalog = opened(tmp_path)
    table_id = fill(catalog)
    catalog.close()
    with sqlite3.connect(tmp_path / "catalog.sqlite") as connection:
        connection.execute("UPDATE tidemill_files SET row_count = 77 WHERE file_id = 3")
        connection.execute(f"DELETE FROM {TABLE}")
    connection.close()
    again = opened(tmp_path)
    assert 77 in [file.rows for file in again.snapshot().history(table_id).files]
    again.verify()
    again.close()
    opened(tmp_path).close()


def test_a_catalog_that_lost_transactions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    catalog = opened(tmp_path / "a")
    fill(catalog)
    shutil.copytree(tmp_path / "a", tmp_path / "killed")
    catalog.close()
    log = tmp_path / "killed" / "catalog.sqlite-wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    with pytest.raises(CatalogError, match="has lost its last transactions") as caught:
        opened(tmp_path / "killed")
    assert "catalog.sqlite.head" in (caught.value.hint or "")
    (tmp_path / "killed" / "catalog.sqlite.head").unlink()
    opened(tmp_path / "killed").close()


def test_an_older_catalog_gets_its_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = opened(tmp_path)
    table_id = fill(catalog)
    catalog.close()
    with sqlite3.connect(tmp_path / "catalog.sqlite") as connection:
        connection.execute("DROP TABLE tidemill_sums")
        connection.execute("ALTER TABLE tidemill_files DROP COLUMN checksums")
        connection.execute("ALTER TABLE tidemill_files DROP COLUMN changed")
        connection.execute("DROP TABLE tidemill_changes")
        connection.execute("UPDATE tidemill_catalog SET version = 6")
    connection.close()
    again = opened(tmp_path)
    assert {file.checksums for file in again.snapshot().history(table_id).files} == {None}
    again.verify()
    again.close()
    with sqlite3.connect(tmp_path / "catalog.sqlite") as connection:
        [(version,)] = connection.execute("SELECT version FROM tidemill_catalog")
        [(count,)] = connection.execute(f"SELECT count(*) FROM {TABLE}")
    connection.close()
    assert version == len(MIGRATIONS)
    assert count > 15


def test_flipped_bits(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    catalog = opened(tmp_path / "a")
    fill(catalog)
    wanted = catalog.snapshot()
    catalog.close()
    content = (tmp_path / "a" / "catalog.sqlite").read_bytes()
    rng = random.Random(5)
    refused = 0
    for number in range(150):
        folder = tmp_path / f"b{number}"
        folder.mkdir()
        bad = bytearray(content)
        bit = rng.randrange(8 * len(bad))
        bad[bit // 8] ^= 1 << bit % 8
        (folder / "catalog.sqlite").write_bytes(bad)
        try:
            catalog = opened(folder)
        except TidemillError as error:
            refused += error.hint is not None
            continue
        assert catalog.snapshot() == wanted
        catalog.close()
    assert refused


def test_a_catalog_is_verified_while_others_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums, rows and the count of commits are those of one moment."""
    catalog = opened(tmp_path)
    table_id = fill(catalog)
    sum_of, commits = sums._sum_of, iter(range(1_000))

    def committing(dbapi: sqlite3.Connection, name: str) -> tuple[int, str]:
        with catalog.transaction() as change:
            change.rename_table(table_id, f"t{next(commits)}")
        return sum_of(dbapi, name)

    monkeypatch.setattr(sums, "_sum_of", committing)
    catalog.verify()
    assert next(commits) > 1, "some were made meanwhile"
    monkeypatch.undo()
    catalog.verify()
    catalog.close()
