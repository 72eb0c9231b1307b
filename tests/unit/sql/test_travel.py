"""FOR SYSTEM_TIME AS OF: wherever it stands, the tree is plain afterwards and the moment known."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from support import body

from tidemill.clock import to_us
from tidemill.errors import QueryError, SqlSyntaxError, TidemillError, UnsupportedError
from tidemill.sql.params import Params, placeholders
from tidemill.sql.parser import parse_one
from tidemill.sql.travel import moment_us, take_system_time

NOW_US = to_us(datetime(2024, 5, 1, 12))
NEW_YEAR = to_us(datetime(2024, 1, 1))
HOUR_US = 3_600_000_000
AS_OF = "FOR SYSTEM_TIME AS OF"
AT = f"{AS_OF} TIMESTAMP '2024-01-01'"


def taken(text: str, params: Params = None) -> tuple[str, dict[str, int]]:
    """The query without its clauses, and the moment of each table by its alias."""
    tree = body(text)
    found = take_system_time(tree)
    moments = {node.alias_or_name: moment_us(moment, params, NOW_US) for node, moment in found}
    assert len(moments) == len(found)
    assert all(node.root() is tree for node, _ in found)
    assert take_system_time(tree) == []
    return tree.sql("duckdb"), moments


@pytest.mark.parametrize(
    ("text", "plain", "names"),
    [
        (f"SELECT * FROM t {AT}", "SELECT * FROM t", "t"),
        (f"SELECT * FROM t {AT} AS a", "SELECT * FROM t AS a", "a"),
        (f"SELECT * FROM t {AT} a", "SELECT * FROM t AS a", "a"),
        (f"SELECT * FROM t AS a {AT}", "SELECT * FROM t AS a", "a"),
        (f"SELECT * FROM t a {AT}", "SELECT * FROM t AS a", "a"),
        (f"SELECT * FROM t a (x, y) {AT}", "SELECT * FROM t AS a(x, y)", "a"),
        (f"SELECT * FROM t AS a (x) {AT} WHERE x", "SELECT * FROM t AS a(x) WHERE x", "a"),
        (f"FROM t a {AT} SELECT x", "SELECT x FROM t AS a", "a"),
        (f"FROM a: t {AT}", "SELECT * FROM t AS a", "a"),
        (f"SELECT * FROM t a {AT}, u {AT}", "SELECT * FROM t AS a, u", "a u"),
        (
            f"SELECT * FROM t a {AT} JOIN (SELECT * FROM u b {AT}) USING (x)",
            "SELECT * FROM t AS a JOIN (SELECT * FROM u AS b) USING (x)",
            "a b",
        ),
        (
            f"SELECT * FROM t a LEFT JOIN u b {AT} ON a.x = b.x ORDER BY 1",
            "SELECT * FROM t AS a LEFT JOIN u AS b ON a.x = b.x ORDER BY 1",
            "b",
        ),
        (
            f"SELECT * FROM t a {AT} ASOF JOIN u b {AT} ON a.x >= b.x",
            "SELECT * FROM t AS a ASOF JOIN u AS b ON a.x >= b.x",
            "a b",
        ),
        (
            f"SELECT * FROM t a {AT} UNION (SELECT * FROM u {AT}) LIMIT 5",
            "SELECT * FROM t AS a UNION (SELECT * FROM u) LIMIT 5",
            "a u",
        ),
        (
            f"SELECT (SELECT max(x) FROM u y {AT}) FROM t WHERE x IN (SELECT x FROM v {AT})",
            "SELECT (SELECT MAX(x) FROM u AS y) FROM t WHERE x IN (SELECT x FROM v)",
            "y v",
        ),
        (
            f"WITH x AS (SELECT * FROM x a {AT}) SELECT * FROM x",
            "WITH x AS (SELECT * FROM x AS a) SELECT * FROM x",
            "a",
        ),
        (
            f'SELECT * FROM main."for" "a""b" {AT} USING SAMPLE 5 ROWS',
            'SELECT * FROM main."for" AS "a""b" USING SAMPLE RESERVOIR (5 ROWS)',
            'a"b',
        ),
        (
            f"PIVOT t {AT} ON a USING sum(b) ORDER BY ALL",
            "SELECT * FROM (PIVOT t ON a USING SUM(b)) ORDER BY ALL",
            "t",
        ),
        (f"SUMMARIZE t {AT}", "SUMMARIZE t", "t"),
        ("FROM t FOR TIMESTAMP AS OF '2024-01-01' a", "SELECT * FROM t AS a", "a"),
        ("FROM t a FOR TIMESTAMP AS OF '2024-01-01'", "SELECT * FROM t AS a", "a"),
        ("FROM t AT (TIMESTAMP => '2024-01-01')", "SELECT * FROM t", "t"),
        ("FROM t a AT (TIMESTAMP => DATE '2024-01-01')", "SELECT * FROM t AS a", "a"),
    ],
)
def test_places(text: str, plain: str, names: str) -> None:
    sql, moments = taken(text)
    assert sql == plain
    assert moments == dict.fromkeys(names.split(), NEW_YEAR)


@pytest.mark.parametrize(
    ("moment", "params", "us"),
    [
        ("now()", None, NOW_US),
        ("current_timestamp", None, NOW_US),
        ("now() - INTERVAL '1' HOUR", None, NOW_US - HOUR_US),
        ("now() - INTERVAL '1 hour'", None, NOW_US - HOUR_US),
        ("now() - INTERVAL '1.5 hours'", None, NOW_US - HOUR_US * 3 // 2),
        ("(now() - INTERVAL 1 HOUR)", None, NOW_US - HOUR_US),
        ("now() - to_hours(2)", None, NOW_US - 2 * HOUR_US),
        ("date_trunc('year', now())", None, NEW_YEAR),
        ("now() - INTERVAL (?) HOUR", [2], NOW_US - 2 * HOUR_US),
        ("'2024-01-01'", None, NEW_YEAR),
        ("DATE '2024-01-01'", None, NEW_YEAR),
        ("TIMESTAMPTZ '2024-01-01 00:00:00+02'", None, NEW_YEAR - 2 * HOUR_US),
        ("CAST('2024-01-01' AS TIMESTAMP)", None, NEW_YEAR),
        ("?", [datetime(2024, 1, 1)], NEW_YEAR),
        ("?::TIMESTAMP", ["2024-01-01"], NEW_YEAR),
        ("$1", [date(2024, 1, 1)], NEW_YEAR),
        ("$m", {"m": datetime(2024, 1, 1, tzinfo=UTC)}, NEW_YEAR),
        (":m - INTERVAL '1' HOUR", {"m": datetime(2024, 1, 1)}, NEW_YEAR - HOUR_US),
    ],
)
@pytest.mark.parametrize("form", ["FROM t {}", "FROM t {} a", "FROM t AS a {}", "FROM t a {}, u"])
def test_moments(form: str, moment: str, params: Params, us: int) -> None:
    _, moments = taken(form.format(f"{AS_OF} {moment}"), params)
    assert list(moments.values()) == [us]


def test_parameters_keep_their_order() -> None:
    tree = body(f"SELECT ? FROM t a {AS_OF} ? WHERE x = ? AND y IN (SELECT y FROM u {AS_OF} ?)")
    assert placeholders(tree) == ["1", "2", "3", "4"]
    found = {node.alias_or_name: moment.name for node, moment in take_system_time(tree)}
    assert found == {"a": "2", "u": "4"}
    assert placeholders(tree) == ["1", "3"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT [system_time FOR system_time IN l] FROM t",
        "SELECT substring(a FROM 1 FOR 3) FROM t",
        "SELECT \"FOR SYSTEM_TIME AS OF\", 'FOR SYSTEM_TIME AS OF' FROM t",
        "SELECT system_time FROM t AS system_time",
        "SELECT x::TIMESTAMP AS of FROM t",
    ],
)
def test_other_uses_of_the_words(text: str) -> None:
    assert take_system_time(body(text)) == []


REFUSED = [
    (f"SELECT * FROM (SELECT 1) {AT}", UnsupportedError, (26, "FOR")),
    (f"SELECT * FROM (SELECT 1) AS a {AT}", UnsupportedError, (31, "FOR")),
    (f"SELECT * FROM (SELECT 1) a (x) {AT}", UnsupportedError, (32, "FOR")),
    (f"SELECT * FROM f(x) {AT}", UnsupportedError, (20, "FOR")),
    (f"SELECT * FROM f(x) a {AT}", UnsupportedError, (22, "FOR")),
    (f"FROM RECENT(t, INTERVAL '1' HOUR) {AT}", UnsupportedError, (35, "FOR")),
    (f"FROM RECENT(t {AT}, INTERVAL '1' HOUR)", UnsupportedError, (15, "FOR")),
    (f"FROM TUMBLE(t a {AT}, ts, INTERVAL '1' HOUR)", UnsupportedError, (17, "FOR")),
    ("FROM RECENT(t, 5) AT (TIMESTAMP => now())", UnsupportedError, None),
    (f"WITH x AS (SELECT 1) SELECT * FROM x {AT}", UnsupportedError, None),
    (f"FROM tidemill.tables {AT}", UnsupportedError, (15, "tables")),
    ("FROM t FOR SYSTEM_TIME BETWEEN 1 AND 2", UnsupportedError, (24, "BETWEEN")),
    ("FROM t FOR SYSTEM_TIME FROM 1 TO 2", UnsupportedError, (24, "FROM")),
    ("FROM t FOR SYSTEM_TIME ALL", UnsupportedError, (24, "ALL")),
    ("FROM t FOR VERSION AS OF 5", UnsupportedError, (6, "t")),
    ("FROM t AT (VERSION => 5)", UnsupportedError, (6, "t")),
    ("FROM t BEFORE (TIMESTAMP => now())", UnsupportedError, (6, "t")),
    ("FROM t FOR SYSTEM_TIME", SqlSyntaxError, (12, "SYSTEM_TIME")),
    ("FROM t FOR SYSTEM_TIME OF now()", SqlSyntaxError, (24, "OF")),
    (f"FROM t {AS_OF}", SqlSyntaxError, (27, "OF")),
    (f"FROM t a {AT} b", SqlSyntaxError, None),
    (f"FROM t {AT} {AT}", SqlSyntaxError, None),
    (f"DELETE FROM t {AT}", UnsupportedError, None),
    (f"UPDATE t {AT} SET a = 1", UnsupportedError, None),
    (f"DELETE FROM t WHERE a IN (SELECT a FROM u {AT})", UnsupportedError, None),
]


def _parse_and_take(text: str) -> None:
    parse_one(text)
    take_system_time(body(text))


@pytest.mark.parametrize(("text", "kind", "place"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refused(text: str, kind: type[TidemillError], place: tuple[int, str] | None) -> None:
    with pytest.raises(kind) as caught:
        _parse_and_take(text)
    error = caught.value
    assert error.hint
    assert error.position is not None
    if place is not None:
        assert (error.position.column, error.position.words) == place


@pytest.mark.parametrize(
    ("moment", "params", "message"),
    [
        ("o.ts", None, "must be a constant"),
        ("(SELECT max(ts) FROM u)", None, "must be a constant"),
        ("random()", None, "must be a constant"),
        ("TIMESTAMP 'x'", None, "must be a constant"),
        ("5", None, "not a time"),
        ("NULL", None, "not a time"),
        ("'yesterday'", None, "not a time"),
        ("INTERVAL '1' HOUR", None, "not a time"),
        ("?", [None], "not a time"),
        ("?", [True], "not a time"),
        (":m", {"n": 1}, "no value"),
    ],
)
def test_moments_that_are_none(moment: str, params: Params, message: str) -> None:
    tree = body(f"SELECT * FROM orders o JOIN t {AS_OF} {moment} AS r ON r.k = o.k")
    [(_, found)] = take_system_time(tree)
    with pytest.raises(QueryError, match=message) as caught:
        moment_us(found, params, NOW_US)
    assert caught.value.hint
