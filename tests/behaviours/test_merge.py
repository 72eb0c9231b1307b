"""MERGE and INSERT … ON CONFLICT of streams, and changes of RECENT."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warehouses import ROUTES, flush, open_inline, quiet

import tidemill
from tidemill.engine import Database

NOON = dt.datetime(2024, 3, 1, 12)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with quiet(), open_inline(tmp_path / "w") as found:
        found.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, v INT DEFAULT 7, w VARCHAR NOT NULL, "
            "PRIMARY KEY (k, ts)) WITH (clock = 'event', move = 'manual')"
        )
        found.append("t", [row(n) for n in range(10)])
        yield found


def at(n: int) -> dt.datetime:
    return NOON + dt.timedelta(minutes=n)


def row(n: int, w: str = "old") -> dict[str, Any]:
    return {"ts": at(n), "k": n, "v": n, "w": w}


def rows(db: Database) -> list[tuple[Any, ...]]:
    found = [db.sql("SELECT k, v, w FROM t ORDER BY k, v").fetchall()]
    for route in ROUTES:
        db.sql(f"SET route = '{route}'")
        found.append(db.sql("SELECT k, v, w FROM t ORDER BY k, v").fetchall())
    db.sql("RESET route")
    assert all(each == found[0] for each in found)
    return found[0]


def in_both(db: Database, moved: bool) -> None:
    """Half of the rows in files, if they are to be."""
    if moved:
        db.sql("DELETE FROM t WHERE k > 5")
        flush(db, "t")
        db.append("t", [row(n) for n in range(6, 10)])


@pytest.mark.parametrize("moved", [False, True])
def test_on_conflict_do_update(db: Database, moved: bool) -> None:
    in_both(db, moved)
    text = (
        "INSERT INTO t VALUES (?, 3, 30, 'new'), (?, 8, 80, 'new'), (?, 20, 200, 'new') "
        "ON CONFLICT (k, ts) DO UPDATE SET v = t.v + excluded.v, w = excluded.w"
    )
    assert db.sql(text, [at(3), at(8), at(20)]).message == "INSERT 3"
    found = rows(db)
    assert found[3] == (3, 33, "new")
    assert found[8] == (8, 88, "new")
    assert found[10] == (20, 200, "new")
    assert len(found) == 11
    db.close()


def test_on_conflict_where_and_own_columns(db: Database) -> None:
    text = "INSERT INTO t VALUES (?, ?, ?, 'n') ON CONFLICT DO UPDATE SET v = v + 1 WHERE w = 'old'"
    assert db.sql(text, [at(3), 3, 0]).message == "INSERT 1"
    assert db.sql("UPDATE t SET w = 'x' WHERE k = 3").message == "UPDATE"
    assert db.sql(text, [at(3), 3, 0]).message == "INSERT 0"
    assert rows(db)[3] == (3, 4, "x")


@pytest.mark.parametrize("moved", [False, True])
def test_on_conflict_do_nothing(db: Database, moved: bool) -> None:
    in_both(db, moved)
    db.append("t", [row(40)])
    text = (
        "INSERT INTO t (k, ts, w) SELECT k, ts, 'new' FROM t UNION ALL "
        "SELECT 50, TIMESTAMP '2024-03-01 12:50:00', w FROM (VALUES ('a'), ('b')) x(w) "
        "ON CONFLICT DO NOTHING"
    )
    assert db.sql(text).message == "INSERT 1"
    found = rows(db)
    assert len(found) == 12
    assert found[-1][:2] == (50, 7)
    assert {w for _, _, w in found[:-1]} == {"old"}


def test_a_key_that_comes_twice_cannot_be_updated_twice(db: Database) -> None:
    before = rows(db)
    text = "INSERT INTO t VALUES (?, 3, 1, 'a'), (?, 3, 2, 'b') ON CONFLICT DO UPDATE SET v = 1"
    with pytest.raises(tidemill.TidemillError, match="a second time"):
        db.sql(text, [at(3), at(3)])
    assert rows(db) == before


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("ON CONFLICT (k) DO NOTHING", "primary key"),
        ("ON CONFLICT (nothing) DO NOTHING", "nothing"),
        ("ON CONFLICT DO UPDATE SET nothing = 1", "nothing"),
        ("ON CONFLICT DO UPDATE SET w = NULL", "must not be NULL"),
        ("ON CONFLICT DO UPDATE SET v = w::INT", "old"),
        ("ON CONFLICT DO UPDATE SET v = ?", "parameter"),
        ("ON CONFLICT DO SOMETHING", "cannot be read"),
        ("RETURNING k", "ON CONFLICT and nothing more"),
    ],
)
def test_refused_upserts_change_nothing(db: Database, tail: str, message: str) -> None:
    before = rows(db)
    with pytest.raises(tidemill.TidemillError, match=message):
        db.sql(f"INSERT INTO t VALUES ('2024-03-01 12:03:00', 3, 1, 'new') {tail}")
    assert rows(db) == before


MERGE = """
    MERGE INTO t AS x USING (
        SELECT * FROM (VALUES (2, 20, 'a'), (3, NULL, 'b'), (4, 40, 'keep'), (60, 600, 'c'))
        AS s(k, v, w)
    ) AS s ON x.k = s.k
    WHEN MATCHED AND s.v IS NULL THEN DELETE
    WHEN MATCHED AND s.w = 'keep' THEN DO NOTHING
    WHEN MATCHED THEN UPDATE SET v = x.v + s.v, w = s.w
    WHEN NOT MATCHED AND s.v > 1000 THEN DO NOTHING
    WHEN NOT MATCHED THEN INSERT (ts, k, v, w)
        VALUES (TIMESTAMP '2024-03-01 13:00:00', s.k, s.v, s.w)
