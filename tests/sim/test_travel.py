"""Reading the past: small cases that the histories of test_machine led to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from warehouses import open_inline, quiet

from tidemill.clock import FakeClock, from_us
from tidemill.engine import Database
from tidemill.hot.marks import Marks

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


@pytest.mark.xfail(strict=True, reason="what a load replaces is not counted, so it looks expired")
def test_rows_that_a_load_replaced_did_not_expire(
    db: Database, clock: FakeClock, tmp_path: Path
) -> None:
    _create(db, ", PRIMARY KEY (ts, k)", ", on_conflict = 'replace'")
    db.append("t", [(START, 1, 1), (START + timedelta(seconds=1), 2, 1)])
    _load(db, tmp_path, (START, 1, 2))
    counted = "SELECT rows_in, stored, replaced, expired FROM tidemill.ingest"
    assert db.sql(counted).fetchall() == [(3, 3, 1, 0)]
