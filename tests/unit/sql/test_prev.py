"""PREV: the rewritten SQL, run in DuckDB, against a recomputation in Python."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support import body, bound_values, duck, table

from tidemill.clock import from_us, to_us
from tidemill.errors import QueryError, TidemillError, UnknownNameError
from tidemill.sql.prev import rewrite_prev
from tidemill.sql.windows import NowBounds, rewrite_deferred

TABLES = {
    "t": table("t", "ts", ts="TIMESTAMP", vid="INTEGER", x="BIGINT", pos="STRUCT(seg INTEGER)"),
    "u": table("u", "ts", ts="TIMESTAMP", x="BIGINT", tm_prev_0="BIGINT"),
    "ref": table("ref", None, a="INTEGER"),
}
NOW = to_us(datetime(2024, 1, 1, 12))
SECOND = 1_000_000
Row = tuple[int, int | None, int]  # ts in microseconds, vid, x


def lookup(name: str) -> object:
    return TABLES.get(name.lower())


def now(name: str) -> NowBounds:
    return NowBounds(NOW, NOW + 5 * SECOND)


def rewritten(text: str) -> str:
    return rewrite_prev(body(text), lookup).sql("duckdb")


def run(rows: list[Row], text: str) -> tuple[list[str], list[tuple[object, ...]]]:
    """The names and the answer of a query; times as microseconds."""
    with duck() as connection:
        connection.execute(
            "CREATE TABLE t (ts TIMESTAMP, vid INTEGER, x BIGINT, pos STRUCT(seg INTEGER), "
            "_seq BIGINT)"
        )
        for seq, (us, vid, x) in enumerate(rows):
            connection.execute(
                "INSERT INTO t VALUES (?::TIMESTAMP, ?, ?, {'seg': ?}, ?)",
                [from_us(us), vid, x, x, seq],
            )
        deferred = rewrite_deferred(rewrite_prev(body(text), lookup), lookup)
        found = connection.execute(
            deferred.query.sql("duckdb"), bound_values(deferred, now) or None
        )
        names = [column[0] for column in found.description or []]
        answer = found.fetchall()
    return names, [tuple(to_us(v) if isinstance(v, datetime) else v for v in r) for r in answer]


rows_of_stream = some.lists(
    some.tuples(
        some.integers(-20, 14).map(lambda half: NOW + half * SECOND // 2),
        some.sampled_from([1, 2, None]),
        some.integers(0, 3),
    ),
    max_size=20,
)
WINDOWS = ["t", "RECENT(t, INTERVAL '5' SECOND)", "RECENT(t, rows => 6)"]
WINDOWS += ["RECENT(t, rows => 3, partition_by => vid)"]


def window_of(rows: list[Row], window: str) -> list[list[tuple[int, Row]]]:
    """The rows of a window with their sequence numbers, oldest first; a list for every key."""
    ordered = sorted(enumerate(rows), key=lambda pair: (pair[1][0], pair[0]))
    if window == "t":
        return [ordered]
    arrived = [pair for pair in ordered if pair[1][0] <= NOW + 5 * SECOND]
    if "INTERVAL" in window:
        return [[pair for pair in arrived if pair[1][0] >= NOW - 5 * SECOND]]
    if "partition_by" not in window:
        return [arrived[-6:]]
    by_key: dict[int | None, list[tuple[int, Row]]] = defaultdict(list)
    for pair in arrived:
        by_key[pair[1][1]].append(pair)
    return [pairs[-3:] for pairs in by_key.values()]


def with_prev(rows: list[Row], window: str, back: int) -> list[tuple[int, Row, int | None]]:
    """Every row of the window, and ``x`` of the one before it; newest first."""
    found = [
        (seq, row, pairs[at - back][1][2] if at >= back else None)
        for pairs in window_of(rows, window)
        for at, (seq, row) in enumerate(pairs)
    ]
    return sorted(found, key=lambda item: (item[1][0], item[0]), reverse=True)


@settings(max_examples=60, deadline=None)
@given(rows_of_stream, some.sampled_from(WINDOWS), some.integers(1, 3))
def test_in_select(rows: list[Row], window: str, back: int) -> None:
    call = "PREV(x)" if back == 1 else f"prev(x, {back})"
    _, got = run(rows, f"SELECT ts, vid, x, {call} AS p FROM {window}")
    expected = [(*row, before) for _, row, before in with_prev(rows, window, back)]
    if window == "t":
        assert sorted(got, key=repr) == sorted(expected, key=repr)
    else:
        assert got == expected  # RECENT gives the newest row first


@settings(max_examples=60, deadline=None)
@given(rows_of_stream, some.sampled_from(WINDOWS))
def test_in_where(rows: list[Row], window: str) -> None:
    _, got = run(rows, f"SELECT * FROM {window} AS w WHERE w.x <> PREV(w.x) ORDER BY ts, vid, x")
    found = with_prev(rows, window, 1)
    expected = [(*row, {"seg": row[2]}) for _, row, before in found if before not in (None, row[2])]
    assert sorted(got, key=repr) == sorted(expected, key=repr)


ROWS: list[Row] = [
    (NOW - 4 * SECOND, 1, 10),
    (NOW - 3 * SECOND, 2, 20),
    (NOW - 2 * SECOND, 1, 11),
    (NOW - 2 * SECOND, 1, 12),
    (NOW - 1 * SECOND, 2, 20),
]
BY_CAR = "RECENT(t, rows => 4, partition_by => vid)"


@pytest.mark.parametrize(
    ("text", "names", "answer"),
    [
        (
            f"SELECT vid FROM {BY_CAR} GROUP BY vid HAVING bool_and(x = coalesce(PREV(x), x))",
            ["vid"],
            [(2,)],
        ),
        (
            f"SELECT vid, max(x - PREV(x)) FROM {BY_CAR} GROUP BY vid ORDER BY vid",
            ["vid", "max(x - prev(x))"],
            [(1, 1), (2, 0)],
        ),
        (
            f"SELECT PREV(x), prev(x, 2) FROM {BY_CAR} WHERE x = 12",
            ["prev(x)", "prev(x, 2)"],
            [(11, 10)],
        ),
        (
            f"SELECT w.vid, PREV(w).x AS before FROM {BY_CAR} AS w WHERE x = 12",
            ["vid", "before"],
            [(1, 11)],
        ),
        (f"SELECT PREV(pos.seg) AS p FROM {BY_CAR} WHERE x = 12", ["p"], [(11,)]),
        ("SELECT _seq, PREV(_seq) AS p FROM t WHERE x = 12", ["_seq", "p"], [(3, 2)]),
        (
            "SELECT * EXCLUDE (pos), PREV(x + 1) AS p FROM t WHERE PREV(vid) = 2 AND _seq > 0",
            ["ts", "vid", "x", "p"],
            [(NOW - 2 * SECOND, 1, 11, 21)],
        ),
        ("SELECT count(*) FROM t WHERE PREV(x) IS NULL", ["count_star()"], [(1,)]),
        (
            f"SELECT sum(p) AS s FROM (SELECT PREV(x) AS p FROM {BY_CAR}) UNION ALL "
            "SELECT x FROM t WHERE x IN (SELECT PREV(x) FROM t WHERE x = 12)",
            ["s"],
            [(41,), (11,)],
        ),
        (
            "WITH w AS (SELECT vid, x, PREV(x) AS p FROM t) SELECT x, p FROM w WHERE vid = 2 "
            "ORDER BY ALL",
            ["x", "p"],
            [(20, 10), (20, 12)],
        ),
        (
            f"SELECT x FROM {BY_CAR} QUALIFY row_number() OVER (ORDER BY PREV(x) DESC) = 1",
            ["x"],
            [(20,)],
        ),
    ],
)
def test_everywhere(text: str, names: list[str], answer: list[tuple[object, ...]]) -> None:
    got_names, got = run(ROWS, text)
    assert got == answer
    assert got_names == names


def test_only_needed_columns_are_read() -> None:
    assert rewritten("SELECT vid FROM t WHERE x < PREV(x)") == (
        'SELECT vid FROM (SELECT "vid", "x", LAG(x) OVER (ORDER BY "ts", "_seq") AS "tm_prev_0" '
        'FROM t) AS "t" WHERE x < "t"."tm_prev_0"'
    )


def test_only_needed_columns_of_a_window_are_read() -> None:
    sql = rewritten(f"SELECT x FROM {BY_CAR} WHERE x < PREV(x) ORDER BY x")
    assert 'FROM (SELECT "x", LAG(x) OVER (PARTITION BY "vid" ORDER BY "ts", "_seq")' in sql


def test_the_same_call_is_computed_once() -> None:
    sql = rewritten("SELECT PREV(x) AS a, PREV(x) + 1 AS b FROM t WHERE PREV(x) > 0")
    assert sql.count("LAG(") == 1


def test_a_column_with_a_name_of_ours() -> None:
    sql = rewritten("SELECT tm_prev_0, PREV(x) AS p FROM u")
    assert '"tm_prev__0"' in sql


def test_a_query_without_it_is_left_alone() -> None:
    tree = body("SELECT prev FROM t WHERE prev > 1")
    assert rewrite_prev(tree, lookup) is tree


def test_in_place_the_table_stays_the_same_node() -> None:
    tree = body("SELECT PREV(x) FROM t")
    node = tree.args["from_"].this
    again = rewrite_prev(tree, lookup, copy=False)
    assert again is tree
    assert node.root() is tree
    copied = body("SELECT PREV(x) FROM t")
    before = copied.sql()
    assert rewrite_prev(copied, lookup) is not copied
    assert copied.sql() == before


def test_parameters() -> None:
    tree = rewrite_prev(body("SELECT PREV(x, ?) FROM RECENT(t, rows => ?)"), lookup, [2, 3])
    assert "LAG(x, $1)" in tree.sql("duckdb")


@pytest.mark.parametrize(
    ("text", "kind", "place", "hint"),
    [
        ("SELECT PREV(x)", QueryError, (1, 8), "RECENT"),
        ("SELECT PREV(x) FROM t, ref", QueryError, (1, 8), "lag("),
        ("SELECT PREV(x) FROM t JOIN ref ON a = x", QueryError, (1, 8), "lag("),
        ("SELECT PREV(a) FROM ref", QueryError, (1, 8), "lag("),
        ("SELECT PREV(x) FROM (SELECT * FROM t)", QueryError, (1, 8), "lag("),
        ("WITH w AS (SELECT * FROM t) SELECT PREV(x) FROM w", QueryError, (1, 36), "lag("),
        ("SELECT PREV(x) FROM t AS w(a, x)", QueryError, (1, 8), "lag("),
        ("SELECT PREV(x) FROM TUMBLE(t, ts, INTERVAL '1' MINUTE)", QueryError, (1, 8), "RECENT"),
        ("SELECT PREV(x) FROM RECENT(nix, rows => 2)", UnknownNameError, None, "SHOW TABLES"),
        ("SELECT PREV(x) FROM nix", QueryError, (1, 8), "RECENT"),
        ("SELECT PREV(x) OVER (ORDER BY ts) FROM t", QueryError, (1, 8), "order"),
        ("SELECT PREV() FROM t", QueryError, (1, 8), "PREV(x, 2)"),
        ("SELECT PREV(x, 1, 0) FROM t", QueryError, (1, 8), "PREV(x, 2)"),
        ("SELECT PREV(x, 0) FROM t", QueryError, (1, 8), "PREV(x, 2)"),
        ("SELECT PREV(x, vid) FROM t", QueryError, (1, 8), "PREV(x, 2)"),
        ("SELECT PREV(x, 1.5) FROM t", QueryError, (1, 8), "PREV(x, 2)"),
        ("SELECT PREV(PREV(x)) FROM t", QueryError, (1, 8), "PREV(x, 2)"),
        ("SELECT PREV(sum(x)) FROM t", QueryError, (1, 8), "sum(PREV(x))"),
        ("SELECT PREV(*) FROM t", QueryError, (1, 8), "sum(PREV(x))"),
        ("SELECT PREV(vidd) FROM t", UnknownNameError, (1, 13), '"vid"'),
        ("SELECT x FROM t UNION SELECT 1 ORDER BY PREV(x)", QueryError, (1, 41), "RECENT"),
        ("SELECT 1 FROM range(PREV(x))", QueryError, (1, 21), "RECENT"),
    ],
)
def test_what_is_refused(
    text: str, kind: type[TidemillError], place: tuple[int, int] | None, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        rewrite_prev(body(text), lookup)
    assert hint in (caught.value.hint or "")
    position = caught.value.position
    assert position is not None
    if place is not None:
        assert (position.line, position.column) == place
