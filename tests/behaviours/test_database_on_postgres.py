"""A whole database whose catalog is in PostgreSQL: the same statements, the same answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres import PostgresServer

import tidemill
from tidemill.errors import CatalogError


def test_tables_rows_and_indices_survive_a_restart(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.new_url()
    with tidemill.open(tmp_path / "w", catalog=url) as db:
        db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, k INT) WITH (clock = 'event')")
        db.sql("CREATE INDEX ON t (k); CREATE TABLE r (k INT PRIMARY KEY, name VARCHAR)")
        db.sql("INSERT INTO t VALUES ('2024-01-01 00:00:00', 1), ('2024-01-01 00:00:01', 2)")
        db.sql("INSERT INTO r VALUES (1, 'one'), (2, 'two'); UPDATE r SET name = 'due' WHERE k = 2")
    with tidemill.open(tmp_path / "w", catalog=url) as db:
        answer = db.sql("SELECT name FROM t JOIN r USING (k) ORDER BY ts").fetchall()
        assert answer == [("one",), ("due",)]
        assert db.sql("SHOW INDEXES ON t").rowcount == 1


def test_a_second_folder_with_the_same_catalog_is_refused(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.new_url()
    with (
        tidemill.open(tmp_path / "a", catalog=url),
        pytest.raises(CatalogError, match=r"owned|in use|process"),
    ):
        tidemill.open(tmp_path / "b", catalog=url)


def test_a_folder_with_another_catalog_is_refused(postgres: PostgresServer, tmp_path: Path) -> None:
    """Opened with the wrong catalog, the logs would look like left-overs and be swept away."""
    with tidemill.open(tmp_path / "w") as db:
        db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP)")
        db.sql("INSERT INTO t VALUES ('2024-01-01 00:00:00')")
    with pytest.raises(CatalogError, match="belongs to another catalog"):
        tidemill.open(tmp_path / "w", catalog=postgres.new_url())
    with tidemill.open(tmp_path / "w") as db:
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(1,)]
