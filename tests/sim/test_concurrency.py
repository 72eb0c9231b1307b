"""Writers and readers at once: every answer is that of one moment.

Readers never see part of a batch, counts never go down, each batch is there exactly once; indices,
RECENT and full scans of one statement agree while rows pour in and definitions change; closing
loses nothing that was acknowledged; memory stays within its bound.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sim.crowd import WAIT_S
from sim.crowd import crowd_of_threads as _crowd

import tidemill
from tidemill.errors import BackpressureError, ClosedError, TidemillError

START = datetime(2024, 1, 1)
BATCH_ROWS = 20


def _until(kind: type[TidemillError], work: Callable[..., None]) -> Callable[..., None]:
    """Work that must end with this error and no other."""

    def run(*arguments: Any) -> None:
        with pytest.raises(kind):
            work(*arguments)

    return run


def _create(db: tidemill.Database, name: str = "t", more: str = "", **settings: str) -> None:
    given = ", ".join(f"{key} = '{value}'" for key, value in settings.items())
    columns = f"ts TIMESTAMP, writer INT, batch INT, id BIGINT, name VARCHAR{more}"
    db.sql(f"CREATE STREAMING TABLE {name} ({columns}) {f'WITH ({given})' if given else ''}")


def _batch(writer: int, batch: int, rows: int = BATCH_ROWS) -> pa.Table:
    ids = range(batch * rows, batch * rows + rows)
    return pa.table(
        {
            "ts": [START + timedelta(milliseconds=own) for own in ids],
            "writer": pa.array([writer] * rows, pa.int32()),
            "batch": pa.array([batch] * rows, pa.int32()),
            "id": pa.array(ids, pa.int64()),
            "name": [f"n{own % 7}" for own in ids],
        }
    )


def _row(writer: int, batch: int) -> dict[str, Any]:
    return _batch(writer, batch, 1).to_pylist()[0]


@pytest.mark.parametrize("durability", ["sync", "batch"])
def test_readers_see_whole_batches_and_counts_that_grow(
    tmp_path: Path, small_blocks: int, durability: str
) -> None:
    batches, writers = 60, 3
    with tidemill.open(tmp_path, segment_size="1 MB") as db, _crowd() as crowd:
        _create(db, durability=durability, clock="event")
        db.sql("CREATE INDEX ON t (id)")
        db.sql("CREATE INDEX ON t USING hash (writer, name)")

        def write(writer: int) -> None:
            for batch in range(batches):
                db.append("t", _batch(writer, batch))

        def read(number: int) -> None:
            last = 0
            while last < batches * BATCH_ROWS * writers and not crowd.stopping.is_set():
                last = _check_moment(db, last, number)

        for writer in range(writers):
            crowd.start(write, writer)
        for number in range(2):
            crowd.start(read, number)
        crowd.join()
        _check_exactly_once(db, writers, batches)
    with tidemill.open(tmp_path) as db:
        _check_exactly_once(db, writers, batches)


def _check_moment(db: tidemill.Database, last: int, number: int) -> int:
    """All of it in one statement: it must hold at one moment."""
    low = (last // 7 + number) % 1_000
    pairs = [
        (f"id = {low}", f"id + 0 = {low}"),
        (f"id BETWEEN {low} AND {low + 30}", f"id + 0 BETWEEN {low} AND {low + 30}"),
        ("writer = 1 AND name = 'n3'", "writer + 0 = 1 AND name || '' = 'n3'"),
        (
            f"ts >= TIMESTAMP '{START + timedelta(milliseconds=low)}'",
            f"epoch_us(ts) >= epoch_us(TIMESTAMP '{START + timedelta(milliseconds=low)}')",
        ),
    ]
    asked = ", ".join(f"(SELECT sum(id + writer) FROM t WHERE {w})" for p in pairs for w in p)
    recent = (
        "(SELECT sum(id + writer) FROM RECENT(t, INTERVAL '1' SECOND)), (SELECT sum(id + writer) "
        "FROM t WHERE ts BETWEEN (SELECT max(ts) - INTERVAL '1' SECOND FROM RECENT(t, rows => 1)) "
        "AND (SELECT max(ts) FROM RECENT(t, rows => 1)))"
    )
    torn = f"(SELECT count(*) FROM (FROM t GROUP BY writer, batch HAVING count(*) < {BATCH_ROWS}))"
    seqs = "(SELECT count(*) - count(DISTINCT _seq) FROM t)"
    query = f"SELECT (SELECT count(*) FROM t), {torn}, {seqs}, {recent}, {asked}"
    query = query.replace("(FROM t GROUP", "(SELECT writer, batch FROM t GROUP")
    count, torn_batches, repeats, *answers = db.sql(query).fetchall()[0]
    assert count >= last
    assert count % BATCH_ROWS == 0
    assert torn_batches == repeats == 0
    assert answers[::2] == answers[1::2]
    return int(count)


def _check_exactly_once(
    db: tidemill.Database, writers: int, batches: int, rows: int = BATCH_ROWS
) -> None:
    query = "SELECT writer, count(*), count(DISTINCT id), min(id), max(id) FROM t GROUP BY 1"
    found = sorted(db.sql(query).fetchall())
    total = batches * rows
    assert found == [(writer, total, total, 0, total - 1) for writer in range(writers)]
    stored = "SELECT rows_in, stored, expired FROM tidemill.ingest WHERE table_name = 't'"
    assert db.sql(stored).fetchall() == [(writers * total, writers * total, 0)]


def test_single_rows_of_many_writers_are_there_once(tmp_path: Path, small_blocks: int) -> None:
    rows, writers = 300, 4
    with tidemill.open(tmp_path) as db, _crowd() as crowd:
        _create(db, durability="batch")

        def write(writer: int) -> None:
            for number in range(rows):
                db.append("t", _row(writer, number))

        for writer in range(writers):
            crowd.start(write, writer)
        crowd.join()
        _check_exactly_once(db, writers, rows, 1)
    with tidemill.open(tmp_path) as db:
        _check_exactly_once(db, writers, rows, 1)


def test_definitions_change_while_rows_pour_in(tmp_path: Path, small_blocks: int) -> None:
    batches, writers = 60, 2
    with tidemill.open(tmp_path) as db, _crowd() as crowd:
        _create(db, durability="batch", clock="event")

        def write(writer: int) -> None:
            for batch in range(batches):
                db.append("t", _batch(writer, batch))
                db.append("t", [])

        def define() -> None:
            number = 0
            while any(thread.is_alive() for thread in writing) and not crowd.stopping.is_set():
                number += 1
                method = "USING hash " if number % 2 else ""
                db.sql(f"CREATE INDEX i{number} ON t {method}(id)")
                db.sql(f"CREATE INDEX j{number} ON t (name)")
                durability = ("sync", "batch", "none")[number % 3]
                late = ("accept", "divert")[number % 2]
                db.sql(f"ALTER TABLE t SET (durability = '{durability}', late = '{late}')")
                db.sql(f"DROP INDEX i{number}; DROP INDEX j{number}")

        def read(number: int) -> None:
            last = 0
            while last < batches * BATCH_ROWS * writers and not crowd.stopping.is_set():
                last = _check_moment(db, last, number)

        writing = [crowd.start(write, writer) for writer in range(writers)]
        crowd.start(define)
        crowd.start(read, 0)
        crowd.join()
        _check_exactly_once(db, writers, batches)
        assert db.sql("SHOW INDEXES").fetchall() == []


@pytest.mark.parametrize("policy", ["ignore", "replace"])
def test_primary_keys_hold_among_many_writers(
    tmp_path: Path, small_blocks: int, policy: str
) -> None:
    """All writers send the same keys; whoever comes first (or last) wins, never two."""
    batches, writers = 40, 3
    with tidemill.open(tmp_path) as db, _crowd() as crowd:
        _create(db, more=", PRIMARY KEY (ts, id)", on_conflict=policy, durability="batch")
        results: list[Any] = []

        def write(writer: int) -> None:
            for batch in range(batches):
                results.append(db.append("t", _batch(writer, batch)))

        def read() -> None:
            while any(thread.is_alive() for thread in writing) and not crowd.stopping.is_set():
                found = db.sql("SELECT count(*), count(DISTINCT id) FROM t").fetchall()[0]
                assert found[0] == found[1]

        writing = [crowd.start(write, writer) for writer in range(writers)]
        crowd.start(read)
        crowd.join()
        total = batches * BATCH_ROWS
        query = "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM t"
        assert db.sql(query).fetchall() == [(total, total, 0, total - 1)]
        counted = "SELECT rows_in, stored - replaced, rejected + replaced FROM tidemill.ingest"
        assert db.sql(counted).fetchall() == [(total * writers, total, total * (writers - 1))]
        assert sum(result.stored - result.replaced for result in results) == total
    with tidemill.open(tmp_path) as db:
        assert db.sql(query).fetchall() == [(total, total, 0, total - 1)]


def test_offsets_hold_when_two_senders_race(tmp_path: Path, small_blocks: int) -> None:
    """Both send every offset of the source: each is stored once, and either hears so."""
    batches = 60
    with tidemill.open(tmp_path) as db, _crowd() as crowd:
        _create(db)
        results: list[tuple[int, bool]] = []

        def send(step: int) -> None:
            for batch in range(batches):
                result = db.append("t", _batch(0, batch), source="s", offset=batch)
                results.append((batch, result.is_repeat))
                if result.is_repeat:  # acknowledged: so it can be read
                    seen = db.sql("SELECT count(*) FROM t WHERE batch = ?", [batch]).fetchall()
                    assert seen == [(BATCH_ROWS,)]

        for step in range(2):
            crowd.start(send, step)
        crowd.join()
        assert sorted(results) == [(b, again) for b in range(batches) for again in (False, True)]
        _check_exactly_once(db, 1, batches)


def test_two_warehouses_in_one_process(tmp_path: Path, small_blocks: int) -> None:
    with (
        tidemill.open(tmp_path / "one") as one,
        tidemill.open(tmp_path / "two") as two,
        _crowd() as crowd,
    ):
        for number, db in enumerate((one, two)):
            _create(db)
            db.sql("CREATE TABLE cars (id INT PRIMARY KEY, owner VARCHAR)")
            db.sql(f"INSERT INTO cars VALUES ({number}, 'x')")

        def work(db: tidemill.Database, number: int) -> None:
            for batch in range(20):
                db.append("t", _batch(number, batch))
                query = "SELECT count(*), min(writer), max(writer), min(c.id) FROM t, cars c"
                found = db.sql(query).fetchall()[0]
                assert found == ((batch + 1) * BATCH_ROWS, number, number, number)

        crowd.start(work, one, 0)
        crowd.start(work, two, 1)


@pytest.mark.parametrize("durability", ["sync", "batch", "none"])
def test_closing_under_writers_and_readers(
    tmp_path: Path, small_blocks: int, durability: str
) -> None:
    """They get ClosedError; what was acknowledged is there when it is opened again."""
    for round_number in range(5):
        path = tmp_path / str(round_number)
        db = tidemill.open(path)
        _create(db, durability=durability)
        db.sql("CREATE TABLE cars (id INT PRIMARY KEY, writer INT)")
        sent = dict.fromkeys(range(4), 0)
        progress = threading.Semaphore(0)

        def write(
            writer: int, db: tidemill.Database, sent: dict[int, int], progress: threading.Semaphore
        ) -> None:
            while True:
                batch = sent[writer]
                db.append("t", _row(writer, batch) if writer % 2 else _batch(writer, batch, 1))
                sent[writer] += 1
                progress.release()

        def write_cars(db: tidemill.Database, cars: list[int]) -> None:
            while True:
                db.append("cars", [(len(cars), 0)])
                cars.append(len(cars))

        def read(db: tidemill.Database) -> None:
            while True:
                db.sql("SELECT count(*), max(t.id) FROM t JOIN cars USING (writer)").fetchall()

        cars: list[int] = []
        with _crowd() as crowd:
            for writer in sent:
                crowd.start(_until(ClosedError, write), writer, db, sent, progress)
            crowd.start(_until(ClosedError, write_cars), db, cars)
            crowd.start(_until(ClosedError, read), db)
            for _ in range(40 + 13 * round_number):
                assert progress.acquire(timeout=WAIT_S)
            db.close()
            crowd.join()
        with tidemill.open(path) as again:
            for writer, count in sent.items():
                query = "SELECT list(id ORDER BY id) FROM t WHERE writer = ?"
                found = again.sql(query, [writer]).fetchall()[0][0] or []
                assert found in (list(range(count)), list(range(count + 1)))
            found = [row[0] for row in again.sql("SELECT id FROM cars ORDER BY id").fetchall()]
            assert found in (cars, [*cars, len(cars)])


@pytest.fixture
def no_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing leaves memory for history; test_moving has the other case."""
    monkeypatch.setattr("tidemill.pipeline.mover.Mover.look", lambda self: None)


