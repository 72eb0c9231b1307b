"""The first rows by some order: which queries need only them, and of each part of a table."""

from __future__ import annotations

import pytest
from sqlglot import exp
from support import body, table

from tidemill.sql.top import Top, top_of

TABLE = table("t", "ts", ts="TIMESTAMP", v="INTEGER", s="VARCHAR")


def top(query: str) -> Top | None:
    node = body(query).find(exp.Table)
    assert node is not None
    return top_of(node, TABLE)


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("SELECT * FROM t ORDER BY v LIMIT 3", "SELECT * FROM p AS t ORDER BY v LIMIT 3"),
        (
            "SELECT s FROM t WHERE v > 1 AND s = 'x' ORDER BY v * 2 DESC, ts LIMIT 3 OFFSET 4",
            "SELECT * FROM p AS t WHERE v > 1 AND s = 'x' ORDER BY v * 2 DESC, ts LIMIT 7",
        ),
        (
            "SELECT v AS a FROM t AS x WHERE x.v > $1 OR ts < now() ORDER BY x.ts LIMIT 1",
            "SELECT * FROM p AS x WHERE x.v > $1 OR ts < NOW() ORDER BY x.ts LIMIT 1",
        ),
        (
            "SELECT * FROM t WHERE s LIKE 'a%' ORDER BY lower(s) NULLS FIRST, _seq LIMIT 2",
            "SELECT * FROM p AS t WHERE s LIKE 'a%' ORDER BY LOWER(s) NULLS FIRST, _seq LIMIT 2",
        ),
        (
            "SELECT v FROM t WHERE v IS NULL ORDER BY coalesce(v, 1), ts LIMIT 9",
            "SELECT * FROM p AS t WHERE v IS NULL ORDER BY COALESCE(v, 1), ts LIMIT 9",
        ),
    ],
)
def test_the_first_rows_of_a_part(query: str, part: str) -> None:
    found = top(query)
    assert found is not None
    alias = "x" if "AS x" in query else "t"
    assert found.first_of("p", alias) == part


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t ORDER BY v",
        "SELECT * FROM t LIMIT 3",
        "SELECT * FROM t ORDER BY v LIMIT 3%",
        "SELECT * FROM t ORDER BY v LIMIT $1",
        "SELECT * FROM t ORDER BY ALL LIMIT 3",
        "SELECT * FROM t ORDER BY 1 LIMIT 3",
        "SELECT * FROM t ORDER BY random() LIMIT 3",
        "SELECT * FROM t WHERE random() < 0.5 ORDER BY v LIMIT 3",
        "SELECT * FROM t WHERE v IN (SELECT 1) ORDER BY v LIMIT 3",
        "SELECT * FROM t WHERE soundex(s) = 'x' ORDER BY v LIMIT 3",
        "SELECT s AS v FROM t ORDER BY v LIMIT 3",
        "SELECT v + 1 AS w FROM t WHERE w > 1 ORDER BY v LIMIT 3",
        "SELECT v + 1 AS w FROM t ORDER BY w LIMIT 3",
        "SELECT * REPLACE (-v AS v) FROM t ORDER BY v LIMIT 3",
        "SELECT COLUMNS('v') FROM t ORDER BY v LIMIT 3",
        "SELECT DISTINCT v FROM t ORDER BY v LIMIT 3",
        "SELECT max(v) FROM t ORDER BY max(v) LIMIT 3",
        "SELECT v FROM t GROUP BY v ORDER BY v LIMIT 3",
        "SELECT v, row_number() OVER () FROM t ORDER BY v LIMIT 3",
        "SELECT v FROM t QUALIFY row_number() OVER () < 3 ORDER BY v LIMIT 3",
        "SELECT unnest([1, 2]) FROM t ORDER BY v LIMIT 3",
        "SELECT * FROM t JOIN u ON true ORDER BY v LIMIT 3",
        "SELECT * FROM t TABLESAMPLE 10% ORDER BY v LIMIT 3",
        "SELECT * FROM t AS x(a, b, c) ORDER BY b LIMIT 3",
        "SELECT * FROM t ORDER BY t LIMIT 3",
    ],
)
def test_all_rows_may_matter(query: str) -> None:
    assert top(query) is None


@pytest.mark.parametrize(
    ("order", "is_newest_first"),
    [("ts DESC", True), ("TS DESC, v", True), ("ts", False), ("v, ts DESC", False)],
)
def test_the_newest_first(order: str, is_newest_first: bool) -> None:
    found = top(f"SELECT * FROM t WHERE v = $a AND s > $b ORDER BY {order} LIMIT 5")
    assert found is not None
    assert found.is_newest_first == is_newest_first
    assert found.params == {"a", "b"}
    assert {"v", "s", "ts"} >= found.columns >= {"v", "s"}
