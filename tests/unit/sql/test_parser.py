"""The parser: one case for every statement, and what is refused, with place and hint."""

from __future__ import annotations

import pytest

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

POS_REPORTS = """CREATE STREAMING TABLE pos_reports (
  ts TIMESTAMP, vid BIGINT NOT NULL, spd INT DEFAULT 5 NOT NULL,
  tags STRUCT(a INT, b VARCHAR)[], price DECIMAL(10, 2), m MAP(VARCHAR, INT),
  seen TIMESTAMP WITH TIME ZONE, d DOUBLE PRECISION NULL,
  PRIMARY KEY (vid, ts),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (partition = '1 hour', retention = '90 days', on_conflict = 'ignore', memory = 5000000)"""


def test_create_streaming_table() -> None:
    made = parse_one(POS_REPORTS)
    assert isinstance(made, st.CreateStreamingTable)
    assert made.name == "pos_reports"
    assert [(column.name, column.type.name) for column in made.columns] == [
        ("ts", "TIMESTAMP"),
        ("vid", "BIGINT"),
        ("spd", "INTEGER"),
        ("tags", "STRUCT(a INTEGER, b VARCHAR)[]"),
        ("price", "DECIMAL(10,2)"),
        ("m", "MAP(VARCHAR, INTEGER)"),
        ("seen", "TIMESTAMP WITH TIME ZONE"),
        ("d", "DOUBLE"),
    ]
    assert [column.name for column in made.columns if not column.nullable] == ["ts", "vid", "spd"]
    assert made.columns[2].default == "5"
    assert made.time_column == "ts"
    assert made.watermark == st.Watermark("ts", 5_000_000)
    assert made.primary_key == ("vid", "ts")
    assert made.settings == {
        "partition": "1 hour",
        "retention": "90 days",
        "on_conflict": "ignore",
        "memory": "5000000",
    }
    assert made.text == POS_REPORTS


@pytest.mark.parametrize(
    ("definition", "time_column", "delay_us"),
    [
        ("(a INT, at TIMESTAMPTZ)", "at", None),
        ("(a TIMESTAMP, b TIMESTAMP, WATERMARK FOR b AS b)", "b", 0),
        ("(a TIMESTAMP, WATERMARK FOR A AS a - INTERVAL '5 seconds')", "a", 5_000_000),
        ("(a TIMESTAMP, WATERMARK FOR a AS a - INTERVAL 2 MINUTE)", "a", 120_000_000),
        ("(a TIMESTAMP, watermark INT)", "a", None),
    ],
)
def test_time_column(definition: str, time_column: str, delay_us: int | None) -> None:
    made = parse_one(f"CREATE STREAMING TABLE t {definition}")
    assert isinstance(made, st.CreateStreamingTable)
    assert made.time_column == time_column
    assert (made.watermark.delay_us if made.watermark else None) == delay_us
    assert next(c for c in made.columns if c.name == time_column).nullable is False


def test_flags_and_names() -> None:
    made = parse_one('CREATE OR REPLACE STREAMING TABLE main."My ""T""" ("select" TIMESTAMP)')
    assert isinstance(made, st.CreateStreamingTable)
    assert (made.name, made.or_replace, made.columns[0].name) == ('My "T"', True, "select")
    made = parse_one("create streaming table if not exists t (ts timestamp)")
    assert isinstance(made, st.CreateStreamingTable)
    assert made.if_not_exists


def test_create_table() -> None:
    made = parse_one(
        "CREATE TABLE IF NOT EXISTS r (a INT PRIMARY KEY, b VARCHAR UNIQUE CHECK (b <> ''), "
        "UNIQUE (a, b), CHECK (a > 0), c INT DEFAULT (1 + 2))"
    )
    assert isinstance(made, st.CreateTable)
    assert made.primary_key == ("a",)
    assert made.columns[0].nullable is False
    assert made.columns[2].default == "(1 + 2)"
    assert made.constraints == (
        'UNIQUE ("b")',
        "CHECK (b <> '')",
        'UNIQUE ("a", "b")',
        "CHECK (a > 0)",
    )


