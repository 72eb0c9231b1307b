"""Updates and deletes of streams, seen by views, kept queries, programs and other writers."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from warehouses import ROUTES, compact, flush, open_inline, quiet

import tidemill
from tidemill.engine import Database
from tidemill.pipeline.loads import loads

NOON = dt.datetime(2024, 3, 1, 12)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with quiet(), open_inline(tmp_path / "w") as found:
        found.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, v INT, PRIMARY KEY (k, ts)) "
            "WITH (clock = 'event', partition = '1 hour', move = 'manual')"
        )
        found.append("t", [row(n) for n in range(100)])
        yield found


def row(n: int) -> dict[str, Any]:
    return {"ts": NOON + dt.timedelta(minutes=n), "k": n % 7, "v": n}


def total(db: Database, route: str = "local") -> tuple[Any, ...]:
    db.sql(f"SET route = '{route}'")
    return db.sql("SELECT count(*), sum(v) FROM t").fetchall()[0]


QUERY = "SELECT k, count(*) AS n, sum(v) AS total, max(v) AS most FROM t GROUP BY k"


def test_a_view_is_its_query_after_every_change(db: Database) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    for step in (
        "UPDATE t SET v = 1000 WHERE k = 3",
        "FLUSH t",
        "DELETE FROM t WHERE v BETWEEN 10 AND 20",
        "UPDATE t SET v = v + 1 WHERE k = 1",
        "UPDATE t SET ts = ts + INTERVAL '1' DAY WHERE k = 2",
        "FLUSH t",
        "REFRESH MATERIALIZED VIEW m",
        "TRUNCATE t",
    ):
        before = sorted(db.sql("SELECT * FROM m").fetchall())
        assert before == sorted(db.sql(QUERY).fetchall()), f"before {step}"
        db.sql(step)
        assert sorted(db.sql("SELECT * FROM m").fetchall()) == sorted(db.sql(QUERY).fetchall()), (
            step
        )


def test_a_view_made_after_a_change(db: Database) -> None:
    db.sql("UPDATE t SET v = 5 WHERE k < 4")
    db.sql("FLUSH t")
    db.sql("DELETE FROM t WHERE k = 4")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.sql("REFRESH MATERIALIZED VIEW m")
    assert sorted(db.sql("SELECT * FROM m").fetchall()) == sorted(db.sql(QUERY).fetchall())
    assert by_query(db) == 0


def test_a_query_within_a_query_has_its_own_parameters(db: Database) -> None:
    db.sql("DELETE FROM t WHERE k = 5")
    db.sql("CREATE INDEX ON t (k)")
    text = "SELECT count(*) FROM t WHERE k IN (SELECT k FROM t WHERE v = ?) AND v < ?"
    assert db.sql(text, [6, 50]).fetchall() == [(7,)]
    assert db.sql(text, [5, 50]).fetchall() == [(0,)]


def test_the_key_of_a_row_that_a_change_deleted_is_free_for_an_update(db: Database) -> None:
    db.append("t", [row(100) | {"ts": NOON, "k": 50}, row(101) | {"ts": NOON, "k": 51}])
    db.sql("DELETE FROM t WHERE k = 50")
    assert db.sql("UPDATE t SET k = 50 WHERE k = 51").message == "UPDATE 1"
    assert db.sql("SELECT v FROM t WHERE k = 50").fetchall() == [(101,)]
    db.sql("DELETE FROM t WHERE k = 50")
    text = "INSERT INTO t VALUES (?, 50, 7) ON CONFLICT DO NOTHING"
    assert db.sql(text, [NOON]).message == "INSERT 1"


def by_query(db: Database) -> int:
    """How often a view was answered by its query."""
    (live,) = db._views.live()
    return live.costs.by_query


def test_a_view_is_no_query_once_its_files_have_the_changes(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed partitions are digested again; a state in memory is made again."""
    monkeypatch.setattr("tidemill.views.follower.RESTS", 0)
    flush(db, "t")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.sql("REFRESH MATERIALIZED VIEW m")

    def check(queries: int) -> None:
        assert sorted(db.sql("SELECT * FROM m").fetchall()) == sorted(db.sql(QUERY).fetchall())
        assert by_query(db) == queries

    check(0)
    db.sql("UPDATE t SET v = 1000 WHERE k = 3 AND ts < TIMESTAMP '2024-03-01 12:30:00'")
    check(1)
    db.sql("REFRESH MATERIALIZED VIEW m")
    check(1)
    db.sql("DELETE FROM t WHERE v = 1000")
    db.sql("REFRESH MATERIALIZED VIEW m")
    check(1)
    db.append("t", [row(n) | {"ts": NOON + dt.timedelta(days=1, minutes=n)} for n in range(20)])
    check(1)
    db.sql("DELETE FROM t WHERE k = 2 AND ts > TIMESTAMP '2024-03-02'")  # in memory
    check(1)
    flush(db, "t")
    check(1)
    db.sql("DELETE FROM t WHERE ts < TIMESTAMP '2024-03-01 13:00:00'")
    db.sql("REFRESH MATERIALIZED VIEW m")
    check(1)


