"""Bad input of every kind: a TidemillError that helps, and nothing has changed.

``World.state`` is everything that could change: definitions, rows, counters, side tables. Each case
must raise one of our errors (never DuckDB's, Arrow's or Python's), with a place for SQL text, and
leave the state as it was.
"""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill
from tidemill import TidemillError
from tidemill.errors import (
    ClosedError,
    DefinitionError,
    OwnedError,
    RowsRejectedError,
    SettingError,
    UnknownNameError,
)

T0 = dt.datetime(2024, 1, 1)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


class World:
    """A warehouse with a streaming table ``s`` and a reference table ``r``, which nobody changes:
    ``before`` is how it was filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = tidemill.open(folder / "w", threads=1, spark_master="inline")
        self.db.sql(
            "CREATE STREAMING TABLE s (ts TIMESTAMP, a INT, b VARCHAR, c DOUBLE, d DECIMAL(6,2), "
            "e TIMESTAMPTZ, u UUID, j JSON, l INT[], WATERMARK FOR ts AS ts - INTERVAL 9 DAY) "
            "WITH (durability = 'none', clock = 'event')"
        )
        self.db.sql("CREATE INDEX by_a ON s (a)")
        self.db.sql(
            "INSERT INTO s (ts, a, b) VALUES ('2024-01-01', 1, 'x'), ('2024-01-02', 2, 'y')"
        )
        self.db.sql("CREATE TABLE r (k INT PRIMARY KEY, v VARCHAR)")
        self.db.sql("INSERT INTO r VALUES (1, 'one')")
        self.before = self.state()

    def state(self) -> list[Any]:
        """All that a statement could change; the definitions are one frozen object."""
        queries = (
            "SELECT * FROM s",
            "SELECT * FROM r",
            "SELECT * EXCLUDE (lag) FROM tidemill.ingest",
            "SELECT (SELECT count(*) FROM s$rejected), (SELECT count(*) FROM s$late)",
        )
        rows = [self.db.sql(query).fetchall() for query in queries]
        return [self.db.catalog.snapshot().tables, *rows]

    def refuses(self, act: Callable[[], object], kind: type[TidemillError] = TidemillError) -> Any:
        """The error of something that must fail and change nothing."""
        with pytest.raises(kind) as caught:
            act()
        assert self.state() == self.before
        error = caught.value
        assert error.message
        assert "\n" not in error.message
        assert "tm_" not in error.message
        return error


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("bad"))
    yield made
    made.db.close()


# -- SQL text

BAD_SQL = {
    "syntax_error": [
        "",
        ";",
        "   -- only a comment",
        "/* open",
        "SELECT",
        "SELECT 1 +",
        "SELECT * FROM",
        "SELECT * FROM s WHERE a =",
        "SELECT * FROM s GROUP BY",
        "SELECT a b c FROM s",
        "SELECT (1",
        "SELECT 1)",
        "SELECT [1, 2",
        "SELECT 'open",
        'SELECT "open',
        "SELECT $$open",
        "SELECT CASE WHEN a FROM s",
        "SELECT CAST(a AS) FROM s",
        "SELECT * FROM s JOIN",
        "WITH q AS SELECT 1 SELECT * FROM q",
        "VALUES",
        "VALUES (1",
        "INSERT INTO s",
        "INSERT s VALUES (1)",
        "INSERT INTO s VALUES (",
        "INSERT INTO s () VALUES ()",
        "INSERT INTO s (a b) VALUES (1)",
        "UPDATE r",
        "UPDATE r SET",
        "UPDATE SET v = 1",
        "DELETE FROM",
        "DROP",
        "DROP TABLE",
        "DROP TABLE r, s",
        "ALTER",
        "ALTER TABLE s",
        "ALTER TABLE s SET",
        "ALTER TABLE s SET (late)",
        "ALTER TABLE s SET (late = )",
        "ALTER TABLE s SET (late = 'accept'",
        "CREATE",
        "CREATE STREAMING",
        "CREATE STREAMING TABLE",
        "CREATE STREAMING TABLE t",
        "CREATE STREAMING TABLE t (ts)",
        "CREATE STREAMING TABLE t (ts TIMESTAMP",
        "CREATE STREAMING TABLE t (ts TIMESTAMP,)",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) nonsense",
        "CREATE STREAMING TABLE t (ts TIMESTAMP, WATERMARK FOR ts)",
        "CREATE TABLE t",
        "CREATE TABLE t AS",
        "CREATE TABLE t (a INT) AS SELECT 1",
        "CREATE INDEX",
        "CREATE INDEX ON s",
        "CREATE INDEX ON s (a) USING hash",
        "CREATE INDEX ON s USING tree (a)",
        "SHOW",
        "DESCRIBE",
        "COPY",
        "COPY s",
        "COPY s FROM",
        "COPY s FROM file.csv",
        "COPY s FROM ''",
        "COPY s FROM 'x'",
        "COPY s FROM 'x.csv' (FORMAT)",
        "COPY s FROM 'x.csv' (FORMAT xml)",
        "COPY (SELECT 1) FROM 'x.csv'",
        "COPY (DROP TABLE s) TO 'x.csv'",
        "EXPLAIN",
        "EXPLAIN EXPLAIN SELECT 1",
        "NONSENSE",
        "SELECT 1 SELECT 2",
        "SELECT 1; SELCT 2",
        "\u0000",
        "SELECT '\ud800'",
    ],
    "unknown_name": [
        "SELECT * FROM missing",
        "SELECT * FROM S1.s",
        "SELECT * FROM tidemill.missing",
        "SELECT * FROM s$lat",
        "SELECT * FROM r$late",
        "SELECT missing(1)",
        "INSERT INTO missing VALUES (1)",
        "INSERT INTO s (missing) VALUES (1)",
        "UPDATE missing SET a = 1",
        "DELETE FROM missing",
        "DELETE r",
        "DROP TABLE missing",
        "DROP INDEX missing",
        "ALTER TABLE missing SET (late = 'accept')",
        "DESCRIBE missing",
        "SHOW INDEXES ON missing",
        "CREATE INDEX ON missing (a)",
        "CREATE INDEX ON s (missing)",
        "COPY missing FROM 'x.csv'",
        "COPY missing TO 'x.csv'",
        "COPY s (missing) FROM 'x.csv'",
        "CREATE TABLE t (a INT, PRIMARY KEY (b))",
        "SELECT * FROM RECENT(missing, INTERVAL '1' DAY)",
        "SELECT * FROM TUMBLE(s, missing, INTERVAL '1' DAY)",
    ],
    "invalid_setting": [
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (missing = 1)",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (partition = '0 seconds')",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (partition = '-1 hour')",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (partition = '1 fortnight')",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (retention = '99999999999999999999 days')",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (memory = '-1')",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (durability = 'maybe')",
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (clock = '')",
        "ALTER TABLE s SET (late = 'never')",
        "ALTER TABLE s SET (partition = '1 day')",
        "ALTER TABLE s SET (late = 'accept', late = 'divert')",
        "ALTER TABLE s SET (on_conflict = 'ignore')",
        "COPY s TO 'x.csv' (NONSENSE 1)",
    ],
    "invalid_definition": [
        f"CREATE STREAMING TABLE x (ts TIMESTAMP, a {'STRUCT(a ' * 100}INT{')' * 100})",
        f"CREATE STREAMING TABLE x (ts TIMESTAMP, a INT{'[]' * 100})",
        "CREATE TABLE t ()",
        "CREATE TABLE t (a MISSING)",
        "CREATE TABLE t (a DECIMAL(99, 2))",
        "CREATE TABLE t (a INT, a INT)",
        "CREATE TABLE t (a INT, A INT)",
        "CREATE TABLE t (a INT DEFAULT (SELECT 1))",
        "CREATE TABLE t (a INT DEFAULT 'x')",
        "CREATE TABLE t (a INT PRIMARY KEY, b INT PRIMARY KEY)",
        "CREATE TABLE t (_seq INT)",
        "CREATE STREAMING TABLE t (a INT)",
        "CREATE STREAMING TABLE t (ts DATE)",
        "CREATE STREAMING TABLE t (ts TIMESTAMP, t2 TIMESTAMP)",
        "CREATE STREAMING TABLE t (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '-1' SECOND)",
        "CREATE STREAMING TABLE t (ts TIMESTAMP, a INT PRIMARY KEY)",
        "CREATE TABLE t AS SELECT 1 AS a, 2 AS a",
    ],
    "duplicate_name": [
        "CREATE TABLE s (a INT)",
        'CREATE TABLE "S" (a INT)',
        "CREATE STREAMING TABLE r (ts TIMESTAMP)",
        "CREATE INDEX by_a ON s (b)",
        "CREATE INDEX BY_A ON s (b)",
    ],
    "unsupported": [
        "BEGIN",
        "COMMIT",
        "PRAGMA database_list",
        "SET memory_limit = '1GB'",
        "SHOW NOTHING",
        "ATTACH ':memory:' AS x",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE VIEW v AS SELECT 1",
        "CREATE MACRO m() AS 1",
        "CREATE SEQUENCE q",
        "ALTER TABLE s DROP COLUMN a",
        "ALTER TABLE r SET (late = 'accept')",
        'UPDATE "s$late" SET a = 1',
        'DELETE FROM "s$rejected"',
        'TRUNCATE "s$late"',
        "INSERT INTO s$late VALUES (1)",
        "INSERT INTO tidemill.tables VALUES (1)",
        "DELETE FROM tidemill.tables",
        "INSERT INTO s VALUES ('2024-01-01', 1, '', 1, 1, NULL, NULL, NULL, NULL) RETURNING a",
        "CREATE INDEX ON s (l)",
        "CREATE UNIQUE INDEX ON s (a)",
        "EXPLAIN INSERT INTO s (ts) VALUES ('2024-01-01')",
        "SELECT 1 INTO t",
        "COPY s FROM STDIN",
    ],
    "query_error": [
        "SELECT missing FROM s",
        "SELECT s.missing FROM s",
        "SELECT x.a FROM s",
        "SELECT a FROM s, s AS t",
        "SELECT a, count(*) FROM s",
        "SELECT sum(b) FROM s",
        "SELECT b + 1 FROM s",
        "SELECT CAST(b AS INT) FROM s",
        "SELECT CAST(99999999999 AS INT)",
        "SELECT 9223372036854775807 + 1",
        "SELECT (SELECT a FROM s)",
        "SELECT a FROM s UNION SELECT a, b FROM s",
        "SELECT DATE '2024-13-01'",
        "SELECT TIMESTAMP 'never'",
        "SELECT INTERVAL 'x'",
        "SELECT $1",
        "SELECT :name",
        "SELECT * FROM s LIMIT -1",
        "SELECT * FROM RECENT(s)",
        "SELECT * FROM RECENT(s, rows => 'x')",
        "SELECT * FROM RECENT(s, rows => 99999999999999999999)",
        "SELECT * FROM TUMBLE(s, ts, INTERVAL '-1' DAY)",
        "SELECT * FROM TUMBLE(s, a, INTERVAL '1' DAY)",
        "SELECT * FROM HOP(s, ts, INTERVAL '1' SECOND)",
        "SELECT * FROM TUMBLE(r, k, INTERVAL '1' DAY)",
        "WITH RECURSIVE q AS (SELECT * FROM q) SELECT * FROM q",
        "SELECT * FROM read_csv('nothing.csv')",
        "UPDATE r SET missing = 1",
        "UPDATE r SET k = 'x'",
        "DELETE FROM r WHERE missing = 1",
        "INSERT INTO s SELECT missing FROM s",
        "CREATE TABLE t AS SELECT missing FROM s",
        "COPY (SELECT missing FROM s) TO 'x.csv'",
    ],
    "rows_rejected": [
        "INSERT INTO s VALUES (1)",
        "INSERT INTO s SELECT 1",
        "INSERT INTO s (ts) VALUES (NULL)",
        "INSERT INTO s (a) VALUES (1)",
        "INSERT INTO s (ts) VALUES ('never')",
        "INSERT INTO s (ts) VALUES (TRUE)",
        "INSERT INTO s (ts, a) VALUES ('2024-01-03', 2147483648)",
        "INSERT INTO s (ts, a) VALUES ('2024-01-03', 'many')",
        "INSERT INTO s (ts, a) VALUES ('2024-01-03', 0.5)",
        "INSERT INTO s (ts, d) VALUES ('2024-01-03', 10000)",
        "INSERT INTO s (ts, d) VALUES ('2024-01-03', 0.001)",
        "INSERT INTO s (ts, e) VALUES ('2024-01-03', '2024-01-03 25:00:00+00')",
        "INSERT INTO s (ts, u) VALUES ('2024-01-03', 'x')",
        "INSERT INTO s (ts, j) VALUES ('2024-01-03', '{')",
        "INSERT INTO s (ts, l) VALUES ('2024-01-03', 'x')",
        "INSERT INTO s (ts, a) VALUES ('2024-01-03', 1), ('2024-01-03', 'x')",
        "INSERT INTO r VALUES ('x', 'y')",
        "INSERT INTO r VALUES (NULL, 'y')",
        "UPDATE r SET k = NULL",
    ],
    "duplicate_key": [
        "INSERT INTO r VALUES (1, 'again')",
        "INSERT INTO r VALUES (5, 'a'), (5, 'b')",
    ],
    "file_format": [
        "COPY s FROM 'no/such/file.csv'",
        "COPY s FROM '/' (FORMAT csv)",
        "COPY s TO 'no/such/folder/x.csv'",
    ],
}
CASES = [(code, text) for code, texts in BAD_SQL.items() for text in texts]


@pytest.mark.parametrize(("code", "text"), CASES)
def test_bad_sql(world: World, code: str, text: str) -> None:
    error = world.refuses(lambda: world.db.sql(text))
    assert error.code == code, str(error)
    assert error.position is not None
    assert error.position.line >= 1
    assert error.position.column >= 1
    described = error.as_dict()
    assert described["line"] == error.position.line


HINTED = [code for code in BAD_SQL if code not in ("query_error", "unsupported", "file_format")]


@pytest.mark.parametrize("code", HINTED)
def test_errors_hint(world: World, code: str) -> None:
    """Most errors of these kinds say what to do."""
    hints = []
    for text in BAD_SQL[code]:
        with pytest.raises(TidemillError) as caught:
            world.db.sql(text)
        hints.append(caught.value.hint)
    assert sum(hint is not None for hint in hints) >= 0.6 * len(hints), list(
        zip(BAD_SQL[code], hints, strict=True)
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("SELECT *\nFROM missing", 2, 6, "missing"),
        ("SELECT 1;\n\n  SELCT 2", 3, 3, "SELCT"),
        ("SELECT a,\n  missing\nFROM s", 2, 3, "missing"),
        ("CREATE STREAMING TABLE t (\n  ts TIMESTAMP,\n  a WRONG\n)", 3, 5, "WRONG"),
        ("CREATE STREAMING TABLE t (ts TIMESTAMP)\nWITH (lat = 'x')", 2, 7, "lat"),
        ("-- 日本\nSELECT * FROM RECENT(s,\n INTERVAL '1' MONTH)", 3, 11, "1"),
        ("DESCRIBE\n nothing", 1, 1, "DESCRIBE"),
    ],
)
def test_places(world: World, text: str, line: int, column: int, words: str) -> None:
    place = world.refuses(lambda: world.db.sql(text)).position
    assert (place.line, place.column, place.words) == (line, column, words)


def test_statements_before_a_bad_one_stay_and_those_after_do_not_run(tmp_path: Path) -> None:
    with tidemill.open(tmp_path / "w") as db:
        with pytest.raises(UnknownNameError) as caught:
            db.sql("CREATE TABLE a (x INT);\nSELECT * FROM nothing;\nCREATE TABLE b (x INT)")
        assert caught.value.position is not None
        assert caught.value.position.line == 2
        assert db.sql("SELECT table_name FROM tidemill.tables").fetchall() == [("a",)]


# -- sizes


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "-" * 5_000 + "1",
        "SELECT " + "NOT " * 5_000 + "TRUE",
        "SELECT " + "[" * 2_000,
        "SELECT 1" + " + 1" * 50_000,
        "SELECT " + "f(" * 3_000 + "1" + ")" * 3_000,
        "SELECT * FROM " + "(SELECT * FROM " * 1_000 + "s" + ")" * 1_000,
        "CREATE TABLE t (" + ", ".join(f"c{n} INT" for n in range(5_000)) + ")",
        "CREATE TABLE " + "x" * 10_240 + " (a INT)",
        'CREATE TABLE "' + "x" * 10_240 + '" (a INT)',
        "CREATE TABLE t (" + "x" * 10_240 + " INT)",
        "CREATE INDEX " + "x" * 10_240 + " ON s (a)",
        "SELECT * FROM " + "x" * 10_240,
        "INSERT INTO s (ts, a) VALUES ('2024-01-01', " + "9" * 5_000 + ")",
        "SELECT 'x' FROM s WHERE " + " OR ".join("missing = 1" for _ in range(3_000)),
    ],
    ids=lambda text: text[:30],
)
def test_too_large(world: World, text: str) -> None:
    error = world.refuses(lambda: world.db.sql(text))
    assert len(str(error)) < 5_000


def test_large_is_no_error(world: World) -> None:
    numbers = ", ".join(map(str, range(20_000)))
    assert world.db.sql(f"SELECT count(*) FROM s WHERE a IN ({numbers})").fetchone() == (2,)
    text = "x" * 2_000_000
    assert world.db.sql("SELECT length($1)", [text]).fetchone() == (2_000_000,)
    assert world.db.sql(f"SELECT length('{text}')").fetchone() == (2_000_000,)
    rows = ", ".join(f"({n}, 'v')" for n in range(100, 5_100))
    world.db.sql(f"INSERT INTO r VALUES {rows}")
    assert world.db.sql("DELETE FROM r WHERE k >= 100").message == "DELETE 5000"


# -- names

NAMES = [
    'a"b',
    "it's",
    "; DROP TABLE r; --",
    "日本語",
    "naïve 🚗",
    "with space",
    " padded ",
    "MiXeD",
    "select",
    "table",
    "default",
    "at",
    "tm_scan_0",
    "tm_cursor",
    "tm_query",
    "tm_out",
    "tm_params",
    "tm_rows",
    "tm_keys_0",
    "given",
    "reference",
    "main",
    "memory",
    "tidemill",
    "excluded",
    "t1",
    "i1",
    "a.b",
    "x.csv",
    "1st",
    "*",
    "?",
    ":name",
    "%s %d",
    "{0}",
    "back\\slash",
    "line\nbreak",
    "tab\tbed",
    "\u202eright to left",
    "e\u0301",
    "window_start",
    "__builtins__",
    "x" * 200,
]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidemill.Database]:
    with tidemill.open(tmp_path_factory.mktemp("names") / "w", threads=1) as db:
        db.sql("CREATE TABLE r (k INT)")
        db.sql("INSERT INTO r VALUES (1)")
        yield db


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_a_streaming_table(
    names: tidemill.Database, name: str, tmp_path: Path
) -> None:
    table, column = quoted(name), quoted(name)
    names.sql(f"CREATE STREAMING TABLE {table} (ts TIMESTAMP, {column} INT)")
    try:
        names.sql(f"CREATE INDEX {quoted('i ' + name)} ON {table} ({column})")
        names.sql(f"INSERT INTO {table} VALUES ('2024-01-01', 1)")
        names.sql(f"INSERT INTO {table} (ts, {column}) SELECT ts, {column} + 1 FROM {table}")
        names.append(name, {"ts": T0, name: 3})
        names.append(name, pa.table({"ts": [T0], name: [4]}))
        query = f"SELECT {column} FROM {table} WHERE {column} >= 2 ORDER BY {column}"
        assert names.sql(query).fetchall() == [(2,), (3,), (4,)]
        total = f"SELECT sum(x.{column}) FROM {table} x JOIN {table} y USING ({column})"
        assert names.sql(total).fetchone() == (10,)
        joined = (
            f"WITH q AS (SELECT 1 AS k) SELECT {table}.{column} FROM {table}, r, q WHERE r.k = 1"
        )
        assert len(names.sql(joined).fetchall()) == 4
        assert names.sql(f"DESCRIBE {table}").fetchall()[1][0] == name
        assert names.sql(f"SELECT count(*) FROM {quoted(name + '$late')}").fetchone() == (0,)
        recent = f"SELECT {column} FROM RECENT({table}, rows => 1, partition_by => {column})"
        assert len(names.sql(recent).fetchall()) == 4
        forms = ["parquet"]
        if name == name.strip() and "\n" not in name:  # the names in a header line are trimmed
            forms.append("csv")
        for form in forms:
            path = tmp_path / f"x.{form}"
            names.sql(f"COPY {table} TO '{path}'")
            assert names.sql(f"COPY {table} ({column}, ts) FROM '{path}'").message.startswith(
                "COPY"
            )
        lines = names.sql(f"EXPLAIN SELECT * FROM {table} WHERE {column} = 1").fetchall()
        assert any("value index" in line for (line,) in lines)
    finally:
        names.sql(f"DROP TABLE {table}")
    assert names.sql("SELECT table_name FROM tidemill.tables").fetchall() == [("r",)]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_a_reference_table(names: tidemill.Database, name: str) -> None:
    table, column = quoted(name), quoted(name)
    names.sql(f"CREATE TABLE {table} ({column} INT PRIMARY KEY, v VARCHAR DEFAULT 'x')")
    try:
        names.sql(f"CREATE INDEX {quoted(name)} ON {table} (v)")
        names.sql(f"INSERT INTO {table} ({column}) VALUES (1), (2)")
        upsert = f"INSERT INTO {table} ({column}, v) VALUES (2, 'y') ON CONFLICT ({column}) "
        names.sql(upsert + f"DO UPDATE SET v = excluded.v WHERE excluded.{column} > 0")
        names.append(name, {name: 3})
        names.sql(f"UPDATE {table} SET v = v || '!' WHERE {column} = 3")
        names.sql(f"DELETE FROM {table} WHERE {column} = 1")
        found = names.sql(f"SELECT * FROM {table} ORDER BY {column}").fetchall()
        assert found == [(2, "y"), (3, "x!")]
        copied = quoted(name + " copy")
        names.sql(f"CREATE TABLE {copied} AS FROM {table}")
        names.sql(f"DROP TABLE {copied}")
    finally:
        names.sql(f"DROP TABLE {table}")


def test_names_survive_a_restart(tmp_path: Path) -> None:
    with tidemill.open(tmp_path / "w", threads=1) as db:
        for name in NAMES:
            db.sql(f"CREATE STREAMING TABLE {quoted(name)} (ts TIMESTAMP, {quoted(name)} INT)")
            db.append(name, {"ts": T0, name: 1})
    with tidemill.open(tmp_path / "w", threads=1) as db:
        known = {row[0] for row in db.sql("SELECT table_name FROM tidemill.tables").fetchall()}
        assert known == set(NAMES)
        for name in NAMES:
            query = f"SELECT {quoted(name)} FROM {quoted(name)}"
            assert db.sql(query).fetchall() == [(1,)]


@pytest.mark.parametrize(
    "name", ["", "x" * 256, "nul\0", "half\ud800", "x$late", "x$rejected", "$1"]
)
def test_names_that_no_table_has(world: World, name: str) -> None:
    world.refuses(lambda: world.db.sql(f"CREATE TABLE {quoted(name)} (a INT)"))
    world.refuses(lambda: world.db.sql(f"CREATE STREAMING TABLE {quoted(name)} (ts TIMESTAMP)"))
    world.refuses(lambda: world.db.append(name, {"ts": T0}))


def test_names_are_compared_without_case(world: World) -> None:
    assert world.db.sql('SELECT "A", S.a FROM "S" WHERE "TS" = \'2024-01-01\'').fetchall() == [
        (1, 1)
    ]
    world.refuses(lambda: world.db.sql('CREATE TABLE "R" (a INT)'))


def test_a_query_may_use_our_inner_names(world: World) -> None:
    text = (
        "WITH tm_scan_0 AS (SELECT 1 AS x), tm_keys_0 AS (SELECT 2 AS y) "
        "SELECT a, x, y FROM s, tm_scan_0, tm_keys_0 WHERE a IN (SELECT k FROM r)"
    )
    assert world.db.sql(text).fetchall() == [(1, 1, 2)]
    for name in ("__builtins__", "self", "space", "relation"):
        world.refuses(lambda name=name: world.db.sql(f"SELECT * FROM {name}"), UnknownNameError)


# -- times


@pytest.mark.parametrize(
    "moment",
    [
        "10000-01-01 00:00:00",
        "290000-01-01 00:00:00",
        "2024-02-30 00:00:00",
        "2024-01-01 24:00:01",
        "0000-01-01",
        "0001-01-01 (BC)",
        "infinity",
        "-infinity",
        "now",
        "",
        " ",
        "1e9",
    ],
)
def test_times_out_of_range(world: World, moment: str) -> None:
    world.refuses(lambda: world.db.append("s", {"ts": moment}), RowsRejectedError)
    world.refuses(
        lambda: world.db.sql("INSERT INTO s (ts) VALUES (?)", [moment]), RowsRejectedError
    )
    world.refuses(
        lambda: world.db.sql(f"INSERT INTO s (ts) VALUES ('{moment}')"), RowsRejectedError
    )


def test_times_from_arrow_out_of_range(world: World) -> None:
    for value, kind in (
        (2**62, pa.timestamp("us")),
        (2**62, pa.timestamp("s")),
        (-(2**63) + 1, pa.timestamp("us")),
        (1, pa.timestamp("ns")),
    ):
        batch = pa.table({"ts": pa.array([value], pa.int64()).cast(kind)})
        world.refuses(lambda batch=batch: world.db.append("s", batch), RowsRejectedError)


# -- Python values


class Strange:
    def __repr__(self) -> str:
        raise ValueError("I cannot be shown")


BAD_ROWS: list[Any] = [
    None,
    5,
    "text",
    b"bytes",
    {"ts"},
    object(),
    [1, 2],
    [{"ts": T0}, 5],
    [(T0,), {"ts": T0}],
    [(T0, 1), (T0,)],
    (T0, 1),
    {"ts": T0, "missing": 1},
    {"ts": T0, 5: 1},
    {"a": 1},
    {"ts": None},
    {"ts": T0, "a": 1.5},
    {"ts": T0, "a": 2**31},
    {"ts": T0, "a": "many"},
    {"ts": T0, "a": [1]},
    {"ts": T0, "a": math.nan},
    {"ts": T0, "a": 10**400},
    {"ts": T0, "a": 10**5_000},
    {"ts": T0, "b": -(10**5_000)},
    {"ts": T0, "d": 10**5_000},
    {"ts": T0, "j": {"a": 10**5_000}},
    {"ts": T0, "a": deep(1_000)},
    {"ts": T0, "l": deep(1_000)},
    {"ts": T0, "j": {"a": deep(3_000)}},
    [{"ts": T0, "l": None}, {"ts": T0, "l": deep(150)}],
    {"ts": T0, "a": Strange()},
    {"ts": T0, "b": "half \ud800"},
    {"ts": T0, "b": b"\xff"},
    {"ts": T0, "d": decimal.Decimal("NaN")},
    {"ts": T0, "d": decimal.Decimal("0.001")},
    {"ts": T0, "d": decimal.Decimal("1e99")},
    {"ts": T0, "u": "not a uuid"},
    {"ts": T0, "j": "{"},
    {"ts": T0, "l": 5},
    {"ts": T0, "l": ["x"]},
    {"ts": T0, "l": {"a": 1}},
    {"ts": True},
    {"ts": [T0, T0, T0], "a": [1, 2]},
    pa.table({"ts": ["never"]}),
    pa.table({"ts": [T0], "a": ["x"]}),
    pa.table({"missing": [1]}),
    pa.table([[T0], [T0]], names=["ts", "ts"]),
    pa.table([[T0], [1], [1]], names=["ts", "a", "A"]),
    pa.table({"ts": pa.array([T0]), "a": pa.array([{"x": 1}])}),
    pd.DataFrame({"missing": [1]}),
    pd.DataFrame({"ts": [T0], "a": [object()]}),
    pd.DataFrame({0: [T0]}),
]


@pytest.mark.parametrize("rows", BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_bad_rows(world: World, rows: Any) -> None:
    world.refuses(lambda: world.db.append("s", rows))


@pytest.mark.parametrize("rows", BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_bad_rows_leave_the_good_ones_out_too(world: World, rows: Any) -> None:
    """A batch is all or nothing."""
    if isinstance(rows, dict):
        world.refuses(lambda: world.db.append("s", [{"ts": T0, "a": 1}, rows]))


@pytest.mark.parametrize(
    ("source", "offset"),
    [("x", None), (None, 1), ("", 1), ("x", -1), ("x", 1.5), ("x", True), (5, 1), ("x" * 5_000, 1)],
)
def test_bad_sources(world: World, source: Any, offset: Any) -> None:
    world.refuses(lambda: world.db.append("s", {"ts": T0}, source=source, offset=offset))


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("SELECT ?", []),
        ("SELECT ?", [1, 2]),
        ("SELECT ?", {"a": 1}),
        ("SELECT :a", [1]),
        ("SELECT :a", {"b": 1}),
        ("SELECT :a", {"a": 1, "b": 2}),
        ("SELECT $1, :a", [1]),
        ("SELECT 1", [1]),
        ("SELECT ?", "x"),
        ("SELECT ?", [object()]),
        ("SELECT $3", [1, 2]),
        ("SELECT * FROM s WHERE a = ?", ["x"]),
        ("SELECT * FROM ?", ["s"]),
        ("INSERT INTO s (ts, a) VALUES (?, ?)", [T0]),
        ("INSERT INTO s (ts, a) VALUES (?, ?)", [T0, "x"]),
        ("INSERT INTO s (ts, a) VALUES (?, ?)", [T0, object()]),
        ("SELECT * FROM RECENT(s, rows => ?)", ["x"]),
        ("SELECT * FROM RECENT(s, ?)", [5]),
        ("CREATE TABLE t (a INT DEFAULT ?)", [1]),
    ],
)
def test_bad_parameters(world: World, text: str, params: Any) -> None:
    world.refuses(lambda: world.db.sql(text, params))


# -- files


def write(world: World, name: str, content: bytes | str) -> Path:
    path = world.folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


GOOD_CSV = "ts,a,b\n2024-01-01,1,x\n"
BAD_FILES: dict[str, bytes | str] = {
    "words.csv": "ts,a,b\n2024-01-01,many,x\n",
    "latin.csv": "ts,b\n2024-01-01,caf\xe9\n".encode("latin-1"),
    "utf16.csv": GOOD_CSV.encode("utf-16"),
    "ragged.csv": "ts,a,b\n2024-01-01,1\n",
    "wide.csv": "ts,a,b\n2024-01-01,1,x,y\n",
    "unknown.csv": "ts,missing\n2024-01-01,1\n",
    "twice.csv": "ts,a,a\n2024-01-01,1,2\n",
    "headless.csv": "2024-01-01,1\n",
    "notime.csv": "a,b\n1,x\n",
    "nulltime.csv": "ts,a\n,1\n",
    "late.csv": "ts,a\n2024-01-01,1\n99999-01-01,1\n",
    "plain.csv.gz": GOOD_CSV,
    "cut.csv.gz": gzip.compress(GOOD_CSV.encode() * 1_000)[:60],
    "binary.csv": bytes(range(256)) * 50,
    "nul.csv": b"ts,a\n2024-01-01,\x00\n",
    "cut.ndjson": '{"ts": "2024-01-01", "a": 1}\n{"ts": "2024-01-',
    "scalar.ndjson": "5\n",
    "list.ndjson": "[1, 2]\n",
    "unknown.ndjson": '{"ts": "2024-01-01", "missing": 1}\n',
    "words.ndjson": '{"ts": "2024-01-01", "a": "many"}\n',
    "half.ndjson": '{"ts": "2024-01-01", "a": 1.5}\n',
    "latin.ndjson": b'{"ts": "2024-01-01", "b": "caf\xe9"}\n',
    "deep.ndjson": '{"ts": ' + "[" * 5_000 + "\n",
    "cut.json": '[{"ts": "2024-01-01"},',
    "object.json": '{"a": 1',
    "scalars.json": "[1, 2]",
    "mixed.json": '[{"ts": "2024-01-01"}, 5]',
    "words.json": '[{"ts": "2024-01-01", "a": "many"}]',
    "binary.json": bytes(range(256)),
    "text.parquet": GOOD_CSV,
    "empty.parquet": b"",
    "cut.parquet": b"PAR1" + bytes(100),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(world: World, name: str) -> None:
    path = write(world, name, BAD_FILES[name])
    error = world.refuses(lambda: world.db.sql(f"COPY s FROM '{path}'"))
    assert error.position is not None


@pytest.mark.parametrize(
    "columns",
    [
        {"ts": ["2024-01-01"], "a": ["x"]},
        {"ts": [T0], "missing": [1]},
        {"ts": [T0], "a": [2**40]},
        {"a": [1]},
        {"ts": pa.array([None], pa.timestamp("us"))},
    ],
)
def test_bad_parquet(world: World, columns: dict[str, Any]) -> None:
    path = world.folder / "bad.parquet"
    pq.write_table(pa.table(columns), path)
    world.refuses(lambda: world.db.sql(f"COPY s FROM '{path}'"))


def test_cut_parquet(world: World) -> None:
    path = world.folder / "whole.parquet"
    pq.write_table(pa.table({"ts": [T0] * 1_000, "a": list(range(1_000))}), path)
    cut = write(world, "cut2.parquet", path.read_bytes()[:-200])
    world.refuses(lambda: world.db.sql(f"COPY s FROM '{cut}'"))


def test_empty_files_hold_nothing(tmp_path: Path) -> None:
    with tidemill.open(tmp_path / "w") as db:
        db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, a INT)")
        for name, content in (
            ("e.csv", ""),
            ("h.csv", "ts,a\n"),
            ("e.ndjson", ""),
            ("e.json", "[]"),
        ):
            path = tmp_path / name
            path.write_text(content)
            assert db.sql(f"COPY s FROM '{path}'").message == "COPY 0"
        assert db.sql("SELECT rows_in, stored FROM tidemill.ingest").fetchall() == [(0, 0)]


def test_a_diverting_table_counts_every_bad_line(tmp_path: Path) -> None:
    with tidemill.open(tmp_path / "w") as db:
        db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, a INT) WITH (rejected = 'divert')")
        path = tmp_path / "x.csv"
        path.write_text("ts,a\n2024-01-01,1\n2024-01-01\nnever,1\n2024-01-01,x\n2024-01-01,2\n")
        assert db.sql(f"COPY t FROM '{path}'").message == "COPY 2 (3 rejected)"
        lines = tmp_path / "x.ndjson"
        good = json.dumps({"ts": "2024-01-01", "a": 3})
        lines.write_text(f"{good}\nnonsense\n5\n" + json.dumps({"ts": "never"}) + f"\n{good}\n")
        assert db.sql(f"COPY t FROM '{lines}'").message == "COPY 2 (3 rejected)"
        counted = db.sql("SELECT rows_in, stored, rejected FROM tidemill.ingest").fetchone()
        assert counted == (10, 4, 6)
        assert db.sql("SELECT count(*) FROM t$rejected").fetchone() == (6,)


def test_a_failed_copy_leaves_the_old_file(world: World) -> None:
    path = write(world, "kept.csv", "old")
    world.refuses(lambda: world.db.sql(f"COPY (SELECT b::INT FROM s) TO '{path}'"))
    assert path.read_text() == "old"
    assert not list(world.folder.glob("*partial*"))


# -- the database itself


def test_bad_settings_open_nothing(tmp_path: Path) -> None:
    for settings in (
        {"missing": 1},
        {"threads": "many"},
        {"query_memory": "lots"},
        {"backpressure_wait": "a while"},
        {"segment_size": "1 kB"},
    ):
        with pytest.raises(SettingError) as caught:
            tidemill.open(tmp_path / "w", **settings)
        assert caught.value.hint
    assert not (tmp_path / "w").exists()


def test_a_file_is_no_warehouse(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(TidemillError):
        tidemill.open(path)
    assert path.read_text() == "x"


def test_a_closed_database_says_so(tmp_path: Path) -> None:
    db = tidemill.open(tmp_path / "w")
    db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP)")
    db.close()
    db.close()
    with pytest.raises(ClosedError):
        db.sql("SELECT 1")
    with pytest.raises(ClosedError):
        db.append("s", {"ts": T0})


OTHER = """
import sys, tidemill
try:
    tidemill.open(sys.argv[1])
