"""Defaults: constants once, everything else for every row."""

from __future__ import annotations

import pytest
from accept_kit import evaluate, make_column

from tidemill.accept.defaults import Defaults, is_plain


def test_constants_are_evaluated_once() -> None:
    asked: list[str] = []
    defaults = Defaults(lambda sql: (asked.append(sql), evaluate(sql))[1])
    column = make_column("a", "INTEGER", default="1 + 1")
    for count in (3, 0, 2):
        assert defaults.array(column, count).to_pylist() == [2] * count
    assert len(asked) == 1
    assert defaults.constant(make_column("a", "INTEGER")) is None


def test_the_rest_is_evaluated_for_every_row() -> None:
    defaults = Defaults(evaluate)
    column = make_column("a", "DOUBLE", default="random()")
    assert defaults.constant(column) is None
    assert len(set(defaults.array(column, 50).to_pylist())) == 50
    now = make_column("t", "TIMESTAMP", default="now()")
    assert defaults.array(now, 2).null_count == 0


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("UUID", "'0f2537d9-4ca6-4c35-b5e3-bca74543ca38'"),
        ("JSON", "'{}'"),
        ("HUGEINT", "1"),
        ("BOOLEAN", "true"),
        ("INTEGER[]", "[1]"),
        ("INTERVAL", "INTERVAL '1' DAY"),
        ("DECIMAL(5,2)", "1.5"),
        ("TIMESTAMPTZ", "'2024-01-01'"),
        ("BLOB", "'x'"),
        ("STRUCT(a INTEGER)", "{'a': 1}"),
        ("MAP(VARCHAR, INTEGER)", "MAP {'a': 1}"),
    ],
)
def test_every_type(kind: str, default: str) -> None:
    column = make_column("x", kind, default=default)
    array = Defaults(evaluate).array(column, 3)
    assert array.type == column.type.arrow
    assert array.null_count == 0
    assert len(array) == 3


@pytest.mark.parametrize(
    ("expression", "plain"),
    [
        ("'a (b) current'", True),
        ("1", True),
        ("'it''s (x)'", True),
        ("now()", False),
        ("current_date", False),
        ("'a' || localtime", False),
    ],
)
def test_plain_expressions(expression: str, plain: bool) -> None:
    assert is_plain(expression) == plain
