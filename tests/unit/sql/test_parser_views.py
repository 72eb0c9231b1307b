"""The parser: views, kept continuous queries and their slides."""

from __future__ import annotations

import pytest
from sqlglot import exp

from tidemill.errors import (
    DefinitionError,
    SettingError,
    SqlSyntaxError,
    TidemillError,
    UnknownNameError,
    UnsupportedError,
)
from tidemill.sql import statements as st
from tidemill.sql.parser import parse, parse_one

GROUPED = "SELECT a, count(*) AS n FROM t GROUP BY a"


def test_create_view() -> None:
    text = f"CREATE MATERIALIZED VIEW v AS\n  {GROUPED}"
    made = parse_one(f"{text} -- a comment\n;")
    assert isinstance(made, st.CreateView)
    assert (made.name, made.columns, made.settings) == ("v", None, {})
    assert (made.or_replace, made.if_not_exists) == (False, False)
    assert isinstance(made.query, exp.Select)
    assert (made.query_text, made.text) == (GROUPED, text)


def test_create_view_with_everything() -> None:
    made = parse_one(
        'CREATE OR REPLACE continuous view main."V 1" (k, "N") WITH (memory = \'64 MB\', '
        "refresh = 'read') AS WITH x AS (SELECT 1 AS a) SELECT a, 2 FROM x UNION ALL VALUES (1, 2)"
    )
    assert isinstance(made, st.CreateView)
    assert (made.name, made.columns, made.or_replace) == ("V 1", ("k", "N"), True)
    assert made.settings == {"memory": "64 MB", "refresh": "read"}
    assert isinstance(made.query, exp.Union)
    made = parse_one("create materialized view if not exists v as from t")
    assert isinstance(made, st.CreateView)
    assert (made.if_not_exists, made.query_text) == (True, "from t")


def _bare(statement: st.Statement) -> tuple[object, ...]:
    fields = {k: v for k, v in vars(statement).items() if k not in ("text", "position")}
    return (type(statement).__name__, *fields.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DROP VIEW v", ("DropView", "v", False, False)),
        ('DROP MATERIALIZED VIEW IF EXISTS main."V 1"', ("DropView", "V 1", True, False)),
        ("DROP CONTINUOUS VIEW v CASCADE", ("DropView", "v", False, True)),
        ("DROP MATERIALIZED VIEW v RESTRICT", ("DropView", "v", False, False)),
        ("SHOW VIEWS", ("ShowViews",)),
        ("SHOW MATERIALIZED VIEWS", ("ShowViews",)),
        ("SHOW CONTINUOUS VIEWS", ("ShowViews",)),
        ("REFRESH MATERIALIZED VIEW v", ("RefreshView", "v")),
        ("refresh continuous view main.v", ("RefreshView", "v")),
        ("REFRESH VIEW v", ("RefreshView", "v")),
        ("EXPLAIN MATERIALIZED VIEW v", ("ExplainView", "v")),
        ("EXPLAIN CONTINUOUS VIEW v", ("ExplainView", "v")),
        ("EXPLAIN VIEW v", ("ExplainView", "v")),
    ],
)
def test_small_statements(text: str, expected: tuple[object, ...]) -> None:
    assert _bare(parse_one(text)) == expected


def test_explain_create_view() -> None:
    explain = parse_one(f"EXPLAIN CREATE MATERIALIZED VIEW v AS {GROUPED}")
    assert isinstance(explain, st.Explain)
    assert isinstance(explain.statement, st.CreateView)


MINUTE = st.Slide(every_us=60_000_000)
ROW = st.Slide(every_row=True)
CLOSE = st.Slide(on_close=True)


@pytest.mark.parametrize(
    ("slide", "expected"),
    [
        ("EVERY INTERVAL '1' MINUTE", MINUTE),
        ("every interval '1 minute'", MINUTE),
        ("EVERY INTERVAL 60 SECONDS", MINUTE),
        ("EVERY '1 minute'", MINUTE),
        ("EVERY 60 seconds", MINUTE),
        ("EVERY ROW", ROW),
        ("every /* each */ row -- of them", ROW),
        ("EMIT ON WINDOW CLOSE", CLOSE),
        ("emit on\nwindow close", CLOSE),
    ],
)
def test_slides(slide: str, expected: st.Slide) -> None:
    made = parse_one(f"CREATE STREAMING TABLE s AS {GROUPED} {slide};")
    assert isinstance(made, st.CreateKeptQuery)
    assert (made.slide, made.query_text, made.settings) == (expected, GROUPED, {})


