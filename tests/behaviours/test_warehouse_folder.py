"""The folder of a warehouse: which may become one, who may read it, and the settings kept in it."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from once import once
from warehouses import compact, open_inline, quiet

import tidemill
from tidemill.catalog.store import Catalog
from tidemill.catalog.urls import sqlite_url
from tidemill.cli.main import main
from tidemill.clock import WallClock
from tidemill.engine import Database
from tidemill.errors import SettingError, TidemillError, UnknownNameError, UnsupportedError

OTHER_UID = 65_534


@pytest.fixture(autouse=True)
def nothing_by_itself() -> Iterator[None]:
    with quiet():
        yield


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def fill(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT) WITH (move = 'manual')")
    db.sql("CREATE TABLE r (id BIGINT PRIMARY KEY, name VARCHAR)")
    db.sql("INSERT INTO r VALUES (1, 'secret')")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, count(*) AS n FROM t GROUP BY id")
    for _ in range(8):
        db.sql("INSERT INTO t VALUES ('2024-01-01', 1), ('2024-01-02', 2)")
        db.sql("FLUSH t")
    compact(db, "t")
    db.sql("INSERT INTO t VALUES ('2024-01-02', 3)")


def below(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]


def modes(folder: Path) -> dict[str, int]:
    """What others may do with the files and folders below one, where that is anything."""
    found = {str(path): stat.S_IMODE(path.lstat().st_mode) for path in below(folder)}
    return {path: mode for path, mode in found.items() if mode & 0o077}


# -- who may read it


def test_all_that_is_written_is_closed_to_others(tmp_path: Path) -> None:
    with open_inline(tmp_path / "w") as db:
        fill(db)
        assert modes(tmp_path / "w") == {}
        executable = [p for p in below(tmp_path / "w") if p.is_file() and os.access(p, os.X_OK)]
        assert executable == []
    with open_inline(tmp_path / "w") as db:
        db.sql("UPDATE r SET name = 'other'")
        assert modes(tmp_path / "w") == {}
    assert modes(tmp_path / "w") == {}


def test_a_storage_elsewhere_is_closed_to_others(tmp_path: Path) -> None:
    with open_inline(tmp_path / "w", storage=str(tmp_path / "history")) as db:
        fill(db)
    assert list((tmp_path / "history").rglob("*.parquet"))
    assert modes(tmp_path / "history") == {}


def test_the_umask_is_left_alone(tmp_path: Path) -> None:
    with open_inline(tmp_path / "w") as db:
        fill(db)
        made = tmp_path / "of the program"
        made.write_text("")
        assert stat.S_IMODE(made.stat().st_mode) == 0o644


def test_a_warehouse_of_an_older_release_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_inline(tmp_path / "w") as db:
        fill(db)
    for path in below(tmp_path / "w"):
        path.chmod(0o755)
    with caplog.at_level(logging.WARNING, "tidemill"), open_inline(tmp_path / "w"):
        assert modes(tmp_path / "w") == {}
    assert "were open to other users" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tidemill"), open_inline(tmp_path / "w"):
        assert caplog.text == ""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everyone may enter; those of pytest are closed."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_reads_nothing_and_cannot_lock_the_owner_out(open_folder: Path) -> None:
    with open_inline(open_folder / "w") as db:
        fill(db)
        paths = [str(path) for path in below(open_folder / "w")]
    script = """if True:
        import fcntl, os, sys
        os.setgroups([]); os.setgid(UID); os.setuid(UID)
        for path in sys.argv[1:]:
            try:
                fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except PermissionError:
                continue
            print(path)
    """.replace("UID", str(OTHER_UID))
    command = [sys.executable, "-S", "-c", script, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""


# -- what may become one


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    for create in (True, False):
        with pytest.raises(UnsupportedError, match="is not a warehouse, and not empty") as caught:
            tidemill.open(tmp_path, create=create)
        assert "letter.txt" in (caught.value.detail or "")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_an_empty_or_absent_folder_becomes_a_warehouse(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "absent", "far/away"):
        with pytest.raises(UnknownNameError, match="there is no warehouse"):
            tidemill.open(tmp_path / name, create=False)
        assert not (tmp_path / name).exists() or not list((tmp_path / name).iterdir())
        open_inline(tmp_path / name).close()
        tidemill.open(tmp_path / name, create=False, spark_master="inline").close()
        assert modes(tmp_path / name) == {}


def test_an_unfinished_first_start_is_finished(tmp_path: Path) -> None:
    """Killed before the folder was marked as a warehouse."""
    open_inline(tmp_path / "w").close()
    (tmp_path / "w" / "catalog.id").unlink()
    open_inline(tmp_path / "w").close()


@pytest.mark.parametrize("name", ["absent", "empty", "other"])
def test_status_never_makes_a_warehouse(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "hosts").write_text("")
    before = sorted(tmp_path.rglob("*"))
    assert main(["status", "-w", str(tmp_path / name)]) == 1
    assert "warehouse" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


# -- settings that belong to it


def origin(db: Database, name: str) -> tuple[str, str]:
    query = "SELECT value, origin FROM tidemill.settings WHERE scope = 'database' AND name = ?"
    ((value, where),) = db.sql(query, [name]).fetchall()
    return value, where


def test_storage_given_once_counts_from_then_on(tmp_path: Path) -> None:
    place = str(tmp_path / "history")
    with open_inline(tmp_path / "w", storage=place) as db:
        assert origin(db, "storage") == (place, "given")
        fill(db)
    with open_inline(tmp_path / "w") as db:
        assert origin(db, "storage") == (place, "warehouse")
        assert origin(db, "threads") == ("1", "given")
        db.sql("FLUSH t")
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(17,)]
    assert not (tmp_path / "w" / "data").exists()


def test_another_storage_is_refused_until_the_files_are_there(tmp_path: Path) -> None:
    with open_inline(tmp_path / "w") as db:
        fill(db)
    new = tmp_path / "elsewhere"
    with pytest.raises(SettingError) as caught:
        open_inline(tmp_path / "w", storage=str(new))
    assert '"data"' in caught.value.message
    assert str(new) in caught.value.message
    assert "copy all files first" in (caught.value.hint or "")
    shutil.copytree(tmp_path / "w" / "data", new)
    with open_inline(tmp_path / "w", storage=str(new)) as db:
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(17,)]
    shutil.rmtree(tmp_path / "w" / "data")
    with open_inline(tmp_path / "w") as db:
        assert origin(db, "storage") == (str(new), "warehouse")
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(17,)]


def test_the_same_storage_in_other_words_is_the_same(tmp_path: Path) -> None:
    whole = str(tmp_path / "w" / "data")
    with open_inline(tmp_path / "w", storage=whole) as db:
        fill(db)
    (tmp_path / "w").rename(tmp_path / "moved")
    with open_inline(tmp_path / "moved") as db:
        assert origin(db, "storage") == ("data", "warehouse")
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(17,)]


def test_time_travel_may_be_changed(tmp_path: Path) -> None:
    with open_inline(tmp_path / "w", time_travel="3 days"):
        pass
    with open_inline(tmp_path / "w") as db:
        assert origin(db, "time_travel") == ("3 days", "warehouse")
    open_inline(tmp_path / "w", time_travel="2 days").close()
    with open_inline(tmp_path / "w") as db:
        assert origin(db, "time_travel") == ("2 days", "warehouse")


def forget_settings(folder: Path) -> None:
    """Make it a warehouse of a release that kept none."""
    catalog = Catalog.open(sqlite_url(folder / "catalog.sqlite"), WallClock())
    for name in ("storage", "time_travel"):
        once(catalog).set_meta(f"setting.{name}", None)
    catalog.close()


def test_an_older_warehouse_keeps_the_storage_where_its_files_are(tmp_path: Path) -> None:
    place = str(tmp_path / "history")
    with open_inline(tmp_path / "w", storage=place) as db:
        fill(db)
    forget_settings(tmp_path / "w")
    with pytest.raises(SettingError, match='are not in "data"'):
        open_inline(tmp_path / "w")
    open_inline(tmp_path / "w", storage=place).close()
    with open_inline(tmp_path / "w") as db:
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(17,)]


def test_an_older_warehouse_with_files_in_two_places_is_told_so(tmp_path: Path) -> None:
    place = tmp_path / "history"
    with open_inline(tmp_path / "w") as db:
        fill(db)
        db.sql("INSERT INTO t VALUES ('2024-02-02', 3)")
        db.sql("FLUSH t")
    first, *_ = sorted((tmp_path / "w" / "data").rglob("*.parquet"))
    elsewhere = place / first.relative_to(tmp_path / "w" / "data")
    elsewhere.parent.mkdir(parents=True)
    first.rename(elsewhere)
    forget_settings(tmp_path / "w")
    with pytest.raises(TidemillError, match="are not in") as caught:
        open_inline(tmp_path / "w", storage=str(place))
    assert "copy all to one of them" in (caught.value.hint or "")
    shutil.copytree(place, tmp_path / "w" / "data", dirs_exist_ok=True)
    with open_inline(tmp_path / "w") as db:
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(18,)]