def test_create_table_as() -> None:
    made = parse_one("CREATE OR REPLACE TABLE r AS WITH x AS (SELECT 1) SELECT * FROM x")
    assert isinstance(made, st.CreateTable)
    assert made.or_replace
    assert made.query is not None
    assert made.columns == ()


def _bare(statement: st.Statement) -> tuple[object, ...]:
    fields = {k: v for k, v in vars(statement).items() if k not in ("text", "position")}
    return (type(statement).__name__, *fields.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE INDEX ON t (a)", ("CreateIndex", None, "t", ("a",), "ordered", False, False)),
        (
            "CREATE UNIQUE INDEX IF NOT EXISTS i ON main.t USING hash (a, b)",
            ("CreateIndex", "i", "t", ("a", "b"), "hash", True, True),
        ),
        (
            "CREATE INDEX i ON t USING BTREE (a)",
            ("CreateIndex", "i", "t", ("a",), "ordered", False, False),
        ),
        ("DROP INDEX IF EXISTS i", ("DropIndex", "i", True)),
        ("DROP TABLE t", ("DropTable", "t", False)),
        ("DROP STREAMING TABLE IF EXISTS t", ("DropTable", "t", True)),
        ("ALTER TABLE t SET (late = 'divert')", ("AlterTableSet", "t", {"late": "divert"})),
        (
            "ALTER STREAMING TABLE t SET (hot = INTERVAL '5' MINUTE, memory = '5 MB')",
            ("AlterTableSet", "t", {"hot": "5 minute", "memory": "5 MB"}),
        ),
        ("SHOW TABLES", ("ShowTables",)),
        ("SHOW INDEXES", ("ShowIndexes", None)),
        ("SHOW INDEXES ON t", ("ShowIndexes", "t")),
        ("SHOW INDEXES FROM t", ("ShowIndexes", "t")),
        ("DESCRIBE t", ("Describe", "t")),
        ("DESC t$late", ("Describe", "t$late")),
        ("SHOW COLUMNS FROM tidemill.tables", ("Describe", "tidemill.tables")),
        ('DESCRIBE "a.b"', ("Describe", "a.b")),
        ("FLUSH t", ("Flush", "t")),
        ('FLUSH TABLE main."a ""b"";"', ("Flush", 'a "b";')),
        ("flush", ("Flush", None)),
        ("FLUSH ALL", ("Flush", None)),
        ("VACUUM", ("Vacuum", None, False)),
        ("VACUUM ALL", ("Vacuum", None, False)),
        ("VACUUM t DROP DAMAGED", ("Vacuum", "t", True)),
        ("vacuum t", ("Vacuum", "t", False)),
        ('VACUUM "full"', ("Vacuum", "full", False)),
        ('VACUUM "a;b\'c" -- x', ("Vacuum", "a;b'c", False)),
        ("DROP SOURCE s", ("DropSource", "s", False)),
        ('DROP SOURCE IF EXISTS "S ;"', ("DropSource", "S ;", True)),
        ("SHOW SOURCES", ("ShowSources",)),
        ("SHOW JOBS", ("ShowJobs",)),
        ("SHOW PARTITIONS", ("ShowPartitions", None)),
        ("SHOW PARTITIONS FROM main.t", ("ShowPartitions", "t")),
        ("SHOW PARTITIONS ON t", ("ShowPartitions", "t")),
    ],
)
def test_small_statements(text: str, expected: tuple[object, ...]) -> None:
    assert _bare(parse_one(text)) == expected