"""


@pytest.mark.parametrize("moved", [False, True])
def test_merge(db: Database, moved: bool) -> None:
    in_both(db, moved)
    assert db.sql(MERGE).message == "MERGE 3"
    found = rows(db)
    assert found == sorted(
        [
            *((n, n, "old") for n in (0, 1, 4, 5, 6, 7, 8, 9)),
            (2, 22, "a"),
            (60, 600, "c"),
        ]
    )
    if moved:
        flush(db, "t")
        assert rows(db) == found


def test_merge_is_one_frame(db: Database, tmp_path: Path) -> None:
    """Updates, deletes and new rows come back together after a restart, with their numbers."""
    db.sql(MERGE)
    shown = db.sql("SELECT _seq, * FROM t ORDER BY _seq").fetchall()
    past = db.sql("SELECT number, kind FROM tidemill.changes ORDER BY number").fetchall()
    assert past == [(1, "update"), (2, "delete")]
    db.close()
    with open_inline(tmp_path / "w") as again:
        assert again.sql("SELECT _seq, * FROM t ORDER BY _seq").fetchall() == shown


def test_merge_by_names_and_parameters(db: Database) -> None:
    db.sql("CREATE TABLE r (ts TIMESTAMP, k INT, w VARCHAR)")
    db.sql("INSERT INTO r VALUES (?, 1, 'r'), (?, 70, 'r')", [at(1), at(70)])
    text = (
        "MERGE INTO t USING r USING (k, ts) WHEN MATCHED AND t.v < ? THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    assert db.sql(text, [5]).message == "MERGE 2"
    found = rows(db)
    assert found[1] == (1, 1, "r")
    assert found[-1] == (70, 7, "r")
    assert db.sql(text, [0]).message == "MERGE 0"


def test_merge_may_change_time_and_key(db: Database) -> None:
    text = (
        "MERGE INTO t USING (SELECT 3 AS k) AS s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET k = t.k + 100, ts = t.ts + INTERVAL '1' HOUR"
    )
    assert db.sql(text).message == "MERGE 1"
    assert db.sql("SELECT k, ts, v FROM t WHERE k > 50").fetchall() == [(103, at(63), 3)]
    assert len(rows(db)) == 10
    db.append("t", [row(3)])  # its key is free


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MERGE INTO t USING t AS t ON true WHEN MATCHED THEN DELETE", "one name"),
        ("MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE", "u"),
        ("MERGE INTO t USING (SELECT 1) AS s WHEN MATCHED THEN DELETE", "ON"),
        (
            "MERGE INTO t USING (SELECT 1 AS k UNION ALL SELECT 1) AS s ON t.k = s.k "
            "WHEN MATCHED THEN DELETE",
            "a second time",
        ),
        (
            "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k AND random() < 2 "
            "WHEN MATCHED AND random() < 0.5 THEN DELETE",
            "chance",
        ),
        (
            "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k "
            "WHEN MATCHED THEN INSERT VALUES (1)",
            r"INSERT|MATCHED",
        ),
        (
            "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k WHEN NOT MATCHED THEN DELETE",
            r"DELETE|MATCHED",
        ),
        (
            "MERGE INTO t USING (SELECT 99 AS k) AS s ON t.k = s.k "
            "WHEN NOT MATCHED THEN INSERT (k, ts) VALUES (s.k, TIMESTAMP '2024-03-01')",
            "NULL",
        ),
        (
            "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k "
            "WHEN NOT MATCHED BY SOURCE THEN DELETE",
            "BY SOURCE",
        ),
        ("MERGE INTO r USING t ON t.k = r.a WHEN MATCHED THEN DELETE", "streaming"),
        (
            "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k "
            "WHEN MATCHED THEN DELETE RETURNING *",
            "answers no rows",
        ),
    ],
)
def test_refused_merges_change_nothing(db: Database, text: str, message: str) -> None:
    db.sql("CREATE TABLE r (a INT)")
    before = rows(db)
    with pytest.raises(tidemill.TidemillError, match=message):
        db.sql(text)
    assert rows(db) == before


def test_many_upsert_the_same_keys_at_once(db: Database) -> None:
    """No count is lost, and no key comes twice."""
    text = "INSERT INTO t VALUES (?, 500, 1, 'n') ON CONFLICT DO UPDATE SET v = t.v + 1"

    def work() -> None:
        for _ in range(25):
            db.sql(text, [at(500)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db.sql("SELECT v FROM t WHERE k = 500").fetchall() == [(100,)]


def test_rows_set_aside_are_counted(db: Database) -> None:
    db.sql("ALTER TABLE t SET (rejected = 'divert')")
    text = (
        "INSERT INTO t (ts, k, v, w) SELECT TIMESTAMP '2024-03-01 15:00:00', k, v, w FROM "
        "(VALUES (90, 1, 'a'), (91, 2, NULL)) x(k, v, w) ON CONFLICT DO NOTHING"
    )
    assert db.sql(text).message == "INSERT 1"
    (counts,) = db.sql("SELECT rows_in, stored, rejected FROM tidemill.ingest").fetchall()
    assert counts == (12, 11, 1)


# -- windows as targets


def test_changes_of_recent_rows(db: Database) -> None:
    assert db.sql("UPDATE RECENT(t, INTERVAL '2' MINUTE) SET v = 100").message == "UPDATE"
    assert [k for k, v, _ in rows(db) if v == 100] == [7, 8, 9]
    db.sql("UPDATE RECENT(t, INTERVAL '2' MINUTE) AS r SET v = 101 WHERE r.k = 8")
    assert [k for k, v, _ in rows(db) if v == 101] == [8]
    assert db.sql("DELETE FROM RECENT(t, rows => 2)").message == "DELETE 2"
    assert [k for k, _, _ in rows(db)] == list(range(8))
    assert db.sql("DELETE FROM RECENT(t, rows => ?) WHERE k < 7", [3]).message == "DELETE 2"
    assert [k for k, _, _ in rows(db)] == [0, 1, 2, 3, 4, 7]
    db.append("t", [row(12)])
    db.sql("DELETE FROM RECENT(t, INTERVAL '1' HOUR)")
    assert rows(db) == []


def test_what_was_recent_stays_what_is_meant(db: Database) -> None:
    """The window is the statement's, not that of whoever looks later."""
    db.sql("UPDATE RECENT(t, INTERVAL '1' MINUTE) SET v = 100")
    (state,) = db.sql("SELECT state FROM tidemill.changes").fetchall()
    assert state == ("new",), "it waits"
    db.append("t", [row(30)])
    assert [k for k, v, _ in rows(db) if v == 100] == [8, 9]


