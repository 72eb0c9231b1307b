"""The parts of split views: their shape, panes, what reading reaches, and views over views."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from maintained import Streams, check_view, split
from support import body

from tidemill.sql.maintain import Pane, Reach, expand_views, from_json, reach_of, read_sql, to_json

S, M, H = 1_000_000, 60_000_000, 3_600_000_000


@pytest.fixture(scope="module")
def streams() -> Iterator[Streams]:
    made = Streams(11, rows=60)
    yield made
    made.close()


# Shape.


def test_a_plain_grouping() -> None:
    parts = split("SELECT k, count(*) AS c FROM s GROUP BY k")
    (digest,) = parts.digests
    assert (digest.keys, digest.states, digest.visible) == (("k0",), ("s0",), ("k0",))
    assert (digest.table, digest.types) == ("s", ("INTEGER", "BIGINT"))
    assert digest.is_single
    assert digest.pane is digest.condition is digest.rows_window is None
    assert digest.partial == digest.edge
    assert digest.merge == digest.collapse
    assert (parts.streams, parts.columns, parts.types) == (
        ("s",),
        ("k", "c"),
        ("INTEGER", "BIGINT"),
    )
    assert parts.final == 'SELECT "k0" AS "k", "s0" AS "c" FROM tm_digest_0'
    assert read_sql(digest, "x") == 'SELECT "k0", "s0" FROM x'


def test_reference_tables_below_and_above() -> None:
    parts = split(
        "SELECT zone, c FROM (SELECT s.name, label, count(*) AS c FROM s JOIN dim USING (k) "
        "GROUP BY ALL) JOIN zones USING (name)"
    )
    assert parts.digests[0].references == ()
    assert "tm_ref" not in parts.digests[0].partial
    assert parts.above == (3, 4)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT label, sum(n * weight) FROM s JOIN dim USING (k) GROUP BY 1", "alone"),
        ("SELECT label, n FROM s JOIN dim USING (k) ORDER BY n LIMIT 3", "first rows"),
        (
            "SELECT label, count(*) FROM (SELECT s.*, label FROM s JOIN dim d ON s.k = d.k) "
            "GROUP BY label",
            "a subquery joins the stream",
        ),
        ("SELECT label, count(*) FROM s NATURAL JOIN dim GROUP BY label", "NATURAL"),
        (
            "SELECT k, sum(n * (SELECT max(weight) FROM dim)) AS w FROM "
            "SESSION(s, ts, INTERVAL '1' MINUTE, partition_by => k) GROUP BY k, window_start",
            "an aggregate over sessions",
        ),
    ],
)
def test_what_cannot_be_grouped_first_is_answered_by_its_query(query: str, reason: str) -> None:
    parts = split(query)
    assert parts.digests == ()
    assert reason in parts.reason
    assert parts.above == (3,)
    assert parts.streams == ("s",)
    assert from_json(to_json(parts)) == parts
    assert parts.explain() == [f"answered by its query: {parts.reason}"]


def test_a_condition_on_now_fixes_its_hidden_key() -> None:
    (digest,) = split(
        "SELECT k, count(*) FROM s WHERE date_trunc('week', ts) = date_trunc('week', now()) "
        "GROUP BY k"
    ).digests
    assert (digest.keys, digest.visible, digest.is_single) == (("k0", "h0"), ("k0",), True)
    assert "$tidemill_now" in str(digest.condition)
    assert "WHERE" in read_sql(digest, "x")
    assert "tm_partials" not in read_sql(digest, "x")


def test_a_key_that_is_asked_by_range_is_merged() -> None:
    (digest,) = split(
        "SELECT k, count(*) FROM s WHERE ts::DATE > current_date - 7 GROUP BY k"
    ).digests
    assert not digest.is_single
    assert "tm_partials" in read_sql(digest, "x")


def test_one_group_without_keys_is_always_merged() -> None:
    (digest,) = split("SELECT count(*) FROM s").digests
    assert not digest.is_single  # a state without rows still has an answer


@pytest.mark.parametrize("key", ["window_start", "window_end", "window_start, window_end"])
def test_closed_windows_need_no_hidden_key(key: str) -> None:
    (digest,) = split(
        f"SELECT {key}, count(*) FROM HOP(s, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) "
        "WHERE window_end <= now() GROUP BY ALL"
    ).digests
    assert digest.keys == digest.visible
    assert digest.is_single


def test_the_time_as_a_key_needs_no_panes() -> None:
    (digest,) = split("SELECT ts, count(*) FROM RECENT(s, INTERVAL '5' MINUTE) GROUP BY ts").digests
    assert digest.pane is None
    assert digest.is_single


def test_rows_windows() -> None:
    (digest,) = split("SELECT * FROM RECENT(s, rows => 3)").digests
    assert (digest.kind, digest.keys, digest.with_seq) == ("top", (), True)
    assert digest.rows_window == "CAST($tidemill_bound_0 AS TIMESTAMP)"
    assert "tidemill" not in digest.partial
    assert digest.rows_window in digest.edge


def test_equal_digests_are_one() -> None:
    views = {"v": "SELECT k, count(*) AS c FROM s GROUP BY k"}
    parts = split("SELECT x.k, x.c + y.c AS c FROM v x JOIN v y USING (k)", views)
    assert len(parts.digests) == 1
    assert parts.final.count("tm_digest_0") == 2


def test_sets_are_said_to_grow() -> None:
    (digest,) = split("SELECT k, count(DISTINCT name) FROM s GROUP BY k").digests
    assert digest.growing == ("s0: the distinct values of name",)


def test_json_keeps_everything() -> None:
    parts = split(
        "SELECT k, count(*) FROM RECENT(s, INTERVAL '5' MINUTE) GROUP BY k UNION ALL "
        "SELECT k, count(*) FROM u WHERE at::DATE = today() GROUP BY k"
    )
    assert from_json(to_json(parts)) == parts
    assert parts.explain()


# Panes.


@pytest.mark.parametrize(
    ("window", "size_us"),
    [
        ("INTERVAL '1' MILLISECOND", 1_000),
        ("INTERVAL '5' SECOND", 100_000),
        ("INTERVAL '1' MINUTE", S),
        ("INTERVAL '5' MINUTE", 5 * S),
        ("INTERVAL '1' HOUR", M),
        ("INTERVAL '1' DAY", 15 * M),
        ("INTERVAL '30' DAY", 12 * H),
        ("INTERVAL '10' YEAR", 7 * 24 * H),
    ],
)
def test_the_size_of_panes(window: str, size_us: int) -> None:
    (digest,) = split(f"SELECT k, count(*) FROM s WHERE ts > now() - {window} GROUP BY k").digests
    assert digest.pane is not None
    assert digest.pane.size_us == size_us
    assert digest.pane.high is None
    assert digest.pane.low_open


def test_panes_of_truncated_windows() -> None:
    (digest,) = split("SELECT count(*) FROM s WHERE ts >= date_trunc('day', now())").digests
    assert digest.pane is not None
    assert digest.pane.size_us == 15 * M  # the longest such a window gets is a day


def test_several_ends() -> None:
    (digest,) = split(
        "SELECT count(*) FROM RECENT(s, INTERVAL '1' HOUR) WHERE ts > now() - INTERVAL '5' MINUTE"
    ).digests
    assert digest.pane is not None
    assert digest.pane.low is not None
    assert digest.pane.low.startswith("GREATEST(")
    assert digest.pane.size_us == 5 * S


# What reading reaches.

PANE = Pane("h0", 10, "low", "high")
OPEN = Pane("h0", 10, "low", "high", low_open=True, high_open=True)


@pytest.mark.parametrize(
    ("pane", "ends", "newest", "reach"),
    [
        (PANE, (20, 39), None, Reach(20, 40)),
        (PANE, (20, 40), None, Reach(20, 40, ((40, 50),))),
        (OPEN, (20, 40), None, Reach(30, 40, ((20, 30),))),
        (PANE, (21, 40), 40, Reach(30, None, ((20, 30),))),
        (PANE, (21, 40), 41, Reach(30, 40, ((20, 30), (40, 50)))),
        (PANE, (None, 35), None, Reach(None, 30, ((30, 40),))),
        (PANE, (None, 35), 35, Reach(None, None)),
        (PANE, (-15, None), None, Reach(-10, None, ((-20, -10),))),
        (PANE, (23, 27), None, Reach(0, 0, ((20, 30),))),
        (PANE, (23, 37), None, Reach(0, 0, ((20, 40),))),
        (PANE, (27, 23), None, Reach(0, 0)),
        (PANE, (20, 20), None, Reach(0, 0, ((20, 30),))),
        (OPEN, (20, 20), None, Reach(0, 0)),
    ],
)
def test_reach(
    pane: Pane, ends: tuple[int | None, int | None], newest: int | None, reach: Reach
) -> None:
    assert reach_of(pane, *ends, newest) == reach


def test_times_are_in_the_panes_or_at_the_edges() -> None:
    """Every time inside is reached in one way, and none outside by a pane."""
    for pane in (PANE, OPEN):
        for low in range(15, 35):
            for high in range(15, 45):
                reach = reach_of(pane, low, high)
                for time in range(60):
                    start = time // 10 * 10
                    in_pane = (reach.first_us or 0) <= start < (reach.end_us or 0)
                    in_edge = any(a <= time < b for a, b in reach.edges if a is not None and b)
                    is_open = pane.low_open
                    inside = low < time < high if is_open else low <= time <= high
                    assert not (in_pane and in_edge)
                    assert in_pane or in_edge or not inside
                    assert inside or not in_pane


# Views over views.

VIEWS = {
    "per_key": "SELECT k, count(*) AS c, sum(n) AS total FROM s GROUP BY k",
    "big": "SELECT * FROM per_key WHERE c > 5",
    "recent": "WITH s AS (SELECT * FROM RECENT(s, INTERVAL '5' MINUTE)) "
    "SELECT k, count(*) AS c FROM s GROUP BY k",
    "Odd name": 'SELECT name AS "a b", max(n) AS m FROM s GROUP BY name',
}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM per_key",
        "SELECT count(*) FROM big",
        "SELECT b.k, label FROM big AS b JOIN dim USING (k) ORDER BY b.k, label",
        "WITH s AS (SELECT k, c FROM per_key) SELECT s.k, s.c, x.c AS other FROM s JOIN per_key x "
        "USING (k)",
        "WITH s AS (SELECT * FROM per_key), per_key AS (SELECT * FROM big) "
        "SELECT s.c, per_key.total FROM s JOIN per_key USING (k)",
        'SELECT "a b", m FROM "Odd name" ORDER BY 1',
        'SELECT "Odd name"."a b" FROM "Odd name" WHERE m > 10',
        "SELECT per_key.k, total, u.c FROM per_key "
        "JOIN (SELECT k, count(*) AS c FROM u GROUP BY k) u USING (k)",
        "SELECT t.x, t.y FROM per_key AS t(x, y) WHERE y > 2",
        "SELECT * FROM recent",
        "SELECT k FROM per_key WHERE c > (SELECT avg(c) FROM per_key)",
    ],
)
def test_views_over_views(streams: Streams, query: str) -> None:
    check_view(streams, query, VIEWS)


def test_names_of_with_queries_do_not_catch_those_of_a_view() -> None:
    query = body("WITH S AS (SELECT 1 AS one) SELECT * FROM v, S")
    view = body("SELECT k, count(*) AS c FROM s GROUP BY k")
    made = expand_views(query, lambda name: view if name == "v" else None)
    assert made.sql(dialect="duckdb") == (
        'WITH "s_" AS (SELECT 1 AS one) SELECT * FROM '
        '(SELECT k, COUNT(*) AS c FROM s GROUP BY k) AS "v", "s_" AS S'
    )
    assert query.sql() == "WITH S AS (SELECT 1 AS one) SELECT * FROM v, S"
