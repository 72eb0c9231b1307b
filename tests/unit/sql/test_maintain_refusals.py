"""What a view cannot be: refused when it is made, with the reason and what to write instead."""

from __future__ import annotations

import pytest
from maintained import split

from tidemill.errors import QueryError, UnknownNameError, UnsupportedError

REFUSED = [
    # Rows that meet without being grouped.
    ("SELECT * FROM s", "groups nothing", "EVERY ROW"),
    ("SELECT k, v FROM s WHERE v > 1 ORDER BY k", "groups nothing", "EVERY ROW"),
    ("SELECT s.k FROM s JOIN u USING (k)", "two streams", "group each"),
    ("SELECT s.k, count(*) FROM s JOIN u USING (k) GROUP BY s.k", "two streams", "group each"),
    (
        "SELECT s.k, count(*) FROM s JOIN (SELECT k, avg(n) a FROM u GROUP BY k) g "
        "ON s.k = g.k AND s.n > g.a GROUP BY s.k",
        "two streams",
        "group each",
    ),
    ("SELECT k, count(*) FROM s WHERE n > (SELECT avg(n) FROM s) GROUP BY k", "two", "group each"),
    ("SELECT k FROM s UNION SELECT k FROM u", "both sides", "group each side"),
    ("SELECT k, lag(v) OVER (ORDER BY ts) FROM s", "window function", "group first"),
    ("SELECT count(*) FROM s FULL JOIN dim USING (k)", "FULL", "group the stream first"),
    ("SELECT DISTINCT ON (k) k, v FROM s", "DISTINCT ON", "QUALIFY"),
    ("SELECT k FROM s LIMIT 3", "as they come", "ORDER BY"),
    ("SELECT k FROM s ORDER BY n OFFSET 3", "OFFSET", "ORDER BY"),
    ("SELECT k, count(*) FROM s GROUP BY ROLLUP (k)", "ROLLUP", "UNION ALL"),
    ("SELECT k, count(*) FROM s USING SAMPLE 10% GROUP BY k", "SAMPLE", ""),
    # Aggregates that need all values.
    ("SELECT k, median(v) FROM s GROUP BY k", "all values", "approx_quantile"),
    ("SELECT k, mode(v) FROM s GROUP BY k", "mode", "count"),
    ("SELECT k, entropy(v) FROM s GROUP BY k", "entropy", "group by the value, count"),
    ("SELECT k, list(v) FROM s GROUP BY k", "as they come", "ORDER BY"),
    # What may be different next time.
    ("SELECT k, count(*) FROM s WHERE random() < 0.5 GROUP BY k", "random", "leave it out"),
    ("SELECT k, any_value(uuid()) FROM s GROUP BY k", "uuid", "leave it out"),
    ("SELECT k, max(current_time) FROM s GROUP BY k", "current_time", "leave it out"),
    ("SELECT count(*) FROM s WHERE age(ts) < INTERVAL '1' DAY", "age(x)", "age(today(), x)"),
    ("SELECT k, count(*) FROM s WHERE k = $1 GROUP BY k", "parameters", "the value itself"),
    ("SELECT k, count(*) FROM s WHERE k = :x GROUP BY k", "parameters", "the value itself"),
    # Other things than streams and reference tables.
    ("SELECT count(*) FROM tidemill.tables", "system table", "directly"),
    ("SELECT count(*) FROM 'x.parquet'", "no table", "reference table"),
    ("SELECT count(*) FROM read_csv('x.csv')", "read_csv", "reference table"),
    ('SELECT count(*) FROM "s$late"', "set aside", "directly"),
    ("SELECT k, count(*) FROM dim GROUP BY k", "no stream", "reference"),
    ("SELECT k, count(*) FROM keyed GROUP BY k", "leave their groups", "'ignore'"),
    ("SELECT count(*) FROM RECENT(keyed, INTERVAL '1' DAY)", "leave their groups", "'ignore'"),
    (
        "SELECT count(*) FROM s FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01'",
        "the past",
        "leave it out",
    ),
    ("VALUES (1)", "only SELECT", "SELECT"),
    ("SELECT tm_rows FROM (SELECT count(*) AS tm_rows FROM s)", '"tm_rows"', "rename"),
    ("SELECT tm_k0 FROM (SELECT count(*) AS tm_k0 FROM s)", "name", "rename"),
    # now() where it changes what a row contributes.
    ("SELECT k, sum(epoch(now() - ts)) FROM s GROUP BY k", "now()", "WHERE"),
    ("SELECT count(*) FILTER (WHERE ts > now() - INTERVAL '1' HOUR) FROM s", "now()", "WHERE"),
    ("SELECT date_diff('day', ts, now()) AS age, count(*) FROM s GROUP BY age", "now()", "WHERE"),
    ("SELECT count(*) FROM s JOIN dim ON s.k = dim.k AND s.ts > now()", "ON of a join", "WHERE"),
    (
        "SELECT count(*) FROM s WHERE ts > now() - INTERVAL '1' HOUR OR flag",
        "no window",
        "ts > now()",
    ),
    ("SELECT count(*) FROM s WHERE ts + INTERVAL '1' MONTH > now()", "no window", "ts > now()"),
    ("SELECT count(*) FROM s WHERE ts <> now()", "no window", "ts > now()"),
    ("SELECT count(*) FROM s WHERE ts > now() - CAST(NULL AS INTERVAL)", "NULL", "now()"),
    ("SELECT count(*) FROM s WHERE ts > now() - INTERVAL '900000' YEAR", "fails", "query"),
    # Sessions.
    ("SELECT * FROM SESSION(s, ts, INTERVAL '1' MINUTE)", "not grouped", "GROUP BY ALL"),
    (
        "SELECT name, count(*) FROM SESSION(s, ts, INTERVAL '1' MINUTE, partition_by => k) "
        "GROUP BY name, window_start",
        "name, which is not in their partition_by",
        "partition_by => (k, name)",
    ),
    (
        "SELECT max(window_end - window_start) FROM SESSION(s, ts, INTERVAL '1' MINUTE)",
        "before its last row",
        "group by window_start",
    ),
    (
        "SELECT label, window_start, count(*) FROM SESSION(s, ts, INTERVAL '1' MINUTE) x "
        "JOIN dim USING (k) GROUP BY ALL",
        "not grouped by their session",
        "join",
    ),
    (
        "SELECT window_start, count(*) FROM SESSION(s, ts, INTERVAL '1' MINUTE) "
        "WHERE ts > now() - INTERVAL '1' HOUR GROUP BY ALL",
        "now()",
        "window_start",
    ),
]


@pytest.mark.parametrize(("query", "reason", "hint"), REFUSED, ids=[q for q, *_ in REFUSED])
def test_refused(query: str, reason: str, hint: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        split(query)
    assert reason in str(caught.value.detail)
    assert caught.value.hint
    assert hint in caught.value.hint


def test_an_unknown_table() -> None:
    with pytest.raises(UnknownNameError, match='"nowhere" does not exist'):
        split("SELECT count(*) FROM nowhere")


def test_an_unknown_column() -> None:
    with pytest.raises(QueryError, match="nothing"):
        split("SELECT nothing, count(*) FROM s GROUP BY ALL")


def test_a_type_that_no_table_has() -> None:
    with pytest.raises(UnsupportedError, match="type BIT"):
        split("SELECT bitstring(k::VARCHAR, 8) AS b, count(*) FROM s WHERE k IN (0, 1) GROUP BY b")
