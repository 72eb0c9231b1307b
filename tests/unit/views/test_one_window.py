"""A query of one window answers the same without the window in its keys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import duckdb
import pytest
from sqlglot import exp, parse_one

from tidemill.views.kept.one_window import fix_window

LOW, END = datetime(2024, 1, 1, 0, 1), datetime(2024, 1, 1, 0, 2)
WINDOW = (
    "(SELECT *, time_bucket(INTERVAL 1 MINUTE, ts) AS window_start,"
    " time_bucket(INTERVAL 1 MINUTE, ts) + INTERVAL 1 MINUTE AS window_end FROM t"
    " WHERE ts >= $tm_lo AND ts < $tm_end) AS w"
)
FIXED = [
    "SELECT window_end, vid, count(*) FROM {w} GROUP BY window_start, window_end, vid",
    "SELECT vid, x, sum(y) AS s FROM {w} GROUP BY vid, window_start, x HAVING"
    " max(window_end) > TIMESTAMP '2024-01-01'",
    "SELECT window_start AS since, vid AS v, min(ts - window_start) AS d FROM {w}"
    " GROUP BY WINDOW_START, vid",
    "SELECT w.vid, max(w.window_end - ts) AS d FROM {w} GROUP BY w.window_end, w.vid",
    "SELECT x, count(*) AS n, avg(speed) AS a FROM (SELECT window_end, x, vid, avg(y) AS speed"
    " FROM {w} GROUP BY window_start, window_end, x, vid) GROUP BY window_end, x",
    "SELECT until, count(*) AS n FROM (SELECT window_end AS until, vid FROM {w}"
    " GROUP BY window_end, vid) GROUP BY until, vid % 2",
    "SELECT vid, count(*) FROM {w} WHERE ts < window_end - INTERVAL 10 SECOND"
    " GROUP BY window_end, vid ORDER BY vid",
]
LEFT = [
    "SELECT window_end, count(*) FROM {w} GROUP BY window_start, window_end",
    "SELECT window_end, vid, count(*) FROM {w} GROUP BY ALL",
    "SELECT * FROM {w}",
    "SELECT vid, (SELECT count(*) FROM t WHERE ts < window_end) FROM {w} GROUP BY window_end, vid",
    "SELECT x AS window_end, count(*) FROM {w} GROUP BY w.window_end, x",
    "SELECT window_end + INTERVAL 1 SECOND, vid FROM {w} GROUP BY window_end, vid",
    "SELECT w.window_end, w.vid FROM {w} JOIN t USING (vid) GROUP BY w.window_end, w.vid",
    "SELECT DISTINCT window_end, vid FROM {w} GROUP BY window_end, vid",
    "SELECT window_end, vid FROM {w} GROUP BY ROLLUP (window_end, vid)",
]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
        connection.execute(
            "CREATE TABLE t AS SELECT TIMESTAMP '2024-01-01' + to_seconds(r * 3) AS ts,"
            " r % 7 AS vid, r % 3 AS x, r * r % 11 AS y FROM range(100) a(r)"
        )
        yield connection


def fixed(text: str) -> tuple[exp.Expression, str]:
    tree = parse_one(text.replace("{w}", WINDOW), read="duckdb")
    before = tree.sql("duckdb")
    window = next(node for node in tree.find_all(exp.Subquery) if node.alias == "w")
    values = (("window_start", "tm_lo"), ("window_end", "tm_end"))
    known = {name: exp.cast(exp.Placeholder(this=given), "TIMESTAMP") for name, given in values}
    fix_window(window, known)
    return tree, before


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    found = connection.execute(sql, {"tm_lo": LOW, "tm_end": END})
    names = [column[0] for column in found.description or ()]
    return [str(names), *sorted(map(str, found.fetchall()))]


@pytest.mark.parametrize("text", FIXED)
def test_the_window_leaves_the_keys(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    tree, before = fixed(text)
    groups = [group.sql("duckdb").lower() for group in tree.find_all(exp.Group)]
    assert groups
    assert not any("window_" in group for group in groups), groups
    answers = rows(connection, tree.sql("duckdb"))
    assert answers == rows(connection, before)
    assert len(answers) > 1


@pytest.mark.parametrize("text", LEFT)
def test_what_could_mean_something_else_is_left(text: str) -> None:
    tree, before = fixed(text)
    assert tree.sql("duckdb") == before


def test_a_window_without_rows_has_no_answer(connection: duckdb.DuckDBPyConnection) -> None:
    tree, _ = fixed("SELECT vid, count(*) AS n FROM {w} GROUP BY window_end, vid")
    values = {"tm_lo": datetime(2030, 1, 1), "tm_end": datetime(2030, 1, 2)}
    assert connection.execute(tree.sql("duckdb"), values).fetchall() == []
