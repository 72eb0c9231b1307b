"""Sums whose width does not matter to a final query: which they are, and that it does not."""

from __future__ import annotations

import duckdb
import pytest

from tidemill.sql.maintain.narrowing import takes_any_width

ANY = (
    "SELECT sum(s0) FROM tm_digest_0",
    "SELECT k0, sum(s0), avg(s0), count(s0) FROM tm_digest_0 GROUP BY k0",
    "SELECT sum(d.s0) FILTER (WHERE d.s0 > 3) FROM tm_digest_0 AS d",
    "SELECT avg(x) AS a FROM (SELECT s0 AS x FROM tm_digest_0 WHERE s0 > 2 AND s1 IS NULL)",
    "SELECT avg((x)) AS a FROM (SELECT (s0) AS x FROM tm_digest_0) AS e WHERE 3 <= e.x",
    "SELECT k0, sum(e.x) FROM (SELECT k0, s0 AS x FROM tm_digest_0) AS e GROUP BY k0 "
    "HAVING sum(x) > 5 ORDER BY sum(x) * 2, k0",
    "SELECT count(*) FROM tm_digest_0",
)
OWN = (
    "SELECT s0 FROM tm_digest_0",
    "SELECT * FROM tm_digest_0",
    "SELECT sum(x) FROM (SELECT * FROM (SELECT s0 AS x FROM tm_digest_0))",
    "SELECT max(s0) FROM tm_digest_0",
    "SELECT sum(s0 * 1000000000) FROM tm_digest_0",
    "SELECT sum(s0 + k0) FROM tm_digest_0",
    "SELECT typeof(s0), count(*) FROM tm_digest_0 GROUP BY 1",
    "SELECT k0 FROM tm_digest_0 WHERE s0 > k0",
    "SELECT k0 FROM tm_digest_0 WHERE s0 > '3'",
    "SELECT k0 FROM tm_digest_0 ORDER BY s0",
    "SELECT sum(s0) OVER (ORDER BY k0) FROM tm_digest_0",
    "SELECT sum(DISTINCT s0) FROM tm_digest_0",
    "SELECT x FROM (SELECT s0 AS x FROM tm_digest_0) AS e",
    "SELECT sum(x) FROM (SELECT DISTINCT s0 AS x FROM tm_digest_0) AS e",
    "SELECT sum(x) FROM (SELECT s0 AS x FROM tm_digest_0 UNION ALL SELECT 1) AS e",
    "SELECT sum(y) FROM (SELECT s0 FROM tm_digest_0) AS e(y)",
    "WITH e AS (SELECT s0 AS x FROM tm_digest_0) SELECT sum(x) FROM e",
    "SELECT count(*) FROM tm_digest_0 AS a JOIN tm_digest_0 AS b USING (s0)",
    "SELECT count(*) FROM tm_digest_0 AS a NATURAL JOIN tm_digest_0 AS b",
    "SELECT (SELECT max(s0) FROM tm_digest_0)",
    "SELECT k0, (SELECT count(*) FROM range(s0)) FROM tm_digest_0",
)


def _answers(final: str, kind: str) -> tuple[list[str], list[tuple[object, ...]]]:
    with duckdb.connect() as connection:
        connection.execute(
            f"CREATE TABLE tm_digest_0 AS SELECT (i % 3)::INT AS k0, v::{kind} AS s0, "
            "CASE WHEN i % 2 = 0 THEN 1 END AS s1 FROM (SELECT i, unnest([i, -i, i * i, NULL, "
            "9223372036854775807 - i]) AS v FROM range(40) AS r(i))"
        )
        rows = connection.execute(final)
        assert rows.description is not None
        kinds = [str(column[1]) for column in rows.description]
        return kinds, sorted(rows.fetchall(), key=str)


@pytest.mark.parametrize("final", ANY)
def test_any_width_gives_the_same_answer(final: str) -> None:
    assert takes_any_width(final, 0, "s0")
    assert _answers(final, "BIGINT") == _answers(final, "HUGEINT")


@pytest.mark.parametrize("final", OWN)
def test_its_own_width(final: str) -> None:
    assert not takes_any_width(final, 0, "s0")


def test_of_two_digests_each_by_itself() -> None:
    final = "SELECT sum(a.s0), max(b.s0) FROM tm_digest_0 AS a, tm_digest_1 AS b"
    assert takes_any_width(final, 0, "s0")
    assert not takes_any_width(final, 1, "s0")
