"""Messages name what the user wrote: no names that Tidemill gave things inside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from warehouses import ROUTES, open_inline, quiet

import tidemill
from tidemill.errors import TidemillError

INNER = re.compile(r"\btm_|tidemill_p\d|\breference\.|\bt\d+\b")
SOURCES = (
    "p",
    "p AS x",
    "p JOIN r ON p.k = r.a",
    "RECENT(p, rows => 2)",
    "TUMBLE(p, ts, INTERVAL '1' HOUR)",
    "SESSION(p, ts, INTERVAL '1' HOUR)",
    "v",
    "p, v",
    "r",
)
VALUES = (
    "nope",
    "p.nope",
    "x.k",
    "s + 1",
    "s::INT",
    "sum(s)",
    "PREV(s) + 1",
    "k.nope",
    "max(nope)",
    "list(k ORDER BY nope)",
    "error(s)",
    "k + ?",
    "COLUMNS('nope')",
    "* EXCLUDE (nope)",
    "_seq + nope",
    "sum(k) OVER (ORDER BY nope)",
    "(SELECT nope FROM r)",
    "k",
    "count(*)",
)
TAILS = (
    "",
    "WHERE nope",
    "WHERE k = 'abc'",
    "GROUP BY s",
    "ORDER BY nope",
    "WHERE k IN (SELECT a FROM r WHERE nope = 1)",
    "HAVING nope",
    "LIMIT ?",
)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidemill.Database]:
    path: Path = tmp_path_factory.mktemp("messages")
    with quiet(), open_inline(path / "w") as db:
        db.sql("CREATE STREAMING TABLE p (ts TIMESTAMP, k INT, s VARCHAR)")
        db.sql("CREATE TABLE r (a INT PRIMARY KEY, b VARCHAR)")
        db.sql("CREATE INDEX by_k ON p (k)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM p GROUP BY k")
        db.sql("INSERT INTO p VALUES ('2024-01-01', 1, 'a')")
        db.sql("FLUSH p")
        db.sql("INSERT INTO p VALUES ('2024-01-02', 2, 'b')")
        yield db


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    some.sampled_from(SOURCES),
    some.sampled_from(VALUES),
    some.sampled_from(TAILS),
    some.sampled_from(ROUTES),
)
def test_no_inner_name(
    db: tidemill.Database, source: str, value: str, tail: str, route: str
) -> None:
    text = f"SELECT {value} FROM {source} {tail}"
    db.sql(f"SET route = '{route}'")
    said = ""
    try:
        db.sql(text, ["x"] * text.count("?") or None)
    except TidemillError as error:
        said = str(error)
    assert not INNER.search(said), (text, said)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO r VALUES (1, 'x'), (1, 'y')",
        "INSERT INTO r VALUES (5, 'q') ON CONFLICT (b) DO NOTHING",
        "INSERT INTO r VALUES (5, 'q') RETURNING nope",
        "UPDATE r SET nope = 1",
        "DELETE FROM r WHERE nope",
        "INSERT INTO r SELECT k FROM p",
        "CREATE MATERIALIZED VIEW w AS SELECT nope, count(*) FROM p GROUP BY nope",
        "CREATE TABLE w AS SELECT s::INT FROM p",
    ],
)
def test_no_inner_name_in_statements(db: tidemill.Database, text: str) -> None:
    with pytest.raises(TidemillError) as caught:
        db.sql(text)
    assert not INNER.search(str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "UNPIVOT r ON b INTO NAME n VALUE v",
        "UNPIVOT r ON b INTO NAME n VALUE v ORDER BY n",
        "FROM (UNPIVOT r ON b INTO NAME n VALUE v)",
    ],
)
def test_unpivot_into_names(db: tidemill.Database, text: str) -> None:
    db.sql("INSERT INTO r VALUES (9, 'x') ON CONFLICT DO NOTHING")
    assert db.sql(text).fetchall() == [(9, "b", "x")]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SELECT * FROM p whre origin = 1", "WHERE"),
        ("SELECT * FROM p whre k = 1", "WHERE"),
        ("SELECT * FROM p gruop by k", "GROUP BY"),
        ("SELECT * FROM p ordr by k", "ORDER BY"),
        ("SELECT k FROM p jion r ON k = a", "JOIN"),
        ("SELECT count(*) form p", "FROM"),
        ("SELECT * FROM p limt 5", "LIMIT"),
        ("SELECT * FROM p WHERE s LKE 'a%'", "LIKE"),
        ("SELECT * FROM p ODER BY k", "ORDER BY"),
    ],
)
def test_a_misspelt_word(db: tidemill.Database, text: str, meant: str) -> None:
    with pytest.raises(TidemillError) as caught:
        db.sql(text)
    assert caught.value.hint == f'did you mean "{meant}"?'


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SELECT (SELECT max(a) FROM r)", "(SELECT max(a) FROM r)"),
        ("SELECT k + (SELECT max(k) FROM p) FROM p", "k + (SELECT max(k) FROM p)"),
        ("SELECT k IN (SELECT a FROM r AS x) FROM p", "k IN (SELECT a FROM r AS x)"),
        ("SELECT EXISTS(SELECT 1 FROM p) FROM r", "EXISTS(SELECT 1 FROM p)"),
        ("SELECT * FROM (SELECT (SELECT max(k) FROM p))", "(SELECT max(k) FROM p)"),
        ("SELECT (SELECT max(k) FROM p) AS m FROM r", "m"),
    ],
)
def test_no_inner_name_in_columns(db: tidemill.Database, text: str, name: str) -> None:
    for route in ROUTES:
        db.sql(f"SET route = '{route}'")
        assert db.sql(text).arrow().column_names == [name]
    db.sql("RESET route")