except tidemill.TidemillError as error:
    print(error.code, error, sep="\\n")
else:
    print("opened")
"""


def test_a_second_process_is_told_who_owns_the_warehouse(tmp_path: Path) -> None:
    path = tmp_path / "w"
    with tidemill.open(path) as db:
        db.sql("CREATE TABLE t (a INT)")
        command = [sys.executable, "-c", OTHER, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.startswith(OwnedError.code)
        assert str(os.getpid()) in done.stdout
        with pytest.raises(OwnedError, match=str(os.getpid())):
            tidemill.open(path)
        assert db.sql("SELECT count(*) FROM t").fetchone() == (0,)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "opened\n"


def test_definition_errors_name_the_object(world: World) -> None:
    error = world.refuses(lambda: world.db.sql("CREATE TABLE t (a INT, A INT)"), DefinitionError)
    assert '"A"' in error.message


# -- what once passed, or failed without a word that helps


def _rows(rows: Any) -> Callable[[World], object]:
    return lambda world: world.db.append("s", rows)


def _sql(text: str) -> Callable[[World], object]:
    return lambda world: world.db.sql(text)


def _file(name: str, content: str) -> Callable[[World], object]:
    return lambda world: world.db.sql(f"COPY s FROM '{write(world, name, content)}'")


MENDED = {
    "values without rows": _sql("INSERT INTO s VALUES"),
    "an interval too long": _sql("SELECT * FROM RECENT(s, INTERVAL '" + "9" * 400 + "' DAY)"),
    "a size too large": _sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (memory = '" + "9" * 5_000 + "')"
    ),
    "a number too large": _sql("INSERT INTO s (ts, c) VALUES ('2024-01-01', 1e999)"),
    "a number among times": _rows([{"ts": T0}, {"ts": 5}]),
    "a fraction among times": _rows([{"ts": T0}, {"ts": 1.5}]),
    "a number among dates of a frame": lambda world: world.db.append(
        "s", pd.DataFrame({"ts": [T0, 5]}, dtype=object)
    ),
    "an expression too large": _sql("INSERT INTO s (ts, c) VALUES (now(), -1e999)"),
    "an open quote without a line's end": _file("open.csv", 'ts,a,b\n2024-01-01,1,"x'),
    "an open quote over lines": _file("open.csv", 'ts,a,b\n2024-01-01,1,"x\n2024-01-02,2,y\n'),
    "an open quote": _file("open.csv", 'ts,a,b\n2024-01-01,1,"x\n'),
}


@pytest.mark.parametrize("name", MENDED)
def test_mended_faults(tmp_path: Path, name: str) -> None:
    world = World(tmp_path)
    try:
        world.refuses(lambda: MENDED[name](world))
    finally:
        world.db.close()
