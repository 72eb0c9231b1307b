"""Views and kept queries under ill will: definitions that cross each other, deaths and restarts in
between, rows that are late or gone, names that collide.

What they answer when nobody means ill is tested in ``test_views.py`` and ``test_kept_queries.py``.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from warehouses import copy_warehouse, difference, flush, open_inline, quiet

from tidemill.engine import Database
from tidemill.errors import DependencyError, TidemillError
from tidemill.pipeline.load import DigestWriting
from tidemill.sql import statements as st
from tidemill.sql.parser import parse_one
from tidemill.views import continuous
from tidemill.views.completing import Completing
from tidemill.views.follower import CUTS_A_RETENTION

START = datetime(2024, 5, 1, 10)
COUNTED = "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k"
TOP = "SELECT g, max(v) AS top FROM s GROUP BY g"
ALL = "SELECT count(*) AS n FROM s"
Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kept queries are evaluated when a test says so, and only then."""
    monkeypatch.setattr(continuous.KeptQueries, "start", continuous.KeptQueries.follow)
    with quiet():
        yield


def opened(path: Path) -> closing[Database]:
    return closing(open_inline(path))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path / "w") as found:
        make_stream(found)
        yield found


def make_stream(db: Database, name: str = "s", more: str = "") -> None:
    db.sql(
        f"CREATE STREAMING TABLE {name} (ts TIMESTAMP, k INTEGER, g VARCHAR, v DOUBLE)"
        f" WITH (move = 'manual', clock = 'event'{more})"
    )


