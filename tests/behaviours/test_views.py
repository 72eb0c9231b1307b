"""What a user sees of views: fresh at every read, a table in every query, refused where they must.

That their answers are right in any history is tested in ``tests/sim/test_views.py``.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from warehouses import compact, difference, flush, open_inline, quiet

from tidemill.clock import FakeClock, from_us
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.pipeline.compact import ExpireJob
from tidemill.server.local import LocalServer
from tidemill.views.answering import LiveView
from tidemill.views.follower import CUTS_A_RETENTION

START = datetime(2024, 5, 1, 10)
COUNTED = "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def db(tmp_path: Path, clock: FakeClock) -> Iterator[Database]:
    with quiet(), open_inline(tmp_path / "w", clock) as found:
        columns = "ts TIMESTAMP, k INTEGER, g VARCHAR, v DOUBLE"
        for name in ("s", "u"):
            found.sql(f"CREATE STREAMING TABLE {name} ({columns}) WITH (move = 'manual')")
        found.sql("CREATE TABLE r (k INTEGER PRIMARY KEY, label VARCHAR)")
        found.sql("INSERT INTO r VALUES (1, 'one'), (2, 'two')")
        yield found


def rows(first: int, count: int, at: datetime = START) -> list[tuple[Any, ...]]:
    return [
        (at + timedelta(seconds=n), n % 3, f"g{n % 2}", float(n))
        for n in range(first, first + count)
    ]


def view(db: Database, query: str, name: str = "v", head: str = "CREATE") -> None:
    db.sql(f'{head} MATERIALIZED VIEW "{name}" AS {query}')


def check(db: Database, query: str, name: str = "v") -> list[tuple[Any, ...]]:
    """A view answers what its query answers."""
    found = db.sql(f'SELECT * FROM "{name}"').fetchall()
    wrong = difference(found, db.sql(query).fetchall())
    assert wrong is None, wrong
    return found


def status(db: Database, name: str = "v") -> dict[str, Any]:
    result = db.sql("SELECT * FROM tidemill.views WHERE view_name = ?", [name])
    (row,) = result.fetchall()
    return dict(zip(result.columns, row, strict=True))


def error_of(db: Database, text: str) -> TidemillError:
    with pytest.raises(TidemillError) as caught:
        db.sql(text)
    return caught.value


def names(db: Database) -> set[str]:
    """All that the catalog knows, digests included."""
    return {table.name for table in db.catalog.snapshot().tables.values()}


# -- fresh at every read


def test_a_view_is_fresh_at_every_read(db: Database) -> None:
    view(db, COUNTED)
    assert check(db, COUNTED) == []
    for batch in range(5):
        db.append("s", rows(batch * 10, 10))
        assert len(check(db, COUNTED)) == 3
        if batch % 2:
            flush(db, "s")
            check(db, COUNTED)
    assert sum(row[1] for row in check(db, COUNTED)) == 50


def test_a_row_that_was_inserted_is_seen(db: Database) -> None:
    view(db, COUNTED)
    db.sql("INSERT INTO s VALUES ('2024-05-01 10:00:00', 7, 'x', 0.5)")
    assert db.sql("SELECT * FROM v").fetchall() == [(7, 1, 0.5)]


@pytest.mark.parametrize("word", ["MATERIALIZED", "CONTINUOUS", "materialized"])
def test_both_words_mean_the_same(db: Database, word: str) -> None:
    db.sql(f"CREATE {word} VIEW v AS {COUNTED}")
    assert db.sql(f"REFRESH {word} VIEW v").message.startswith("REFRESH")
    assert db.sql(f"DROP {word} VIEW v").message.startswith("DROP")
    assert "v" not in names(db)


def test_columns_can_be_named(db: Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW v (car, reports, speed) AS {COUNTED}")
    db.append("s", rows(0, 3))
    assert db.sql("SELECT * FROM v").columns == ["car", "reports", "speed"]
    assert db.sql("SELECT reports FROM v WHERE car = 1").fetchall() == [(1,)]


def test_the_answer_lives_through_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    with quiet():
        with open_inline(tmp_path / "w", clock) as db:
            db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, g VARCHAR, v DOUBLE)")
            view(db, COUNTED)
            db.append("s", rows(0, 20))
            flush(db, "s")
            db.append("s", rows(20, 20))
            before = check(db, COUNTED)
        for _ in range(2):
            with open_inline(tmp_path / "w", clock) as db:
                assert sorted(check(db, COUNTED)) == sorted(before)


# -- a table in every other query


def test_a_view_joins_tables_and_other_views(db: Database) -> None:
    view(db, COUNTED)
    view(db, "SELECT g, max(v) AS top FROM u GROUP BY g", "w")
    db.append("s", rows(0, 9))
    db.append("u", rows(0, 9))
    joined = "SELECT v.k, r.label, v.n FROM v JOIN r USING (k) ORDER BY v.k"
    assert db.sql(joined).fetchall() == [(1, "one", 3), (2, "two", 3)]
    both = "SELECT count(*) FROM v, w WHERE w.top > v.n"
    assert db.sql(both).fetchall() == [(6,)]
    with_rows = "SELECT count(*) FROM s JOIN v USING (k) WHERE s.v > v.total / v.n"
    assert db.sql(with_rows).fetchall() == [(3,)]
    inside = "SELECT k FROM r WHERE k IN (SELECT k FROM v WHERE n > 2) ORDER BY k"
    assert db.sql(inside).fetchall() == [(1,), (2,)]
    db.sql("CREATE TABLE kept AS SELECT * FROM v")
    assert db.sql("SELECT count(*) FROM kept").fetchall() == [(3,)]
    assert db.sql("SELECT n FROM v WHERE k = $1", [1]).fetchall() == [(3,)]


def test_a_view_over_a_view_follows_the_stream(db: Database) -> None:
    view(db, COUNTED)
    view(db, "SELECT count(*) AS groups, sum(n) AS all_rows FROM v WHERE k > 0", "w")
    db.append("s", rows(0, 9))
    assert db.sql("SELECT * FROM w").fetchall() == [(2, 6)]
    view(db, "SELECT w.all_rows + r.k AS x FROM w, r WHERE r.k = 2", "x")
    db.append("s", rows(9, 9))
    assert db.sql("SELECT * FROM x").fetchall() == [(14,)]


def test_reference_tables_are_followed_above_and_below_the_grouping(db: Database) -> None:
    above = (
        "SELECT r.label, x.n FROM (SELECT k, count(*) AS n FROM s GROUP BY k) x JOIN r USING (k)"
    )
    below = "SELECT r.label, count(*) AS n FROM s JOIN r USING (k) GROUP BY r.label"
    view(db, above, "above")
    view(db, below, "below")
    db.append("s", rows(0, 6))
    db.sql("UPDATE r SET label = 'eins' WHERE k = 1")
    db.sql("DELETE FROM r WHERE k = 2")
    assert check(db, above, "above") == [("eins", 2)]
    assert check(db, below, "below") == [("eins", 2)]
    db.append("s", rows(6, 3))
    flush(db, "s")
    assert check(db, below, "below") == [("eins", 3)]


def test_edges_of_a_sliding_window_follow_the_table(db: Database, clock: FakeClock) -> None:
    query = (
        "SELECT r.label, count(*) AS n FROM s JOIN r USING (k) "
        "WHERE ts > CAST(now() AS TIMESTAMP) - INTERVAL '1' HOUR GROUP BY r.label"
    )
    view(db, query)
    db.append("s", [(START + timedelta(seconds=s), 1, "a", 1.0) for s in (30, 1_800)])
    clock.advance(3_610)  # the window begins amid the pane of the first row
    assert db.sql("SELECT * FROM v").fetchall() == [("one", 2)]
    db.sql("UPDATE r SET label = 'eins'")
    assert db.sql("SELECT * FROM v").fetchall() == [("eins", 2)]
    clock.advance(20)
    assert db.sql("SELECT * FROM v").fetchall() == [("eins", 1)]


def test_time_alone_changes_an_answer(db: Database, clock: FakeClock) -> None:
    sliding = "SELECT count(*) AS n FROM s WHERE ts > CAST(now() AS TIMESTAMP) - INTERVAL '1' HOUR"
    recent = "SELECT count(*) AS n FROM RECENT(s, INTERVAL '1' HOUR)"
    today = "SELECT count(*) AS n FROM s WHERE date_trunc('day', ts) = date_trunc('day', now())"
    for name, query in (("v", sliding), ("w", recent), ("d", today)):
        view(db, query, name)
    db.append("s", rows(0, 10))
    for seconds in (0, 3_595, 10, 0.000001, 14 * 3_600):
        clock.advance(seconds)
        check(db, sliding), check(db, recent, "w"), check(db, today, "d")
    assert db.sql("SELECT * FROM d").fetchall() == [(0,)]


# -- answers that are kept


def test_an_unchanged_view_serves_its_last_answer(db: Database) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 10))
    check(db, COUNTED)
    before = status(db)
    for _ in range(10):
        db.sql("SELECT * FROM v")
    after = status(db)
    assert after["refreshes"] == before["refreshes"]
    assert after["served"] == before["served"] + 10
    db.append("s", rows(10, 1))
    check(db, COUNTED)
    assert status(db)["refreshes"] == before["refreshes"] + 1


def test_a_move_does_not_change_an_answer(db: Database) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 10))
    before = check(db, COUNTED)
    for _ in range(3):
        flush(db, "s")
        compact(db, "s")
        assert sorted(check(db, COUNTED)) == sorted(before)
    assert status(db)["rebuilds"] == 1


def test_concurrent_readers_share_one_answer(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers who came while one was at work, before it began to look, get its answer."""
    view(db, COUNTED)
    db.append("s", rows(0, 10))
    readers = 6
    came = threading.Barrier(readers)
    made: list[int] = []
    original = LiveView._make

    def make(self: LiveView) -> Any:
        made.append(1)
        return original(self)

    monkeypatch.setattr(LiveView, "_make", make)
    found: list[Any] = []

    def read() -> None:
        came.wait(30)
        found.append(db.sql("SELECT * FROM v ORDER BY k").fetchall())

    threads = [threading.Thread(target=read) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [found[0]] * readers
    assert len(made) == 1


def test_refresh_makes_the_answer(db: Database) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 10))
    db.sql("REFRESH MATERIALIZED VIEW v")
    before = status(db)
    check(db, COUNTED)
    assert status(db)["refreshes"] == before["refreshes"]
    error_of(db, "REFRESH MATERIALIZED VIEW s")
    assert error_of(db, "REFRESH MATERIALIZED VIEW nothing").code == "unknown_name"


