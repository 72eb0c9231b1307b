"""Reading the past: small cases that the histories of test_machine led to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from warehouses import open_inline, quiet

from tidemill.clock import FakeClock, from_us
from tidemill.engine import Database
from tidemill.hot.marks import Marks
from tidemill.pipeline.compaction import MAX_US

START = datetime(2024, 1, 1)
SECOND_US = 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def db(tmp_path: Path, clock: FakeClock) -> Iterator[Database]:
    with quiet(), open_inline(tmp_path / "w", clock) as db:
        yield db


def _create(db: Database, more: str = "", settings: str = "") -> None:
    columns = f"ts TIMESTAMP, k BIGINT, v BIGINT{more}"
    db.sql(f"CREATE STREAMING TABLE t ({columns}) WITH (move = 'manual'{settings})")


def _load(db: Database, folder: Path, *rows: tuple[datetime, int, int]) -> None:
    number = len(list(folder.glob("*.csv")))
    lines = "".join(f"{ts},{k},{v}\n" for ts, k, v in rows)
    (folder / f"{number}.csv").write_text(f"ts,k,v\n{lines}")
    db.sql(f"COPY t FROM '{folder}/[{number}].csv'")


def _then(db: Database, moment: datetime) -> list[tuple[int, int]]:
    as_of = f"t FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'"
    return db.sql(f"SELECT k, v FROM {as_of} ORDER BY k, v").fetchall()


def _pass(clock: FakeClock, seconds: float = 5) -> datetime:
    """A moment around which nothing happens."""
    clock.advance(seconds)
    moment = from_us(clock.now_us())
    clock.advance(seconds)
    return moment


def test_the_past_stays_whatever_becomes_of_the_rows(
    db: Database, clock: FakeClock, tmp_path: Path
) -> None:
    _create(db)
    moments = {}
    db.append("t", [(START, 1, 1)])
    moments[_pass(clock)] = [(1, 1)]
    db.sql("FLUSH t")
    db.append("t", [(START, 2, 1)])
    moments[_pass(clock)] = [(1, 1), (2, 1)]
    db.append("t", [(START, 3, 1)])
    _load(db, tmp_path, (START, 4, 1))
    db.sql("FLUSH t")
    moments[_pass(clock)] = [(1, 1), (2, 1), (3, 1), (4, 1)]
    db.append("t", [(START, 5, 1)])
    for moment, rows in moments.items():
        assert _then(db, moment) == rows


def test_rows_loaded_before_a_moment_are_there_once(
    db: Database, clock: FakeClock, tmp_path: Path
) -> None:
    _create(db)
    _load(db, tmp_path, (START, 1, 1))
    db.append("t", [(START, 2, 1)])
    moment = _pass(clock)
    assert _then(db, moment) == [(1, 1), (2, 1)]
    db.sql("CREATE TABLE other (id INT PRIMARY KEY)")  # any newer snapshot
    assert _then(db, moment) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("flushes", [0, 1])
def test_a_row_replaced_before_a_moment_is_not_there(
    db: Database, clock: FakeClock, flushes: int
) -> None:
    """The row was in history when it was replaced from memory."""
    _create(db, ", PRIMARY KEY (ts, k)", ", on_conflict = 'replace'")
    db.append("t", [(START, 1, 1)])
    db.sql("FLUSH t")
    db.append("t", [(START, 1, 2)])
    moment = _pass(clock)
    for _ in range(flushes):
        db.sql("FLUSH t")
    assert _then(db, moment) == [(1, 2)]


@pytest.mark.parametrize("is_flushed", [False, True])
def test_rows_that_came_in_close_order_are_there_long_after(
    db: Database, clock: FakeClock, is_flushed: bool
) -> None:
    """A tenth of a second in memory, a second in history: not ten seconds."""
    _create(db)
    db.append("t", [(START, 1, 1)])
    clock.advance(0.05)
    db.append("t", [(START, 2, 1)])
    moment = _pass(clock)
    db.append("t", [(START, 3, 1)])
    if is_flushed:
        db.sql("FLUSH t")
    assert _then(db, moment) == [(1, 1), (2, 1)]


def test_marks_are_thinned_only_where_they_are_dense() -> None:
    marks = Marks()
    for at_s, seq in ((10.0, 1), (10.5, 2), (20.0, 3)):
        marks.add(int(at_s * SECOND_US), seq)
    assert marks.seq_at(15 * SECOND_US) == 2
    assert (int(10.5 * SECOND_US), 2) in marks.up_to(3)


KEYED = (", PRIMARY KEY (ts, k)", ", on_conflict = 'replace'")


@pytest.mark.parametrize("steps", list(itertools.product((False, True), repeat=3)))
def test_a_row_replaced_after_a_moment_is_there(
    db: Database, clock: FakeClock, steps: tuple[bool, ...]
) -> None:
    """Whether it was in memory or in files when it gave way, and what became of both."""
    _create(db, *KEYED)
    moments = {}
    for number, is_flushed in enumerate(steps):
        db.append("t", [(START, 1, number), (START, 2 + number, 0)])
        moments[_pass(clock)] = [(1, number), *((2 + each, 0) for each in range(number + 1))]
        if is_flushed:
            db.sql("FLUSH t")
    for _ in range(2):
        for moment, rows in moments.items():
            assert _then(db, moment) == rows
        db.sql("FLUSH t")


@pytest.mark.parametrize("place", ["memory", "log", "files"])
def test_a_row_that_a_load_replaced_is_there(
    db: Database, clock: FakeClock, tmp_path: Path, place: str
) -> None:
    _create(db, *KEYED)
    db.append("t", [(START, 1, 1), (START, 2, 1)])
    if place == "files":
        db.sql("FLUSH t")
    before = _pass(clock)
    _load(db, tmp_path, (START, 1, 2))
    after = _pass(clock)
    db.append("t", [(START, 2, 3)])
    later = _pass(clock)
    if place != "memory":
        db.sql("FLUSH t")
    assert _then(db, before) == [(1, 1), (2, 1)]
    assert _then(db, after) == [(1, 2), (2, 1)]
    assert _then(db, later) == [(1, 2), (2, 3)]


def test_a_row_that_a_compaction_left_out_is_there(db: Database, clock: FakeClock) -> None:
    """It was moved, replaced, deleted and compacted away while others of its time were in memory:
    the first snapshot that holds them all has it no more."""
    _create(db, *KEYED)
    for k in range(4):
        db.append("t", [(START, k, 1)])
    moment = _pass(clock)
    hot = next(iter(db._hot.values()))
    db._keeping._submit_move(hot, 2, "the first two").wait()
    db.append("t", [(START, 0, 2)])
    db._keeping._submit_move(hot, 3, "with the deletes").wait()
    db._keeping.compaction.submit(hot.table, MAX_US).wait()
    db.sql("FLUSH t")
    assert _then(db, moment) == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_the_log_keeps_replaced_rows_until_they_are_moved(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move of older rows removes the segments that nobody needs; the past needs this one."""
    monkeypatch.setattr("tidemill.config.MEMORY_BYTES_MIN", 1)
    with quiet(), open_inline(tmp_path / "w", clock, segment_size="4 KB") as db:
        _create(db, *KEYED)
        db.append("t", [(START, k, 0) for k in range(300)])
        db.append("t", [(START, k, 1) for k in range(1_000, 1_300)])
        moment = _pass(clock)
        db.append("t", [(START, k, 2) for k in range(1_000, 1_300)])
        db.append("t", [(START, k, 3) for k in range(2_000, 2_300)])
        hot = next(iter(db._hot.values()))
        hot.view()
        db._keeping._submit_move(hot, 300, "the oldest").wait()
        assert [v for _, v in _then(db, moment)] == [0] * 300 + [1] * 300


