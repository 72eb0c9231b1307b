"""Tagged queries: many instants in one evaluation answer what each would by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from sqlglot import exp, parse_one

from tidemill.sql.now import NOW, bind_now
from tidemill.views.kept.tagging import finished, hide_seq, tagged


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
        connection.execute("CREATE TABLE refs (vid INTEGER, owner VARCHAR)")
        connection.execute("INSERT INTO refs VALUES (1, 'ann'), (1, 'bob'), (3, 'cid')")
        connection.execute(
            "CREATE TABLE tm_windows (ts TIMESTAMP, vid INTEGER, x INTEGER, _seq BIGINT,"
            " tm_row BIGINT, tm_time TIMESTAMP)"
        )
        connection.execute(
            "INSERT INTO tm_windows SELECT TIMESTAMP '2024-01-01' + to_seconds(r + w), (r + w) % 4,"
            " (r * 7 + w * 3) % 5, r + w, r + 10, TIMESTAMP '2024-01-01' + "
            " to_seconds(r + 10) FROM range(25) a(r), range(4) b(w)"
        )
        yield connection


def prepared(text: str) -> tuple[exp.Expression, exp.Table]:
    tree = parse_one(text, read="duckdb")
    node = next(node for node in tree.find_all(exp.Table) if node.name == "s")
    node.set("this", exp.to_identifier("tm_windows"))
    if not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier("s")))
    return tree, node


def one_by_one(connection: duckdb.DuckDBPyConnection, text: str) -> Counter[Any]:
    tree, node = prepared(text)
    hide_seq(node)
    uses_now = bind_now(tree)
    node.set("this", exp.to_identifier("tm_one"))
    found: Counter[Any] = Counter()
    instants = connection.execute("SELECT DISTINCT tm_row, tm_time FROM tm_windows").fetchall()
    for row, time in instants:
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE tm_one AS SELECT * EXCLUDE (tm_row, tm_time)"
            " FROM tm_windows WHERE tm_row = ?",
            [row],
        )
        values = {NOW: time} if uses_now else None
        answers = connection.execute(tree.sql("duckdb"), values).fetchall()
        found.update((time, *answer) for answer in answers)
    return found


TAGGED = [
    "SELECT * FROM s",
    "SELECT s.*, 1 AS one FROM s WHERE x > 1",
    "SELECT a.vid, x FROM s AS a ORDER BY x DESC",
    "SELECT vid, count(*), sum(x) FROM s GROUP BY vid",
    "SELECT vid, count(*) AS n FROM s GROUP BY ALL HAVING count(*) > 1",
    "SELECT vid, max(x) FROM s GROUP BY 1",
    "SELECT count(*), string_agg(x, ',' ORDER BY _seq) FROM s",
    "SELECT arg_max(vid, ts), approx_count_distinct(vid) FROM s",
    "SELECT DISTINCT x FROM s",
    "SELECT DISTINCT ON (vid) vid, x FROM s ORDER BY ts DESC",
    "SELECT vid, x, lag(x) OVER (PARTITION BY vid ORDER BY ts) AS was FROM s",
    "SELECT vid, x FROM s QUALIFY row_number() OVER (ORDER BY _seq DESC) <= 2",
    "SELECT * FROM (SELECT *, lag(x) OVER (ORDER BY ts, _seq) AS was FROM s) WHERE x <> was",
    "SELECT n, count(*) FROM (SELECT vid, count(*) AS n FROM s GROUP BY vid) GROUP BY n",
    "SELECT max(n) FROM (SELECT vid, count(*) AS n FROM s GROUP BY vid)",
    "SELECT s.vid, owner FROM s JOIN refs USING (vid)",
    "SELECT s.vid, owner FROM s LEFT JOIN refs USING (vid)",
    "SELECT owner, x FROM refs JOIN s ON refs.vid = s.vid AND x > 0",
    "SELECT vid FROM s WHERE vid IN (SELECT vid FROM refs)",
    "SELECT vid, (SELECT count(*) FROM refs r WHERE r.vid = s.vid) AS owners FROM s",
    "WITH o AS (SELECT vid, count(*) AS n FROM refs GROUP BY vid) SELECT x, n FROM s JOIN o"
    " USING (vid)",
    "SELECT vid, now()::TIMESTAMP - ts AS age FROM s",
    "SELECT vid, max(now()::TIMESTAMP - ts) AS age FROM s GROUP BY vid",
    "SELECT vid, x FROM s WHERE ts > now()::TIMESTAMP - INTERVAL 8 SECOND",
    "SELECT vid FROM s SEMI JOIN refs USING (vid)",
    "SELECT vid FROM s ANTI JOIN refs USING (vid)",
    "SELECT sum(x) FILTER (WHERE vid = 1) FROM s",
]
SINGLE = [
    "SELECT vid, x FROM s ORDER BY x LIMIT 1",
    "SELECT owner, x FROM s RIGHT JOIN refs USING (vid)",
    "SELECT owner, x FROM refs LEFT JOIN s USING (vid)",
    "SELECT owner FROM refs SEMI JOIN s USING (vid)",
    "SELECT count(*) FROM s WHERE x > 3",
    "SELECT vid, x FROM s UNION ALL SELECT vid, 0 FROM refs",
    "SELECT vid, count(*) FROM s GROUP BY ROLLUP (vid)",
    "WITH w AS (SELECT * FROM s) SELECT count(*) FROM w",
    "SELECT owner FROM refs WHERE EXISTS (SELECT 1 FROM s WHERE s.vid = refs.vid)",
    "SELECT vid, sum(x) OVER w FROM s WINDOW w AS (ORDER BY ts)",
    "SELECT max(n) FROM (SELECT count(*) AS n FROM s WHERE x > 3)",
    "SELECT max(n) FROM (SELECT vid, count(*) AS n FROM s WHERE x > 3 GROUP BY vid)",
    "SELECT count(*) FROM s JOIN refs USING (vid)",
    "SELECT vid, count(*) FROM s GROUP BY GROUPING SETS ((vid), ())",
]


@pytest.mark.parametrize("text", TAGGED)
def test_a_tagged_query_answers_as_its_instants_do(
    text: str, connection: duckdb.DuckDBPyConnection
) -> None:
    tree, node = prepared(text)
    found = tagged(tree, node, with_seq=True)
    assert found is not None
    sql = finished(found, None, "at").sql("duckdb")
    assert Counter(connection.execute(sql).fetchall()) == one_by_one(connection, text)


@pytest.mark.parametrize("text", SINGLE)
def test_what_would_mix_instants_is_not_tagged(text: str) -> None:
    tree, node = prepared(text)
    assert tagged(tree, node, with_seq=True) is None


def test_answers_come_in_the_order_of_their_instants(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    tree, node = prepared("SELECT x FROM s ORDER BY x")
    found = tagged(tree, node, with_seq=True)
    assert found is not None
    times = connection.execute(finished(found, None, "at").sql("duckdb")).fetchall()
    assert [row[0] for row in times] == sorted(row[0] for row in times)
