"""Joins that are kept, against the final query with its join."""

from __future__ import annotations

import random

import duckdb
import pytest

from tidemill.sql.maintain.key_joins import FOUND, KeyJoinPlan, plan_lookup
from tidemill.sql.maintain.plan import DigestParts, ViewParts

KEPT = (
    "SELECT city, avg(n) AS a, sum(s) FROM (SELECT k0 AS id, s0 AS n, s1 AS s FROM tm_digest_0 "
    "WHERE s0 > 2) AS e, tm_ref_7 AS c WHERE e.id = c.key GROUP BY city",
    "SELECT c.city, d.k1, sum(s0) FROM tm_digest_0 AS d JOIN tm_ref_7 AS c ON c.key = d.k0 "
    "AND c.kind < 3 AND d.s0 > 1 GROUP BY ALL HAVING count(*) > 1 ORDER BY c.city, 2",
    "SELECT count(*) FROM tm_ref_7 AS c, tm_digest_0 WHERE k0 = key AND s0 <> c.kind",
    "SELECT k0, C.City, upper(city) AS big FROM tm_digest_0, tm_ref_7 AS c WHERE (k0 = c.KEY)",
    "SELECT x, max(s) FROM (SELECT city AS x, s1 AS s FROM tm_digest_0 CROSS JOIN tm_ref_7 "
    "WHERE k0 = key AND kind IS NOT NULL) GROUP BY x",
    "SELECT DISTINCT kind FROM tm_digest_0 AS d INNER JOIN tm_ref_7 AS c ON d.k0 = c.key",
    "WITH e AS (SELECT k0 AS i, s0 FROM tm_digest_0) SELECT city, sum(s0) FROM e, tm_ref_7 AS c "
    "WHERE c.key = i GROUP BY 1",
)
NOT_KEPT = (
    "SELECT sum(s0) FROM tm_digest_0",
    "SELECT city FROM tm_digest_0 AS d LEFT JOIN tm_ref_7 AS c ON d.k0 = c.key",
    "SELECT city FROM tm_digest_0 AS d, tm_ref_7 AS c WHERE d.k0 < c.key",
    "SELECT city FROM tm_digest_0 AS d, tm_ref_7 AS c WHERE d.k0 + 1 = c.key",
    "SELECT city FROM tm_digest_0 AS d, tm_ref_7 AS c WHERE d.s0 = c.key",
    "SELECT city FROM tm_digest_0 AS d, tm_ref_7 AS c WHERE d.k0 = c.key OR c.kind = 1",
    "SELECT * FROM tm_digest_0 AS d, tm_ref_7 AS c WHERE d.k0 = c.key",
    "SELECT a.city FROM tm_digest_0 AS d, tm_ref_7 AS a, tm_ref_7 AS b WHERE k0 = a.key",
    "SELECT s0 AS city, c.city AS t FROM tm_digest_0 AS d, tm_ref_7 AS c WHERE k0 = key",
    "SELECT city FROM tm_digest_0 AS d, tm_ref_7 AS c WHERE k0 = key AND s0 > (SELECT c.kind)",
    "SELECT city FROM (SELECT k0 + 1 AS i FROM tm_digest_0) AS e, tm_ref_7 AS c WHERE e.i = c.key",
    "SELECT n, city FROM (SELECT k0, count(*) AS n FROM tm_digest_0 GROUP BY k0) AS e "
    "JOIN tm_ref_7 AS c ON e.k0 = c.key",
)
SHOWN = ("k0", "k1", "s0", "s1")


def plan_of(final: str) -> KeyJoinPlan | None:
    digest = DigestParts(
        *("t", "", "", SHOWN[:2], SHOWN[2:], None, None, True, SHOWN[:2], (), False, None, "")
    )
    parts = ViewParts((digest,), final, (7,), (), False, ("t",))
    return plan_lookup(parts, lambda _: ("Key", "city", "kind"))


@pytest.mark.parametrize("final", KEPT)
@pytest.mark.parametrize("number", range(3))
def test_what_was_found_answers_as_the_join_does(final: str, number: int) -> None:
    plan = plan_of(final)
    assert plan is not None
    assert "tm_ref" not in plan.final
    seed = random.Random(number)
    groups = [
        (seed.choice((None, at, at)), seed.choice("ab"), seed.randint(0, 5), seed.randint(0, 9))
        for at in range(40)
    ]
    known = seed.sample(range(60), 40)
    rows = [(key, seed.choice(("x", "y", None)), seed.choice((1, 2, 3, None))) for key in known]
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE tm_state (slot INT, k0 INT, k1 TEXT, s0 BIGINT, s1 BIGINT);"
            "CREATE TABLE tm_ref_7 (Key BIGINT, city TEXT, kind INT)"
        )
        states = [(slot, *group) for slot, group in enumerate(groups)]
        connection.executemany("INSERT INTO tm_state VALUES (?, ?, ?, ?, ?)", states)
        connection.executemany("INSERT INTO tm_ref_7 VALUES (?, ?, ?)", rows)
        connection.execute("INSERT INTO tm_ref_7 VALUES (NULL, 'nowhere', 1)")
        keys = f"(SELECT slot, {plan.key} AS key FROM tm_state)"
        found = connection.sql(plan.find_sql(keys, "tm_ref_7")).to_arrow_table()
        assert found.num_rows == len(groups)
        assert found.column_names[-1] == FOUND
        connection.register("tm_found_rows", found)
        connection.execute(
            "CREATE TABLE tm_digest_0 AS SELECT * EXCLUDE (slot) "
            "FROM tm_state POSITIONAL JOIN tm_found_rows"
        )
        right, kept = connection.sql(final), connection.sql(plan.final)
        assert [c.lower() for c in kept.columns] == [c.lower() for c in right.columns]
        assert kept.types == right.types
        assert sorted(kept.fetchall(), key=str) == sorted(right.fetchall(), key=str)


@pytest.mark.parametrize("final", NOT_KEPT)
def test_not_by_one_row_of_one_table(final: str) -> None:
    assert plan_of(final) is None
