"""The feed: every row once, with its sign, wherever it lies and whatever happens to it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from warehouses import compact, flush, open_inline, quiet

from tidemill.engine import Database
from tidemill.stream.feed import Batch, Feed, Lapsed, Origin
from tidemill.stream.position import Position

START = datetime(2026, 1, 1)
PLAIN = (
    "CREATE STREAMING TABLE t (ts TIMESTAMP, k BIGINT, v BIGINT)"
    " WITH (clock = 'event', max_future = 'forever')"
)
KEYED = (
    "CREATE STREAMING TABLE t (ts TIMESTAMP, k BIGINT, v BIGINT, PRIMARY KEY (ts, k)) WITH"
    " (clock = 'event', max_future = 'forever', on_conflict = 'replace', rejected = 'divert')"
)

Row = tuple[datetime, int, int, int]
Held = Counter[Row]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with quiet():
        db = open_inline(tmp_path / "w")
        yield db
        db.close()


def feed_of(db: Database, *, with_retractions: bool = True) -> Feed:
    table = db.catalog.snapshot().get("t")
    hot = db._hot[table.table_id]
    storage = db._keeping.storage
    return Feed(hot, db.catalog, storage, db._duck, with_retractions)


def put(db: Database, *keys: int, value: int = 0) -> None:
    db.append("t", [(START + timedelta(seconds=key), key, value) for key in keys])


def load(db: Database, folder: Path, *keys: int, value: int = 0) -> None:
    """Rows that go straight to history."""
    folder.mkdir()
    times = [START + timedelta(seconds=key) for key in keys]
    rows = pa.table(
        {"ts": pa.array(times, pa.timestamp("us")), "k": keys, "v": [value] * len(keys)}
    )
    half = len(keys) // 2
    parquet.write_table(rows.slice(0, half), folder / "0.parquet")
    parquet.write_table(rows.slice(half), folder / "1.parquet")
    db.sql(f"COPY t FROM '{folder}/*.parquet' (FORMAT parquet)")


def rows_of(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def image_of(db: Database) -> Held:
    return Counter(db.sql("SELECT ts, k, v, _seq FROM t").fetchall())


def take(held: Held, batch: Batch) -> None:
    """What a follower does with a batch."""
    if batch.retracted is not None:
        for row in rows_of(batch.retracted):
            assert held[row] == 1, "only what was given is taken back"
            del held[row]
    for row in rows_of(batch.rows):
        assert held[row] == 0, "every row is given once"
        held[row] = 1


def caught_up(feed: Feed, position: Position, held: Held, rows_max: int = 1_000) -> Position:
    while (batch := feed.next_batch(position, rows_max)) is not None:
        assert batch.rows.num_rows <= rows_max
        take(held, batch)
        position = batch.position
    return position


# -- rows that appear


def test_rows_come_in_the_order_of_arrival(db: Database) -> None:
    db.sql(PLAIN)
    feed, position = feed_of(db), Position()
    assert feed.next_batch(position, 10) is None
    put(db, 5, 1)
    put(db, 3)
    seen = []
    while (batch := feed.next_batch(position, 2)) is not None:
        seen.append([row[1] for row in rows_of(batch.rows)])
        position = batch.position
    assert seen == [[5, 1], [3]]
    assert position.seq == 3


def test_a_plain_batch_carries_no_signs(db: Database) -> None:
    db.sql(PLAIN)
    put(db, 1, 2)
    batch = feed_of(db).next_batch(Position(), 10)
    assert batch is not None
    assert batch.retracted is None
    assert batch.rows.column_names == ["ts", "k", "v", "_seq"]


def test_rows_in_memory_are_not_copied(db: Database) -> None:
    db.sql(PLAIN)
    put(db, *range(50))
    arrivals = feed_of(db).arrivals()
    batch = arrivals.next_batch(Position(), 100, with_seq=False)
    own = [
        buffer.address for buffer in arrivals.view.whole(False).column("v").chunk(0).buffers()[1:]
    ]
    given = [buffer.address for buffer in batch.rows.column("v").chunk(0).buffers()[1:]]
    assert given == own


def test_a_slow_follower_sees_rows_that_have_moved(db: Database) -> None:
    db.sql(PLAIN)
    put(db, *range(7))
    flush(db, "t")
    put(db, *range(7, 10))
    feed, held = feed_of(db), Counter[Row]()
    assert feed.arrivals().have_left(Position(2), 2)
    assert not feed.arrivals().have_left(Position(7), 7)
    position = caught_up(feed, Position(), held, 3)
    assert held == image_of(db)
    assert position.seq == 10


def test_a_batch_can_be_cut(db: Database) -> None:
    db.sql(PLAIN)
    put(db, 1, 2, 3)
    feed = feed_of(db)
    batch = feed.next_batch(Position(), 10)
    assert batch is not None
    first = batch.first(2)
    assert (first.rows.num_rows, first.position.seq, first.upto_seq) == (2, 2, 2)
    rest = feed.next_batch(first.position, 10)
    assert rest is not None
    assert [row[1] for row in rows_of(rest.rows)] == [3]


def test_loads_are_followed_by_themselves(db: Database, tmp_path: Path) -> None:
    db.sql(KEYED)
    put(db, 1, 2)
    load(db, tmp_path / "a", 10, 11, 12, 13)
    put(db, 3)
    feed, position, origins = feed_of(db), Position(), []
    while (batch := feed.next_batch(position, 3)) is not None:
        origins.append((batch.load is not None, [row[1] for row in rows_of(batch.rows)]))
        position = batch.position
    given = [key for _, keys in origins for key in keys]
    assert given[:3] == [1, 2, 3]
    assert sorted(given[3:]) == [10, 11, 12, 13]
    assert [is_load for is_load, keys in origins if keys] == [False, True, True]
    assert feed.next_batch(position, 3) is None


def test_either_origin_can_be_asked_for(db: Database, tmp_path: Path) -> None:
    db.sql(KEYED)
    put(db, 1)
    load(db, tmp_path / "a", 10, 11)
    feed = feed_of(db)
    loaded = feed.next_batch(Position(), 10, Origin.LOADED)
    assert loaded is not None
    assert sorted(row[1] for row in rows_of(loaded.rows)) == [10, 11] or loaded.rows.num_rows == 1
    appended = feed.next_batch(loaded.position, 10, Origin.APPENDED)
    assert appended is not None
    assert [row[1] for row in rows_of(appended.rows)] == [1]


def test_a_follower_may_begin_with_what_there_is(db: Database, tmp_path: Path) -> None:
    db.sql(KEYED)
    put(db, 1, 2)
    load(db, tmp_path / "a", 10, 11)
    feed = feed_of(db)
    position, held = feed.position(), image_of(db)
    assert feed.next_batch(position, 10) is None
    put(db, 2, 3, value=1)
    caught_up(feed, position, held)
    assert held == image_of(db)


# -- rows that are taken back


def test_a_replaced_row_is_taken_back(db: Database) -> None:
    db.sql(KEYED)
    put(db, 1, 2)
    feed, held = feed_of(db), Counter[Row]()
    position = caught_up(feed, Position(), held)
    put(db, 2, value=7)
    batch = feed.next_batch(position, 10)
    assert batch is not None
    assert batch.retracted is not None
    assert [row[1:] for row in rows_of(batch.retracted)] == [(2, 0, 2)]
    assert [row[1:] for row in rows_of(batch.rows)] == [(2, 7, 3)]


def test_a_batch_as_one_table_has_signs(db: Database) -> None:
    db.sql(KEYED)
    put(db, 1, 2)
    feed = feed_of(db)
    batch = feed.next_batch(Position(), 10)
    assert batch is not None
    assert batch.signed().column("_sign").to_pylist() == [1, 1]
    put(db, 2, 3, value=7)
    batch = feed.next_batch(batch.position, 10)
    assert batch is not None
    signed = batch.signed().select(["k", "v", "_seq", "_sign"])
    assert rows_of(signed) == [(2, 0, 2, -1), (2, 7, 3, 1), (3, 7, 4, 1)]


def test_a_row_that_was_replaced_before_is_never_given(db: Database) -> None:
    db.sql(KEYED)
    put(db, 1, 2)
    put(db, 2, value=7)
    batch = feed_of(db).next_batch(Position(), 10)
    assert batch is not None
    assert batch.retracted is None
    assert [row[1:] for row in rows_of(batch.rows)] == [(1, 0, 1), (2, 7, 3)]


def test_a_row_of_history_is_taken_back_with_its_values(db: Database) -> None:
    db.sql(KEYED)
    put(db, 1, 2, value=5)
    feed, held = feed_of(db), Counter[Row]()
    position = caught_up(feed, Position(), held)
    flush(db, "t")
    put(db, 1, value=6)
    caught_up(feed, position, held)
    assert held == image_of(db)


def test_a_load_takes_rows_back(db: Database, tmp_path: Path) -> None:
    """Of memory and of files."""
    db.sql(KEYED)
    put(db, 1, 2)
    flush(db, "t")
    put(db, 3, 4)
    feed, held = feed_of(db), Counter[Row]()
    position = caught_up(feed, Position(), held)
    load(db, tmp_path / "a", 1, 3, 9, value=8)
    caught_up(feed, position, held, 1)
    assert held == image_of(db)


def test_what_a_load_replaced_is_told_after_a_compaction(db: Database, tmp_path: Path) -> None:
    """Its files of deletes are gone by then, and so are the rows they named."""
    db.sql(KEYED)
    put(db, *range(8))
    flush(db, "t")
    feed, held = feed_of(db), Counter[Row]()
    position = caught_up(feed, Position(), held)
    load(db, tmp_path / "a", *range(4), value=8)
    put(db, 900_000)
    flush(db, "t")
    assert compact(db, "t")
    history = db.catalog.snapshot().history(feed.hot.table.table_id)
    assert not history.deletes
    caught_up(feed, position, held)
    assert held == image_of(db)


def test_who_begins_at_the_beginning_never_lapses(db: Database) -> None:
    db.sql(KEYED)
    put(db, 1, 2)
    put(db, 1, value=3)
    flush(db, "t")
    held = Counter[Row]()
    caught_up(feed_of(db), Position(), held)
    assert held == image_of(db)


def test_whoever_takes_nothing_back_is_not_told(db: Database) -> None:
    db.sql(KEYED)
    put(db, 1)
    feed = feed_of(db, with_retractions=False)
    batch = feed.next_batch(Position(), 10)
    assert batch is not None
    put(db, 1, value=3)
    batch = feed.next_batch(batch.position, 10)
    assert batch is not None
    assert batch.retracted is None
    assert [row[1:] for row in rows_of(batch.rows)] == [(1, 3, 2)]


def test_a_position_lapses_when_what_was_replaced_has_moved(db: Database) -> None:
    db.sql(KEYED)
    put(db, 1)
    feed, held = feed_of(db), Counter[Row]()
    position = caught_up(feed, Position(), held)
    assert not feed.takes_back(position)
    put(db, 1, value=3)
    assert feed.takes_back(position)
    flush(db, "t")
    with pytest.raises(Lapsed):
        feed.next_batch(position, 10)


def test_a_position_without_replacements_does_not_lapse(db: Database) -> None:
    db.sql(KEYED)
    put(db, 1)
    feed, held = feed_of(db), Counter[Row]()
    position = caught_up(feed, Position(), held)
    put(db, 2)
    flush(db, "t")
    caught_up(feed, position, held)
    assert held == image_of(db)


# -- all of it at once


@pytest.mark.parametrize("seed", range(6))
def test_a_follower_holds_what_a_reader_sees(tmp_path: Path, seed: int) -> None:
    """Through appends, loads, moves, compactions and restarts, in batches of any size."""
    rng = random.Random(seed)
    with quiet():
        db = open_inline(tmp_path / "w")
        try:
            db.sql(KEYED)
            held, position, lapses = Counter[Row](), Position(), 0
            for step in range(60):
                action = rng.choices(
                    ("put", "load", "flush", "compact", "restart", "follow", "catch up"),
                    (10, 2, 2, 1, 1, 10, 4),
                )[0]
                keys = rng.sample(range(40), rng.randint(1, 6))
                if action == "put":
                    put(db, *keys, value=step)
                elif action == "load":
                    load(db, tmp_path / f"load{step}", *keys, value=step)
                elif action == "flush":
                    flush(db, "t")
                elif action == "compact":
                    compact(db, "t")
                elif action == "restart":
                    db.close()
                    db = open_inline(tmp_path / "w")
                else:
                    try:
                        if action == "follow":
                            batch = feed_of(db).next_batch(position, rng.randint(1, 9))
                            if batch is not None:
                                take(held, batch)
                                position = batch.position
                        else:
                            position = caught_up(feed_of(db), position, held, rng.randint(1, 9))
                            assert held == image_of(db), (seed, step)
                    except Lapsed:
                        lapses += 1
                        position, held = feed_of(db).position(), image_of(db)
            assert lapses < 15
        finally:
            db.close()
