"""What takes the place of a source that was read first, and where nothing may."""

from __future__ import annotations

import pytest
from sqlglot import exp
from support import body

from tidemill.sql.partners import mark_partner, may_have_partners, put_partners


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT r.x FROM t JOIN ref AS r ON t.a = r.a",
            'SELECT r.x FROM t JOIN "rows_0" AS "r" ON t.a = r.a',
        ),
        (
            "SELECT * FROM t, (SELECT a FROM ref WHERE d > 1) AS r WHERE t.a = r.a",
            'SELECT * FROM t, "rows_0" AS "r" WHERE t.a = r.a',
        ),
        (
            "SELECT * FROM t JOIN (VALUES (1, 'x'), (2, 'y')) AS r(a, b) USING (a)",
            'SELECT * FROM t JOIN "rows_0" AS "r" USING (a)',
        ),
        (
            'SELECT * FROM "a b" AS r LEFT JOIN t ON t.a = r.a',
            'SELECT * FROM "rows_0" AS "r" LEFT JOIN t ON t.a = r.a',
        ),
    ],
)
def test_rows_take_the_place_of_a_source(query: str, expected: str) -> None:
    tree = body(query)
    node = next(
        n for n in tree.find_all(exp.Table, exp.Subquery, exp.Values) if n.alias_or_name == "r"
    )
    mark_partner(node, "rows_0")
    before = tree.sql("duckdb")
    assert put_partners(tree, frozenset({"rows_0"})).sql("duckdb") == expected
    assert put_partners(tree, frozenset({"rows_1"})).sql("duckdb") == before
    assert tree.sql("duckdb") == before


@pytest.mark.parametrize(
    ("query", "may"),
    [
        ("SELECT * FROM t JOIN ref USING (a)", True),
        ("SELECT 1 UNION ALL SELECT a FROM t JOIN ref USING (a)", True),
        ("SELECT ref.rowid FROM t JOIN ref USING (a)", False),
        ("SELECT * FROM t JOIN ref USING (a) ORDER BY ROWID", False),
        ("SUMMARIZE SELECT * FROM t JOIN ref USING (a)", False),
    ],
)
def test_where_rows_may_take_a_place(query: str, may: bool) -> None:
    assert may_have_partners(body(query)) == may