@pytest.mark.parametrize(
    ("text", "path", "format_", "options"),
    [
        ("COPY t FROM 'x.csv'", "x.csv", "csv", {}),
        (
            "COPY t FROM 'x.CSV.gz' (HEADER, DELIM '|')",
            "x.CSV.gz",
            "csv",
            {"header": True, "delim": "|"},
        ),
        ("COPY t FROM 'x.tsv'", "x.tsv", "csv", {"delimiter": "\t"}),
        ("COPY t FROM 'x.jsonl.zst'", "x.jsonl.zst", "ndjson", {}),
        ("COPY t FROM 'in/[0-9]*.csv'", "in/[0-9]*.csv", "csv", {}),
        ("COPY t FROM 's3://b/*/x?.pq'", "s3://b/*/x?.pq", "parquet", {}),
        ("COPY t FROM 'http://h/x.csv.gz?k=1.5'", "http://h/x.csv.gz?k=1.5", "csv", {}),
        ("COPY t FROM 'x.json' WITH (FORMAT ndjson)", "x.json", "ndjson", {}),
        (
            "COPY t FROM 'x' (FORMAT PARQUET, N -1, F 1.5, L (a, 'b'), S {'a': 'INT'}, B no)",
            "x",
            "parquet",
            {"n": -1, "f": 1.5, "l": ("a", "b"), "s": {"a": "INT"}, "b": "no"},
        ),
    ],
)
def test_copy_from(text: str, path: str, format_: str, options: dict[str, object]) -> None:
    copy = parse_one(text)
    assert isinstance(copy, st.CopyFrom)
    assert (copy.table, copy.columns) == ("t", None)
    assert (copy.path, copy.format, copy.options) == (path, format_, options)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("COPY (SELECT a FROM t) TO 'x.parquet' (COMPRESSION zstd)", "SELECT a FROM t"),
        ("COPY t TO 'x.csv'", 'SELECT * FROM "t"'),
        ("COPY t (a, b) TO 'x.csv'", 'SELECT "a", "b" FROM "t"'),
        ("COPY (VALUES (1)) TO 'x.csv'", "VALUES (1)"),
    ],
)
def test_copy_to(text: str, query: str) -> None:
    copy = parse_one(text)
    assert isinstance(copy, st.CopyTo)
    assert copy.query.sql("duckdb") == query


@pytest.mark.parametrize(
    ("text", "kind", "table"),
    [
        ("UPDATE t SET a = 1 WHERE b = 2", "update", "t"),
        ("UPDATE main.t AS x SET a = 1", "update", "t"),
        ("DELETE FROM t WHERE a = 1", "delete", "t"),
        ("TRUNCATE TABLE t", "delete", "t"),
        ("WITH x AS (SELECT 1 AS a) DELETE FROM t USING x WHERE t.a = x.a", "delete", "t"),
    ],
)
def test_changes(text: str, kind: str, table: str) -> None:
    change = parse_one(text)
    assert isinstance(change, st.Change)
    assert (change.kind, change.table) == (kind, table)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "FROM t",
        "FROM t SELECT a WHERE b",
        "TABLE t",
        "VALUES (1), (2)",
        "(SELECT 1) UNION ALL SELECT 2",
        "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x WHERE n < 5) FROM x",
        "PIVOT t ON a USING sum(b)",
        "PIVOT t ON a USING sum(b), count(*) GROUP BY c ORDER BY c LIMIT 5",
        "SUMMARIZE t",
        'SELECT "a" FROM t$late ASOF JOIN u ON t$late.ts >= u.ts QUALIFY row_number() OVER () = 1',
    ],
)
def test_queries(text: str) -> None:
    query = parse_one(text)
    assert isinstance(query, st.Query)
    assert query.text == text


