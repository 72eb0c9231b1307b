"""Rows on their way to history: readers see every row exactly once, at every moment.

Counting readers run on every route that needs no Java while writers append, rows move, packages are
loaded, files are compacted, and snapshots are forgotten with their files. What a reader holds stays
until it lets go, in memory and on disk. Moments between two steps of a commit are staged by means
of the points of ``tidemill.hot.crash``, at which a reader may come.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv
from sim.crowd import Crowd, crowd_of_threads
from warehouses import compact, open_inline, quiet

from tidemill.clock import FakeClock
from tidemill.engine import Database
from tidemill.hot.table import HotTable
from tidemill.sql import parse
from tidemill.statements.session import Session

START = datetime(2024, 1, 1)
BATCH_ROWS = 20
MOVE_EVERY_S = 0.05


@pytest.fixture(autouse=True)
def nothing_by_itself() -> Iterator[None]:
    with quiet():
        yield


def _rows(writer: int, batch: int, rows: int = BATCH_ROWS) -> pa.Table:
    ids = range(batch * rows, batch * rows + rows)
    return pa.table(
        {
            "ts": [START + timedelta(seconds=number) for number in ids],
            "writer": pa.array([writer] * rows, pa.int32()),
            "batch": pa.array([batch] * rows, pa.int32()),
            "id": pa.array(ids, pa.int64()),
        }
    )


def _create(db: Database, more: str = "", **settings: str) -> HotTable:
    given = {"partition": "5 minutes", "durability": "batch", "move": "manual", **settings}
    written = ", ".join(f"{key} = '{value}'" for key, value in given.items())
    columns = f"ts TIMESTAMP, writer INT, batch INT, id BIGINT{more}"
    db.sql(f"CREATE STREAMING TABLE t ({columns}) WITH ({written})")
    return db._hot[db.catalog.snapshot().get("t").table_id]


def _route(db: Database, route: str) -> Session:
    session = Session()
    db.sql(f"SET route = '{route}'", session=session)
    return session


class History:
    """What keeps history busy while writers write: each of these is one thread's work."""

    def __init__(self, db: Database, hot: HotTable, crowd: Crowd, folder: Path) -> None:
        self.db, self.hot, self.crowd, self.folder = db, hot, crowd, folder
        self.is_over = threading.Event()
        self.loads = 0

    def _rounds(self) -> Iterator[int]:
        number = 0
        while not self.is_over.wait(MOVE_EVERY_S) and not self.crowd.stopping.is_set():
            yield number
            number += 1

    def move(self) -> None:
        for number in self._rounds():
            view = self.hot.view()
            upto = (view.moved_seq + view.published_seq) // 2 if number % 2 else None
            self.db._keeping.wait(self.db._keeping._submit_move(self.hot, upto, "a test"))

    def keep(self) -> None:
        for number in self._rounds():
            self.db._keeping.look()
            if number % 3 == 0:
                self.db._keeping.forget_snapshots()
            elif number % 3 == 1:
                self.db.sql("VACUUM")

    def load(self, writer: int) -> None:
        for number in self._rounds():
            folder = self.folder / str(number)
            folder.mkdir(parents=True)
            rows = _rows(writer, number)
            csv.write_csv(rows.slice(0, 7), folder / "a.csv")
            csv.write_csv(rows.slice(7), folder / "b.csv")
            assert self.db.sql(f"COPY t FROM '{folder}/*.csv'").message == f"COPY {BATCH_ROWS}"
            self.loads += 1


COUNT = f"""
    SELECT count(*), count(DISTINCT _seq), max(_seq), sum(id),
        (SELECT count(*) FROM (
            SELECT writer, batch FROM t GROUP BY writer, batch
            HAVING count(*) <> {BATCH_ROWS} OR count(DISTINCT id) <> {BATCH_ROWS}
        ))
    FROM t
"""
COUNT_ON_SPARK = "SELECT count(*), count(DISTINCT _seq), max(_seq), sum(id), 0 FROM t"


def _count(db: Database, session: Session, query: str, before: tuple[int, int]) -> tuple[int, int]:
    found = db.sql(query, session=session).fetchall()[0]
    count, distinct, newest, _, torn = found
    assert count == distinct, "a row twice"
    assert count % BATCH_ROWS == torn == 0, "part of a batch"
    assert count >= before[0], "rows went away"
    assert (newest or 0) >= before[1]
    return count, newest or 0