@contextmanager
def no_back_fill() -> Iterator[None]:
    """Views that are made meanwhile do not get the history of their stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Completing, "backfill", lambda *_: None)
        yield


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


def rows(first: int, count: int) -> list[Row]:
    return [(second(n), n % 3, f"g{n % 2}", float(n)) for n in range(first, first + count)]


def view(db: Database, query: str, name: str = "v", head: str = "CREATE") -> None:
    db.sql(f"{head} MATERIALIZED VIEW {name} AS {query}")


def replace(db: Database, query: str, name: str = "v") -> None:
    view(db, query, name, "CREATE OR REPLACE")


def check(db: Database, query: str, name: str = "v") -> list[Row]:
    """A view answers what its query answers."""
    found = db.sql(f"SELECT * FROM {name}").fetchall()
    wrong = difference(found, db.sql(query).fetchall())
    assert wrong is None, wrong
    return found


def refresh(db: Database, name: str = "v") -> None:
    db.sql(f"REFRESH MATERIALIZED VIEW {name}")


def answers(db: Database, table: str) -> list[Row]:
    return db.sql(f"SELECT * FROM {table} ORDER BY ALL").fetchall()


def names(db: Database) -> set[str]:
    return {table.name for table in db.catalog.snapshot().tables.values()}


def rebuilds(db: Database, name: str = "v") -> int:
    query = "SELECT rebuilds FROM tidemill.views WHERE view_name = ?"
    return int(db.sql(query, [name]).fetchall()[0][0])


def with_history(db: Database) -> None:
    db.append("s", rows(0, 30))
    flush(db, "s")


# -- a view that is being replaced


def test_who_would_read_a_view_that_is_being_replaced_is_told_to_wait(db: Database) -> None:
    """Its columns may be others soon, and then nobody could open the reader any more."""
    view(db, COUNTED)
    with_history(db)
    late = (
        "CREATE MATERIALIZED VIEW w AS SELECT sum(n) AS n FROM v",
        "CREATE STREAMING TABLE w AS SELECT k, n FROM v EVERY INTERVAL '10' SECOND",
    )
    with no_back_fill():
        replace(db, TOP)
        for text in late:
            with pytest.raises(DependencyError, match="being replaced") as caught:
                db.sql(text)
            assert "REFRESH" in (caught.value.hint or "")
    refresh(db)
    check(db, TOP)
    view(db, "SELECT max(top) AS top FROM v", "w")
    refresh(db, "w")
    assert answers(db, "w") == [(29.0,)]


@pytest.mark.parametrize("text", ["DROP MATERIALIZED VIEW z", f"CREATE OR REPLACE {{}} {ALL}"])
def test_what_a_waiting_view_reads_stays(db: Database, tmp_path: Path, text: str) -> None:
    view(db, COUNTED)
    view(db, "SELECT g, count(*) AS n FROM s GROUP BY g", "z")
    with_history(db)
    with no_back_fill():
        replace(db, "SELECT max(n) AS most FROM z")
        with pytest.raises(DependencyError, match='read by "v"'):
            db.sql(text.format("MATERIALIZED VIEW z AS"))
    db.close()
    with opened(tmp_path / "w") as again:
        refresh(again)
        assert answers(again, "v") == [(15,)]
        again.sql("DROP MATERIALIZED VIEW z CASCADE")
        assert names(again) == {"s"}


def test_a_view_replaced_since_somebody_looked(db: Database) -> None:
    """Between finding the old view and making the new one, another took the name."""
    view(db, COUNTED)
    with_history(db)
    old = db.catalog.snapshot().get("v")
    replace(db, TOP)
    refresh(db)
    statement = parse_one(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {ALL}")
    assert isinstance(statement, st.CreateView)
    db._views.create(statement, old)
    refresh(db)
    check(db, ALL)
    assert names(db) == {"s", "v", "v$digest0"}


def test_dropping_a_view_drops_the_one_that_waits(db: Database, tmp_path: Path) -> None:
    view(db, COUNTED)
    with_history(db)
    with no_back_fill():
        replace(db, TOP)
    db.sql("DROP MATERIALIZED VIEW v")
    db._views.look()
    assert names(db) == {"s"}
    db.close()
    with opened(tmp_path / "w") as again:
        assert names(again) == {"s"}


def test_a_restart_amid_a_redefinition(db: Database, tmp_path: Path) -> None:
    view(db, COUNTED)
    with_history(db)
    with no_back_fill():
        replace(db, TOP)
        db.append("s", rows(30, 5))
        flush(db, "s")
        db.append("s", rows(35, 5))
        db.close()
        with opened(tmp_path / "w") as again:
            assert sum(row[1] for row in check(again, COUNTED)) == 40
            again.append("s", rows(40, 5))
            check(again, COUNTED)
    with opened(tmp_path / "w") as again:
        refresh(again)
        check(again, TOP)
        assert names(again) == {"s", "v", "v$digest0"}


def test_a_replacement_that_cannot_be_read_is_in_nobodys_way(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    view(db, COUNTED)
    with_history(db)
    with no_back_fill():
        replace(db, "SELECT CAST(max(g) AS INTEGER) AS top FROM s")
        view(db, ALL, "w")
    refresh(db, "w")
    check(db, ALL, "w")
    with pytest.raises(TidemillError, match="convert"):
        refresh(db)
    check(db, COUNTED)  # the old one answers on
    assert "replacing" in caplog.text
    replace(db, TOP)
    refresh(db)
    check(db, TOP)


def test_two_clients_and_one_name(db: Database) -> None:
    with_history(db)
    begin = threading.Barrier(4)
    told: list[str] = []

    def make(number: int) -> None:
        begin.wait(30)
        try:
            view(db, f"SELECT {number} AS who, count(*) AS n FROM s")
            told.append("made")
        except TidemillError as error:
            told.append(error.code)

    _together(make)
    assert sorted(told) == ["duplicate_name"] * 3 + ["made"]
    refresh(db)
    assert answers(db, "v")[0][1] == 30

    def make_anew(number: int) -> None:
        begin.wait(30)
        replace(db, f"SELECT {number} AS who, count(*) AS n FROM s")
        refresh(db)

    _together(make_anew)
    refresh(db)
    assert answers(db, "v")[0][1] == 30
    assert names(db) == {"s", "v", "v$digest0"}


def _together(work: Any) -> None:
    """Four threads at once; what one of them raises is raised."""
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failed:
        raise failed[0]


STORM = (
    *(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}" for query in (COUNTED, TOP, ALL)),
    "CREATE MATERIALIZED VIEW IF NOT EXISTS w AS SELECT count(*) AS n FROM v",
    "CREATE STREAMING TABLE IF NOT EXISTS q AS SELECT * FROM v EVERY INTERVAL '10' SECOND",
    "DROP MATERIALIZED VIEW IF EXISTS v",
    "DROP MATERIALIZED VIEW IF EXISTS w",
    "DROP TABLE IF EXISTS q",
    "REFRESH MATERIALIZED VIEW v",
    "SELECT * FROM v",
    "SHOW VIEWS",
    "FLUSH s",
)


def test_a_storm_of_definitions(db: Database, tmp_path: Path) -> None:
    """Any error is one of ours, and in the end everything is as if one had done it alone."""
    with_history(db)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(10):
            with suppress(TidemillError):
                db.sql(chance.choice(STORM))
            with suppress(TidemillError):
                chance.choice([db._keeping.look, db._kept.catch_up])()
            db.append("s", rows(chance.randrange(100), 3))

    _together(work)
    db.sql("DROP TABLE IF EXISTS q")
    db.sql("DROP MATERIALIZED VIEW IF EXISTS w")
    replace(db, COUNTED)
    refresh(db)
    check(db, COUNTED)
    assert names(db) == {"s", "v", "v$digest0"}
    db.close()
    with opened(tmp_path / "w") as again:
        check(again, COUNTED)


# -- rows that come while history is filled in


def test_new_rows_are_answered_wherever_they_went(db: Database, tmp_path: Path) -> None:
    """Moved, and the state forgotten, before the back-fill came: late ones and new ones."""
    with_history(db)
    with no_back_fill():
        view(db, ALL)
        for at in (30, -90_000, 60):  # also a day before
            db.append("s", rows(at, 6))
            flush(db, "s")
        assert answers(db, "v") == [(18,)]
        db.close()
        with opened(tmp_path / "w") as again:
            assert answers(again, "v") == [(18,)]
            again.append("s", rows(90, 1))
            assert answers(again, "v") == [(19,)]
    with opened(tmp_path / "w") as again:
        refresh(again)
        assert check(again, ALL) == [(49,)]
        flush(again, "s")
        assert check(again, ALL) == [(49,)]


def test_a_back_fill_in_steps_never_takes_rows_away(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.pipeline.backfill.JOB_BYTES", 1)
    for hour in range(4):
        db.append("s", rows(3_600 * hour, 10))
    flush(db, "s")
    counts = []
    with no_back_fill():
        view(db, ALL)
    while True:
        for hour in (0, 3):
            db.append("s", rows(3_600 * hour, 1))
        flush(db, "s")
        counts.append(answers(db, "v")[0][0])
        db._views.look()
        handles = list(db._views.completing.backfills.values())
        left = [handle.wait().value for handle in handles][-1]
        db._views.live()[0].followers()[0].rebuild()
        counts.append(answers(db, "v")[0][0])
        if not left:
            break
    assert counts == sorted(counts)
    assert len(counts) > 4
    check(db, ALL)


def test_a_load_under_way_while_rows_are_moved(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows have numbers in between those of the moved rows, and are counted once as well."""
    with_history(db)
    for name in "ab":
        db.sql(f"COPY (SELECT * FROM s) TO '{tmp_path}/{name}.parquet'")
    with no_back_fill():
        view(db, ALL)
        digests_of, calls = DigestWriting.digests, []

        def meanwhile(self: DigestWriting, table_id: int) -> Any:
            calls.append(table_id)
            if len(calls) == 1:  # the load has its numbers, and has not committed
                db.append("s", rows(30, 7))
                flush(db, "s")
            return digests_of(self, table_id)

        monkeypatch.setattr(DigestWriting, "digests", meanwhile)
        db.append("s", rows(60, 3))
        db.sql(f"COPY s FROM '{tmp_path}/*.parquet' (FORMAT parquet)")
        assert calls
        flush(db, "s")
    refresh(db)
    assert check(db, ALL) == [(30 + 60 + 10,)]
    db.close()
    with opened(tmp_path / "w") as again:
        assert check(again, ALL) == [(100,)]