# -- history


def test_a_late_view_is_back_filled(db: Database) -> None:
    for day in range(4):
        db.append("s", rows(0, 10, START + timedelta(days=day)))
        flush(db, "s")
    db.append("s", rows(10, 5, START + timedelta(days=3)))
    view(db, COUNTED)
    db.append("s", rows(15, 5, START + timedelta(days=3)))
    db.sql("REFRESH MATERIALIZED VIEW v")
    assert sum(row[1] for row in check(db, COUNTED)) == 50
    assert status(db)["history"] == 1.0
    flush(db, "s")
    check(db, COUNTED)


def test_a_view_answers_for_new_rows_before_it_is_back_filled(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.append("s", rows(0, 30))
    flush(db, "s")
    with monkeypatch.context() as patch:
        patch.setattr("tidemill.views.completing.Completing.backfill", lambda *_: None)
        view(db, COUNTED)
        assert db.sql("SELECT * FROM v").fetchall() == []
        db.append("s", rows(30, 6))
        assert sum(row[1] for row in db.sql("SELECT * FROM v").fetchall()) == 6
        flush(db, "s")
        assert status(db)["history"] < 1
        lines = [row[0] for row in db.sql("EXPLAIN MATERIALIZED VIEW v").fetchall()]
        assert any("back-filled" in line for line in lines)
    db.sql("REFRESH MATERIALIZED VIEW v")
    assert sum(row[1] for row in check(db, COUNTED)) == 36


def test_replacing_serves_the_old_answer_until_the_new_one_is_complete(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 30))
    flush(db, "s")
    other = "SELECT g, max(v) AS top FROM s GROUP BY g"
    with monkeypatch.context() as patch:
        patch.setattr("tidemill.views.completing.Completing.backfill", lambda *_: None)
        view(db, other, head="CREATE OR REPLACE")
        db.append("s", rows(30, 3))
        assert sum(row[1] for row in check(db, COUNTED)) == 33
    db.sql("REFRESH MATERIALIZED VIEW v")
    assert sorted(check(db, other)) == [("g0", 32.0), ("g1", 31.0)]
    assert names(db) == {"s", "u", "r", "v", "v$digest0"}


