"""Views while many work: writers append, rows move, are loaded and compacted, readers count.

What a reader has seen in a view does not go back, and at the end nothing is missing and nothing is
there twice.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv
from sim.crowd import Crowd, crowd_of_threads
from warehouses import compact, difference, open_inline, quiet

from tidemill.engine import Database

START = datetime(2024, 1, 1)
BATCH_ROWS = 20
ROUND_S = 0.02
VIEWS = {
    "counted": "SELECT writer, count(*) AS n, sum(id) AS ids, max(id) AS top FROM t GROUP BY 1",
    "distinct_ids": "SELECT count(DISTINCT id) AS n, count(*) AS m FROM t",
    "minutes": "SELECT window_start, count(*) AS n FROM TUMBLE(t, ts, INTERVAL '1' MINUTE) "
    "GROUP BY 1",
    "newest": "SELECT writer, id FROM t QUALIFY row_number() OVER "
    "(PARTITION BY writer ORDER BY id DESC, batch) <= 2",
    "recent": "SELECT count(*) AS n FROM RECENT(t, INTERVAL '10' MINUTE)",
}


@pytest.fixture(autouse=True)
def nothing_by_itself() -> Iterator[None]:
    with quiet():
        yield


def _rows(writer: int, batch: int) -> pa.Table:
    ids = range(batch * BATCH_ROWS, batch * BATCH_ROWS + BATCH_ROWS)
    return pa.table(
        {
            "ts": [START + timedelta(seconds=number) for number in ids],
            "writer": pa.array([writer] * BATCH_ROWS, pa.int32()),
            "batch": pa.array([batch] * BATCH_ROWS, pa.int32()),
            "id": pa.array(ids, pa.int64()),
        }
    )


def _create(db: Database, **settings: str) -> None:
    given = {"partition": "5 minutes", "durability": "none", "clock": "event", "move": "manual"}
    written = ", ".join(f"{key} = '{value}'" for key, value in {**given, **settings}.items())
    columns = "ts TIMESTAMP, writer INT, batch INT, id BIGINT"
    db.sql(f"CREATE STREAMING TABLE t ({columns}) WITH ({written})")


class Work:
    """What keeps a warehouse busy until the writers are done."""

    def __init__(self, db: Database, crowd: Crowd, folder: Path) -> None:
        self.db, self.crowd, self.folder = db, crowd, folder
        self.is_over = threading.Event()
        self.loads = 0

    def rounds(self) -> Iterator[int]:
        number = 0
        while not self.is_over.wait(ROUND_S) and not self.crowd.stopping.is_set():
            yield number
            number += 1

    def move(self) -> None:
        hot = self.db._hot[self.db.catalog.snapshot().get("t").table_id]
        for number in self.rounds():
            view = hot.view()
            upto = (view.moved_seq + view.published_seq) // 2 if number % 2 else None
            self.db._keeping.wait(self.db._keeping._submit_move(hot, upto, "a test"))
            if number % 4 == 3:
                compact(self.db, "t")

    def load(self, writer: int) -> None:
        for number in self.rounds():
            folder = self.folder / str(number)
            folder.mkdir(parents=True)
            rows = _rows(writer, number)
            csv.write_csv(rows.slice(0, 7), folder / "a.csv")
            csv.write_csv(rows.slice(7), folder / "b.csv")
            self.db.sql(f"COPY t FROM '{folder}/*.csv'")
            self.loads += 1

    def count(self) -> None:
        """A counting view never goes back, and shows whole batches."""
        last = 0
        for _ in self.rounds():
            rows = self.db.sql("SELECT writer, n, ids, top FROM counted").fetchall()
            count = sum(row[1] for row in rows)
            assert count >= last, "rows went away"
            last = count
            for _, n, ids, top in rows:
                assert n % BATCH_ROWS == 0, "part of a batch"
                assert top == n - 1, "a row twice, or a gap"
                assert ids == n * (n - 1) // 2

    def read(self) -> None:
        for _ in self.rounds():
            (n, m), *_ = self.db.sql("SELECT * FROM distinct_ids").fetchall()
            assert n <= m
            for name in VIEWS:
                self.db.sql(f"SELECT * FROM {name}")

    def redefine(self) -> None:
        """Views come and go meanwhile; the one that is left is complete."""
        for number in self.rounds():
            query = f"SELECT batch % {number % 3 + 2} AS g, count(*) AS n FROM t GROUP BY 1"
            self.db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW changing AS {query}")
            self.db.sql("SELECT * FROM changing")
            if number % 5 == 4:
                self.db.sql("DROP MATERIALIZED VIEW changing")


@pytest.mark.parametrize("makes_views_meanwhile", [False, True])
def test_counting_views_never_go_back_and_end_right(
    tmp_path: Path, small_blocks: int, makes_views_meanwhile: bool
) -> None:
    batches, writers = 60, 2
    with open_inline(tmp_path / "w") as db:
        _create(db)
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        with crowd_of_threads() as crowd:
            work = Work(db, crowd, tmp_path / "packages")

            def write(writer: int) -> None:
                for batch in range(batches):
                    db.append("t", _rows(writer, batch))

            others = [work.move, work.count, work.read]
            others += [work.redefine] if makes_views_meanwhile else []
            keeping = [crowd.start(each) for each in others]
            keeping.append(crowd.start(work.load, writers))
            writing = [crowd.start(write, writer) for writer in range(writers)]
            crowd.join(*writing)
            work.is_over.set()
            crowd.join(*keeping)
        sent = [*[batches] * writers, work.loads]
        _check(db, sent)
        db.sql("FLUSH")
        _check(db, sent)
        failed = "SELECT count(*) FROM tidemill.jobs WHERE state = 'failed'"
        assert db.sql(failed).fetchall() == [(0,)]
    with open_inline(tmp_path / "w") as db:
        _check(db, sent)


def _check(db: Database, batches: list[int]) -> None:
    counts = [rows * BATCH_ROWS for rows in batches]
    wanted = [(w, n, n * (n - 1) // 2, n - 1) for w, n in enumerate(counts) if n]
    assert db.sql("SELECT * FROM counted ORDER BY writer").fetchall() == wanted
    views = dict(VIEWS)
    if db.catalog.snapshot().find("changing") is not None:
        db.sql("REFRESH MATERIALIZED VIEW changing")
        (found,) = db.sql("SELECT definition FROM tidemill.views WHERE view_name = 'changing'")
        views["changing"] = found[0]
    for name, query in views.items():
        found = db.sql(f"SELECT * FROM {name}").fetchall()
        wrong = difference(found, db.sql(query).fetchall())
        assert wrong is None, f"{name}: {wrong}"


def test_a_reference_table_changes_while_rows_come(tmp_path: Path, small_blocks: int) -> None:
    """A view joins all rows with the table of one moment, and follows it to the end."""
    batches, writers = 40, 2
    query = "SELECT v.version, count(*) AS n, sum(id) AS ids FROM t, v GROUP BY v.version"
    with open_inline(tmp_path / "w") as db:
        _create(db)
        db.sql("CREATE TABLE v (version INT)")
        db.sql("INSERT INTO v VALUES (0)")
        db.sql(f"CREATE MATERIALIZED VIEW joined AS {query}")
        with crowd_of_threads() as crowd:
            work = Work(db, crowd, tmp_path / "packages")

            def write(writer: int) -> None:
                for batch in range(batches):
                    db.append("t", _rows(writer, batch))

            def change() -> None:
                for _ in work.rounds():
                    db.sql("UPDATE v SET version = version + 1")

            def read() -> None:
                last = 0
                for _ in work.rounds():
                    rows = db.sql("SELECT sum(n), count(*) FROM joined").fetchall()
                    assert (rows[0][0] or 0) >= last
                    assert rows[0][1] <= 1
                    last = rows[0][0] or 0

            keeping = [crowd.start(each) for each in (work.move, change, read)]
            writing = [crowd.start(write, writer) for writer in range(writers)]
            crowd.join(*writing)
            work.is_over.set()
            crowd.join(*keeping)
        rows = batches * BATCH_ROWS
        wanted = [(writers * rows, writers * rows * (rows - 1) // 2)]
        before = sorted(db.sql("SELECT * FROM joined").fetchall())
        assert db.sql("SELECT sum(n), sum(ids) FROM joined").fetchall() == wanted
        db.sql("FLUSH")
        assert sorted(db.sql("SELECT * FROM joined").fetchall()) == before
        assert before == db.sql(query).fetchall()
        assert len(before) == 1
    with open_inline(tmp_path / "w") as db:
        assert sorted(db.sql("SELECT * FROM joined").fetchall()) == before


def test_a_view_is_read_while_others_are_replaced(tmp_path: Path, small_blocks: int) -> None:
    """Views with the same keys share a follower. Nobody drops the ones that are read, one of which
    is replaced all the time by itself: no reader may be told that a view was dropped."""
    steady = "SELECT writer, count(*) AS n FROM t GROUP BY writer"
    other = "SELECT writer, max(id) + {} AS top FROM t GROUP BY writer"
    with open_inline(tmp_path / "w") as db:
        _create(db)
        db.append("t", _rows(0, 0))
        db.sql(f"CREATE MATERIALIZED VIEW steady AS {steady}")
        db.sql(f"CREATE MATERIALIZED VIEW other AS {other.format(0)}")
        with crowd_of_threads() as crowd:
            work = Work(db, crowd, tmp_path / "packages")

            def replace_other() -> None:
                for number in range(1, 41):
                    db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW other AS {other.format(number)}")
                    db.sql(f"CREATE MATERIALIZED VIEW gone AS {other.format(-number)}")
                    db.sql("DROP MATERIALIZED VIEW gone")

            def append() -> None:
                for number in work.rounds():
                    db.append("t", _rows(0, number + 1))

            def read() -> None:
                for _ in work.rounds():
                    assert db.sql("SELECT n FROM steady").rowcount == 1
                    assert db.sql("SELECT top FROM other").rowcount == 1
                    db.sql("SELECT view_name, groups FROM tidemill.views").fetchall()

            reading = [crowd.start(read) for _ in range(2)]
            writing = crowd.start(append)
            crowd.join(crowd.start(replace_other))
            work.is_over.set()
            crowd.join(writing, *reading)
        assert db.sql("SELECT * FROM steady").fetchall() == db.sql(steady).fetchall()
        assert db.sql("SELECT * FROM other").fetchall() == db.sql(other.format(40)).fetchall()