def test_counting_readers_see_every_row_once(
    tmp_path: Path, small_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compactions are to run beside readers here, who never leave them a calm moment.
    monkeypatch.setattr("tidemill.pipeline.calm.BUSY_SHARE", 2.0)
    batches, writers = 100, 2
    settings = {"time_travel": "0.1 seconds", "segment_size": "1 MB"}
    with open_inline(tmp_path / "w", **settings) as db:
        with crowd_of_threads() as crowd:
            hot = _create(db, clock="event")
            history = History(db, hot, crowd, tmp_path / "packages")

            def write(writer: int) -> None:
                for batch in range(batches):
                    db.append("t", _rows(writer, batch))

            def read(route: str, query: str) -> None:
                before, session = (0, 0), _route(db, route)
                while not history.is_over.is_set() and not crowd.stopping.is_set():
                    before = _count(db, session, query, before)

            keeping = [
                crowd.start(history.move),
                crowd.start(history.keep),
                crowd.start(history.load, writers),
            ]
            writing = [crowd.start(write, writer) for writer in range(writers)]
            crowd.start(read, "local", COUNT)
            crowd.start(read, "spark", COUNT_ON_SPARK)
            crowd.join(*writing)
            history.is_over.set()
            crowd.join(*keeping)
        assert history.loads > 0
        _check_whole(db, writers, batches, history.loads)
        kinds = "SELECT kind, count(*) FROM tidemill.jobs WHERE state = 'committed' GROUP BY kind"
        assert {"move", "load", "compact"} <= dict(db.sql(kinds).fetchall()).keys()
        assert db.sql("SELECT count(*) FROM tidemill.jobs WHERE state = 'failed'").fetchall() == [
            (0,)
        ]
        db.sql("FLUSH")
        _check_whole(db, writers, batches, history.loads)
    with open_inline(tmp_path / "w") as db:
        _check_whole(db, writers, batches, history.loads)


def _check_whole(db: Database, writers: int, batches: int, loads: int) -> None:
    query = "SELECT writer, count(*), count(DISTINCT id), max(id) FROM t GROUP BY 1 ORDER BY 1"
    sent = {**dict.fromkeys(range(writers), batches * BATCH_ROWS), writers: loads * BATCH_ROWS}
    wanted = [(writer, rows, rows, rows - 1) for writer, rows in sent.items()]
    for route in ("local", "spark"):
        assert db.sql(query, session=_route(db, route)).fetchall() == wanted
    counted = "SELECT rows_in, stored, loaded, rejected, late, expired FROM tidemill.ingest"
    total = sum(sent.values())
    assert db.sql(counted).fetchall() == [(total, total, sent[writers], 0, 0, 0)]


@pytest.mark.parametrize("policy", ["ignore", "replace"])
def test_keys_stay_unique_while_rows_move(tmp_path: Path, small_blocks: int, policy: str) -> None:
    """All writers send the same keys, some of which are in memory and some in history."""
    batches, keys = 60, 100
    with open_inline(tmp_path / "w") as db, crowd_of_threads() as crowd:
        hot = _create(db, ", PRIMARY KEY (ts, id)", on_conflict=policy)
        history = History(db, hot, crowd, tmp_path / "packages")

        def write(writer: int) -> None:
            for batch in range(batches):
                rows = _rows(writer, batch % (keys // BATCH_ROWS))
                rows = rows.set_column(2, "batch", pa.array([batch] * BATCH_ROWS, pa.int32()))
                db.append("t", rows)

        def read() -> None:
            while not history.is_over.is_set() and not crowd.stopping.is_set():
                query = "SELECT count(*), count(DISTINCT id), count(DISTINCT _seq) FROM t"
                count, ids, seqs = db.sql(query).fetchall()[0]
                assert count == ids == seqs <= keys

        keeping = [crowd.start(history.move), crowd.start(history.keep)]
        writing = [crowd.start(write, writer) for writer in range(2)]
        crowd.start(read)
        crowd.join(*writing)
        history.is_over.set()
        crowd.join(*keeping)
        db.sql("FLUSH")
        query = "SELECT count(*), count(DISTINCT id), min(batch) FROM t"
        oldest = 0 if policy == "ignore" else batches - keys // BATCH_ROWS
        assert db.sql(query).fetchall() == [(keys, keys, oldest)]


# -- moments between two steps


def _at_point(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> list[str]:
    """Do something once when a point is passed; answers the points passed."""
    passed: list[str] = []

    def point(passing: str) -> None:
        passed.append(passing)
        if passing == name and passed.count(name) == 1:
            act()

    for module in ("pipeline.move", "pipeline.compact", "pipeline.loads.environment"):
        monkeypatch.setattr(f"tidemill.{module}.point", point)
    return passed


@pytest.mark.parametrize(
    "step", ["move.planned", "task.written", "move.written", "move.committed", "move.released"]
)
def test_a_reader_at_every_step_of_a_move(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_inline(tmp_path / "w") as db:
        _create(db)
        db.append("t", _rows(0, 0))
        db.sql("FLUSH t")
        db.append("t", _rows(0, 1))
        seen: list[Any] = []

        def look() -> None:
            db.append("t", _rows(0, 2))
            query = "SELECT count(*), count(DISTINCT _seq), count(DISTINCT id) FROM t"
            for route in ("local", "spark"):
                seen.append(db.sql(query, session=_route(db, route)).fetchall()[0])

        passed = _at_point(monkeypatch, step, look)
        db.sql("FLUSH t")
        assert step in passed
        assert seen == [(60, 60, 60)] * 2
        assert db.sql("SELECT count(*), count(DISTINCT _seq) FROM t").fetchall() == [(60, 60)]


def _keyed(db: Database) -> None:
    _create(db, ", PRIMARY KEY (ts, id)", on_conflict="replace")
    db.append("t", _rows(0, 0))


def _check_replaced(db: Database, seen: list[Any]) -> None:
    """The rows of batch 0 gave way to those of writer 1."""
    query = "SELECT count(*), count(DISTINCT id), min(writer) FROM t"
    seen.append(db.sql(query).fetchall()[0])


@pytest.mark.parametrize("when", ["move.planned", "move.written"])
@pytest.mark.parametrize(
    "seen_at",
    ["move.committed", "end"],
)
def test_rows_that_die_during_a_move_stay_dead(
    tmp_path: Path, when: str, seen_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    with open_inline(tmp_path / "w") as db:
        _keyed(db)

        def point(passing: str) -> None:
            if passing == when:
                db.append("t", _rows(1, 0))
            if passing == seen_at:
                _check_replaced(db, seen)

        monkeypatch.setattr("tidemill.pipeline.move.point", point)
        db.sql("FLUSH t")
        if seen_at == "end":
            _check_replaced(db, seen)
            db.sql("FLUSH t")
            _check_replaced(db, seen)
    assert set(seen) == {(BATCH_ROWS, BATCH_ROWS, 1)}
    with open_inline(tmp_path / "w") as db:
        _check_replaced(db, seen)
    assert set(seen) == {(BATCH_ROWS, BATCH_ROWS, 1)}


@pytest.mark.parametrize(
    ("place", "step"),
    [
        ("memory", "load.written"),
        ("files", "load.written"),
        ("files", "load.committed"),
        ("memory", "load.committed"),
    ],
)
def test_a_reader_while_loaded_rows_replace_others(
    tmp_path: Path, place: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv.write_csv(_rows(1, 0), tmp_path / "a.csv")
    seen: list[Any] = []
    with open_inline(tmp_path / "w") as db:
        _keyed(db)
        if place == "files":
            db.sql("FLUSH t")
        _at_point(monkeypatch, step, lambda: _check_replaced(db, seen))
        db.sql(f"COPY t FROM '{tmp_path}/*.csv'")
        assert seen == [(BATCH_ROWS, BATCH_ROWS, int(step == "load.committed"))]
        _check_replaced(db, seen)
        assert seen[-1] == (BATCH_ROWS, BATCH_ROWS, 1)


# -- what readers hold


def test_memory_is_released_when_the_last_reader_lets_go(tmp_path: Path, small_blocks: int) -> None:
    with open_inline(tmp_path / "w") as db:
        hot = _create(db)
        for batch in range(10):
            db.append("t", _rows(0, batch))
        views = [hot.view(), hot.view()]
        held = hot.nbytes
        blocks = [weakref.ref(block.batch) for block in views[0].blocks]
        assert blocks
        db.sql("FLUSH t")
        assert hot.nbytes < held / 10
        gc.collect()
        assert all(block() is not None for block in blocks)
        assert views[0].rows == 200
        views.pop()
        gc.collect()
        assert all(block() is not None for block in blocks)
        views.clear()
        gc.collect()
        assert [block() for block in blocks] == [None] * len(blocks)
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(200,)]


def test_files_stay_while_a_reader_holds_their_snapshot(tmp_path: Path) -> None:
    clock = FakeClock(START)
    with open_inline(tmp_path / "w", clock, time_travel="1 hour") as db:
        _create(db)
        for batch in range(6):
            db.append("t", _rows(0, batch))
            db.sql("FLUSH t")
        query = parse("SELECT count(*), sum(id) FROM t")[0]
        reader = db._router.fill(db._querying.plan(query, None), None, "local")
        assert compact(db, "t")
        clock.advance(7_200)
        db.append("t", _rows(0, 6))
        db.sql("FLUSH t")
        assert db.sql("VACUUM").message.startswith("VACUUM 0")
        assert db._router.run_filled(reader)[0].to_pylist()[0]["count_star()"] == 120
        del reader
        gc.collect()
        files = len(list(db._keeping.storage.list("")))
        assert db.sql("VACUUM").message.startswith("VACUUM ")
        left = {path for path, *_ in db._keeping.storage.list("")}
        assert left == db.catalog.records.known_paths()
        assert len(left) < files
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(140,)]


def test_moves_make_room_for_waiting_writers(
    tmp_path: Path, small_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is too fast for the memory waits for a move and is not refused."""
    monkeypatch.setattr("tidemill.config.MEMORY_BYTES_MIN", 1)
    with open_inline(tmp_path / "w", backpressure_wait="30 seconds") as db:
        hot = _create(db, memory="200 kB", durability="none")
        batches, rows = 40, 500
        for batch in range(batches):
            db.append("t", _rows(0, batch, rows))
            assert hot.nbytes <= 200_000
        query = "SELECT count(*), count(DISTINCT _seq), max(id) FROM t"
        total = batches * rows
        assert db.sql(query).fetchall() == [(total, total, total - 1)]
        moves = "SELECT count(*) FROM tidemill.moves WHERE action = 'moved'"
        assert db.sql(moves).fetchall()[0][0] > 0