def test_replaced_rows_go_with_the_moments_that_had_them(tmp_path: Path, clock: FakeClock) -> None:
    with quiet(), open_inline(tmp_path / "w", clock, time_travel="1 hour") as db:
        _create(db, *KEYED)
        db.append("t", [(START, 1, 1)])
        moment = _pass(clock)
        db.append("t", [(START, 1, 2)])
        db.sql("FLUSH t")
        assert _then(db, moment) == [(1, 1)]
        assert len(list((tmp_path / "w/data").rglob("*-past-*"))) == 1
        clock.advance(2 * 3_600)
        db.sql("CREATE TABLE other (id INT PRIMARY KEY)")  # any newer snapshot
        clock.advance(2 * 3_600)
        db.sql("VACUUM")
        assert list((tmp_path / "w/data").rglob("*-past-*")) == []
        assert db.sql("SELECT k, v FROM t").fetchall() == [(1, 2)]


def test_rows_that_a_load_replaced_did_not_expire(
    db: Database, clock: FakeClock, tmp_path: Path
) -> None:
    _create(db, ", PRIMARY KEY (ts, k)", ", on_conflict = 'replace'")
    db.append("t", [(START, 1, 1), (START + timedelta(seconds=1), 2, 1)])
    _load(db, tmp_path, (START, 1, 2))
    counted = "SELECT rows_in, stored, replaced, expired FROM tidemill.ingest"
    assert db.sql(counted).fetchall() == [(3, 3, 1, 0)]
