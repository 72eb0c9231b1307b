"""One rule for the same file twice, whichever way it comes; and pipes, which are no files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from warehouses import flush, open_inline, quiet

import tidemill
from tidemill.cli.loading import Loader, find_table
from tidemill.engine import Database
from tidemill.errors import FileFormatError
from tidemill.pipeline.packages import file_source

CREATE = "CREATE STREAMING TABLE t (ts TIMESTAMP, a INTEGER, WATERMARK FOR ts AS ts)"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with quiet(), open_inline(tmp_path / "w") as made:
        made.sql(f"{CREATE} WITH (clock = 'event')")
        yield made


def write(path: Path, count: int = 100) -> Path:
    rows = "".join(f"2024-01-01 00:00:00,{at}\n" for at in range(count))
    path.write_text("ts,a\n" + rows)
    return path


def copy(db: Database, path: Path, options: str = "") -> str:
    return db.sql(f"COPY t FROM '{path}' {options}").message


def load(db: Database, path: Path, options: str = "") -> str:
    loader = Loader(db, find_table(db, "t"), 30)
    if options or not loader.is_known(path):
        source = file_source(path) + (":again" if options else "")
        loader.load(path, "csv", source)
    return f"load {loader.summary.stored}"


def copy_many(db: Database, path: Path, options: str = "") -> str:
    return db.sql(f"COPY t FROM '{path.parent}/{path.stem}*.csv' {options}").message


WAYS: list[Callable[..., str]] = [copy, load, copy_many]


def count(db: Database) -> int:
    return int(db.sql("SELECT count(*) FROM t").fetchall()[0][0])


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
def test_a_file_is_loaded_once_whichever_way(
    db: Database, tmp_path: Path, first: Callable[..., str], second: Callable[..., str]
) -> None:
    path = write(tmp_path / "a.csv")
    first(db, path)
    assert count(db) == 100
    flush(db, "t")
    assert second(db, path).split()[1] == "0"
    assert count(db) == 100
    second(db, path, "(FORCE)")
    assert count(db) == 200
    ingest = db.sql("SELECT rows_in, stored FROM tidemill.ingest WHERE table_name = 't'")
    assert ingest.fetchall() == [(200, 200)]


def test_a_file_is_known_after_a_restart(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    with quiet():
        with open_inline(tmp_path / "w") as db:
            db.sql(f"{CREATE} WITH (clock = 'event')")
            assert copy(db, path) == "COPY 100"
        with open_inline(tmp_path / "w") as db:
            assert copy(db, path) == "COPY 0 (1 package was loaded before)"


@pytest.mark.parametrize("way", [copy, copy_many])
def test_a_file_that_changed_is_refused(
    db: Database, tmp_path: Path, way: Callable[..., str]
) -> None:
    path = write(tmp_path / "a.csv")
    copy(db, path)
    write(path, 120)
    with pytest.raises(FileFormatError, match="changed after it was loaded"):
        way(db, path)
    assert count(db) == 100
    assert way(db, path, "(FORCE)") == "COPY 120"


def test_a_load_that_broke_off_is_told(db: Database, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    table = find_table(db, "t")
    part = tidemill_rows(path)
    db.append(table.name, part, source=file_source(path), offset=0)
    with pytest.raises(FileFormatError, match="in part"):
        copy(db, path)
    assert load(db, path) == "load 70"
    assert count(db) == 100


def tidemill_rows(path: Path) -> list[dict[str, object]]:
    lines = path.read_text().splitlines()[1:31]
    return [dict(zip(("ts", "a"), line.split(","), strict=True)) for line in lines]


# -- pipes


def test_a_pipe_is_read_to_its_end(db: Database, tmp_path: Path) -> None:
    pipe, path = tmp_path / "pipe.csv", write(tmp_path / "a.csv")
    for _ in range(2):  # it is another one each time
        os.mkfifo(pipe)
        writer = threading.Thread(target=lambda: pipe.write_text(path.read_text()))
        writer.start()
        assert copy(db, pipe) == "COPY 100"
        writer.join()
        pipe.unlink()


def test_copy_from_a_pipe_is_cancelled(db: Database, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    errors: list[tidemill.TidemillError] = []

    def ask() -> None:
        with pytest.raises(tidemill.TidemillError) as caught:
            copy(db, pipe)
        errors.append(caught.value)

    thread = threading.Thread(target=ask)
    thread.start()
    while thread.is_alive():
        db.cancel(thread.ident)
        thread.join(0.05)
    assert errors[0].message == "the statement was cancelled"
    assert count(db) == 0


def test_a_pattern_leaves_pipes_out(db: Database, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "b.csv")
    write(tmp_path / "a.csv")
    assert copy(db, tmp_path / "*.csv") == "COPY 100"


def test_a_query_reads_no_pipe(db: Database, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(tidemill.TidemillError, match="is a pipe") as caught:
        db.sql(f"SELECT * FROM read_csv('{tmp_path / 'pipe.csv'}')")
    assert "COPY" in (caught.value.hint or "")
    with pytest.raises(tidemill.TidemillError, match="no files found"):
        db.sql(f"SELECT * FROM read_csv('{tmp_path / 'pi*.csv'}')")
