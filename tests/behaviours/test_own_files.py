"""The warehouse's own files: no statement writes them, and no query reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from warehouses import open_inline, quiet

import tidemill
from tidemill.errors import QueryError, TidemillError, UnsupportedError

READS = (
    "SELECT * FROM '{}'",
    "SELECT * FROM read_csv('{}')",
    "SELECT * FROM read_csv_auto('{}', all_varchar = true)",
    "SELECT * FROM read_text('{}')",
    "SELECT * FROM read_blob(['{}'])",
    "SELECT * FROM read_json('{}')",
    "SELECT * FROM read_parquet('{}')",
    "SELECT * FROM parquet_metadata('{}')",
    "SELECT * FROM sniff_csv('{}')",
    "SELECT * FROM glob('{}')",
    "SELECT (SELECT max(size) FROM read_blob('{}'))",
    "WITH x AS (FROM read_text('{}')) FROM x",
    "EXPLAIN ANALYZE SELECT * FROM read_text('{}')",
    "CREATE TABLE stolen AS SELECT * FROM read_blob('{}')",
    "INSERT INTO texts SELECT content FROM read_text('{}')",
    "UPDATE texts SET a = (SELECT content FROM read_text('{}'))",
    "COPY (SELECT * FROM read_blob('{}')) TO '{folder}/out.parquet'",
    "COPY texts FROM '{}' (FORMAT csv)",
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[tidemill.Database]:
    with quiet(), open_inline(tmp_path / "w", storage=str(tmp_path / "elsewhere")) as db:
        db.sql("CREATE TABLE texts (a VARCHAR)")
        db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, a INTEGER)")
        db.append("s", [{"ts": "2024-01-01", "a": 1}])
        db.sql("FLUSH s")
        db.append("s", [{"ts": "2024-01-02", "a": 2}])
        yield db


def own_files(path: Path) -> list[Path]:
    found = [f for f in (path / "w").rglob("*") if f.is_file()]
    return found + [f for f in (path / "elsewhere").rglob("*") if f.is_file()]


def spellings(path: Path, target: Path) -> Iterator[str]:
    """Names that lead to one file."""
    yield str(target)
    yield os.path.relpath(target)
    yield f"{target.parent}/../{target.parent.name}/./{target.name}"
    yield f"file://{target}"
    yield f"file:{target}"
    link, folder = path / "link.csv", path / "folder"
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    yield str(link)
    folder.unlink(missing_ok=True)
    folder.symlink_to(target.parent)
    yield f"{folder}/{target.name}"
    yield f"{target.parent}/{target.name[:-1]}?"
    yield f"{path}/*/{target.name}" if target.parent.parent == path else f"{path}/**/{target.name}"
    hard = path / "hard.csv"
    hard.unlink(missing_ok=True)
    hard.hardlink_to(target)
    yield str(hard)
    hard.unlink()
    link.unlink()
    folder.unlink()


def test_reading(db: tidemill.Database, tmp_path: Path) -> None:
    names = {"owner.lock", "catalog.sqlite", "reference.duckdb", "catalog.id"}
    files = [f for f in own_files(tmp_path) if f.name in names or f.suffix in (".parquet", ".log")]
    assert len(files) >= len(names) + 1
    for target in files:
        for spelling in spellings(tmp_path, target):
            for text in READS:
                with pytest.raises(TidemillError) as caught:
                    db.sql(text.format(spelling, folder=tmp_path))
                if "(" in text.partition("COPY texts")[0]:  # others do not know every spelling
                    assert "belongs to the warehouse" in str(caught.value), (text, spelling)


def test_a_path_as_a_parameter(db: tidemill.Database, tmp_path: Path) -> None:
    own = str(tmp_path / "w" / "catalog.id")
    (tmp_path / "a.txt").write_text("hello")
    query = "SELECT content FROM read_text(?)"
    assert db.sql(query, [str(tmp_path / "a.txt")]).fetchall() == [("hello",)]
    with pytest.raises(UnsupportedError, match="belongs to the warehouse"):
        db.sql(query, [own])
    with pytest.raises(UnsupportedError, match="must be a constant"):
        db.sql(f"SELECT content FROM read_text('{own[:-1]}' || 'd')")
    with pytest.raises(TidemillError):
        db.sql("SELECT content FROM texts, LATERAL read_text(texts.a)")


def test_writing(db: tidemill.Database, tmp_path: Path) -> None:
    before = {file: file.read_bytes() for file in own_files(tmp_path)}
    for target in before:
        for spelling in spellings(tmp_path, target):
            if any(sign in spelling for sign in "*?"):
                continue
            for text in ("COPY s TO '{}' (FORMAT csv)", "COPY (SELECT 1) TO '{}' (FORMAT parquet)"):
                with pytest.raises(TidemillError):
                    db.sql(text.format(spelling))
    with pytest.raises(UnsupportedError, match="belongs to the warehouse"):
        db.sql(f"COPY s TO '{tmp_path}/w/new.csv'")
    (tmp_path / "x.csv.partial").symlink_to(tmp_path / "w" / "catalog.id")
    with pytest.raises(UnsupportedError, match="belongs to the warehouse"):
        db.sql(f"COPY s TO '{tmp_path}/x.csv'")
    assert {file: file.read_bytes() for file in own_files(tmp_path)} == before
    assert db.sql("SELECT a FROM s ORDER BY a").fetchall() == [(1,), (2,)]


def test_sources(db: tidemill.Database, tmp_path: Path) -> None:
    for pattern in (tmp_path / "w" / "log", tmp_path / "w" / "*.csv", tmp_path / "elsewhere"):
        with pytest.raises(UnsupportedError, match="belongs to the warehouse"):
            db.sql(f"CREATE SOURCE x FROM '{pattern}' FORMAT csv INTO s")


def test_other_files_are_free(db: tidemill.Database, tmp_path: Path) -> None:
    db.sql(f"COPY s TO '{tmp_path}/wx.csv'")
    assert db.sql(f"SELECT count(*) FROM '{tmp_path}/wx.csv'").fetchall() == [(2,)]
    assert db.sql(f"SELECT count(*) FROM read_csv('{tmp_path}/w?.csv')").fetchall() == [(2,)]
    assert db.sql(f"SELECT count(*) FROM glob('{tmp_path}/*.csv')").fetchall() == [(1,)]


def test_nothing_is_fetched(db: tidemill.Database) -> None:
    """DuckDB would download an extension for each of these."""
    for name in ("https://127.0.0.1:9/a.csv", "s3://bucket/a.parquet", "hf://datasets/x/y.csv"):
        with pytest.raises(QueryError) as caught:
            db.sql(f"SELECT * FROM read_csv('{name}')")
        assert "COPY" in str(caught.value.hint)
    for call in ("st_point(1, 2)", "excel_text(1, 'h')", "stem('a', 'b')"):
        with pytest.raises(TidemillError):
            db.sql(f"SELECT {call}")
    assert db.sql("SELECT '{\"a\": 1}'::JSON ->> 'a'").fetchall() == [("1",)]
    assert db.sql("SELECT '2024-07-01 12:00'::TIMESTAMPTZ AT TIME ZONE 'Europe/Berlin'").fetchone()
