"""Stream windows: the rewritten SQL, run in DuckDB, against a recomputation in Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support import body, bound_values, duck, rewrite, table

from tidemill.clock import from_us, to_us
from tidemill.errors import QueryError, TidemillError, UnknownNameError
from tidemill.sql.windows import NowBounds, rewrite_deferred

TABLES = {
    "t": table("t", "ts", ts="TIMESTAMP", vid="INTEGER", x="BIGINT", _window="INTEGER"),
    "z": table("z", "ts", ts="TIMESTAMPTZ", vid="INTEGER", x="BIGINT", _window="INTEGER"),
    "two": table("two", "ts", ts="TIMESTAMP", seen="TIMESTAMP"),
    "ref": table("ref", None, a="INTEGER"),
}
NOW = to_us(datetime(2024, 1, 1, 12))
SECOND = 1_000_000
Row = tuple[int, int | None, int]  # ts in microseconds, vid, x


def lookup(name: str) -> object:
    return TABLES.get(name.lower())


def now(name: str) -> NowBounds:
    return NowBounds(NOW, NOW + 5 * SECOND)


rows_of_stream = some.lists(
    some.tuples(
        some.integers(-90, 60).map(lambda half: NOW + half * SECOND // 2),
        some.sampled_from([1, 2, None]),
        some.integers(0, 1000),
    ),
    max_size=25,
)
name_of_stream = some.sampled_from(["t", "z"])


def run(name: str, rows: list[Row], text: str) -> list[tuple[object, ...]]:
    """The answer of a query, by both ways of giving it the time; times as microseconds."""
    query = body(text)
    with duck() as connection:
        type_ = "TIMESTAMPTZ" if name == "z" else "TIMESTAMP"
        connection.execute(
            f"CREATE TABLE {name} (ts {type_}, vid INTEGER, x BIGINT, _window INTEGER, _seq BIGINT)"
        )
        for seq, (us, vid, x) in enumerate(rows):
            connection.execute(
                f"INSERT INTO {name} VALUES (?::TIMESTAMP, ?, ?, NULL, ?)",
                [from_us(us), vid, x, seq],
            )
        literal = connection.execute(rewrite(query, lookup, now).sql("duckdb")).fetchall()
        deferred = rewrite_deferred(query, lookup)
        sql, values = deferred.query.sql("duckdb"), bound_values(deferred, now)
        assert connection.execute(sql, values or None).fetchall() == literal
    return [tuple(to_us(v) if isinstance(v, datetime) else v for v in row) for row in literal]


@settings(max_examples=40, deadline=None)
@given(name_of_stream, rows_of_stream, some.integers(1, 40))
def test_tumble(name: str, rows: list[Row], size: int) -> None:
    got = run(
        name,
        rows,
        "SELECT ts, vid, x, window_start, window_end "
        f"FROM TUMBLE({name}, ts, INTERVAL '{size}' SECOND)",
    )
    size_us = size * SECOND
    expected = [(ts, vid, x, ts - ts % size_us, ts - ts % size_us + size_us) for ts, vid, x in rows]
    assert Counter(got) == Counter(expected)


@settings(max_examples=60, deadline=None)
@given(name_of_stream, rows_of_stream, some.integers(1, 12), some.integers(1, 30))
def test_hop(name: str, rows: list[Row], slide: int, size: int) -> None:
    got = run(
        name,
        rows,
        f"SELECT ts, vid, x, window_start, window_end FROM HOP({name}, ts, "
        f"INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND)",
    )
    expected = []
    for ts, vid, x in rows:
        start = (ts // (slide * SECOND)) * slide * SECOND
        while start + size * SECOND > ts:
            expected.append((ts, vid, x, start, start + size * SECOND))
            start -= slide * SECOND
    assert Counter(got) == Counter(expected)


def sessions(
    rows: list[Row], gap_us: int, key: Callable[[Row], object]
) -> list[tuple[object, ...]]:
    out: list[tuple[object, ...]] = []
    for _, members in groupby(sorted(rows, key=lambda row: (str(key(row)), row[0])), key=key):
        current: list[Row] = []
        for row in [*members, None]:
            if row is not None and (not current or row[0] - current[-1][0] < gap_us):
                current.append(row)
                continue
            out += [(*old, current[0][0], current[-1][0] + gap_us) for old in current]
            current = [row] if row is not None else []
    return out


@settings(max_examples=60, deadline=None)
@given(
    name_of_stream, rows_of_stream, some.integers(1, 10), some.sampled_from(["", "vid", "(vid, x)"])
)
def test_session(name: str, rows: list[Row], gap: int, keys: str) -> None:
    partition = f", partition_by => {keys}" if keys else ""
    got = run(
        name,
        rows,
        "SELECT ts, vid, x, window_start, window_end "
        f"FROM SESSION({name}, ts, INTERVAL '{gap}' SECOND{partition})",
    )
    key = {"": lambda row: None, "vid": lambda row: row[1], "(vid, x)": lambda row: row[1:]}[keys]
    assert Counter(got) == Counter(sessions(rows, gap * SECOND, key))


@settings(max_examples=40, deadline=None)
@given(name_of_stream, rows_of_stream, some.integers(1, 60))
def test_recent_interval(name: str, rows: list[Row], length: int) -> None:
    got = run(name, rows, f"SELECT ts, vid, x FROM RECENT({name}, INTERVAL '{length}' SECOND)")
    low, high = NOW - length * SECOND, NOW + 5 * SECOND
    newest = sorted(enumerate(rows), key=lambda pair: (-pair[1][0], -pair[0]))
    assert got == [row for _, row in newest if low <= row[0] <= high]


@settings(max_examples=40, deadline=None)
@given(name_of_stream, rows_of_stream, some.integers(1, 6))
def test_recent_rows(name: str, rows: list[Row], k: int) -> None:
    newest = sorted(enumerate(rows), key=lambda pair: (-pair[1][0], -pair[0]))
    arrived = [row for _, row in newest if row[0] <= NOW + 5 * SECOND]
    assert run(name, rows, f"SELECT ts, vid, x FROM RECENT({name}, rows => {k})") == arrived[:k]
    seen: Counter[object] = Counter()
    expected = []
    for row in arrived:
        seen[row[1]] += 1
        if seen[row[1]] <= k:
            expected.append(row)
    text = f"SELECT ts, vid, x FROM RECENT({name}, rows => {k}, partition_by => vid)"
    assert run(name, rows, text) == expected


@pytest.mark.parametrize(
    "call",
    [
        "TUMBLE(t, ts, INTERVAL '1' MINUTE)",
        "TUMBLE(main.t, ts, '1 minute'::INTERVAL)",
        "TUMBLE(t, ts, to_minutes(1))",
        "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '60' SECONDS)",
        "TUMBLE(data => TABLE t, timecol => DESCRIPTOR(ts), size => INTERVAL '1 minute')",
        "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
        "tumble(T, TS, size => '1 minute')",
    ],
)
def test_spellings(call: str) -> None:
    one = rewrite(body("SELECT * FROM TUMBLE(t, ts, INTERVAL '1' MINUTE)"), lookup, now)
    assert rewrite(body(f"SELECT * FROM {call}"), lookup, now).sql() == one.sql()


def test_aliases_and_hidden_column() -> None:
    rows: list[Row] = [(NOW, 1, 5), (NOW + SECOND, 2, 6)]
    star = run("t", rows, "SELECT * FROM RECENT(t, INTERVAL '1' MINUTE)")
    assert star == [(NOW + SECOND, 2, 6, None), (NOW, 1, 5, None)]
    assert run("t", rows, "SELECT t.x FROM RECENT(t, rows => 1)") == [(6,)]
    assert run("t", rows, "SELECT r.x FROM RECENT(t, rows => 1) AS r") == [(6,)]
    assert run("t", rows, "SELECT c FROM RECENT(t, rows => 1) AS r(a, b, c)") == [(6,)]
    assert run(
        "t",
        rows,
        "SELECT a.x + b.x FROM RECENT(t, rows => 1) a JOIN RECENT(t, rows => 2) b ON a.vid > b.vid",
    ) == [(11,)]
    assert run(
        "t", rows, "WITH t AS (SELECT * FROM RECENT(t, rows => 1)) SELECT count(*) FROM t"
    ) == [(1,)]
    with pytest.raises(Exception, match="_seq"):
        run("t", rows, "SELECT _seq FROM RECENT(t, rows => 1)")


def test_order_only_where_the_user_sees_it() -> None:
    def sql(text: str) -> str:
        return rewrite(body(text), lookup, now).sql("duckdb")

    assert "ORDER BY" in sql("SELECT vid FROM RECENT(t, INTERVAL '1' DAY) WHERE x > 1 LIMIT 3")
    for text in (
        "SELECT count(*) FROM RECENT(t, INTERVAL '1' DAY)",
        "SELECT vid FROM RECENT(t, INTERVAL '1' DAY) GROUP BY vid",
        "SELECT DISTINCT vid FROM RECENT(t, INTERVAL '1' DAY)",
        "SELECT count(*) FROM (SELECT * FROM RECENT(t, INTERVAL '1' DAY))",
    ):
        assert "ORDER BY" not in sql(text)
    assert sql("SELECT * FROM RECENT(t, INTERVAL '1' DAY) ORDER BY x").count("ORDER BY") == 1


def test_input_is_not_changed_and_parameters_are_read() -> None:
    query = body("SELECT * FROM RECENT(t, $1)")
    before = query.sql()
    deferred = rewrite_deferred(query, lookup, ["1 minute"])
    assert query.sql() == before
    assert [bound.before_us for bound in deferred.bounds] == [0, 60 * SECOND]
    plain = body("SELECT 1 FROM t")
    assert rewrite(plain, lookup, now) is plain


def test_times_beyond_the_calendar() -> None:
    def far(name: str) -> NowBounds:
        return NowBounds(2**62, 2**62)

    text = rewrite(body("SELECT * FROM RECENT(t, INTERVAL '1' DAY)"), lookup, far).sql("duckdb")
    assert "9999-12-31 23:59:59.999999" in text


BAD = [
    ("TUMBLE(t)", QueryError, "needs timecol, size"),
    ("TUMBLE(nope, ts, INTERVAL '1' MINUTE)", UnknownNameError, '"nope"'),
    ("TUMBLE(ref, a, INTERVAL '1' MINUTE)", QueryError, "not a streaming table"),
    ("TUMBLE(t, vid, INTERVAL '1' MINUTE)", QueryError, "not a time"),
    ("TUMBLE(t, tss, INTERVAL '1' MINUTE)", UnknownNameError, '"tss"'),
    ("TUMBLE(t, ts, INTERVAL '1' MONTH)", QueryError, "fixed length"),
    ("TUMBLE(t, ts, INTERVAL '0' MINUTE)", QueryError, "longer than nothing"),
    ("TUMBLE(t, ts, INTERVAL '-1' MINUTE)", QueryError, "longer than nothing"),
    ("TUMBLE(t, ts, 5)", QueryError, "fixed length"),
    ("TUMBLE(t, ts, x)", QueryError, "fixed length"),
    ("TUMBLE(t, ts, INTERVAL '1' MINUTE, 5)", QueryError, "too many"),
    ("TUMBLE(t, ts, INTERVAL '1' MINUTE, sise => 5)", QueryError, '"sise"'),
    ("TUMBLE(t, ts, INTERVAL '1' MINUTE, size => INTERVAL '1' DAY)", QueryError, "twice"),
    ("HOP(t, ts, INTERVAL '1' MINUTE)", QueryError, "needs size"),
    ("HOP(t, ts, INTERVAL '1' MICROSECOND, INTERVAL '1' DAY)", QueryError, "windows"),
    ("SESSION(t, ts, INTERVAL '1' MINUTE, partition_by => nope)", UnknownNameError, '"nope"'),
    ("SESSION(t, ts, INTERVAL '1' MINUTE, partition_by => 1 + 1)", QueryError, "name columns"),
    ("RECENT(t)", QueryError, "either"),
    ("RECENT(t, 5)", QueryError, "fixed length"),
    ("RECENT(t, rows => 0)", QueryError, "above zero"),
    ("RECENT(t, rows => 'x')", QueryError, "above zero"),
    ("RECENT(t, INTERVAL '1' DAY, rows => 1)", QueryError, "either"),
    ("RECENT(t, INTERVAL '1' DAY, partition_by => vid)", QueryError, "belongs to rows"),
    ("RECENT('t', rows => 1)", QueryError, "must be a table"),
    ("RECENT(other.t, rows => 1)", UnknownNameError, "other.t"),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD, ids=[case[0] for case in BAD])
def test_bad_calls(call: str, kind: type[TidemillError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        rewrite(body(f"SELECT *\nFROM {call}"), lookup, now)
    assert caught.value.hint
    assert caught.value.position is not None
    assert caught.value.position.line == 2
    assert caught.value.position.column >= 6


def test_window_over_a_with_query() -> None:
    with pytest.raises(QueryError, match="WITH query"):
        rewrite(body("WITH t AS (SELECT 1) SELECT * FROM RECENT(t, rows => 1)"), lookup, now)


def test_other_time_columns_may_be_null() -> None:
    with duck() as connection:
        connection.execute("CREATE TABLE two (ts TIMESTAMP, seen TIMESTAMP, _seq BIGINT)")
        connection.execute(
            "INSERT INTO two VALUES ('2024-01-01', NULL, 1), ('2024-01-01', '2024-01-02', 2)"
        )
        for call in (
            "TUMBLE(two, seen, INTERVAL '1' DAY)",
            "HOP(two, seen, INTERVAL '1' DAY, INTERVAL '1' DAY)",
            "SESSION(two, seen, INTERVAL '1' DAY)",
        ):
            sql = rewrite(body(f"SELECT window_start FROM {call}"), lookup, now).sql("duckdb")
            assert connection.execute(sql).fetchall() == [(datetime(2024, 1, 2),)]
