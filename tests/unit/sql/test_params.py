"""Parameters: styles, counts, names, and what DuckDB is given."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp
from support import to_duckdb

from tidemill.errors import QueryError
from tidemill.sql.params import Params, placeholders
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query


def _body(text: str) -> exp.Expression:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return statement.body


@pytest.mark.parametrize(
    ("text", "params", "answer"),
    [
        ("SELECT ?, ?", [1, "x"], (1, "x")),
        ("SELECT a - ? FROM (SELECT ? AS a) WHERE a > ? LIMIT ?", [1, 7, 2, 1], (6,)),
        ("SELECT $2, $1, $2", [1, "x"], ("x", 1, "x")),
        ("SELECT :b, $a", {"a": 1, "b": "x"}, ("x", 1)),
        ("SELECT $1::INT + 1", ["5"], (6,)),
        ("SELECT [1, 2, 3][$1:$2]", [2, 3], ([2, 3],)),
        ("SELECT {'k': :v}, list_transform([1], lambda x: x + :v)", {"v": 1}, ({"k": 1}, [2])),
        ("SELECT 5 IN ($1,$2)", [5, 6], (True,)),
        ("SELECT '$1 :a ?' || $1 -- $2 ?", ["x"], ("$1 :a ?x",)),
        ("SELECT 1", None, (1,)),
        ("SELECT 1", [], (1,)),
    ],
)
def test_values_reach_duckdb(text: str, params: Params, answer: tuple[object, ...]) -> None:
    body = _body(text)
    before = body.sql("duckdb")
    tree, values = to_duckdb(body, params)
    assert body.sql("duckdb") == before
    with duckdb.connect() as connection:
        assert connection.execute(tree.sql("duckdb"), values or None).fetchall() == [answer]


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("SELECT ?, ?", [1], "2 parameter"),
        ("SELECT ?", [1, 2], "1 parameter"),
        ("SELECT $3", [1], "3 parameter"),
        ("SELECT ?", None, "no values"),
        ("SELECT 1", [1], "has none"),
        ("SELECT ?", {"a": 1}, "sequence"),
        ("SELECT :a", [1], "mapping"),
        ("SELECT :speed", {"sped": 1}, '"speed"'),
        ("SELECT :a", {"a": 1, "b": 2}, '"b" is not in'),
        ("SELECT $1, :a", [1], "mixed"),
        ("SELECT ?", "x", "sequence"),
    ],
)
def test_values_that_do_not_fit(text: str, params: Params, message: str) -> None:
    with pytest.raises(QueryError, match=message) as caught:
        to_duckdb(_body(text), params)
    assert caught.value.hint


def test_placeholders() -> None:
    assert placeholders(_body("SELECT $10, $2, $2")) == ["2", "10"]
    assert placeholders(_body("SELECT :b, :a, :b")) == ["b", "a"]