def test_a_kept_query_goes_on_with_rows_as_they_are(tmp_path: Path) -> None:
    with quiet(), open_inline(tmp_path / "w") as db:
        db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, k INT, v INT) WITH (clock = 'event')")
        db.sql(
            "CREATE STREAMING TABLE a AS SELECT k, sum(v) AS total "
            "FROM RECENT(s, INTERVAL '1' HOUR) GROUP BY k EVERY ROW"
        )
        db.append("s", [{"ts": NOON, "k": 1, "v": 1}, {"ts": NOON, "k": 1, "v": 2}])
        wait_for(db, 2)
        db.sql("UPDATE s SET v = 100 WHERE v = 1")
        db.append("s", {"ts": NOON + dt.timedelta(seconds=1), "k": 1, "v": 3})
        wait_for(db, 3)
        found = db.sql("SELECT total FROM a ORDER BY _seq").fetchall()
        assert found == [(1,), (3,), (105,)]


def wait_for(db: Database, rows: int) -> None:
    ended = threading.Event()
    for _ in range(400):
        if db.sql("SELECT count(*) FROM a").fetchall() == [(rows,)]:
            return
        ended.wait(0.05)
    raise AssertionError(db.sql("SELECT * FROM tidemill.views").fetchall())


@pytest.mark.parametrize("is_moved", [False, True])
def test_corrections_by_key(db: Database, is_moved: bool) -> None:
    if is_moved:
        flush(db, "t")
    fixes = [{"k": n % 7, "ts": row(n)["ts"], "v": -n} for n in (5, 50, 99)]
    assert db.update("t", fixes).corrections == 3
    assert db.delete("t", pa.table({"k": [1], "ts": [row(1)["ts"]]})).corrections == 1
    wanted = sum(-n if n in (5, 50, 99) else n for n in range(100) if n != 1)
    for route in ROUTES:
        assert total(db, route) == (99, wanted)
    flush(db, "t")
    compact(db, "t")
    assert total(db) == (99, wanted)
    assert db.sql("SELECT count(*) FROM tidemill.changes").fetchall() == [(0,)]


def test_corrections_by_another_key_and_only_once(db: Database) -> None:
    fix = {"k": 3, "v": 0}
    assert not db.update("t", fix, key=["k"], source="a", offset=1).is_repeat
    again = {"k": 4, "v": 0}
    assert db.update("t", again, key=["k"], source="a", offset=1).is_repeat
    assert total(db) == (100, sum(n for n in range(100) if n % 7 != 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda db: db.update("t", {"k": 1, "v": 1}), "lack the key column"),
        (lambda db: db.update("t", {"k": 1, "ts": NOON}), "set no column"),
        (lambda db: db.update("t", {"k": 1, "ts": NOON, "v": 1}, key=["k"]), "do not change"),
        (lambda db: db.update("t", {"k": 1, "ts": NOON, "v": "x"}), "do not fit"),
        (lambda db: db.update("t", [{"k": 1, "v": 1}, {"k": 1}], key=["k"]), "the same columns"),
        (lambda db: db.update("t", (1, 2, 3)), "names of their columns"),
        (lambda db: db.delete("t", {"nothing": 1}, key=["k"]), "nothing"),
    ],
)
def test_corrections_that_are_refused(db: Database, call: Any, message: str) -> None:
    before = total(db)
    with pytest.raises(tidemill.TidemillError, match=message):
        call(db)
    assert total(db) == before


