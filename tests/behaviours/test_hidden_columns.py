"""A whole row has the user's columns: on every route, wherever rows lie, and in kept queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from warehouses import ROUTES, open_inline, quiet

import tidemill

ROW = '{"ts":"2024-01-01 00:00:00","k":1}'


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidemill.Database]:
    path: Path = tmp_path_factory.mktemp("hidden")
    with quiet(), open_inline(path / "w") as db:
        for name, more in (("p", ""), ("q", ", z INT")):
            db.sql(
                f"CREATE STREAMING TABLE {name} (ts TIMESTAMP, k INT{more}) WITH (clock = 'event')"
            )
        db.sql("INSERT INTO q VALUES ('2024-01-01 00:00:02', 3, 9), ('2024-01-01 00:00:01', 2, 9)")
        db.sql("INSERT INTO q VALUES ('2024-01-01 00:00:00', 1, 9)")
        db.sql("INSERT INTO p VALUES ('2024-01-01 00:00:00', 1), ('2024-01-01 00:00:01', 2)")
        db.sql("FLUSH")
        db.sql("INSERT INTO p VALUES ('2024-01-01 00:00:02', 3)")
        yield db


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT to_json(p) FROM p WHERE _seq = 1",
        "SELECT row_to_json(p) FROM p WHERE p._seq = 1",
        "SELECT to_json(x) FROM p AS x WHERE x._seq = 1",
        "SELECT to_json(x) FROM (SELECT * FROM p WHERE _seq = 1) AS x",
        "SELECT to_json(x) FROM p AS x JOIN p AS y ON x._seq = y._seq WHERE x.k = 1",
        "SELECT to_json((SELECT p)) FROM p WHERE _seq = 1",
        "SELECT to_json(list(p)[1]) FROM p WHERE _seq = 1",
        "SELECT to_json(min(p)) FROM p WHERE _seq > 0",
        "SELECT to_json(PREV(p)) FROM p WHERE _seq = 2",
        "SELECT to_json(p) FROM p WHERE PREV(k) IS NULL AND _seq = 1",
        "SELECT to_json(x) FROM (SELECT p AS x, PREV(k) FROM p WHERE _seq = 1)",
        "SELECT to_json(PREV(p)) FROM RECENT(p, rows => 3) WHERE k = 2",
        "SELECT to_json(x) FROM (SELECT COLUMNS(*) FROM p WHERE _seq = 1) AS x",
        "SELECT to_json(x) FROM (SELECT COLUMNS(p.*) FROM p WHERE _seq = 1) AS x",
        "SELECT to_json(x) FROM (SELECT COLUMNS('.*') FROM p WHERE _seq = 1) AS x",
        "SELECT to_json(x) FROM (SELECT COLUMNS(lambda c: true) FROM p WHERE _seq = 1) AS x",
        "SELECT to_json(x) FROM (SELECT unnest(p) FROM p WHERE _seq = 1) AS x",
        "SELECT to_json(x) FROM (SELECT p.* FROM p WHERE _seq = 1) AS x",
        "SELECT to_json(x) FROM (SELECT * FROM p SEMI JOIN q ON p._seq = q._seq) AS x LIMIT 1",
        "SELECT to_json(p) FROM p FOR SYSTEM_TIME AS OF now() WHERE _seq = 1",
        "SELECT to_json(p) FROM p GROUP BY p, _seq HAVING _seq = 1",
    ],
)
def test_a_whole_row(db: tidemill.Database, text: str, route: str) -> None:
    db.sql(f"SET route = '{route}'")
    ((found,),) = db.sql(text).fetchall()
    assert json.loads(found) == json.loads(ROW) or "SEMI" in text
    assert "_seq" not in found
    assert "tm_" not in found


@pytest.mark.parametrize("route", ROUTES)
def test_names_stay(db: tidemill.Database, route: str) -> None:
    db.sql(f"SET route = '{route}'")
    assert db.sql("SELECT p FROM p WHERE _seq = 1").columns == ["p"]
    assert db.sql("SELECT to_json(p), p.k FROM p WHERE _seq = 1").columns == ["to_json(p)", "k"]
    assert db.sql("SELECT unnest(p) FROM p WHERE _seq = 1").columns == ["ts", "k"]


@pytest.mark.parametrize("route", ROUTES)
def test_natural_join(db: tidemill.Database, route: str) -> None:
    """The sequence numbers of the two streams differ."""
    db.sql(f"SET route = '{route}'")
    query = "SELECT * FROM p NATURAL JOIN q WHERE p._seq > 0 AND q._seq > 0 ORDER BY k"
    found = db.sql(query)
    assert found.columns == ["ts", "k", "z"]
    assert [row[1] for row in found.fetchall()] == [1, 2, 3]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("tables", ["r NATURAL JOIN p", "p NATURAL JOIN r", "q NATURAL JOIN p"])
def test_natural_join_with_the_number_of_one_side(
    db: tidemill.Database, tables: str, route: str
) -> None:
    db.sql("CREATE OR REPLACE TABLE r (k INT, label VARCHAR)")
    db.sql("INSERT INTO r VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    db.sql(f"SET route = '{route}'")
    found = db.sql(f"SELECT k, p._seq AS number FROM {tables} WHERE k < 4 ORDER BY k").fetchall()
    assert found == [(1, 1), (2, 2), (3, 3)]


def test_a_kept_query(db: tidemill.Database) -> None:
    db.sql(
        "CREATE STREAMING TABLE kept AS SELECT r.ts, to_json(r)::VARCHAR AS row "
        "FROM RECENT(p, rows => 1) AS r EVERY ROW"
    )
    db.sql("INSERT INTO p VALUES ('2024-01-01 00:00:03', 4)")
    db.sql("REFRESH MATERIALIZED VIEW kept")
    rows = [row for (row,) in db.sql("SELECT row FROM kept").fetchall()]
    assert rows[-1:] == ['{"ts":"2024-01-01 00:00:03","k":4}']