@pytest.mark.parametrize("call", ["TUMBLE(t, INTERVAL '1' MINUTE)", "RECENT(nothing, rows => 1)"])
def test_other_windows_are_refused(db: Database, call: str) -> None:
    with pytest.raises(tidemill.TidemillError, match=r"RECENT|nothing"):
        db.sql(f"DELETE FROM {call}")


def test_corrections_over_the_socket(db: Database) -> None:
    with tidemill.open(db.path.parent / "served", spark_master="inline") as owner:
        owner.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, v INT, PRIMARY KEY (k, ts))")
        owner.append("t", [{"ts": at(n), "k": n, "v": n} for n in range(5)])
        with tidemill.connect(owner.path) as client:
            some = [{"k": 1, "ts": at(1), "v": 11}, {"k": 2, "ts": at(2), "v": 12}]
            assert client.update("t", some, source="s", offset=1).corrections == 2
            assert client.update("t", some, source="s", offset=1).is_repeat
            assert client.delete("t", [{"k": 4}], key="k").corrections == 1
            with pytest.raises(tidemill.TidemillError):
                client.update("t", [{"k": 1, "v": 1}])
            found = client.sql("SELECT k, v FROM t ORDER BY k").fetchall()
        assert found == [(0, 0), (1, 11), (2, 12), (3, 3)]