def test_readers_see_all_of_a_change_or_nothing(db: Database) -> None:
    """Each UPDATE sets all rows to one value, while others read, append nothing and flush."""
    db.sql("UPDATE t SET v = 0")
    stop, wrong = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            found = db.sql("SELECT count(DISTINCT v), count(*) FROM t").fetchall()
            if found != [(1, 100)]:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for value in range(1, 60):
        db.sql("UPDATE t SET v = ?", [value])
        if value % 20 == 0:
            db.sql("FLUSH t")
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert db.sql("SELECT DISTINCT v FROM t").fetchall() == [(59,)]


def test_explain_tells_of_changes(db: Database) -> None:
    flush(db, "t")
    db.sql("UPDATE t SET v = 7 WHERE k = 2")
    lines = "\n".join(r[0] for r in db.sql("EXPLAIN SELECT sum(v) FROM t").fetchall())
    assert "1 change (UPDATE, DELETE) carried out while files are read" in lines
    assert 'UPDATE SET "v" =' in lines
    lines = "\n".join(r[0] for r in db.sql("EXPLAIN SELECT sum(k) FROM t").fetchall())
    assert "carried out" not in lines
    assert "does not need: 1 (columns that the query does not read: 1)" in lines


def states(db: Database) -> list[str]:
    return [r[0] for r in db.sql("SELECT state FROM tidemill.changes ORDER BY number").fetchall()]


def test_a_change_waits_until_it_concerns_somebody(db: Database) -> None:
    """Queries of other columns, times and keys leave it alone; so do appends with other keys."""
    for text in (
        "UPDATE t SET v = -1 WHERE k = 3 AND ts < TIMESTAMP '2024-03-01 13:00:00'",
        "DELETE FROM t WHERE k = 5 AND v > 90",
    ):
        db.sql(text)
    assert db.sql("SELECT sum(v) FROM t WHERE k = 2").fetchall() == [(sum(range(2, 100, 7)),)]
    assert db.sql("SELECT max(v) FROM t WHERE ts > ? AND k = 6", [NOON]).fetchall() == [(97,)]
    late = NOON + dt.timedelta(hours=1)
    sql = "SELECT count(*) FROM t WHERE ts >= ? AND k <> 5 AND k = 3"
    assert db.sql(sql, [late]).fetchall() == [(5,)]
    assert db.sql("SELECT count(*) FROM t WHERE k IN (?, 4)", [1]).fetchall() == [(29,)]
    db.append("t", [row(n) | {"ts": NOON - dt.timedelta(hours=1), "k": 3} for n in range(1)])
    text = "\n".join(r[0] for r in db.sql("EXPLAIN SELECT v FROM t WHERE k = 2").fetchall())
    assert "changes that rows in memory lack and the query does not need: 2" in text
    assert states(db) == ["new", "new"]
    assert db.sql("SELECT count(*) FROM t WHERE v = -1").fetchall() == [(9,)]
    assert states(db) == ["pending", "pending"]
    db.sql("DELETE FROM t WHERE k = 1")
    deleted = row(1)
    with pytest.raises(tidemill.TidemillError):
        db.append("t", [row(2)])
    assert states(db)[-1] == "new"
    db.append("t", [deleted])
    assert states(db)[-1] == "pending"
    assert db.sql("SELECT count(*) FROM t WHERE k = 1").fetchall() == [(1,)]