@pytest.mark.parametrize("statement", ["SHOW TABLES", "SHOW VIEWS"])
def test_a_view_that_waits_to_replace_another_is_not_listed(
    db: Database, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 30))
    flush(db, "s")
    before = {row[0] for row in db.sql(statement).fetchall()}
    monkeypatch.setattr("tidemill.views.completing.Completing.backfill", lambda *_: None)
    view(db, "SELECT count(*) AS n FROM s", head="CREATE OR REPLACE")
    assert {row[0] for row in db.sql(statement).fetchall()} == before


def test_replacing_again_before_the_first_is_complete(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 30))
    flush(db, "s")
    last = "SELECT count(*) AS n FROM s"
    with monkeypatch.context() as patch:
        patch.setattr("tidemill.views.completing.Completing.backfill", lambda *_: None)
        view(db, "SELECT g, max(v) AS top FROM s GROUP BY g", head="CREATE OR REPLACE")
        view(db, last, head="CREATE OR REPLACE")
    db.sql("REFRESH MATERIALIZED VIEW v")
    assert check(db, last) == [(30,)]
    assert names(db) == {"s", "u", "r", "v", "v$digest0"}


def test_replacing_a_view_without_history_is_done_at_once(db: Database) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 3))
    other = "SELECT g, max(v) AS top FROM s GROUP BY g"
    view(db, other, head="CREATE OR REPLACE")
    assert db.sql("SELECT * FROM v").columns == ["g", "top"]
    check(db, other)