# -- retention


def test_a_long_life_under_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views follow the rows that go, and build their states anew a few times a retention: exact
    retention cannot wait until blocks are dropped."""
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 64)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 128)
    queries = {
        "v": COUNTED,
        "several": "SELECT k, count(DISTINCT v) AS n FROM s GROUP BY k",
        "minutes": "SELECT date_trunc('minute', ts) AS m, min(v) AS low FROM s GROUP BY 1",
        "recent": "SELECT count(*) AS n FROM RECENT(s, INTERVAL '3' MINUTE)",
    }
    with opened(tmp_path / "w") as db:
        make_stream(db, more=", retention = '5 minutes'")
        for name, query in queries.items():
            view(db, query, name)
        hot = db._hot[db.catalog.snapshot().get("s").table_id]
        batches, drops = 48, 0
        for batch in range(batches):
            db.append("s", rows(batch * 20, 20))
            drops += hot.expire() > 0
            for name, query in queries.items():
                if batch % 8 == 0:
                    check(db, query, name)
                else:
                    answers(db, name)
        assert hot.view().rows < batches * 20
        assert 0 < drops < batches / 2
        cuts = CUTS_A_RETENTION * (batches * 20 - 300) / 300  # rows are a second apart
        for name in ("v", "several", "minutes"):
            assert rebuilds(db, name) <= cuts + 1
        assert rebuilds(db, "recent") == 1


# -- kept queries

WATERMARK = (
    "CREATE STREAMING TABLE p (ts TIMESTAMP, x INTEGER,"
    " WATERMARK FOR ts AS ts - INTERVAL '20' SECOND)"
    " WITH (clock = 'event', max_future = 'forever')"
)
SEEN = "CREATE STREAMING TABLE seen AS SELECT ts, x FROM p EVERY ROW"
TICKS = (
    "CREATE STREAMING TABLE ticks AS SELECT count(*) AS n FROM RECENT(seen, INTERVAL '9' SECOND)"
    " EVERY INTERVAL '10' SECOND"
)


@pytest.mark.parametrize("is_new", [True, False])
def test_answers_over_answers_wait_for_late_rows(
    db: Database, tmp_path: Path, is_new: bool
) -> None:
    """The newest answer of a query says nothing of those to come: its stream's watermark does."""
    for text in (WATERMARK, SEEN, TICKS):
        db.sql(text)
    if not is_new:
        db.append("p", [(second(-60), 0)])
        db._kept.catch_up()
        db.close()
        db = open_inline(tmp_path / "w")
    with closing(db):
        for batch in ([(second(15), 1), (second(36), 2)], [(second(18), 3)], []):
            if batch:
                db.append("p", batch)
            for _ in range(4):
                db._kept.look_once()
        db.append("p", [(second(100), 4)])
        db._kept.catch_up()
        assert (second(20), 2) in answers(db, "ticks")


