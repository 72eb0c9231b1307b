"""Damaged files: whoever reads them says so, names what is concerned and what can be done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from warehouses import copy_warehouse

import tidemill
from tidemill.engine import Database
from tidemill.errors import CatalogError, DamagedFileError, DependencyError, OwnedError

START = datetime(2026, 3, 1)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as db:
        db.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT, x DOUBLE, PRIMARY KEY (id, ts), "
            "WATERMARK FOR ts AS ts - INTERVAL '1' DAY) WITH (on_conflict = 'replace')"
        )
        append(db, 0, 60)
        db.sql("FLUSH t")
        yield db


def opened(path: Path) -> Database:
    return tidemill.open(path / "w", spark_master="inline")


def append(db: Database, first: int, end: int, x: float = 0.5) -> None:
    rows = [
        {"ts": START + timedelta(minutes=3 * n), "id": n, "x": x + n} for n in range(first, end)
    ]
    db.append("t", rows)


def damage(path: Path, at: int | None = None) -> bytes:
    good = path.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2 if at is None else at] ^= 4
    path.write_bytes(bad)
    return good


def data_files(db: Database, kind: str = "rows", table: str = "t") -> list[Path]:
    found = db.sql(
        "SELECT path FROM tidemill.files WHERE table_name = $1 AND kind = $2 ORDER BY lo",
        [table, kind],
    )
    return [db.path / "data" / path for (path,) in found.fetchall()]


def test_every_reader_tells_of_a_damaged_file(db: Database, tmp_path: Path) -> None:
    first = data_files(db)[0]
    good = damage(first)
    told = 'of table "t" is damaged'
    statements = (
        "SELECT sum(x) FROM t",
        "SELECT * FROM t WHERE id = 3",
        "EXPLAIN ANALYZE SELECT sum(x) FROM t",
        f"COPY (SELECT * FROM t) TO '{tmp_path}/out.csv'",
        "CREATE TABLE c AS SELECT * FROM t",
        "SELECT * FROM t FOR SYSTEM_TIME AS OF now()",
        "VACUUM",
        "VACUUM t",
    )
    for statement in statements:
        with pytest.raises(DamagedFileError, match=told) as caught:
            db.sql(statement)
        assert first.name in caught.value.message
        assert "partition 20260301T000000Z" in (caught.value.detail or "")
        assert "restore the file from a copy" in (caught.value.hint or "")
    db.sql("SET route = 'spark'")
    with pytest.raises(DamagedFileError, match=told):
        db.sql("SELECT sum(x) FROM t")
    with pytest.raises(DamagedFileError, match=told):
        append(db, 1, 2)  # whether the key is there, only the file knows
    db.sql("RESET route")
    assert db.sql("SELECT count(*) FROM t WHERE ts >= TIMESTAMP '2026-03-01 02:00:00'").fetchall()
    first.write_bytes(good)
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(60,)]
    db.sql("VACUUM")


def test_a_missing_file_is_told(db: Database) -> None:
    first = data_files(db)[0]
    first.unlink()
    with pytest.raises(DamagedFileError, match="it is missing"):
        db.sql("SELECT sum(x) FROM t")


def test_a_view_over_damaged_partials_is_refused_and_made_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT, x DOUBLE, "
            "WATERMARK FOR ts AS ts - INTERVAL '1' DAY)"
        )
        view = (
            "MATERIALIZED VIEW v AS SELECT window_start, sum(x) AS s "
            "FROM TUMBLE(t, ts, INTERVAL '1' HOUR) GROUP BY ALL"
        )
        db.sql(f"CREATE {view}")
        append(db, 0, 60)
        db.sql("FLUSH t")
        wanted = db.sql("SELECT * FROM v ORDER BY ALL").fetchall()
        damage(data_files(db, "digest", "v$digest0")[0])
    with opened(tmp_path) as db:
        with pytest.raises(DamagedFileError, match="is damaged") as caught:
            db.sql("SELECT * FROM v")
        assert "CREATE OR REPLACE MATERIALIZED VIEW" in (caught.value.hint or "")
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(60,)]
        db.sql("DROP MATERIALIZED VIEW v")
        db.sql(f"CREATE {view}")
        db.sql("REFRESH MATERIALIZED VIEW v")
        assert db.sql("SELECT * FROM v ORDER BY ALL").fetchall() == wanted


def test_damaged_files_can_be_dropped(db: Database) -> None:
    first, second, *_ = data_files(db)
    assert db.sql("VACUUM t DROP DAMAGED").message.endswith("(0 damaged files with 0 rows dropped)")
    damage(first)
    damage(second)
    with pytest.raises(DamagedFileError, match="2 files are damaged"):
        db.sql("VACUUM t")
    message = db.sql("VACUUM t DROP DAMAGED").message
    assert message.endswith("(2 damaged files with 40 rows dropped)")
    assert db.sql("SELECT count(*), min(id) FROM t").fetchall() == [(20, 40)]
    append(db, 0, 5)
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(25,)]


def test_nothing_is_dropped_that_others_need(db: Database) -> None:
    append(db, 0, 5, x=7.5)  # their older versions are deleted in the files
    db.sql("FLUSH t")
    deletes = data_files(db, "deletes")
    if not deletes:
        pytest.skip("a compaction was faster")
    damage(deletes[0], 6)
    with pytest.raises(DamagedFileError, match="cannot be dropped"):
        db.sql("VACUUM t DROP DAMAGED")


def test_views_go_before_the_rows_that_they_sum_up(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT, x DOUBLE, "
            "WATERMARK FOR ts AS ts - INTERVAL '1' DAY)"
        )
        db.sql(
            "CREATE MATERIALIZED VIEW v AS SELECT window_start, sum(x) AS s "
            "FROM TUMBLE(t, ts, INTERVAL '1' HOUR) GROUP BY ALL"
        )
        append(db, 0, 60)
        db.sql("FLUSH t")
        damage(data_files(db)[0])
        with pytest.raises(DependencyError, match="views sum up its rows") as caught:
            db.sql("VACUUM t DROP DAMAGED")
        assert "v" in (caught.value.detail or "")
        db.sql("DROP MATERIALIZED VIEW v")
        db.sql("VACUUM t DROP DAMAGED")
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(40,)]


def test_damaged_reference_tables(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.sql("CREATE TABLE r (a BIGINT, b VARCHAR)")
        db.sql("INSERT INTO r SELECT range, 'text ' || range FROM range(50000)")
    path = tmp_path / "w" / "reference.duckdb"
    good = path.read_bytes()
    for at in (3, 8, 4_100, 8_200, len(good) // 2, len(good) // 3):
        path.write_bytes(good)
        damage(path, at)
        try:
            with opened(tmp_path) as db:
                found = db.sql("SELECT count(*), sum(a), sum(length(b)) FROM r").fetchall()
                db.sql("VACUUM")
        except DamagedFileError as error:
            told = str(error)
            assert "reference.duckdb" in told
            assert "restore it" in told
        else:
            assert found == [(50_000, 1_249_975_000, 538_890)]


def test_a_change_of_a_reference_table_is_not_dropped_in_silence(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.sql("CREATE TABLE r (a BIGINT)")
        db.sql("INSERT INTO r VALUES (1)")
        db.sql("INSERT INTO r VALUES (2)")
        (tmp_path / "killed").mkdir()
        copy_warehouse(tmp_path / "w", tmp_path / "killed" / "w")
    log = tmp_path / "killed" / "w" / "reference.duckdb.wal"
    good = log.read_bytes()
    for at in range(0, len(good), 17):
        log.write_bytes(good)
        damage(log, at)
        with pytest.raises(DamagedFileError, match=r"reference\.duckdb\.wal"):
            opened(tmp_path / "killed")
    log.write_bytes(good)
    with opened(tmp_path / "killed") as db:
        assert db.sql("SELECT a FROM r ORDER BY a").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"x" * 32, b"0" * 31 + b"\xb0"])
def test_a_damaged_catalog_id(tmp_path: Path, content: bytes) -> None:
    opened(tmp_path).close()
    mark = tmp_path / "w" / "catalog.id"
    good = mark.read_bytes()
    mark.write_bytes(content)
    with pytest.raises(CatalogError, match=r"catalog\.id") as caught:
        opened(tmp_path)
    assert good.decode() in (caught.value.hint or "")
    mark.write_bytes(good)
    opened(tmp_path).close()


def test_a_flipped_bit_of_the_catalog_id(tmp_path: Path) -> None:
    opened(tmp_path).close()
    mark = tmp_path / "w" / "catalog.id"
    good = mark.read_bytes()
    mark.write_bytes(bytes([ord("1") if good[:1] == b"0" else ord("0")]) + good[1:])
    with pytest.raises(CatalogError, match="another catalog") as caught:
        opened(tmp_path)
    assert str(mark) in (caught.value.detail or "")
    assert good.decode().strip() in (caught.value.detail or "")


@pytest.mark.parametrize("content", [b"\xff\xfe{", b"[1]", b'{"pid": []}', b'{"pid": "\xff"}'])
def test_a_damaged_lock_file(tmp_path: Path, content: bytes) -> None:
    with opened(tmp_path):
        (tmp_path / "w" / "owner.lock").write_bytes(content)
        with pytest.raises(OwnedError, match="owned by"):
            opened(tmp_path)
    (tmp_path / "w" / "owner.lock").write_bytes(content)
    opened(tmp_path).close()
