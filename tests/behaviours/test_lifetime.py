"""What a short process leaves to others, and what it never does: start Spark for a little work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from warehouses import open_inline, quiet

import tidemill
from tidemill.catalog.transaction import Transaction
from tidemill.engine import Database
from tidemill.errors import CatalogError, RowsRejectedError, TidemillError

COLUMNS = "(ts TIMESTAMP, k BIGINT, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)"
FILES, ROWS = 5, 40


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(FILES):
        lines = [f"2026-01-0{number + 1} 00:00:{at:02},{at}" for at in range(ROWS)]
        (folder / f"{number}.csv").write_text("\n".join(["ts,k", *lines]) + "\n")
    return folder


def open_short(path: Path) -> Database:
    """As a command opens it: with the default master, and no time to spare."""
    return tidemill.open(path, threads=1, lifetime="short")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with open_short(tmp_path / "w") as db:
        db.sql(f"CREATE STREAMING TABLE s {COLUMNS} WITH (clock = 'event')")
        yield db


def one(db: Database, query: str) -> object:
    return db.sql(query).fetchall()[0][0]


def state(db: Database) -> object:
    return one(db, "SELECT state FROM tidemill.spark")


def test_small_files_are_appended_and_loaded_once(db: Database, files: Path) -> None:
    copy = f"COPY s FROM '{files}/*.csv'"
    assert db.sql(copy).message == f"COPY {FILES * ROWS}"
    assert db.sql(copy).message == f"COPY 0 ({FILES} packages were loaded before)"
    assert one(db, "SELECT count(*) FROM s") == FILES * ROWS
    assert one(db, "SELECT hot_rows FROM tidemill.tables WHERE table_name = 's'") == FILES * ROWS
    assert one(db, "SELECT count(*) FROM tidemill.packages WHERE state = 'loaded'") == FILES
    (files / "9.csv").write_text("ts,k\n2026-01-09 00:00:00,1\n")
    assert db.sql(copy).message == f"COPY 1 ({FILES} packages were loaded before)"
    assert state(db) == "off"
    assert db.sql("SHOW JOBS").fetchall() == []


def test_one_bad_file_stores_nothing(db: Database, files: Path) -> None:
    (files / "4.csv").write_text("ts,k\n2026-01-05 00:00:00,many\n")
    with pytest.raises(RowsRejectedError, match=r"4\.csv"):
        db.sql(f"COPY s FROM '{files}/*.csv'")
    assert one(db, "SELECT count(*) FROM s") == 0
    assert one(db, "SELECT count(*) FROM tidemill.packages") == 0


def test_a_file_that_changed_after_it_was_loaded_is_refused(db: Database, files: Path) -> None:
    copy = f"COPY s FROM '{files}/*.csv'"
    db.sql(copy)
    (files / "0.csv").write_text("ts,k\n2026-01-01 00:00:00,7\n")
    with pytest.raises(tidemill.TidemillError, match="changed after it was loaded"):
        db.sql(copy)
    assert one(db, "SELECT count(*) FROM s") == FILES * ROWS


def test_what_the_catalog_missed_the_log_knows(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the process had died between the append and the catalog's record of it."""

    def fail(*_: object) -> None:
        raise CatalogError("the disk is gone")

    copy = f"COPY s FROM '{files}/*.csv'"
    with open_short(tmp_path / "w") as db, monkeypatch.context() as patch:
        db.sql(f"CREATE STREAMING TABLE s {COLUMNS} WITH (clock = 'event')")
        patch.setattr(Transaction, "add_packages", fail)
        with pytest.raises(CatalogError):
            db.sql(copy)
    with open_short(tmp_path / "w") as db:
        assert one(db, "SELECT count(*) FROM tidemill.packages") == FILES
        assert db.sql(copy).message == f"COPY 0 ({FILES} packages were loaded before)"
        assert one(db, "SELECT count(*) FROM s") == FILES * ROWS