def test_answers_over_answers_go_on_while_rows_come_without_end(db: Database) -> None:
    for text in (WATERMARK, SEEN, TICKS):
        db.sql(text)
    for number in range(30):
        db.append("p", [(second(5 * number), number)])
        db._kept.look_once()  # something is always new to the first query
    assert len(answers(db, "ticks")) > 10


@pytest.mark.parametrize("what", ["table", "view"])
def test_a_row_without_an_answer_stays_without_one(db: Database, tmp_path: Path, what: str) -> None:
    """Also if the process dies and what the row was joined with has changed meanwhile."""
    if what == "table":
        db.sql("CREATE TABLE r (k INTEGER, label VARCHAR)")
        db.sql("CREATE STREAMING TABLE q AS SELECT v, label FROM s JOIN r USING (k) EVERY ROW")
    else:
        make_stream(db, "u")
        view(db, "SELECT k, count(*) AS n FROM u GROUP BY k", "r")
        db.sql(
            "CREATE STREAMING TABLE q AS SELECT r.n FROM RECENT(s, INTERVAL '5' SECOND) x"
            " JOIN r ON x.k = r.k EVERY INTERVAL '10' SECOND"
        )
        db.append("u", [(second(60), 9, "", 0.0)])
    db.append("s", rows(8, 3))
    db.append("s", rows(20, 1))
    db._kept.catch_up()
    if what == "table":
        db.sql("INSERT INTO r VALUES (0, 'a'), (1, 'b'), (2, 'c')")
    else:
        db.append("u", [(second(60), k, "", 0.0) for k in range(3)])
    db._kept.catch_up()
    before = answers(db, "q")
    copy_warehouse(tmp_path / "w", tmp_path / "copy")  # as if it were killed now
    with opened(tmp_path / "copy") as again:
        again._kept.catch_up()
        assert answers(again, "q") == before


def test_late_rows_change_no_answer_that_was_given(db: Database) -> None:
    db.sql(WATERMARK.replace(" WITH (", " WITH (late = 'accept', "))
    kept = {
        "ticks": "SELECT count(*) AS n FROM RECENT(p, INTERVAL '9' SECOND) EVERY INTERVAL '10'"
        " SECOND",
        "closes": "SELECT count(*) AS n FROM TUMBLE(p, ts, INTERVAL '10' SECOND) EMIT ON WINDOW"
        " CLOSE",
        "seen": "SELECT x FROM p EVERY ROW",
    }
    for name, text in kept.items():
        db.sql(f"CREATE STREAMING TABLE {name} AS {text}")
    db.append("p", [(second(number), number) for number in range(0, 100, 5)])
    db._kept.catch_up()
    before = {name: answers(db, name) for name in ("ticks", "closes")}
    db.append("p", [(second(3), -1), (second(-500), -2)])
    db._kept.catch_up()
    assert {name: answers(db, name) for name in ("ticks", "closes")} == before
    assert {row[1] for row in answers(db, "seen")} >= {-1, -2}