def test_a_deleted_hour_of_history_is_not_read(db: Database) -> None:
    flush(db, "t")
    files = db.sql("SELECT count(*) FROM tidemill.files WHERE kind = 'rows'").fetchall()[0][0]
    assert files > 1
    db.sql("DELETE FROM t WHERE ts < '2024-03-01 13:00'")
    assert total(db)[0] == 40
    db.sql("FLUSH t")
    left = db.sql("SELECT count(*) FROM tidemill.files WHERE kind = 'rows'").fetchall()[0][0]
    assert left < files
    assert total(db)[0] == 40


def test_kept_answers_are_not_changed(tmp_path: Path) -> None:
    with quiet(), open_inline(tmp_path / "w") as db:
        db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, v INT) WITH (clock = 'event')")
        db.sql("CREATE STREAMING TABLE a AS SELECT sum(v) AS v FROM s EVERY INTERVAL '1' MINUTE")
        with pytest.raises(tidemill.TidemillError, match="keeps the answers"):
            db.sql("UPDATE a SET v = 1")


@pytest.mark.spark
def test_changes_on_spark(tmp_path: Path, shared_spark: object) -> None:
    """Moves, files that are written anew, and all routes, with tasks in Spark's workers."""
    with quiet(), open_inline(tmp_path / "w", spark_master="local[2]") as db:
        db.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, v INT, PRIMARY KEY (k, ts)) "
            "WITH (clock = 'event', partition = '1 hour', move = 'manual')"
        )
        db.append("t", [row(n) for n in range(100)])
        db.sql("UPDATE t SET v = 1000 WHERE k = 3")
        db.update("t", [{"k": n % 7, "ts": row(n)["ts"], "v": -n} for n in range(40, 60)])
        flush(db, "t")
        db.append("t", {**row(3), "k": 100})
        db.sql("UPDATE t SET v = v + 1 WHERE k = 100")
        db.update("t", [{"k": n % 7, "ts": row(n)["ts"], "v": n} for n in range(20)])
        db.sql("DELETE FROM t WHERE k = 5")
        values = {n: 1000 if n % 7 == 3 else n for n in range(100) if n % 7 != 5}
        values |= {n: -n for n in range(40, 60) if n % 7 != 5}
        values |= {n: n for n in range(20) if n % 7 != 5}
        wanted = (len(values) + 1, sum(values.values()) + 4)
        for route in ("local", "spark"):
            assert total(db, route) == wanted, route
        with pytest.raises(tidemill.TidemillError, match="Spark's SQL"):
            total(db, "spark_sql")
        flush(db, "t")  # carries all out
        for route in ("local", "spark", "spark_sql"):
            assert total(db, route) == wanted, route
        assert db.sql("SELECT count(*) FROM tidemill.changes").fetchall() == [(0,)]


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("TIME", "TIME '10:00'", "TIME '23:59:59.5'"),
        ("UUID", "uuid()", "'12345678-1234-1234-1234-123456789abc'::UUID"),
        ("HUGEINT", "1", "170141183460469231731687303715884105727"),
        ("JSON", "'{}'::JSON", "'[1]'::JSON"),
        ("INTERVAL", "INTERVAL '1' DAY", "INTERVAL '2' MONTH"),
        ("INT[]", "[1, NULL]", "[2]"),
        ("STRUCT(a INT, b VARCHAR)", "{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': 'it''s'}"),
        ("DECIMAL(9,2)", "1.1", "-7.25"),
        ("BLOB", "'a'::BLOB", "'\\x00\\xff'::BLOB"),
    ],
)
def test_values_of_all_types(tmp_path: Path, kind: str, old: str, new: str, is_moved: bool) -> None:
    """Also where no row is touched: Arrow does not join structs of some types."""
    with quiet(), open_inline(tmp_path / "w") as db:
        db.sql(f"CREATE STREAMING TABLE s (ts TIMESTAMP, k INT, x {kind}) WITH (move = 'manual')")
        db.sql(f"INSERT INTO s VALUES (now(), 1, {old}), (now(), 2, {old})")
        if is_moved:
            flush(db, "s")
        for k in (7, 2):
            db.sql(f"UPDATE s SET x = {new} WHERE k = {k}")
            found = db.sql(f"SELECT k, x = {new} FROM s ORDER BY k").fetchall()
            assert found == [(1, False), (2, k == 2)]
        flush(db, "s")
        assert db.sql(f"SELECT k, x = {new} FROM s ORDER BY k").fetchall() == [
            (1, False),
            (2, True),
        ]