@pytest.mark.parametrize("kind", ["INTEGER", "BIGINT"])  # as the groups' keys, and otherwise
def test_what_a_join_found_is_kept_until_it_changes(
    db: Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("tidemill.views.key_joins.GROUPS_MIN", 2)
    monkeypatch.setattr("tidemill.views.key_joins._CHUNKS_MAX", 2)
    columns = f"k {kind}, town VARCHAR, people HUGEINT, code UUID, by_sea BOOLEAN"
    db.sql(f"CREATE TABLE places ({columns})")
    more = "170141183460469231731687303715884105727, uuid(), true"
    places = f"(0, 'Ayr', {more}), (1, 'Bath', 8, NULL, false), (7, 'Cork', NULL, NULL, NULL)"
    db.sql(f"INSERT INTO places VALUES {places}, (NULL, 'nowhere', 0, NULL, false)")
    query = (
        "SELECT town, people, code, by_sea, sum(n) AS n, avg(top) AS top FROM (SELECT k AS id, "
        "count(*) AS n, max(v) AS top FROM s GROUP BY k) AS e, places AS p WHERE e.id = p.k "
        "GROUP BY town, people, code, by_sea"
    )
    view(db, query)
    lines = [row[0] for row in db.sql("EXPLAIN MATERIALIZED VIEW v").fetchall()]
    assert any("what was found is kept" in line for line in lines)
    looked_up, searched = [], []
    for step in range(12):
        if step == 3:
            db.sql("UPDATE places SET town = 'Derry' WHERE k = 1")
        if step == 6:
            db.sql("INSERT INTO places (k, town) VALUES (2, 'Ely'), (2, 'Ely again')")
        if step == 9:
            db.sql("DELETE FROM places WHERE town = 'Ely again'")
        # More groups with every step; some have no place.
        numbers = [None, *range(step + 3)] if step > 1 else range(step + 3)
        db.append("s", [(START + timedelta(seconds=step), k, "g", 1.0) for k in numbers])
        check(db, query)
        lookups = next(iter(db._views.live())).lookups
        assert lookups is not None
        found = lookups._found
        looked_up.append(found is not None and found.columns is not None)
        searched.append(found is not None and found.by_key is not None)
    # A read after a change joins, and so does each while a key has two places.
    assert looked_up == [False, True, True, False, True, True, *[False] * 4, True, True]
    later = [False, False, True, False, False, True, *[False] * 5, True]
    assert searched == (later if kind == "INTEGER" else [False] * 12)


@pytest.mark.parametrize("columns", ["e.id, e.n", "e.id, e.n, p.town"])
@pytest.mark.parametrize("memory", [10_000, 1_000_000])
def test_a_join_is_kept_within_the_memory_of_the_view(
    db: Database, monkeypatch: pytest.MonkeyPatch, columns: str, memory: int
) -> None:
    monkeypatch.setattr("tidemill.views.key_joins.GROUPS_MIN", 2)
    db.sql("CREATE TABLE places AS SELECT i::INTEGER AS k, 't' || i AS town FROM range(5000) t(i)")
    inner = "(SELECT k AS id, count(*) AS n FROM s GROUP BY k) AS e"
    query = f"SELECT {columns} FROM {inner}, places AS p WHERE e.id = p.k"
    view(db, query)
    (live,) = db._views.live()
    assert live.lookups is not None
    live.lookups._memory = memory
    for step in range(1, 5):
        db.append("s", [(START, k, "g", 1.0) for k in range(4990, 4995 + 3 * step)])
        check(db, query)
    found = live.lookups._found
    assert found is not None
    assert found.columns is not None
    assert (found.by_key is not None) == (memory > 10_000)


def test_wide_whole_numbers_are_shown_as_by_the_query(db: Database) -> None:
    query = (
        "SELECT k, sum(k) AS a, max(k::HUGEINT * 100000000000000000000000000000000000000) AS b, "
        "min(k::HUGEINT) AS c FROM s GROUP BY k"
    )
    view(db, query)
    for last in (-1, 1, 2):  # without rows, then with some, and with some of 39 digits
        db.append("s", [(START, k, "g", 1.0) for k in (*range(last), None) if last > 0])
        shown = db.sql("SELECT * FROM v").arrow().sort_by("k")
        right = db.sql(query).arrow().sort_by("k")
        assert shown.cast(right.schema) == right
        assert shown.schema.types == right.schema.types


def test_a_view_is_built_again_in_steps_while_rows_leave_the_retention(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows go one by one; the states of views without a window are built again a few times."""
    monkeypatch.setattr("tidemill.hot.tier.EXPIRE_EVERY_S", 1e9)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 8)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 8)
    with quiet(), open_inline(tmp_path / "w", clock) as db:
        db.sql(
            "CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, g VARCHAR, v DOUBLE) "
            "WITH (retention = '80 minutes', move = 'manual')"
        )
        view(db, COUNTED)
        hot = db._hot[db.catalog.snapshot().get("s").table_id]
        for _ in range(240):
            now = from_us(clock.now_us())
            db.append("s", rows(0, 8, now - timedelta(seconds=8)))
            hot.expire()
            check(db, COUNTED)
            clock.advance(60)
        (live,) = db._views.live()
        (follower,) = db._views.followers(live)
        assert follower.figures.rebuilds <= 2 + 2 * CUTS_A_RETENTION


def test_retention_takes_rows_from_the_view(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 8)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 16)
    sliding = "SELECT count(*) AS n FROM RECENT(s, INTERVAL '90' MINUTE)"
    with quiet(), open_inline(tmp_path / "w", clock) as db:
        db.sql(
            "CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, g VARCHAR, v DOUBLE) "
            "WITH (retention = '2 hours', move = 'manual')"
        )
        view(db, COUNTED)
        view(db, sliding, "w")
        for hour in range(6):
            db.append("s", rows(hour, 20, START + timedelta(hours=hour)))
            if hour % 2:
                flush(db, "s")
            clock.advance(3_600)
            table = db.catalog.snapshot().get("s")
            hot = db._hot[table.table_id]
            hot.expire()
            bound = clock.now_us() - table.settings["retention"]
            db._keeping.wait(db._keeping.submit(ExpireJob(table, db.catalog, bound, bound), 0))
            check(db, COUNTED)
            check(db, sliding, "w")
        assert sum(row[1] for row in check(db, COUNTED)) < 120
    with quiet(), open_inline(tmp_path / "w", clock) as db:
        check(db, COUNTED)
        check(db, sliding, "w")


def test_a_view_larger_than_its_memory_is_still_right(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.config.MEMORY_BYTES_MIN", 1)
    query = "SELECT v, list(g ORDER BY ts) AS l FROM s GROUP BY v"
    db.sql(f"CREATE MATERIALIZED VIEW v WITH (memory = '1 kB') AS {query}")
    for batch in range(3):
        db.append("s", rows(batch * 500, 500))
        assert len(check(db, query)) == 500 * (batch + 1)
    assert status(db)["state"].startswith("query")
    flush(db, "s")
    check(db, query)
    db.sql("DROP MATERIALIZED VIEW v")


# -- names


def test_digests_are_hidden(db: Database) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 3))
    flush(db, "s")
    assert "v$digest0" in names(db)
    for statement in ("SHOW TABLES", "SHOW VIEWS", "SELECT table_name FROM tidemill.tables"):
        assert not any("$" in str(row[0]) for row in db.sql(statement).fetchall()), statement
    for text in (
        'SELECT * FROM "v$digest0"',
        'DROP TABLE "v$digest0"',
        'DROP MATERIALIZED VIEW "v$digest0"',
        'INSERT INTO "v$digest0" VALUES (1, 1, 1)',
        'FLUSH "v$digest0"',
        'CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM "v$digest0"',
    ):
        error_of(db, text)
    assert error_of(db, 'CREATE STREAMING TABLE "a$b" (ts TIMESTAMP)').code
    assert error_of(db, f'CREATE MATERIALIZED VIEW "a$b" AS {COUNTED}').code
    check(db, COUNTED)


HOSTILE = ('quo"ted', "semi;colon", "SELECT", "per%cent", "ä 日本", "new\nline", "$1", "--", "x'y")


@pytest.mark.parametrize("name", [name for name in HOSTILE if "$" not in name])
def test_hostile_names(tmp_path: Path, clock: FakeClock, name: str) -> None:
    """Streams, columns, reference tables and views with names that must be quoted."""

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    stream, key, table, viewed = (quoted(f"{name} {kind}") for kind in ("s", "k", "r", "v"))
    query = (
        f"SELECT x.{key}, y.{key} AS {quoted(name)}, count(*) AS n FROM {stream} x "
        f"LEFT JOIN {table} y ON x.{key} = y.{key} GROUP BY ALL"
    )
    recent = f"SELECT {key}, count(*) AS n FROM RECENT({stream}, INTERVAL '1' HOUR) GROUP BY {key}"
    above = f"SELECT max(n) AS top, {quoted(name)} FROM {viewed} GROUP BY ALL"
    with quiet():
        with open_inline(tmp_path / "w", clock) as db:
            db.sql(f"CREATE STREAMING TABLE {stream} ({quoted('t' + name)} TIMESTAMP, {key} INT)")
            db.sql(f"CREATE TABLE {table} ({key} INT)")
            db.sql(f"INSERT INTO {table} VALUES (1)")
            db.sql(f"CREATE MATERIALIZED VIEW {viewed} AS {query}")
            db.sql(f"CREATE MATERIALIZED VIEW {quoted(name)} AS {above}")
            db.sql(f"CREATE MATERIALIZED VIEW recent AS {recent}")
            for number in range(4):
                db.append(f"{name} s", [(START, number % 2)])
                db.sql(f"FLUSH {stream}")
            _check_hostile(db, viewed, query, quoted(name), recent)
            db.sql(f"INSERT INTO {table} VALUES (0)")
        with open_inline(tmp_path / "w", clock) as db:
            assert db.sql(f"SELECT sum(n) FROM {viewed}").fetchall() == [(4,)]
            check(db, recent, "recent")
            db.sql(f"DROP MATERIALIZED VIEW {viewed} CASCADE")
            assert db.sql("SHOW VIEWS").rowcount == 1


def _check_hostile(db: Database, viewed: str, query: str, above: str, recent: str) -> None:
    found = db.sql(f"SELECT * FROM {viewed}").fetchall()
    assert difference(found, db.sql(query).fetchall()) is None
    assert db.sql(f"SELECT sum(top) FROM {above}").fetchall() == [(4,)]
    check(db, recent, "recent")
    assert db.sql("SHOW VIEWS").rowcount == 3
    assert db.sql(f"EXPLAIN MATERIALIZED VIEW {viewed}").rowcount > 1


def test_a_name_is_used_once(db: Database) -> None:
    view(db, COUNTED)
    assert error_of(db, f"CREATE MATERIALIZED VIEW v AS {COUNTED}").code == "duplicate_name"
    assert error_of(db, f"CREATE MATERIALIZED VIEW s AS {COUNTED}").code == "duplicate_name"
    assert error_of(db, f"CREATE OR REPLACE MATERIALIZED VIEW r AS {COUNTED}").hint
    assert error_of(db, "CREATE TABLE v (a INT)").code == "duplicate_name"
    error_of(db, "CREATE OR REPLACE TABLE v (a INT)")
    error_of(db, "CREATE OR REPLACE STREAMING TABLE v (ts TIMESTAMP)")
    db.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS v AS {COUNTED}")
    check(db, COUNTED)


# -- what is refused

REFUSED = {
    "two streams": ("SELECT a.k, count(*) AS n FROM s a JOIN u b USING (k) GROUP BY a.k", "group"),
    "a stream with itself": ("SELECT a.k, b.v FROM s a JOIN s b ON a.k = b.k", "group"),
    "window function": ("SELECT k, row_number() OVER (ORDER BY ts) AS n FROM s", "group first"),
    "full join": ("SELECT r.k, count(*) AS n FROM s FULL JOIN r USING (k) GROUP BY 1", "group"),
    "outer side": (
        "SELECT r.k, count(*) AS n FROM r LEFT JOIN s ON s.k = r.k GROUP BY r.k",
        "group the stream",
    ),
    "median": ("SELECT k, median(v) AS m FROM s GROUP BY k", "approx_quantile"),
    "quantile": ("SELECT k, quantile_cont(v, 0.5) AS m FROM s GROUP BY k", "approx_quantile"),
    "mode": ("SELECT k, mode(v) AS m FROM s GROUP BY k", "count"),
    "entropy": ("SELECT k, entropy(v) AS m FROM s GROUP BY k", "log2"),
    "list": ("SELECT k, list(v) AS m FROM s GROUP BY k", "ORDER BY inside the call"),
    "first": ("SELECT k, first(v) AS m FROM s GROUP BY k", "ORDER BY inside the call"),
    "no grouping": ("SELECT k, v FROM s WHERE k > 3", "EVERY ROW"),
    "limit": ("SELECT k, v FROM s LIMIT 3", "ORDER BY"),
    "replaced rows": ("SELECT k, count(*) AS n FROM replaced GROUP BY k", "ignore"),
    "rows set aside": ("SELECT k, count(*) AS n FROM s$late GROUP BY k", "directly"),
    "system table": ("SELECT count(*) AS n FROM tidemill.tables", "directly"),
    "random": ("SELECT k, count(*) AS n FROM s WHERE random() > 0.5 GROUP BY k", "leave it out"),
    "now in a value": ("SELECT k, sum(epoch(now() - ts)) AS n FROM s GROUP BY k", "WHERE"),
    "now in OR": (
        "SELECT count(*) AS n FROM s WHERE ts > now() - INTERVAL '1' HOUR OR v > 1",
        "compare the column",
    ),
    "the past": (
        "SELECT k, count(*) AS n FROM s FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01' GROUP BY k",
        "keeps rows of the past",
    ),
    "parameter": ("SELECT k, count(*) AS n FROM s WHERE k = $1 GROUP BY k", "values"),
    "a file": ("SELECT k, count(*) AS n FROM 'x.parquet' GROUP BY k", "COPY"),
    "table function": ("SELECT count(*) AS n FROM read_csv('x.csv')", "COPY"),
    "rollup": ("SELECT k, g, count(*) AS n FROM s GROUP BY ROLLUP (k, g)", "UNION ALL"),
    "union of rows": (
        "SELECT k, count(*) AS n FROM (SELECT k FROM s UNION ALL SELECT k FROM u) GROUP BY k",
        "group each side",
    ),
    "subquery": ("SELECT k FROM r WHERE k IN (SELECT k FROM s)", "FROM"),
    "distinct on": ("SELECT DISTINCT ON (k) k, v FROM s ORDER BY k, ts", "QUALIFY"),
    "prev": ("SELECT PREV(k) AS p FROM s", "EVERY ROW"),
    "no stream": ("SELECT k, label FROM r", "directly"),
    "no table": ("SELECT k, count(*) AS n FROM nothing GROUP BY k", "SHOW TABLES"),
    "itself": ("SELECT count(*) AS n FROM v", "SHOW TABLES"),
    "values": ("VALUES (1)", "SELECT"),
    "slide": ("SELECT k, count(*) AS n FROM s GROUP BY k EVERY ROW", "STREAMING TABLE"),
    "no name twice": ("SELECT g, count(*) AS n, sum(v) AS n FROM s GROUP BY g", "AS"),
    "session by another key": (
        "SELECT window_start, g, count(*) AS n FROM SESSION(s, ts, INTERVAL '5' MINUTE) "
        "GROUP BY ALL",
        "partition_by",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_kept_is_refused_and_nothing_is_made(db: Database, case: str) -> None:
    db.sql(
        "CREATE STREAMING TABLE replaced (ts TIMESTAMP, k INT, PRIMARY KEY (ts, k)) "
        "WITH (on_conflict = 'replace')"
    )
    query, hint = REFUSED[case]
    before = names(db)
    for head in ("", "EXPLAIN "):
        error = error_of(db, f"{head}CREATE MATERIALIZED VIEW v AS {query}")
        assert error.hint is not None
        assert hint in error.hint
        assert error.position is not None
    assert names(db) == before
    assert db.sql("SELECT count(*) FROM tidemill.views").fetchall() == [(0,)]


def test_the_hint_leads_to_a_view_that_works(db: Database) -> None:
    """Some of the hints, followed."""
    followed = (
        "SELECT x.k, x.n, y.m FROM (SELECT k, count(*) AS n FROM s GROUP BY k) x "
        "JOIN (SELECT k, max(v) AS m FROM u GROUP BY k) y USING (k)",
        "SELECT k, list(v ORDER BY ts, v) AS m FROM s GROUP BY k",
        "SELECT k, g FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC, v) = 1",
        "SELECT k, NULL AS g, count(*) AS n FROM s GROUP BY k "
        "UNION ALL SELECT NULL, g, count(*) FROM s GROUP BY g",
        "SELECT r.k, x.n FROM r JOIN (SELECT DISTINCT k AS n FROM s) x ON x.n = r.k",
        "SELECT k, round(sum(-p * log2(p)), 9) AS m FROM (SELECT k, n / sum(n) OVER (PARTITION BY "
        "k) AS p FROM (SELECT k, g, count(*) AS n FROM s GROUP BY k, g)) GROUP BY k",
    )
    for number, query in enumerate(followed):
        view(db, query, f"v{number}")
    for name in ("s", "u"):
        db.append(name, rows(0, 12))
    for number, query in enumerate(followed):
        assert check(db, query, f"v{number}")


def test_rows_cannot_be_written_into_a_view(db: Database, tmp_path: Path) -> None:
    view(db, COUNTED)
    for text in (
        "INSERT INTO v VALUES (1, 1, 1)",
        "UPDATE v SET n = 1",
        "DELETE FROM v",
        "TRUNCATE v",
        f"COPY v FROM '{tmp_path}/x.csv'",
        "ALTER TABLE v SET (retention = '1 day')",
        "CREATE INDEX ON v (k)",
        "FLUSH v",
        "DROP TABLE v",
        f"CREATE SOURCE src FROM '{tmp_path}/*.csv' INTO v",
    ):
        error_of(db, text)
    with pytest.raises(TidemillError):
        db.append("v", [(1, 1, 1.0)])
    assert check(db, COUNTED) == []


def test_settings_are_checked(db: Database) -> None:
    before = names(db)
    for given in ("memory = 'much'", "refresh = 'never'", "retention = '1 day'", "memry = '1 GB'"):
        error_of(db, f"CREATE MATERIALIZED VIEW v WITH ({given}) AS {COUNTED}")
    assert names(db) == before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT max(v, 3) AS m FROM s",
        "SELECT k, min(v, 2) AS m FROM s GROUP BY k",
        "SELECT max(DISTINCT k, 2) AS m FROM s",
        "SELECT arg_max(g, v, 3) AS m FROM s",
        "SELECT k, max_by(g, v, 3) AS m FROM s GROUP BY k",
        "SELECT k, arg_min(CASE WHEN v > 3 THEN ts END, v, 2) FILTER (WHERE g = 'g1') AS m "
        "FROM s GROUP BY k",
    ],
)
def test_the_greatest_few(db: Database, query: str) -> None:
    view(db, query)
    for first in (0, 20, 40):
        db.append("s", rows(first, 20))
        check(db, query)
        if first == 20:
            flush(db, "s")
            check(db, query)


# -- DROP


def test_what_a_view_reads_stays(db: Database) -> None:
    view(db, "SELECT r.label, count(*) AS n FROM s JOIN r USING (k) GROUP BY r.label")
    view(db, "SELECT count(*) AS n FROM v", "w")
    view(db, "SELECT x.k, r.label FROM (SELECT DISTINCT k FROM s) x JOIN r USING (k)", "x")
    for text in (
        "DROP TABLE s",
        "DROP TABLE r",
        "DROP MATERIALIZED VIEW v",
        "CREATE OR REPLACE STREAMING TABLE s (ts TIMESTAMP)",
        "CREATE OR REPLACE TABLE r (k INT)",
    ):
        error = error_of(db, text)
        assert error.hint is not None
        assert "DROP MATERIALIZED VIEW" in error.hint, text
    db.append("s", rows(0, 6))
    assert db.sql("SELECT * FROM w").fetchall() == [(2,)]
    db.sql("DROP MATERIALIZED VIEW v CASCADE")
    assert names(db) == {"s", "u", "r", "x", "x$digest0"}
    db.sql("DROP VIEW x")
    db.sql("DROP TABLE r")
    db.sql("DROP TABLE s")
    assert names(db) == {"u"}


def test_drop_if_exists(db: Database) -> None:
    db.sql("DROP MATERIALIZED VIEW IF EXISTS v")
    assert error_of(db, "DROP MATERIALIZED VIEW v").code == "unknown_name"
    error = error_of(db, "DROP MATERIALIZED VIEW s")
    assert "DROP TABLE" in (error.hint or "")
    error = error_of(db, "DROP VIEW r")
    assert "DROP TABLE" in (error.hint or "")


def test_files_of_a_dropped_view_go_with_vacuum(tmp_path: Path, clock: FakeClock) -> None:
    with quiet(), open_inline(tmp_path / "w", clock, time_travel="1 second") as db:
        db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, g VARCHAR, v DOUBLE)")
        view(db, COUNTED)
        db.append("s", rows(0, 9))
        flush(db, "s")
        kinds = "SELECT kind, count(*) FROM tidemill.files GROUP BY kind"
        assert dict(db.sql(kinds).fetchall()) == {"rows": 1, "digest": 1}
        db.sql("DROP MATERIALIZED VIEW v")
        clock.advance(10)
        db.append("s", rows(9, 1))
        flush(db, "s")
        db.sql("VACUUM")
        left = {path for path, *_ in db._keeping.storage.list("")}
        assert left == db.catalog.records.known_paths()
        assert len(left) == 2


def test_what_a_failed_create_leaves(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing: the name is free, no digest is left."""
    before = names(db)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(LiveView, "_make", fail)
        with pytest.raises(RuntimeError):
            view(db, COUNTED)
    assert names(db) == before
    view(db, COUNTED)
    check(db, COUNTED)


# -- what is known of views

VIEW_COLUMNS = {
    *("view_name", "state", "groups", "state_bytes", "rows_in", "insert_ns_row", "newest", "lag"),
    *("refreshes", "served", "refresh_ms", "history", "history_from", "last_error", "definition"),
}


def test_the_system_table(db: Database, clock: FakeClock) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 30))
    clock.advance(60)
    check(db, COUNTED)
    found = status(db)
    assert found.keys() >= VIEW_COLUMNS
    assert found["groups"] == 3
    assert found["rows_in"] == 30
    assert found["state_bytes"] > 0
    assert found["newest"] == START + timedelta(seconds=29)
    assert found["lag"] == timedelta(seconds=31)
    assert found["history"] == 1.0
    assert found["last_error"] is None
    assert found["definition"] == COUNTED
    (shown,) = db.sql("SHOW VIEWS").fetchall()
    assert shown[0] == "v"
    tables = "SELECT table_name, kind FROM tidemill.tables ORDER BY 1"
    assert ("v", "view") in db.sql(tables).fetchall()