@pytest.mark.parametrize(
    ("text", "duckdb"),
    [
        ("SELECT list_transform(l, lambda x: x + 1)", "SELECT LIST_TRANSFORM(l, LAMBDA x : x + 1)"),
        ("SELECT list_reduce(l, lambda x, y: x + y)", "SELECT LIST_REDUCE(l, LAMBDA x, y : x + y)"),
        ("SELECT a[:n], a[2:], {'k': v}, x::int", "SELECT a[1:n], a[2:], {'k': v}, CAST(x AS INT)"),
        ("SELECT INTERVAL '1.5 hours'", "SELECT CAST('1.5 hours' AS INTERVAL)"),
        ("SELECT x IN ($1,$2), $1", "SELECT x IN ($1, $2), $1"),
        ("SELECT ? FROM t LIMIT ?", "SELECT $1 FROM t LIMIT $2"),
        ("SELECT :a, {'k': :b}, $c", "SELECT $a, {'k': $b}, $c"),
        ("SELECT [:a, :b], {k:v}, l[a:b]", "SELECT [$a, $b], {'k': v}, l[a:b]"),
        ("SELECT a: 1, -:b, INTERVAL :n MINUTE", "SELECT 1 AS a, -$b, INTERVAL ($n) MINUTE"),
        ("SELECT x'ab', x FROM t ORDER BY :k", "SELECT UNHEX('ab'), x FROM t ORDER BY $k"),
        (
            "SELECT row(1, 2) < row(2, 1), apply(l, lambda x: x)",
            "SELECT ROW(1, 2) < ROW(2, 1), LIST_APPLY(l, LAMBDA x : x)",
        ),
        ("SELECT $$a;'b$$", "SELECT 'a;''b'"),
        (
            "FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
            "SELECT * FROM TUMBLE(t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
        ),
        (
            "FROM SESSION(t, ts, INTERVAL '1' MINUTE)",
            "SELECT * FROM SESSION(t, ts, INTERVAL '1' MINUTE)",
        ),
    ],
)
def test_spellings_that_the_stock_parser_does_not_know(text: str, duckdb: str) -> None:
    query = parse_one(text)
    assert isinstance(query, st.Query)
    assert query.body.sql("duckdb") == duckdb


def test_explain() -> None:
    explain = parse_one("EXPLAIN ANALYZE SELECT explain, ';' FROM t -- ; x")
    assert isinstance(explain, st.Explain)
    assert explain.analyze
    assert isinstance(explain.statement, st.Query)
    assert explain.statement.text == "SELECT explain, ';' FROM t"
    assert explain.statement.position.column == 17


def test_words_that_the_stock_tokenizer_swallows() -> None:
    text = "VACUUM t;RESET route; reset\nall;SELECT vacuum, reset FROM vacuum;EXPLAIN VACUUM 't;"
    with pytest.raises(SqlSyntaxError, match="not closed"):
        parse(text)
    statements = parse(text.replace("'", ""))
    assert [type(statement).__name__ for statement in statements] == [
        "Vacuum",
        "SetVariable",
        "SetVariable",
        "Query",
        "Explain",
    ]
    assert [statement.text for statement in statements[:3]] == [
        "VACUUM t",
        "RESET route",
        "reset\nall",
    ]
    assert statements[-1].position.line == 2


def test_many_statements() -> None:
    text = """-- first; comment
    INSERT INTO t VALUES (1, 'a;b'); INSERT INTO t VALUES (2, $$;$$);;
    EXPLAIN SELECT 1;
    /* ; */ SELECT ';' AS "a;b";
    """
    statements = parse(text)
    assert [type(statement).__name__ for statement in statements] == [
        "Insert",
        "Insert",
        "Explain",
        "Query",
    ]
    assert [statement.position.line for statement in statements] == [2, 2, 3, 4]
    with pytest.raises(SqlSyntaxError, match="one statement"):
        parse_one(text)