def in_files(db: Database, changes: str) -> None:
    """A table whose rows are in files, with a way for changes to reach them."""
    db.sql(f"ALTER TABLE t SET (changes = '{changes}')")
    flush(db, "t")


EAGER_STEPS = (
    lambda db: db.sql("UPDATE t SET v = -1 WHERE k = 3"),
    lambda db: db.sql("UPDATE t SET v = v + 1 WHERE k = 1"),  # resolved while no writer is let in
    lambda db: db.sql("UPDATE t SET ts = ts + INTERVAL '1' SECOND WHERE k = 2"),
    lambda db: db.update("t", [{**row(n), "v": 0} for n in range(70, 100)]),
    lambda db: db.delete("t", [{"k": n % 7, "ts": row(n)["ts"]} for n in range(3)]),
    lambda db: db.sql("DELETE FROM t WHERE ts < '2024-03-01 12:30'"),
)


def test_eager_changes_are_carried_out_by_their_statements(tmp_path: Path, db: Database) -> None:
    in_files(db, "eager")
    with open_inline(tmp_path / "other") as other:
        other.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, v INT, PRIMARY KEY (k, ts)) "
            "WITH (clock = 'event', partition = '1 hour', move = 'manual')"
        )
        other.append("t", [row(n) for n in range(100)])
        flush(other, "t")
        for number, step in enumerate(EAGER_STEPS):
            step(db)
            step(other)
            waiting = db.sql("SELECT * FROM tidemill.changes WHERE files > 0").fetchall()
            assert waiting == [], number
            text = "SELECT ts, k, v FROM t ORDER BY ALL"
            assert db.sql(text).fetchall() == other.sql(text).fetchall(), number
        assert other.sql("SELECT * FROM tidemill.changes WHERE files > 0").fetchall() != []