def test_kept_query_with_everything() -> None:
    made = parse_one(
        f"CREATE OR REPLACE STREAMING TABLE main.s WITH (retention = '5 minutes') AS {GROUPED} "
        "EVERY ROW"
    )
    assert isinstance(made, st.CreateKeptQuery)
    assert (made.name, made.or_replace, made.if_not_exists) == ("s", True, False)
    assert made.settings == {"retention": "5 minutes"}
    assert made.query.sql("duckdb") == "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
    made = parse_one("CREATE STREAMING TABLE IF NOT EXISTS s AS FROM t EVERY ROW")
    assert isinstance(made, st.CreateKeptQuery)
    assert made.if_not_exists


@pytest.mark.parametrize(
    "query",
    [
        "SELECT every FROM t",
        "SELECT every, 1 AS emit FROM t AS every WHERE every > INTERVAL '1' MINUTE",
        "SELECT 'x EVERY ROW', \"every\" FROM t",
        "SELECT a FROM t every",
        "SELECT a FROM t JOIN u emit ON emit.a = t.a",
        "SELECT a FROM t JOIN u every ON every.a = t.a",
        "SELECT a FROM t GROUP BY a ORDER BY every DESC",
        "SELECT CASE WHEN a THEN b END",
        "SELECT a FROM t GROUP BY ALL",
        "SELECT a FROM t LIMIT 5",
        "FROM t SELECT *",
        "SELECT a FROM t WHERE b IS NOT NULL",
        "(SELECT a FROM t)",
        "SELECT [1, 2]",
    ],
)
@pytest.mark.parametrize(
    "slide", ["EVERY ROW", "EVERY INTERVAL '1' MINUTE", "EMIT ON WINDOW CLOSE"]
)
def test_where_the_slide_begins(query: str, slide: str) -> None:
    made = parse_one(f"CREATE STREAMING TABLE s AS {query} {slide}")
    assert isinstance(made, st.CreateKeptQuery)
    assert made.query_text == query


def test_a_column_named_every_is_no_slide_of_a_view() -> None:
    made = parse_one("CREATE MATERIALIZED VIEW v AS SELECT every, count(*) FROM t GROUP BY every")
    assert isinstance(made, st.CreateView)