BAD = [
    ("", SqlSyntaxError, (1, 1, ""), "SHOW TABLES"),
    (" ;; -- x", SqlSyntaxError, (1, 1, ""), "SHOW TABLES"),
    ("SELCT 1", SqlSyntaxError, (1, 1, "SELCT"), '"SELECT"'),
    ("SELECT 1;\n  SELCT 2", SqlSyntaxError, (2, 3, "SELCT"), '"SELECT"'),
    ("CREATE STREMING TABLE t (a INT)", SqlSyntaxError, (1, 8, "STREMING"), '"STREAMING"'),
    ("CREATE STREAMING TABEL t", SqlSyntaxError, (1, 18, "TABEL"), '"TABLE"'),
    ("DROP TABEL t", SqlSyntaxError, (1, 6, "TABEL"), '"TABLE"'),
    ("SHOW TABLS", SqlSyntaxError, (1, 6, "TABLS"), '"TABLES"'),
    ("SELECT * FORM t", SqlSyntaxError, (1, 15, "t"), '"FROM"'),
    ("SELECT a\nFROM t\nWERE x = 1", SqlSyntaxError, (3, 6, "x"), '"WHERE"'),
    ("SELECT a FROM t GROUP x", SqlSyntaxError, (1, 23, "x"), '"GROUP BY"'),
    ("SELECT 'abc", SqlSyntaxError, (1, 8, "'abc"), "'"),
    ("SELECT 1;\nSELECT /* x", SqlSyntaxError, (2, 8, "/* x"), "*/"),
    ('SELECT "a', SqlSyntaxError, (1, 8, '"a'), '"'),
    ("SELECT $$a", SqlSyntaxError, (1, 8, "$$a"), "dollar"),
    ("SELECT (1", SqlSyntaxError, (1, 9, "1"), ""),
    ("SELECT 'a\0b'", SqlSyntaxError, (1, 10, ""), "remove"),
    ("SELECT '\ud800'", SqlSyntaxError, (1, 9, ""), "UTF-8"),
    ("SELECT ?, $1", SqlSyntaxError, (1, 8, "?"), "only ?"),
    ("SELECT 1 +", SqlSyntaxError, (1, 10, "+"), ""),
    ("INSERT t VALUES (1)", SqlSyntaxError, (1, 8, "t"), ""),
    ("INSERT INTO t (a, a) VALUES (1, 2)", SqlSyntaxError, (1, 19, "a"), "once"),
    ("INSERT INTO t (a, b) VALUES (1)", SqlSyntaxError, (1, 1, "INSERT"), "every row"),
    ("INSERT INTO t VALUES (1, 2), (3)", SqlSyntaxError, (1, 1, "INSERT"), "every row"),
    ("INSERT INTO t VALUES (now(), DEFAULT)", UnsupportedError, (1, 30, "DEFAULT"), "leave"),
    ("INSERT OR REPLACE INTO t VALUES (1)", UnsupportedError, (1, 8, "OR"), "ON CONFLICT"),
    (
        "WITH x AS (SELECT 1) INSERT INTO t FROM x",
        UnsupportedError,
        (1, 1, "WITH"),
        "INSERT INTO t WITH",
    ),
    ("INSERT INTO a.b VALUES (1)", UnknownNameError, (1, 13, "a"), "schema"),
    ("CREATE STREAMING TABLE select (a TIMESTAMP)", SqlSyntaxError, (1, 24, "select"), "quotes"),
    ("CREATE STREAMING TABLE t$x (a TIMESTAMP)", DefinitionError, (1, 24, "t$x"), "$late"),
    ("CREATE TABLE tidemill.x (a INT)", DefinitionError, (1, 14, "tidemill"), "system"),
    ("CREATE STREAMING TABLE t ()", DefinitionError, (1, 27, ")"), "TIMESTAMP"),
    ("CREATE STREAMING TABLE t (a TIMESTAMP, A INT)", DefinitionError, (1, 40, "A"), "case"),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP, _SEQ_x INT)",
        DefinitionError,
        (1, 40, "_SEQ_x"),
        "_seq",
    ),
    ("CREATE STREAMING TABLE t (a INT)", DefinitionError, (1, 1, "CREATE"), "TIMESTAMP"),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP, b TIMESTAMP)",
        DefinitionError,
        (1, 40, "b"),
        "WATERMARK FOR a",
    ),
    ("CREATE STREAMING TABLE t (a TIMESTAMP, b INTT)", DefinitionError, (1, 42, "INTT"), '"INT"'),
    ("CREATE STREAMING TABLE t (a TIMESTAMP, b)", SqlSyntaxError, (1, 41, ")"), "type"),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP, PRIMARY KEY (b))",
        UnknownNameError,
        (1, 40, "PRIMARY KEY"),
        "a",
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP, b INT, PRIMARY KEY (b))",
        DefinitionError,
        (1, 47, "PRIMARY KEY"),
        "(b, a)",
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP, b INT, WATERMARK FOR b AS b)",
        DefinitionError,
        (1, 61, "b"),
        "a",
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP, WATERMARK FOR c AS c)",
        UnknownNameError,
        (1, 54, "c"),
        "a",
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP, b TIMESTAMP, WATERMARK FOR a AS b)",
        SqlSyntaxError,
        (1, 72, "b"),
        "WATERMARK",
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP, WATERMARK FOR a AS a - INTERVAL '1' MONTH)",
        DefinitionError,
        (1, 63, "INTERVAL"),
        "SECOND",
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP, b INT UNIQUE)",
        UnsupportedError,
        (1, 46, "UNIQUE"),
        "PRIMARY KEY",
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP) WITH (partion = '1 h')",
        SettingError,
        (1, 46, "partion"),
        '"partition"',
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP) WITH (partition = 'x')",
        SettingError,
        (1, 58, "'x'"),
        "1 hour",
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP) WITH (hot = '1 h', hot = '2 h')",
        SettingError,
        (1, 59, "hot"),
        "once",
    ),
    (
        "CREATE STREAMING TABLE t (a TIMESTAMP) WITH (on_conflict = 'ignore')",
        DefinitionError,
        (1, 1, "CREATE"),
        "PRIMARY KEY",
    ),
    ("CREATE TABLE t (a INT DEFAULT b)", DefinitionError, (1, 31, "b"), "now()"),
    ("CREATE TABLE t (a INT) WITH (x = 1)", UnsupportedError, (1, 24, "WITH"), "STREAMING"),
    (
        "CREATE TABLE t (a TIMESTAMP, WATERMARK FOR a AS a)",
        DefinitionError,
        (1, 44, "a"),
        "STREAMING",
    ),
    ("CREATE TABLE t (a INT REFERENCES u)", SqlSyntaxError, (1, 23, "REFERENCES"), "join"),
    ("CREATE TEMP TABLE t (a INT)", UnsupportedError, (1, 8, "TEMP"), "reference table"),
    ("CREATE VIEW v AS SELECT 1", UnsupportedError, (1, 8, "VIEW"), "MATERIALIZED VIEW"),
    ("CREATE INDEX ON t USING hsh (a)", SqlSyntaxError, (1, 25, "hsh"), '"hash"'),
    ("BEGIN", UnsupportedError, (1, 1, "BEGIN"), "atomic"),
    ("COMMIT", UnsupportedError, (1, 1, "COMMIT"), "atomic"),
    ("PRAGMA threads = 1", UnsupportedError, (1, 1, "PRAGMA"), "settings"),
    ("INSTALL x", UnsupportedError, (1, 1, "INSTALL"), "DuckDB"),
    ("ATTACH 'x'", UnsupportedError, (1, 1, "ATTACH"), "COPY"),
    ("MERGE INTO t USING u ON t.a = u.a", SqlSyntaxError, (1, 33, "a"), "docs/sql.md"),
    ("SELECT 1 INTO x", TidemillError, None, ""),
    ("ALTER TABLE t SET (partition = '1 day')", SettingError, (1, 20, "partition"), "new table"),
    ("ALTER TABLE t ADD COLUMN a INT", UnsupportedError, (1, 15, "ADD"), "SET"),
    ("COPY t FROM 'x.foo'", SqlSyntaxError, (1, 13, "'x.foo'"), "FORMAT"),
    ("COPY t FROM 'x' (FORMAT parket)", SqlSyntaxError, (1, 13, "'x'"), '"parquet"'),
    ("COPY t FROM STDIN", UnsupportedError, (1, 13, "STDIN"), "append"),
    ("COPY t FROM 'x.csv' CSV HEADER", SqlSyntaxError, (1, 21, "CSV"), "brackets"),
    ("EXPLAIN EXPLAIN SELECT 1", SqlSyntaxError, (1, 9, "EXPLAIN"), "once"),
    ("SHOW TABLES nonsense", SqlSyntaxError, (1, 13, "nonsense"), ";"),
    ("SHOW", SqlSyntaxError, (1, 5, ""), "docs"),
    ("SHOW JOBS FROM t", SqlSyntaxError, (1, 11, "FROM"), ";"),
    ("SHOW SOURCE", SqlSyntaxError, (1, 6, "SOURCE"), '"SOURCES"'),
    ("SHOW PARTITION FROM t", SqlSyntaxError, (1, 6, "PARTITION"), '"PARTITIONS"'),
    ("FLUHS t", SqlSyntaxError, (1, 1, "FLUHS"), '"FLUSH"'),
    ("VACCUM", SqlSyntaxError, (1, 1, "VACCUM"), '"VACUUM"'),
    ("FLUSH t, u", SqlSyntaxError, (1, 8, ","), ";"),
    ("FLUSH a.b", UnknownNameError, (1, 7, "a"), "schema"),
    ("FLUSH 't'", SqlSyntaxError, (1, 7, "'t'"), "double quotes"),
    ("SELECT 1;\nVACUUM FULL t", UnsupportedError, (2, 8, "FULL"), "VACUUM t"),
    ("VACUUM ANALYZE", UnsupportedError, (1, 8, "ANALYZE"), "statistics"),
    ("VACUUM (FULL) t", UnsupportedError, (1, 8, "("), "VACUUM t"),
    ("VACUUM t u", SqlSyntaxError, (1, 10, "u"), ";"),
    ("VACUUM t DROP u", SqlSyntaxError, (1, 15, "u"), "docs/sql.md"),
    ("CHECKPOINT", UnsupportedError, (1, 1, "CHECKPOINT"), "FLUSH"),
    ("OPTIMIZE t", UnsupportedError, (1, 1, "OPTIMIZE"), "VACUUM"),
    ("DROP SOUCE s", SqlSyntaxError, (1, 6, "SOUCE"), '"SOURCE"'),
    ("DROP SOURCE s CASCADE", SqlSyntaxError, (1, 15, "CASCADE"), ";"),
    ("ALTER SOURCE s SET (a = 1)", UnsupportedError, (1, 7, "SOURCE"), "OR REPLACE SOURCE"),
    ("CREATE EXTERNAL TABLE t", UnsupportedError, (1, 8, "EXTERNAL"), "CREATE SOURCE"),
    ("CREATE SOURSE s", SqlSyntaxError, (1, 8, "SOURSE"), '"SOURCE"'),
]


