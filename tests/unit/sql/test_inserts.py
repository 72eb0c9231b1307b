"""INSERT: the fast path's values, and what it leaves to the general path."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from tidemill.sql.inserts import DEFAULT, read_fast_insert
from tidemill.sql.params import Param, bind_rows
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Insert


def _insert(text: str) -> Insert:
    statement = parse_one(text)
    assert isinstance(statement, Insert)
    return statement


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("+7", 7),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("1.50", Decimal("1.50")),
        (".5", Decimal("0.5")),
        ("5.", Decimal(5)),
        ("-1e3", -1000.0),
        ("1.5E-2", 0.015),
        ("'a''b;,)('", "a'b;,)("),
        ("''", ""),
        ("'é😀'", "é😀"),
        ("NULL", None),
        ("true", True),
        ("FALSE", False),
        ("default", DEFAULT),
        ("TIMESTAMP '2024-01-02 03:04:05.678'", datetime(2024, 1, 2, 3, 4, 5, 678000)),
        ("timestamp '2024-01-02'", datetime(2024, 1, 2)),
        ("TIMESTAMPTZ '2024-01-02 03:04:05+02'", datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("TIMESTAMPTZ '2024-01-02 03:04:05'", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("DATE '2024-01-02'", date(2024, 1, 2)),
        ("TIME '03:04:05.5'", time(3, 4, 5, 500000)),
    ],
)
def test_literals(literal: str, value: object) -> None:
    text = f"INSERT INTO t VALUES ({literal}, 1)"
    assert read_fast_insert(text, 0) is not None
    insert = _insert(text)
    assert insert.rows == ((value, 1),)
    assert insert.rows is not None
    assert type(insert.rows[0][0]) is type(value)
    assert insert.query is None


@pytest.mark.parametrize(
    "value",
    [
        "now()",
        "1 + 1",
        "a",
        "TIMESTAMP '2024-01-02 03:04:05+02'",
        "TIMESTAMP 'infinity'",
        "DATE '2024-13-01'",
        "TIME '25:00:00'",
        "'a' || 'b'",
        "[1, 2]",
        "{'a': 1}",
        "$$x$$",
        "1_000",
        "(SELECT 1)",
        "1::HUGEINT",
        "INTERVAL '1.5' DAY",
    ],
)
def test_everything_else_is_a_query(value: str) -> None:
    insert = _insert(f"INSERT INTO t VALUES (1, {value})")
    assert insert.rows is None
    assert insert.query is not None


@pytest.mark.parametrize("value", ["1::BIGINT", "CAST('1' AS INT)", "INTERVAL '1' DAY"])
def test_casts_and_intervals_are_literals(value: str) -> None:
    text = f"INSERT INTO t (a, b) VALUES (1, {value}), (-2, NULL)"
    assert read_fast_insert(text, 0) is not None
    for tail in ("", " -- end", " ON CONFLICT DO NOTHING", " RETURNING *"):
        insert = _insert(text + tail)
        assert insert.rows is None
        assert insert.query is None
        assert insert.literals is not None
        assert insert.columns == ("a", "b")
        assert [cell for _, cell in insert.literals.columns[0]] == [1, -2]
        assert insert.tail == ("" if "--" in tail else tail.strip())
    assert _insert(f"INSERT INTO t BY NAME VALUES ({value})").query is not None
    assert _insert(f"INSERT INTO t VALUES ({value}), (?)").query is not None


def test_head() -> None:
    insert = _insert('  insert into main."T ""x" (a, b) values (1, 2), (3, 4) ; ')
    assert (insert.table, insert.columns, insert.rows) == ('T "x', ("a", "b"), ((1, 2), (3, 4)))
    assert insert.text == 'insert into main."T ""x" (a, b) values (1, 2), (3, 4)'
    assert (insert.position.line, insert.position.column) == (1, 3)
    assert _insert('INSERT INTO t ("a b") VALUES (1)').columns == ("a b",)
    assert _insert("INSERT INTO t VALUES (1) -- end").rows == ((1,),)
    assert _insert("INSERT /* x */ INTO t VALUES (1)").rows == ((1,),)


def test_tail() -> None:
    insert = _insert("INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2 RETURNING *")
    assert insert.rows == ((1,),)
    assert insert.tail == "ON CONFLICT (a) DO UPDATE SET a = 2 RETURNING *"
    insert = _insert("INSERT INTO t SELECT a FROM u JOIN v ON u.a = v.a RETURNING a")
    assert insert.query is not None
    assert insert.query.sql("duckdb") == "SELECT a FROM u JOIN v ON u.a = v.a"
    assert insert.tail == "RETURNING a"


def test_forms() -> None:
    assert _insert("INSERT INTO t DEFAULT VALUES").rows == ((),)
    assert _insert("INSERT INTO t BY NAME SELECT 1 AS a").by_name
    assert _insert("INSERT INTO t (SELECT 1)").query is not None
    assert _insert("INSERT INTO t FROM u").query is not None
    assert _insert("INSERT INTO t WITH x AS (SELECT 1) SELECT * FROM x").query is not None


def test_parameters_make_a_template() -> None:
    insert = _insert("INSERT INTO t VALUES (?, 5, ?), (?, NULL, ?)")
    assert insert.rows is None
    assert insert.query is not None
    assert insert.template == ((Param("1"), 5, Param("2")), (Param("3"), None, Param("4")))
    assert bind_rows(insert.template, [1, "b", 3, "d"]) == ((1, 5, "b"), (3, None, "d"))
    named = _insert("INSERT INTO t VALUES (:a, $b)")
    assert named.template is not None
    assert bind_rows(named.template, {"a": 1, "b": 2}) == ((1, 2),)