@pytest.mark.parametrize("word", ["RENAME TO z", "ADD COLUMN z INTEGER", "DROP COLUMN v"])
def test_a_stream_keeps_its_shape(db: Database, word: str) -> None:
    view(db, COUNTED)
    db.sql("CREATE STREAMING TABLE q AS SELECT k, v FROM s EVERY ROW")
    for name in ("s", "v", "q"):
        with pytest.raises(TidemillError) as caught:
            db.sql(f"ALTER TABLE {name} {word}")
        assert caught.value.hint
    db.append("s", rows(0, 6))
    db._kept.catch_up()
    check(db, COUNTED)
    assert len(answers(db, "q")) == 6


def test_what_stands_on_answers_holds_them(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE a AS SELECT k, v FROM s EVERY ROW")
    db.sql("CREATE STREAMING TABLE b AS SELECT v FROM a WHERE k = 1 EVERY ROW")
    view(db, "SELECT k, count(*) AS n FROM a GROUP BY k")
    for text in (
        "DROP TABLE a",
        "DROP TABLE s",
        "CREATE OR REPLACE STREAMING TABLE a AS SELECT k FROM s EVERY ROW",
        "CREATE OR REPLACE STREAMING TABLE a (ts TIMESTAMP)",
    ):
        with pytest.raises(DependencyError):
            db.sql(text)
    db.append("s", rows(0, 9))
    db._kept.catch_up()
    check(db, "SELECT k, count(*) AS n FROM a GROUP BY k")
    for text in ("DROP TABLE b", "DROP MATERIALIZED VIEW v", "DROP TABLE a", "DROP TABLE s"):
        db.sql(text)
    assert names(db) == set()


@pytest.mark.parametrize("name", ['quo"ted', "semi;colon", "SELECT", "ä 日本", "new\nline", "--"])
def test_hostile_names_of_kept_queries(db: Database, tmp_path: Path, name: str) -> None:
    own, ticks, closes = (
        '"' + f"{kind}{name}".replace('"', '""') + '"' for kind in ("", "t ", "c ")
    )
    db.sql(f"CREATE STREAMING TABLE {own} AS SELECT k AS {own} FROM s EVERY ROW")
    db.sql(
        f"CREATE STREAMING TABLE {ticks} AS SELECT count({own}) AS {own} FROM RECENT({own},"
        " INTERVAL '9' SECOND) EVERY INTERVAL '10' SECOND"
    )
    db.sql(
        f"CREATE STREAMING TABLE {closes} AS SELECT {own}, count(*) AS n FROM TUMBLE({own}, ts,"
        f" INTERVAL '10' SECOND) GROUP BY {own} EMIT ON WINDOW CLOSE"
    )
    db.append("s", rows(0, 15))
    db._kept.catch_up()
    db.sql(f"FLUSH {own}")
    db.close()
    with opened(tmp_path / "w") as again:
        again.append("s", rows(15, 16))
        again._kept.catch_up()
        assert len(answers(again, own)) == 31
        assert sum(row[2] for row in answers(again, closes)) == 30
        assert [row[1] for row in answers(again, ticks)] == [1, 10, 10]


EMPTY = (
    COUNTED,
    "SELECT count(*) AS n, sum(v) AS total, max(ts) AS newest FROM s",
    "SELECT count(*) AS n FROM RECENT(s, INTERVAL '1' HOUR)",
    "SELECT window_start, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '1' MINUTE) GROUP BY 1",
    "SELECT window_start, count(*) AS n FROM SESSION(s, ts, INTERVAL '1' MINUTE) GROUP BY ALL",
    "SELECT DISTINCT k FROM s",
    "SELECT k FROM s ORDER BY v DESC LIMIT 3",
    "SELECT k, v FROM RECENT(s, rows => 3)",
)


def test_views_over_nothing(db: Database, tmp_path: Path) -> None:
    def check_all(where: Database) -> None:
        for number, query in enumerate(EMPTY):
            check(where, query, f"v{number}")

    for number, query in enumerate(EMPTY):
        view(db, query, f"v{number}")
    check_all(db)
    flush(db, "s")
    db.close()
    with opened(tmp_path / "w") as again:
        check_all(again)
        again.append("s", rows(0, 9))
        check_all(again)