@pytest.mark.parametrize(("text", "kind", "place", "hint"), BAD, ids=[case[0][:60] for case in BAD])
def test_bad_text(
    text: str, kind: type[TidemillError], place: tuple[int, int, str] | None, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        parse(text)
    error = caught.value
    assert error.position is not None
    if place is not None:
        assert (error.position.line, error.position.column, error.position.words) == place
    assert error.hint
    assert hint in error.hint
    assert "\x1b" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 50_000,
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT a" + "[1]" * 30_000,
        "from " * 30_000,
        "SELECT " + "NOT " * 30_000 + "true",
        "SELECT 1" + "::int" * 30_000,
        "SELECT a" + ".a" * 30_000,
        "SELECT " + "case when true then " * 10_000,
        "SELECT * FROM " + "(SELECT * FROM " * 20_000,
        "SELECT * FROM t " + "JOIN a " * 1_000,
        "SELECT 1" + " + 1" * 30_000,
        "a " * 500_000,
        "'" * 1_000_001,
        "/*" * 300_000,
        "$a" * 300_000,
        '"' + "x" * 1_000_000 + '"',
        "INSERT INTO t VALUES (" + "1," * 50_000,
        "CREATE TABLE t (" + "a STRUCT(" * 20_000,
        "CREATE TABLE t (a INT DEFAULT " + "(" * 20_000,
        f"CREATE TABLE {'t' * 300} (a INT)",
        "COPY t FROM 'x.csv' (A " + "(" * 20_000,
        "EXPLAIN " * 20_000,
        "VACUUM;" * 20_000 + "VACUUM (",
        "SELECT * FROM t" + " FOR SYSTEM_TIME AS OF x" * 20_000,
        "SELECT * FROM " + "(t FOR SYSTEM_TIME AS OF " * 20_000,
        "SELECT * FROM t a" + "(" * 20_000 + ")" * 20_000 + " FOR SYSTEM_TIME AS OF 1",
        "CREATE SOURCE s FROM 'x.csv' WITH (a " + "[" * 20_000,
        "CREATE SOURCE s FROM 'x.csv' INTO t EVERY " + "9" * 300_000 + " SECONDS",
        "SET a = " + "-" * 300_000,
        "é" * 300_000,
    ],
    ids=lambda text: text[:24],
)
def test_hostile_text_gives_an_error(text: str) -> None:
    with pytest.raises(TidemillError):
        parse(text)