KEPT = "CREATE STREAMING TABLE s AS SELECT a FROM t"
VIEW = "CREATE MATERIALIZED VIEW v"
BAD: list[tuple[str, type[TidemillError], tuple[int, int, str], str]] = [
    ("CREATE OR REPLACE VIEW v AS SELECT 1", UnsupportedError, (1, 19, "VIEW"), "MATERIALIZED"),
    ("CREATE RECURSIVE VIEW v AS SELECT 1", UnsupportedError, (1, 8, "RECURSIVE"), "MATERIALIZED"),
    ("CREATE MATERIALISED VIEW v", SqlSyntaxError, (1, 8, "MATERIALISED"), '"MATERIALIZED"'),
    ("CREATE CONTINUOUS v AS SELECT 1", SqlSyntaxError, (1, 19, "v"), "docs"),
    (
        "CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS v AS FROM t",
        SqlSyntaxError,
        (1, 37, "IF"),
        "one",
    ),
    (f"{VIEW} SELECT 1", SqlSyntaxError, (1, 28, "SELECT"), "docs"),
    (f"{VIEW} AS", SqlSyntaxError, (1, 30, ""), "docs"),
    (f"{VIEW} AS DELETE FROM t", SqlSyntaxError, (1, 31, "DELETE"), "SELECT"),
    (f"{VIEW} AS SELECT a FROM t EVERY ROW", UnsupportedError, (1, 47, "EVERY"), "STREAMING TABLE"),
    (f"{VIEW} WITH (memry = '1 GB') AS SELECT 1", SettingError, (1, 34, "memry"), '"memory"'),
    (f"{VIEW} WITH (memory = '1 kB') AS FROM t", SettingError, (1, 43, "'1 kB'"), "1 GB"),
    (f"{VIEW} WITH (retention = '1 d') AS FROM t", SettingError, (1, 34, "retention"), "memory"),
    (f"{VIEW} (a, A) AS FROM t", SqlSyntaxError, (1, 32, "A"), "once"),
    (f"{VIEW}$x AS FROM t", DefinitionError, (1, 26, "v$x"), "$"),
    (
        "CREATE MATERIALIZED VIEW tidemill.v AS FROM t",
        DefinitionError,
        (1, 26, "tidemill"),
        "leave",
    ),
    ("CREATE MATERIALIZED VIEW a.v AS FROM t", UnknownNameError, (1, 26, "a"), "schema"),
    (f"{VIEW} AS SELECT a + ? FROM t", UnsupportedError, (1, 42, "?"), "values"),
    (f"{VIEW} AS SELECT $1 FROM t", UnsupportedError, (1, 38, "$"), "values"),
    (
        f"{VIEW} AS SELECT a FROM t FOR SYSTEM_TIME AS OF now()",
        UnsupportedError,
        (1, 69, "now"),
        "CREATE TABLE",
    ),
    (KEPT, SqlSyntaxError, (1, 44, ""), "EVERY ROW or EMIT ON WINDOW CLOSE"),
    (f"{KEPT} -- EVERY ROW", SqlSyntaxError, (1, 44, ""), "EVERY INTERVAL"),
    (f"{KEPT} EVERY ROWS", SqlSyntaxError, (1, 51, "ROWS"), "EVERY ROW"),
    (f"{KEPT} EVERY ROW LIMIT 5", SqlSyntaxError, (1, 55, "LIMIT"), "after the query"),
    (f"{KEPT} EVERY INTERVAL MINUTE", SqlSyntaxError, (1, 60, "MINUTE"), "EVERY INTERVAL"),
    (f"{KEPT} EVERY INTERVAL '1' MONTH", DefinitionError, (1, 60, "'1'"), "EVERY INTERVAL"),
    (f"{KEPT} EVERY '1 us'", DefinitionError, (1, 51, "'1 us'"), "EVERY INTERVAL"),
    (f"{KEPT} EMIT ON WINDOW CLOS", SqlSyntaxError, (1, 60, "CLOS"), "EMIT ON WINDOW CLOSE"),
    (f"{KEPT} WHERE a > ? EVERY ROW", UnsupportedError, (1, 55, "?"), "values"),
    ("CREATE STREAMING TABLE s AS EVERY ROW", SqlSyntaxError, (1, 29, "EVERY"), "SELECT"),
    ("CREATE STREAMING TABLE s AS FLUSH EVERY ROW", TidemillError, (1, 29, "FLUSH"), ""),
    (
        "CREATE STREAMING TABLE s WITH (hot = '1 h')",
        SqlSyntaxError,
        (1, 44, ""),
        "EVERY",
    ),
    (
        "CREATE STREAMING TABLE s (ts TIMESTAMP) AS FROM t EVERY ROW",
        SqlSyntaxError,
        (1, 41, "AS"),
        "cast",
    ),
    (
        "CREATE OR REPLACE STREAMING TABLE IF NOT EXISTS s AS FROM t EVERY ROW",
        SqlSyntaxError,
        (1, 1, "CREATE"),
        "one",
    ),
    ("DROP MATERIALIZED VIEW", SqlSyntaxError, (1, 23, ""), "docs"),
    ("DROP MATERIALIZED v", SqlSyntaxError, (1, 6, "MATERIALIZED"), "docs"),
    ("SHOW VIEW", SqlSyntaxError, (1, 6, "VIEW"), '"VIEWS"'),
    ("SHOW VIEWS FROM t", SqlSyntaxError, (1, 12, "FROM"), ";"),
    ("REFRESH v", SqlSyntaxError, (1, 9, "v"), "docs"),
    ("EXPLAIN ANALYZE MATERIALIZED VIEW v", SqlSyntaxError, (1, 35, "v"), "SELECT * FROM v"),
]


@pytest.mark.parametrize(("text", "kind", "place", "hint"), BAD, ids=[case[0][:60] for case in BAD])
def test_bad_text(
    text: str, kind: type[TidemillError], place: tuple[int, int, str], hint: str
) -> None:
    with pytest.raises(kind) as caught:
        parse(text)
    error = caught.value
    assert error.position is not None
    assert (error.position.line, error.position.column, error.position.words) == place
    assert error.hint
    assert hint in error.hint
