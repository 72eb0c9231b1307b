"""Long lists of constants: found in the text, one token, one literal; others stay as they are."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from uuid import UUID

import pytest
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidemill.sql.fold import NOT_CONSTANT, constant
from tidemill.sql.lists import (
    Constants,
    constants,
    constants_of,
    shorten_lists,
    spell_out_lists,
    tokenize_lists,
)
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query
from tidemill.sql.tokens import DIALECT, tokenize
from tidemill.types import Column, SqlType

HUNDRED = ", ".join(map(str, range(100)))
THOUSAND = ", ".join(map(str, range(1_000)))


def body(text: str) -> exp.Expression:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return statement.body


def only_list(tree: exp.Expression) -> exp.Expression:
    found = tree.find(exp.In)
    assert found is not None
    (item,) = found.expressions
    assert isinstance(item, exp.Expression)
    return item


def test_a_list_is_one_literal() -> None:
    text = f"SELECT a FROM t WHERE k NOT IN\n( {HUNDRED} ) AND b = 1"
    tree = body(text)
    listed = constants_of(only_list(tree))
    assert listed is not None
    assert listed.values == tuple(range(100))
    assert tree.sql("duckdb") == f"SELECT a FROM t WHERE NOT k IN ({HUNDRED}) AND b = 1"
    again = tree.copy()
    assert constants(only_list(again)) == listed.values
    assert again == tree


def test_other_tokens_stay_in_their_places() -> None:
    text = f"SELECT a\nFROM t WHERE k IN (1,\n{HUNDRED}\n, 5) AND 'é' = x IN ({HUNDRED}) AND\n b"
    found, wanted = tokenize_lists(text), tokenize(text)
    assert found is not None
    places = {(t.token_type, t.text, t.line, t.col, t.start, t.end) for t in wanted}
    short = [token for token in found if token.end - token.start < 20]
    assert len(found) == len(short) + 2
    assert {(t.token_type, t.text, t.line, t.col, t.start, t.end) for t in short} <= places
    long = [token for token in found if token.end - token.start >= 20]
    assert [text[token.start : token.end + 1] for token in long] == [token.text for token in long]
    assert all(token.token_type == TokenType.NUMBER for token in long)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        f"SELECT a FROM t WHERE k IN ({', '.join(map(str, range(99)))})",
        f"SELECT a FROM t WHERE k IN ({HUNDRED}, a)",
        f"SELECT a FROM t WHERE k IN ({HUNDRED}, 1 + 1)",
        f"SELECT a FROM t WHERE k IN ({HUNDRED}, ?)",
        f"SELECT a FROM t WHERE k IN ({HUNDRED}, CAST(1))",
        f"SELECT a FROM t WHERE k IN ({HUNDRED} /* all */)",
        f"SELECT a FROM t WHERE k IN ({HUNDRED}",
        f"SELECT 'k IN ({HUNDRED})'",
        f'SELECT "k IN ({HUNDRED})" FROM t',
        f"SELECT 1 -- k IN ({HUNDRED})",
        f"SELECT 1 /* k /* x */ IN ({HUNDRED}) */",
        f"SELECT $$ k IN ({HUNDRED}) $$",
        f"SELECT 'k IN ({', '.join(['1'] * 60)}, ' , '{', '.join(['1'] * 60)})'",
        f"SELECT t.in({HUNDRED})",
        f"SELECT begin({HUNDRED})",
        f"PIVOT t ON k IN ({HUNDRED}) USING sum(v)",
    ],
)
def test_what_is_no_long_list(text: str) -> None:
    assert tokenize_lists(text) is None


def test_a_text_whose_quotes_look_like_items() -> None:
    text = "SELECT concat('k IN (', " + ", ".join(["','"] * 150) + ", ')')"
    assert tokenize_lists(text) is None
    assert body(text).sql("duckdb").count("','") == 150


@pytest.mark.parametrize(
    ("items", "values"),
    [
        (["1", "-2"], [1, -2]),
        (["'a'", "'it''s, (x)'", "'é'"], ["a", "it's, (x)", "é"]),
        (["1.50", "NULL"], [Decimal("1.50"), None]),
        (["1", "2.5", "1e0"], [1, Decimal("2.5"), 1.0]),
        (["DATE '2024-01-02'", "'2024-01-03'::DATE"], [date(2024, 1, 2), date(2024, 1, 3)]),
        (["true", "CAST('5' AS INT)"], [True, 5]),
        (["TIME '01:00:00'"], [NOT_CONSTANT]),
        (["1::HUGEINT", "DATE '2024-13-01'", "1"], [1, NOT_CONSTANT, 1]),
        (
            ["'12345678-9abc-def0-1234-56789abcdef0'::UUID", "1::HUGEINT"],
            [UUID("12345678-9abc-def0-1234-56789abcdef0"), 1],
        ),
    ],
)
def test_values(items: list[str], values: list[object]) -> None:
    assert Constants(", ".join(items)).values == tuple(values)


def test_constants_of_other_nodes() -> None:
    (tree,) = DIALECT.parser().parse(DIALECT.tokenize("1 + 1"), "1 + 1")
    assert isinstance(tree, exp.Expression)
    assert constants(tree) == (constant(tree),) == (2,)
    assert constants_of(exp.Literal.string("1")) is None


class _Table:
    name = "t"
    time_column = None
    columns = (Column("k", SqlType("INTEGER")), Column("s", SqlType("VARCHAR")))


def shortened(text: str) -> str:
    tree = body(text)
    before = tree.sql("duckdb")
    shorten_lists(tree, lambda name: _Table if name == "t" else None)  # type: ignore[arg-type,return-value]
    after = tree.sql("duckdb")
    spell_out_lists(tree)
    assert tree.sql("duckdb") == before
    return after


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k FROM t WHERE k IN ({})",
        "SELECT k FROM t AS u WHERE u.k NOT IN ({}) OR s = 'x'",
        "SELECT 1 FROM x WHERE EXISTS (SELECT 1 FROM t WHERE NOT (t.k IN ({}) AND t.s > x.s))",
        "SELECT t.k FROM t JOIN u ON t.k = u.k WHERE t.k IN ({})",
        "WITH c AS (SELECT * FROM t WHERE (k) IN ({})) SELECT * FROM c",
    ],
)
def test_a_list_for_a_known_column_is_shortened(text: str) -> None:
    assert "IN (SELECT unnest(CAST('[0, 1, 2, " in shortened(text.format(THOUSAND))
    assert "unnest" not in shortened(text.format(HUNDRED))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k IN ({}) FROM t",
        "SELECT k FROM t ORDER BY k IN ({})",
        "SELECT k FROM t WHERE CASE WHEN k IN ({}) THEN true END",
        "SELECT k FROM t WHERE (k IN ({})) IS NULL",
        "SELECT k FROM t WHERE k + 1 IN ({})",
        "SELECT k FROM t WHERE s IN ({})",
        "SELECT k FROM t WHERE nothing IN ({})",
        "SELECT k FROM u WHERE k IN ({})",
        "SELECT k FROM t, t AS u WHERE k IN ({})",
        "SELECT k FROM t JOIN u USING (k) WHERE k IN ({})",
        "SELECT k FROM t LEFT JOIN u ON t.k IN ({})",
        "WITH t AS (SELECT 1 AS k) SELECT k FROM t WHERE k IN ({})",
    ],
)
def test_other_lists_stay_as_they_are(text: str) -> None:
    assert "unnest" not in shortened(text.format(THOUSAND))