# -- what a review found


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM t ORDER BY ts LIMIT 3",
        "DELETE FROM t LIMIT 3",
        "UPDATE t SET v = 1 ORDER BY ts LIMIT 1",
        "DELETE FROM t TABLESAMPLE 10 PERCENT",
        "UPDATE t JOIN (SELECT 1 AS k) s ON t.k = s.k SET v = 1",
        "UPDATE t SET v",
        "UPDATE t SET other.v = 1",
        "MERGE INTO RECENT(t, INTERVAL '1' MINUTE) AS x USING (SELECT 1 AS k) s ON x.k = s.k "
        "WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING (SELECT 1 AS k, 2 AS v) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET *, w = 'x'",
        "MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET s.k = 3",
        "MERGE INTO t USING (SELECT 90 AS k) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k)",
        "INSERT INTO t VALUES ('2024-03-01 12:03:00', 3, 1, 'x') ON CONFLICT (k, ts) REPLACE",
        "INSERT INTO t VALUES ('2024-03-01 12:03:00', 3, 1, 'x') "
        "ON CONFLICT DO UPDATE SET v = 1, w = 'x' WHERE random() < 0.5",
    ],
)
def test_what_nobody_would_carry_out_is_refused(db: Database, text: str) -> None:
    before = rows(db)
    with pytest.raises(tidemill.TidemillError):
        db.sql(text)
    assert rows(db) == before


@pytest.mark.parametrize("policy", ["ignore", "replace", "reject"])
def test_a_row_is_not_lost_if_its_new_key_is_taken(db: Database, policy: str) -> None:
    db.sql(f"ALTER TABLE t SET (on_conflict = '{policy}', rejected = 'divert')")
    db.append("t", [row(30) | {"ts": at(1), "k": 2}])
    before = rows(db)
    for text in (
        "UPDATE t SET k = 2 WHERE k = 1",
        "MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET k = 2",
    ):
        with pytest.raises(tidemill.TidemillError, match="primary key"):
            db.sql(text)
    text = (
        "MERGE INTO t USING (SELECT 1 AS k) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET ts = TIMESTAMP 'infinity'"
    )
    with pytest.raises(tidemill.TidemillError):
        db.sql(text)
    assert rows(db) == before


def test_keys_that_stay_are_no_move(db: Database) -> None:
    """UPDATE SET * names the key, too; new rows beside it are rows like any other."""
    text = (
        "MERGE INTO t USING (VALUES (3, ?, 33), (80, ?, 80)) AS s(k, ts, v) ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT (k, ts, v, w) "
        "VALUES (s.k, s.ts, s.v, 'n')"
    )
    before = db.sql("SELECT _seq FROM t WHERE k = 3").fetchall()
    assert db.sql(text, [at(3), at(80)]).message == "MERGE 2"
    assert db.sql("SELECT _seq FROM t WHERE k = 3 AND v = 33").fetchall() == before
    assert db.sql("SELECT k FROM RECENT(t, INTERVAL '1' MINUTE)").fetchall() == [(80,)]