def test_a_move_takes_packages_along_that_the_catalog_missed(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_short(tmp_path / "w") as db, monkeypatch.context() as patch:
        db.sql(f"CREATE STREAMING TABLE s {COLUMNS} WITH (clock = 'event')")
        patch.setattr(Transaction, "add_packages", lambda *_: None)
        db.sql(f"COPY s FROM '{files}/*.csv'")
    with monkeypatch.context() as patch, open_inline(tmp_path / "w") as db:
        db.sql("FLUSH s")
    with open_short(tmp_path / "w") as db:
        copied = db.sql(f"COPY s FROM '{files}/*.csv'").message
        assert copied == f"COPY 0 ({FILES} packages were loaded before)"


KEYED = "(ts TIMESTAMP, k BIGINT, PRIMARY KEY (ts, k))"
ASKED = (
    "SELECT ts, k FROM s ORDER BY ALL",
    "SELECT count(*) FROM RECENT(s, INTERVAL '1' HOUR)",
    "SELECT rows_in, stored, late, rejected FROM tidemill.ingest",
)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("columns", "settings"),
    [
        (COLUMNS, "clock = 'event'"),
        (COLUMNS, "clock = 'event', late = 'divert'"),
        (COLUMNS, "clock = 'event', late = 'reject'"),
        (COLUMNS, "clock = 'event', retention = '1 day'"),
        (KEYED, "clock = 'event'"),
        pytest.param(KEYED, "clock = 'event', rejected = 'divert'", marks=pytest.mark.spark),
        (KEYED, "clock = 'event', on_conflict = 'ignore'"),
    ],
)
def test_an_append_is_as_good_as_the_pipeline(
    tmp_path: Path, files: Path, columns: str, settings: str, before: bool
) -> None:
    """Whether Spark happens to run makes no difference to anybody who asks."""
    found = []
    for number, open_database in enumerate((open_short, open_inline)):
        path = tmp_path / str(number)
        with open_database(path) as db:
            db.sql(f"CREATE STREAMING TABLE s {columns} WITH ({settings}, move = 'manual')")
            if before:
                db.sql("INSERT INTO s VALUES ('2026-01-03 00:00:05', 5), ('2026-01-03', -1)")
            try:
                said = db.sql(f"COPY s FROM '{files}/[1-4].csv'").message
            except TidemillError as error:
                said = error.code
        with open_inline(path) as db:
            found.append([said, *(db.sql(query).fetchall() for query in ASKED)])
    assert found[0] == found[1]


def test_nothing_is_compacted_and_no_source_loaded_by_a_short_process(
    tmp_path: Path, files: Path
) -> None:
    with quiet(), open_inline(tmp_path / "w") as db:
        db.sql(f"CREATE STREAMING TABLE s {COLUMNS} WITH (clock = 'event', partition = '1 day')")
        for at in range(8):
            db.sql(f"INSERT INTO s VALUES ('2026-01-01 00:00:0{at}', 1)")
            db.sql("FLUSH s")
        db.sql("INSERT INTO s VALUES ('2026-03-01', 1)")
    with quiet(), open_short(tmp_path / "w") as db:
        db._keeping.look()
        assert db.sql("SHOW JOBS").fetchall() == []
        assert state(db) == "off"
    with quiet(), open_inline(tmp_path / "w") as db:
        db._keeping.look()
        assert db.sql("SHOW JOBS").fetchall()  # where tasks can run, they do


def test_a_memory_that_was_full_before_is_moved_for_a_writer_who_waits(tmp_path: Path) -> None:
    """Also if he comes before the mover has looked at the table for the first time."""
    rows = [("2026-01-01", "x" * 1_000)] * 400
    words = "memory = '1 MB', move_fill = '0.95', clock = 'event'"
    with quiet(), open_short(tmp_path / "w") as db:
        db.sql(f"CREATE STREAMING TABLE s (ts TIMESTAMP, t VARCHAR) WITH ({words})")
        db.append("s", rows)
        db.append("s", rows)
    with open_inline(tmp_path / "w", lifetime="short", backpressure_wait="1 s") as db:
        for _ in range(5):
            db.append("s", rows)
        assert one(db, "SELECT count(*) FROM s") == 7 * len(rows)


def test_no_thread_outlives_close(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with open_inline(tmp_path / "w") as db:
        db.sql(f"CREATE STREAMING TABLE s {COLUMNS}")
        db.sql("INSERT INTO s VALUES ('2026-01-01', 1)")
        db.sql("FLUSH s")
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert left == []


def _java_of(folder: Path) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.spark
@pytest.mark.usefixtures("no_spark")
def test_closing_does_not_wait_for_a_spark_that_starts(tmp_path: Path) -> None:
    with tidemill.open(tmp_path / "w", lifetime="long", spark_master="local[1]") as db:
        assert state(db) == "starting"
        while db.sql("SELECT java_pid FROM tidemill.spark").fetchall()[0][0] is None:
            continue
        db.sql(f"CREATE STREAMING TABLE s {COLUMNS}")
        db.sql("INSERT INTO s VALUES ('2026-01-01', 1)")
    assert _java_of(tmp_path / "w" / "spark") == []