def test_an_eager_change_that_files_refuse_is_made_all_the_same(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_files(db, "eager")

    def refuse(*_: object) -> None:
        raise tidemill.errors.PipelineError("no worker answers")

    with monkeypatch.context() as patch:
        patch.setattr(db._keeping, "submit", refuse)
        with pytest.raises(tidemill.TidemillError, match="is made and readers see it") as caught:
            db.sql("UPDATE t SET v = 0")
    assert caught.value.detail == "no worker answers"
    assert total(db) == (100, 0)
    db.sql("FLUSH t")
    assert db.sql("SELECT * FROM tidemill.changes").fetchall() == []
    assert total(db) == (100, 0)


@pytest.mark.parametrize("route", ROUTES)
def test_many_corrections_of_files(db: Database, route: str) -> None:
    """So many that they travel as a table of their own, to tasks, keys, counts and compaction."""
    in_files(db, "defer")
    db.update("t", [{**row(n), "v": -n} for n in range(50)])
    for n in range(50, 80):
        db.sql("UPDATE t SET v = ? WHERE k = ? AND ts = ?", [0, n % 7, row(n)["ts"]])
    db.delete("t", [{"k": n % 7, "ts": row(n)["ts"]} for n in range(80, 100)])
    wanted = (80, -sum(range(50)))
    assert total(db, route) == wanted
    db.append("t", [row(n) for n in range(80, 100)])  # their keys are free
    with pytest.raises(tidemill.TidemillError, match="primary key"):
        db.append("t", [row(n) for n in range(10)])
    db.delete("t", [{"k": n % 7, "ts": row(n)["ts"]} for n in range(80, 100)])
    assert db.sql("SELECT rows FROM tidemill.tables WHERE table_name = 't'").fetchall() == [(80,)]
    assert total(db, route) == wanted
    flush(db, "t")
    assert total(db, route) == wanted


def test_a_load_under_way_is_spared_however_far_rows_have_moved(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows come when it is committed, behind a change that is made before."""
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"ts,k,v\n2024-03-02 00:00:00,{ord(name)},5\n")
    real = loads._LoadJob._run

    def run(self: Any, *given: Any) -> Any:
        found = real(self, *given)
        db.append("t", row(200))
        flush(db, "t")  # past the numbers of the load
        db.sql("UPDATE t SET v = -1")
        return found

    monkeypatch.setattr(loads._LoadJob, "_run", run)
    db.sql(f"COPY t FROM '{tmp_path}/*.csv'")
    wanted = [(-1, 101), (5, 2)]
    text = "SELECT v, count(*) FROM t GROUP BY v ORDER BY v"
    assert db.sql(text).fetchall() == wanted
    flush(db, "t")
    assert db.sql(text).fetchall() == wanted
    db.sql("UPDATE t SET v = 6")  # now they are there
    assert db.sql(text).fetchall() == [(6, 103)]


def test_rows_that_were_deleted_before_they_moved_stay_deleted(tmp_path: Path) -> None:
    """The log has them until their numbers have moved, and so it needs the change."""
    with quiet(), open_inline(tmp_path / "w") as db:
        db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, k INT) WITH (move = 'manual')")
        db.append("s", [{"ts": NOON, "k": k} for k in (0, 0, 0, 1, 1)])
        db.sql("DELETE FROM s WHERE k = 1")
        assert db.sql("SELECT count(*) FROM s").fetchall() == [(3,)]
        db.append("s", {"ts": NOON, "k": 2})
        hot = db._hot[db.catalog.snapshot().get("s").table_id]
        db._keeping.wait(db._keeping._submit_move(hot, 3, "some"))
    with quiet(), open_inline(tmp_path / "w") as db:
        assert db.sql("SELECT k FROM s ORDER BY _seq").fetchall() == [(0,), (0,), (0,), (2,)]


def test_changes_by_another_source_wait(db: Database) -> None:
    """What equality names is a correction by key; other forms are resolved, and count."""
    db.sql("CREATE TABLE r (k INT, v INT, big BIGINT, at TIMESTAMP)")
    db.sql("INSERT INTO r VALUES (1, 1000, 2, ?), (2, 2000, 3, ?), (NULL, 7, 4, NULL)", [NOON] * 2)
    tag = db.sql("UPDATE t SET v = r.v + ? FROM r WHERE t.k = r.k AND r.v > ?", [5, 1_500]).message
    assert tag == "UPDATE"
    assert states(db) == ["new"]
    assert db.sql("SELECT DISTINCT v FROM t WHERE k = 2").fetchall() == [(2_005,)]
    assert db.sql("SELECT count(*) FROM t WHERE v > 999 AND k = 1").fetchall() == [(0,)]
    assert db.sql("DELETE FROM t USING r WHERE r.k = t.k AND r.v = 1000").message == "DELETE"
    assert db.sql("SELECT count(*) FROM t WHERE k = 1").fetchall() == [(0,)]
    for text, tag in (
        ("UPDATE t SET v = 1 FROM r WHERE t.k = r.big", "UPDATE 42"),  # another type
        ("UPDATE t SET v = t.v + r.v FROM r WHERE t.k = r.k", "UPDATE 14"),
        ("UPDATE t SET v = big FROM r WHERE t.k = r.k", "UPDATE 14"),  # whose column is it?
        ("DELETE FROM t USING r WHERE t.k = r.k AND t.v < 0", "DELETE 0"),
        ("DELETE FROM t USING r WHERE t.k > r.k AND r.k = 5", "DELETE 0"),
    ):
        assert db.sql(text).message == tag, text
    with pytest.raises(tidemill.TidemillError, match="more than one"):
        db.sql(
            "UPDATE t SET v = s.v FROM (SELECT 3 AS k, 1 AS v UNION SELECT 3, 2) s WHERE t.k = s.k"
        )
    with pytest.raises(tidemill.TidemillError):
        db.sql("UPDATE t SET k = s.v FROM (SELECT 3 AS k, NULL::INT AS v) s WHERE t.k = s.k")
