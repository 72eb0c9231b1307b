"""What a plan reads first, as pairs of SQL and plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.federation.plan import Plan
from tidemill.federation.planner import make_plan
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query

FRAME = pa.table({"vid": [1, 2], "x": ["a", "b"]})


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("first") / "w"
    with Database(path, Settings(DATABASE_SETTINGS, {"spark_master": "inline"})) as opened:
        opened.sql(
            "CREATE STREAMING TABLE p (ts TIMESTAMP, vid BIGINT, seg INT, spd INT);"
            "CREATE INDEX ON p (vid); CREATE INDEX ON p USING hash (seg);"
            "CREATE STREAMING TABLE q (ts TIMESTAMP, vid BIGINT, spd INT); CREATE INDEX ON q (vid);"
            "CREATE TABLE involved (vid BIGINT, seg INT, kind VARCHAR);"
            "CREATE TABLE places (seg INT, name VARCHAR);"
            "CREATE MATERIALIZED VIEW v AS SELECT vid, count(*) AS n FROM p GROUP BY vid"
        )
        yield opened


def plan(db: Database, text: str) -> Plan:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return make_plan(statement.body, db.catalog.snapshot(), None, {"df": FRAME})


def partners(found: Plan) -> list[str]:
    aliases = {scan.source: scan.alias for scan in found.scans}
    return [
        f"{partner.alias}: "
        + ", ".join(f"{aliases[e.scan]}.{e.column} = {e.key}" for e in partner.lookups)
        for partner in found.partners
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM p JOIN involved i ON p.vid = i.vid", ["i: p.vid = vid"]),
        ("SELECT * FROM p JOIN involved USING (vid)", ["involved: p.vid = vid"]),
        ("SELECT * FROM p, involved i WHERE i.vid = p.vid", ["i: p.vid = vid"]),
        ("SELECT * FROM p SEMI JOIN involved i ON p.seg = i.seg", ["i: p.seg = seg"]),
        ("SELECT * FROM involved i LEFT JOIN p ON p.vid = i.vid", ["i: p.vid = vid"]),
        ("SELECT * FROM p JOIN df ON p.vid = df.vid", ["df: p.vid = vid"]),
        (
            "SELECT * FROM p JOIN (SELECT vid FROM df WHERE x = 'a') f USING (vid)",
            ["f: p.vid = vid"],
        ),
        ("SELECT * FROM p JOIN (VALUES (1), (2)) l(n) ON p.vid = l.n", ["l: p.vid = n"]),
        (
            "SELECT * FROM p JOIN involved i ON p.vid = i.vid AND p.seg = i.seg",
            ["i: p.vid = vid, p.seg = seg"],
        ),
        (
            "SELECT * FROM p JOIN involved i ON p.vid = i.vid JOIN places ON p.seg = places.seg",
            ["i: p.vid = vid", "places: p.seg = seg"],
        ),
        (
            "SELECT * FROM p JOIN involved i USING (vid) JOIN q ON q.vid = i.vid",
            ["i: p.vid = vid, q.vid = vid"],
        ),
        (
            "SELECT * FROM RECENT(p, INTERVAL '1' HOUR) r JOIN involved i ON r.vid = i.vid",
            ["i: p.vid = vid"],
        ),
        # a column without an index, sides that are kept, streams and views
        ("SELECT * FROM p JOIN involved i ON p.spd = i.seg", []),
        ("SELECT * FROM p LEFT JOIN involved i ON p.vid = i.vid", []),
        ("SELECT * FROM p JOIN q ON p.vid = q.vid", []),
        ("SELECT * FROM p JOIN v ON p.vid = v.vid", []),
        ("SELECT * FROM p JOIN tidemill.tables t ON p.vid = t.rows", []),
        # a reference table that is read twice would be read at two moments
        ("SELECT * FROM p JOIN involved i USING (vid) JOIN involved j ON i.kind = j.kind", []),
        (
            "SELECT (SELECT max(kind) FROM involved) FROM p JOIN involved i USING (vid)",
            [],
        ),
        # the past, and columns that only tables have
        (
            "SELECT * FROM p FOR SYSTEM_TIME AS OF '2024-01-01' JOIN involved USING (vid)",
            [],
        ),
        ("SELECT i.rowid FROM p JOIN involved i USING (vid)", []),
    ],
)
def test_partners(db: Database, query: str, expected: list[str]) -> None:
    assert partners(plan(db, query)) == expected


def test_what_is_asked_of_a_partner_is_asked_first(db: Database) -> None:
    found = plan(db, "SELECT * FROM p JOIN involved i USING (vid) WHERE i.kind = $1 AND p.spd > 3")
    (partner,) = found.partners
    assert "WHERE i.kind = $tidemill_p1" in partner.plan.sql
    assert partner.plan.sql.endswith("LIMIT 1001")
    assert partner.plan.keys == ("tidemill_p1",)
    assert "JOIN reference.main" in found.sql  # the plan itself reads the table


def test_key_queries_of_any_branch_are_cut_out(db: Database) -> None:
    text = "SELECT * FROM p WHERE seg = 3 OR vid IN (SELECT vid FROM involved WHERE kind = 'x')"
    found = plan(db, text)
    (query,) = found.key_queries
    assert "WHERE kind = 'x'" in query.plan.sql
    assert "involved" not in found.sql
    (scan,) = found.scans
    leaves = [leaf for each in scan.alternatives for leaf in each.leaves]
    assert [leaf.op for leaf in leaves] == ["=", "in_query"]
    assert leaves[1].values[0] is query.query


def test_no_key_query_without_an_index(db: Database) -> None:
    found = plan(db, "SELECT * FROM p WHERE spd IN (SELECT seg FROM places)")
    assert found.key_queries == ()