def test_memory_stays_within_its_bound(tmp_path: Path, no_moves: None) -> None:
    """Without retention and moves a table fills up: writers wait, then hear BackpressureError."""
    limit, rows, writers = 1_000_000, 500, 3
    batch_bytes = _batch(0, 0, rows).nbytes
    with tidemill.open(tmp_path, backpressure_wait="0.01 seconds") as db, _crowd() as crowd:
        _create(db, memory="1 MB", durability="none")
        db.sql("CREATE INDEX ON t (id)")
        stored = dict.fromkeys(range(writers), 0)
        held: list[int] = []

        def write(writer: int) -> None:
            while stored[writer] < 1_000:
                db.append("t", _batch(writer, stored[writer], rows))
                stored[writer] += 1
                held.append(_memory_bytes(db))

        for writer in range(writers):
            crowd.start(_until(BackpressureError, write), writer)
        crowd.join()
        held.append(_memory_bytes(db))
        assert limit / 2 < max(held) <= limit + writers * batch_bytes
        total = sum(stored.values()) * rows
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(total,)]
        with pytest.raises(BackpressureError):
            db.append("t", _batch(0, 0, rows))
        with pytest.raises(BackpressureError, match="larger than the memory"):
            db.append("t", _batch(0, 0, 50_000))
        db.sql("ALTER TABLE t SET (memory = '2 MB')")
        db.append("t", _batch(0, stored[0], rows))
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(total + rows,)]


def _memory_bytes(db: tidemill.Database) -> int:
    return int(db.sql("SELECT memory_bytes FROM tidemill.ingest").fetchall()[0][0])


def test_retention_makes_room_for_waiting_writers(tmp_path: Path, no_moves: None) -> None:
    """With retention a writer that is too fast for the memory is slowed down, not refused."""
    rows = 500
    with tidemill.open(tmp_path, segment_size="1 MB") as db:
        _create(db, memory="1 MB", durability="none", clock="event", retention="0.1 seconds")
        for batch in range(150):
            db.append("t", _batch(0, batch, rows))
            assert _memory_bytes(db) <= 1_100_000
        query = "SELECT max(id), max(id) - count(*) = min(id) - 1 FROM t"
        assert db.sql(query).fetchall() == [(150 * rows - 1, True)]
        segments = db.sql("SELECT log_segments FROM tidemill.ingest").fetchall()[0][0]
        assert segments <= 3