def test_explain(db: Database) -> None:
    query = (
        "SELECT x.label, x.n, r.k FROM (SELECT r.label, count(*) AS n, count(DISTINCT g) AS d "
        "FROM RECENT(s, INTERVAL '1' HOUR) s JOIN r USING (k) GROUP BY r.label) x, r"
    )
    before = names(db)
    would = [row[0] for row in db.sql(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {query}").fetchall()]
    assert names(db) == before
    view(db, query)
    does = [row[0] for row in db.sql("EXPLAIN MATERIALIZED VIEW v").fetchall()]
    for lines in (would, does):
        text = "\n".join(lines)
        for word in ("digest 0 of s", "merged by", "panes of", "grows", "final"):
            assert word in text
    assert 'reference table "r" is joined when the view is read' in does
    error_of(db, "EXPLAIN MATERIALIZED VIEW s")


def test_describe(db: Database) -> None:
    view(db, COUNTED)
    found = {row[0]: row[1] for row in db.sql("DESCRIBE v").fetchall()}
    assert found == {"k": "INTEGER", "n": "BIGINT", "total": "DOUBLE"}


# -- two processes

CLIENT = """
import sys
import tidemill
import pyarrow as pa
from datetime import datetime

with tidemill.connect(sys.argv[1]) as db:
    print(db.sql("SELECT * FROM v ORDER BY k").fetchall())
    rows = {"ts": [datetime(2024, 5, 1)], "k": pa.array([1], pa.int32()), "g": ["z"], "v": [1.5]}
    db.append("s", pa.table(rows))
    print(db.sql("SELECT * FROM v ORDER BY k").fetchall())
    db.sql("CREATE MATERIALIZED VIEW theirs AS SELECT count(*) AS n FROM s")
    print(db.sql("SELECT * FROM theirs").fetchall())
"""


def test_another_process_reads_feeds_and_makes_views(db: Database) -> None:
    view(db, COUNTED)
    db.append("s", rows(0, 2))
    with LocalServer(db):
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, str(db.path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    told = done.stdout.splitlines()
    assert told == ["[(0, 1, 0.0), (1, 1, 1.0)]", "[(0, 1, 0.0), (1, 2, 2.5)]", "[(3,)]"]
    assert db.sql("SELECT * FROM theirs").fetchall() == [(3,)]
    check(db, COUNTED)


# -- limits of numbers


def test_a_sum_that_does_not_fit_is_an_error_not_a_wrong_answer(
    tmp_path: Path, clock: FakeClock
) -> None:
    query = "SELECT sum(d) AS total FROM s"
    most = "9" * 38
    with quiet(), open_inline(tmp_path / "w", clock) as db:
        db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, d DECIMAL(38,0))")
        view(db, query)
        db.sql(f"INSERT INTO s VALUES ('2024-05-01', {most})")
        check(db, query)
        flush(db, "s")
        db.sql(f"INSERT INTO s VALUES ('2024-05-01', {most})")
        error_of(db, query)
        error_of(db, "SELECT * FROM v")
        flush(db, "s")
        error_of(db, "SELECT * FROM v")
    with quiet(), open_inline(tmp_path / "w", clock) as db:
        error_of(db, "SELECT * FROM v")
        db.sql("DROP MATERIALIZED VIEW v")
        db.sql("DROP TABLE s")
