"""The newest rows: which queries need only them."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from tidemill.catalog.model import STREAMING, Table
from tidemill.sql.latest import newest_wanted
from tidemill.sql.predicates import find_scans
from tidemill.types import Column, SqlType

TABLE = Table(
    table_id=1,
    name="t",
    kind=STREAMING,
    columns=(Column("ts", SqlType("TIMESTAMP"), False), Column("v", SqlType("INTEGER"))),
    primary_key=(),
    time_column="ts",
    watermark_delay_us=None,
    given_settings={},
    indexes=(),
    created_at_us=0,
)


def newest(query: str) -> int | None:
    tree = parse_one(query, dialect="duckdb")
    requests = find_scans(tree, lambda name: TABLE if name == "t" else None)
    node = tree.find(exp.Table)
    assert node is not None
    conjuncts = next(request.conjuncts for request in requests if request.node is node)
    return newest_wanted(node, TABLE, conjuncts)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM t ORDER BY ts DESC LIMIT 3", 3),
        ("SELECT v FROM t ORDER BY ts DESC, v LIMIT 3 OFFSET 4", 7),
        ("SELECT * FROM t WHERE ts <= TIMESTAMP '2024-01-01' ORDER BY ts DESC LIMIT 3", 3),
        (
            "SELECT v FROM t WHERE ts > DATE '2024-01-01' AND ts < now() ORDER BY ts DESC LIMIT 1",
            1,
        ),
    ],
)
def test_the_newest_rows_suffice(query: str, rows: int) -> None:
    assert newest(query) == rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t ORDER BY ts LIMIT 3",
        "SELECT * FROM t ORDER BY v, ts DESC LIMIT 3",
        "SELECT * FROM t ORDER BY ts DESC",
        "SELECT * FROM t LIMIT 3",
        "SELECT * FROM t ORDER BY ts DESC LIMIT 50%",
        "SELECT * FROM t ORDER BY ts DESC LIMIT (SELECT 3)",
        "SELECT * FROM t WHERE v = 1 ORDER BY ts DESC LIMIT 3",
        "SELECT * FROM t WHERE ts < now() OR v = 1 ORDER BY ts DESC LIMIT 3",
        "SELECT * FROM t WHERE ts IN (now()) ORDER BY ts DESC LIMIT 3",
        "SELECT DISTINCT v FROM t ORDER BY ts DESC LIMIT 3",
        "SELECT count(*) FROM t ORDER BY ts DESC LIMIT 3",
        "SELECT v, count(*) FROM t GROUP BY v, ts ORDER BY ts DESC LIMIT 3",
        "SELECT v AS ts FROM t ORDER BY ts DESC LIMIT 3",
        "SELECT row_number() OVER (ORDER BY v) FROM t ORDER BY ts DESC LIMIT 3",
        "SELECT * FROM t, t AS u ORDER BY t.ts DESC LIMIT 3",
        "SELECT * FROM t QUALIFY v > 1 ORDER BY ts DESC LIMIT 3",
        "SELECT unnest([1, 2]) FROM t ORDER BY ts DESC LIMIT 3",
    ],
)
def test_all_rows_may_matter(query: str) -> None:
    assert newest(query) is None