def test_values_of_a_later_clause_are_for_other_pairs(db: Database) -> None:
    text = (
        "MERGE INTO t USING (VALUES (1, 'x'), (2, '22')) AS s(k, w) ON t.k = s.k "
        "WHEN MATCHED AND length(s.w) = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.w::INT"
    )
    assert db.sql(text).message == "MERGE 2"
    assert rows(db)[1] == (2, 22, "old")


def test_parameters_in_source_and_clauses(db: Database) -> None:
    text = (
        "MERGE INTO t USING (SELECT ?::INT AS k) s ON t.k = s.k AND t.v < ? "
        "WHEN MATCHED THEN UPDATE SET v = ?"
    )
    assert db.sql(text, [4, 9, 44]).message == "MERGE 1"
    named = text.replace("?::INT", ":k::INT").replace("< ?", "< :most").replace("= ?", "= :v")
    assert db.sql(named, {"k": 5, "most": 9, "v": 55}).message == "MERGE 1"
    assert [v for k, v, _ in rows(db) if k in (4, 5)] == [44, 55]


def test_names_within_a_subquery_are_its_own(db: Database) -> None:
    db.sql("CREATE TABLE r (k INT, v INT)")
    db.sql("INSERT INTO r VALUES (3, 333)")
    text = (
        "INSERT INTO t VALUES (?, 3, 0, 'n') ON CONFLICT DO UPDATE "
        "SET v = (SELECT v FROM r WHERE r.k = excluded.k)"
    )
    assert db.sql(text, [at(3)]).message == "INSERT 1"
    assert rows(db)[3] == (3, 333, "old")


def test_a_row_of_the_source_that_matches_nothing_cannot_fail(db: Database) -> None:
    db.sql("CREATE TABLE r (k INT, txt VARCHAR)")
    db.sql("INSERT INTO r VALUES (3, '30'), (99, 'abc')")
    db.sql("UPDATE t SET v = r.txt::INT FROM r WHERE t.k = r.k")
    assert rows(db)[3] == (3, 30, "old")


def test_a_window_and_another_source(db: Database) -> None:
    db.sql("CREATE TABLE r (ts TIMESTAMP, k INT, v INT)")
    db.sql("INSERT INTO r VALUES (?, 9, 90), (?, 1, 10)", [at(0), at(0)])
    tag = db.sql(
        "UPDATE RECENT(t, INTERVAL '2' MINUTE) AS x SET v = r.v FROM r WHERE x.k = r.k"
    ).message
    assert tag.startswith("UPDATE")
    assert [k for k, v, _ in rows(db) if v in (90, 10)] == [9]


def test_now_while_a_change_waits(db: Database) -> None:
    db.sql("UPDATE t SET v = 77 WHERE k = 3")
    text = "SELECT count(*) FROM t WHERE ts < now() - INTERVAL '1' HOUR AND v = 77"
    assert db.sql(text).fetchall() == [(1,)]


def test_a_kept_form_checks_each_value(db: Database) -> None:
    text = "UPDATE t SET w = ? WHERE k = ?"
    db.sql(text, ["new", 1])
    with pytest.raises(tidemill.TidemillError, match="NULL"):
        db.sql(text, [None, 2])
    moment = "DELETE FROM t WHERE k = ? AND (ts < now() - INTERVAL '1' HOUR OR v IS NULL)"
    db.sql(moment, [1])
    db.sql(moment, [2])
    assert [k for k, _, _ in rows(db)] == [0, *range(3, 10)]
    with pytest.raises(tidemill.TidemillError):
        db.sql("DELETE FROM t WHERE k = $2", [3])


def test_columns_by_their_place(db: Database) -> None:
    db.sql("UPDATE t SET v = 5")
    assert db.sql("SELECT sum(#3) FROM t").fetchall() == [(50,)]


def test_a_restart_amid_changes_and_moves(db: Database) -> None:
    db.sql("UPDATE t SET v = 1 WHERE k = 1")
    db.append("t", [row(n) for n in range(10, 20)])
    flush(db, "t")
    db.close()
    with open_inline(db.path) as again:
        hot = next(iter(again._hot.values()))
        assert hot.published.last_seq >= hot.published.moved_seq == 20
