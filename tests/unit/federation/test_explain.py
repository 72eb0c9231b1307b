"""EXPLAIN over memory and files: what it says of a warehouse whose rows moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tidemill.clock import FakeClock, to_us
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.federation.explain import analyze_lines, explain_lines, short_sql, timed_lines
from tidemill.federation.profiling import Operator, read_profile
from tidemill.federation.runner import Filled
from tidemill.sql.parser import parse
from tidemill.sql.statements import Query

NOON = to_us(datetime(2024, 5, 1, 12))
INSERT = (
    "INSERT INTO s SELECT TIMESTAMP '2024-05-01' + i * INTERVAL '1' MINUTE, i % 10, i "
    "FROM range({}, {}) r(i)"
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def db(tmp_path: Path, clock: FakeClock) -> Iterator[Database]:
    """100 minutes in two partitions of an hour, then 20 in memory."""
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "inline", "threads": 1})
    with Database(tmp_path / "it's a [w]", settings, clock) as opened:
        opened.sql(
            "CREATE STREAMING TABLE s (ts TIMESTAMP, k INT, v INT, "
            "WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE) "
            "WITH (clock = 'event', late = 'divert', partition = '1 hour', hot = '1 day')"
        )
        opened.sql("CREATE INDEX by_k ON s (k)")
        opened.sql(INSERT.format(0, 100))
        opened.sql("FLUSH s")
        clock.advance(60)
        opened.sql(INSERT.format(100, 120))
        yield opened


def fill(db: Database, text: str, params: Any = None) -> Filled:
    (statement,) = parse(text)
    assert isinstance(statement, Query)
    return db._runner.fill(db._querying.plan(statement, params), params)


def explained(db: Database, text: str) -> list[str]:
    return lines_of(db, fill(db, text))


def lines_of(db: Database, filled: Filled) -> list[str]:
    return explain_lines(filled, db._router.route_of(filled))


def analyzed(db: Database, text: str) -> list[str]:
    return analyze_lines(db._duck, fill(db, text))


def line(lines: list[str], beginning: str) -> str:
    (found,) = [line for line in lines if line.strip().startswith(beginning)]
    return found


# -- EXPLAIN


def test_a_scan_shows_memory_files_and_the_split(db: Database) -> None:
    files = db.catalog.snapshot().history(1).files
    size = sum(file.bytes for file in files)
    lines = explained(db, "SELECT count(*) FROM s")
    assert lines[0].startswith("route: local (DuckDB over hot blocks and files)")
    assert lines[1:] == [
        "scan s (tm_scan_0)",
        "  no index helps: every row is read",
        "  blocks: 0 of 0 read; rows: 20 of 20 selected",
        f"  history: 2 of 2 files, {size:,} of {size:,} bytes, rows ≤ 100",
        "  split: arrivals up to number 100 are in files, later ones in memory",
        'sql: SELECT COUNT(*) FROM ((SELECT f."ts" AS "ts", f."k" AS "k", f."v" AS "v" FROM '
        'read_parquet([2 files]) AS f) UNION ALL SELECT * FROM "tm_scan_0") AS s',
    ]


def test_files_are_ruled_out_by_time_and_by_value(db: Database) -> None:
    lines = explained(db, "SELECT * FROM s WHERE ts < '2024-05-01 01:00'")
    assert "  history: 1 of 2 files" in line(lines, "history")
    assert line(lines, "history").endswith("rows ≤ 60; ruled out by time: 1")
    lines = explained(db, "SELECT * FROM s WHERE k = 50 AND ts >= '2024-05-01 01:00'")
    assert line(lines, "history").endswith("rows ≤ 0; ruled out by time: 1, by k: 1")
    assert "read_parquet" not in line(lines, "sql")


def test_a_table_without_history_has_no_line_of_it(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE fresh (ts TIMESTAMP)")
    lines = explained(db, "SELECT * FROM fresh")
    assert not [line for line in lines if "history" in line or "split" in line]


def test_only_our_own_lists_of_files_are_shortened(db: Database) -> None:
    text = short_sql(fill(db, "SELECT 'read_parquet([''a'', ''b''])' AS x FROM s"))
    assert "'read_parquet([''a'', ''b''])'" in text
    assert "read_parquet([2 files])" in text
    assert ".parquet" not in text


def test_replaced_rows_are_told(db: Database) -> None:
    db.sql(
        "CREATE STREAMING TABLE keyed (ts TIMESTAMP, a INT, PRIMARY KEY (ts)) "
        "WITH (clock = 'event', on_conflict = 'replace', hot = '1 day')"
    )
    some = "SELECT TIMESTAMP '2024-05-01' + i * INTERVAL '1' SECOND, i FROM range({}) r(i)"
    db.sql(f"INSERT INTO keyed {some.format(50)}")
    db.sql("FLUSH keyed")
    db.sql(f"INSERT INTO keyed {some.format(7)}")
    lines = explained(db, "SELECT * FROM keyed")
    assert "  replaced by rows in memory: 7 rows" in lines
    assert "f._seq NOT IN (7 numbers)" in line(lines, "sql")
    db.sql("FLUSH keyed")
    db.sql(f"INSERT INTO keyed {some.format(2)}")
    lines = explained(db, "SELECT * FROM keyed")
    assert "  deletes: 1 file, 7 rows" in lines
    assert "  replaced by rows in memory: 2 rows" in lines
    assert "NOT IN (" in line(lines, "sql")
    assert "numbers" not in line(lines, "sql")


def test_rows_set_aside_are_told_in_both_places(db: Database) -> None:
    db.sql("INSERT INTO s VALUES ('2024-05-01 00:00', 1, 1), ('2024-05-01 00:01', 1, 1)")
    assert explained(db, "SELECT * FROM s$late")[1] == "scan s$late: 2 rows set aside"
    db.sql(INSERT.format(120, 121))
    db.sql("FLUSH s")
    db.sql("INSERT INTO s VALUES ('2024-05-01 00:00', 1, 1)")
    lines = explained(db, "SELECT * FROM s$late")
    assert lines[1] == "scan s$late: 1 rows set aside in memory, 2 in 1 file"
    assert "read s$late: 1 file, 1 row group, 2 rows" in analyzed(db, "SELECT * FROM s$late")


def test_a_reader_of_the_past_sees_where_its_rows_are(db: Database, clock: FakeClock) -> None:
    then = "SELECT count(*) FROM s FOR SYSTEM_TIME AS OF TIMESTAMP '2024-05-01 12:01:30'"
    clock.advance(60)
    lines = explained(db, then)
    assert lines[2].startswith("  as of 2024-05-01 12:01:30, snapshot ")
    assert lines[3].startswith("  history: 2 of 2 files, ")
    assert lines[4] == "  in memory then and now: 20 rows"
    db.sql(INSERT.format(120, 130))
    db.sql("FLUSH s")
    lines = explained(db, then)
    assert lines[4].startswith("  in memory then, in files now: numbers 101 to 120, 1 of 4 files")
    assert lines[5] == "  in memory then and now: 0 rows"
    assert db.sql(then).fetchall() == [(120,)]


def test_sparks_route_shows_how_the_query_is_split(db: Database) -> None:
    sums = replace(fill(db, "SELECT k, sum(v) FROM s GROUP BY k"), route="spark", reason="large")
    lines = lines_of(db, sums)
    assert lines[0].startswith("route: spark (")
    assert lines[0].endswith("): large")
    assert "GROUP BY 1" in line(lines, "partial: ")
    assert "tm_partials" in line(lines, "merge: ")
    assert "tm_partials" in line(lines, "final: ")
    median = replace(fill(db, "SELECT median(v) FROM s"), route="spark")
    assert "in one of Spark's tasks, over files and the hot rows" in lines_of(db, median)[0]
    told = line(lines_of(db, median), "ship: ")
    assert told.startswith("ship: 20 rows of memory travel to the task that runs the sql, since ")
    assert "median needs all values" in told
    db.sql(INSERT.format(120, 300))  # most rows are in memory now
    median = replace(fill(db, "SELECT median(v) FROM s"), route="spark")
    assert "median needs all values" in line(lines_of(db, median), "gather: ")
    assert "in this process, over hot blocks and the rows of files" in lines_of(db, median)[0]


# -- EXPLAIN ANALYZE


def test_an_analysis_tells_what_was_read(db: Database) -> None:
    lines = analyzed(db, "SELECT v FROM s WHERE v < 0")
    assert lines[0].startswith("answer: 0 rows in ")
    assert "read s: 2 of 2 files, 0 of 2 row groups; 0 of 100 rows passed its filters" in lines
    lines = analyzed(db, "SELECT v FROM s WHERE ts < '2024-05-01 00:10'")
    assert lines[0].startswith("answer: 10 rows in ")
    assert "read s: 1 of 2 files, 1 of 1 row groups; 10 of 60 rows passed its filters" in lines
    assert line(lines, "read from files: ").endswith(" bytes")


def test_an_analysis_tells_the_slowest_steps_first(db: Database) -> None:
    lines = analyzed(db, "SELECT k, count(*) FROM s GROUP BY k ORDER BY k")
    assert lines[0].startswith("answer: 10 rows in ")
    assert "read from memory: 20 rows" in lines
    at = lines.index("steps, slowest first, summed over threads:")
    steps = lines[at + 1 :]
    times = [float(step.split(" ms")[0]) for step in steps if " ms" in step]
    assert times == sorted(times, reverse=True)
    assert any("read files: s" in step for step in steps)
    assert any("group by" in step for step in steps)


def test_a_table_that_is_read_twice_is_told_in_one_line(db: Database) -> None:
    lines = analyzed(db, "SELECT a.v, b.v + 1 FROM s AS a JOIN s AS b ON a.v = b.v")
    assert lines[0].startswith("answer: 120 rows in ")
    assert "read s: 4 of 4 files, " in line(lines, "read s: ")
    assert "200 rows passed its filters" in line(lines, "read s: ")


def test_deletes_are_told_apart_from_rows(db: Database) -> None:
    db.sql(
        "CREATE STREAMING TABLE keyed (ts TIMESTAMP, a INT, PRIMARY KEY (ts)) "
        "WITH (clock = 'event', on_conflict = 'replace', hot = '1 day')"
    )
    for count in (50, 7):
        db.sql(
            "INSERT INTO keyed SELECT TIMESTAMP '2024-05-01' + i * INTERVAL '1' SECOND, i "
            "FROM range(?) r(i)",
            [count],
        )
        db.sql("FLUSH keyed")
    lines = analyzed(db, "SELECT * FROM keyed")
    assert lines[0].startswith("answer: 50 rows in ")
    assert "read deletes of keyed: 1 file, 1 row group, 7 rows" in lines
    assert "of 57 rows passed its filters" in line(lines, "read keyed: ")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT 1", "1 row"),
        ("VALUES (1), (2)", "2 rows"),
        ("SUMMARIZE s", "3 rows"),
        ("SELECT * FROM s LIMIT 0", "0 rows"),
        ("SELECT v FROM s UNION ALL SELECT v FROM s", "240 rows"),
        ("SELECT * FROM s WHERE ts = '2024-05-01 01:50'", "1 row"),
        ("WITH x AS (SELECT v FROM s) SELECT * FROM x LIMIT 3", "3 rows"),
    ],
)
def test_every_kind_of_query_is_analyzed(db: Database, text: str, rows: str) -> None:
    assert analyzed(db, text)[0].startswith(f"answer: {rows} in ")


def test_an_analysis_takes_the_values_of_the_statement(db: Database) -> None:
    filled = fill(db, "SELECT * FROM s WHERE v < ?", [5])
    assert analyze_lines(db._duck, filled)[0].startswith("answer: 5 rows in ")


def test_a_route_may_time_its_own_steps() -> None:
    steps = [Timed("merge", 1, 0.001), Timed("partial", 1_000, 1.5)]
    assert timed_lines(1, 2.0, steps) == [
        "answer: 1 row in 2,000.00 ms",
        "steps, slowest first:",
        "  1,500.00 ms  1,000 rows  partial",
        "      1.00 ms       1 row  merge",
    ]
    assert timed_lines(0, 0.5) == ["answer: 0 rows in 500.00 ms"]
    many = [Timed(str(number), 0, number / 1_000) for number in range(20)]
    assert timed_lines(0, 1.0, many)[-1] == "  and 12 more"


class Timed:
    def __init__(self, name: str, rows: int, elapsed_s: float) -> None:
        self.name, self.rows, self.elapsed_s = name, rows, elapsed_s


# -- what DuckDB tells


@pytest.mark.parametrize("told", [None, [], {}, {"operator": []}, {"operator": [{}]}])
def test_a_profile_may_lack_anything(told: Any) -> None:
    found = read_profile(told, 1.0)
    assert (found.rows, found.elapsed_s, found.planning_s) == (0, 1.0, 0.0)


def test_an_operator_tells_files_as_text() -> None:
    about = {"Function": "read_parquet", "Total Files Read": "12", "Projections": ["a", 1]}
    found = Operator.of({"type": "TABLE_SCAN", "extra_info": about})
    assert (found.function, found.files, found.about["Projections"]) == ("READ_PARQUET", 12, "a, 1")
    assert Operator.of({"extra_info": {"Total Files Read": "many"}}).files == 0


@pytest.mark.parametrize("query", ["SELECT * FROM s ORDER BY v LIMIT 3", "FROM s USING SAMPLE 5"])
def test_files_that_duckdb_comes_back_to_are_counted_once(db: Database, query: str) -> None:
    db.sql("FLUSH s")
    lines = [str(line) for (line,) in db.sql(f"EXPLAIN ANALYZE {query}").fetchall()]
    (told,) = [line for line in lines if line.startswith("read s:")]
    for found in re.finditer(r"([\d,]+) of ([\d,]+)", told):
        assert int(found[1].replace(",", "")) <= int(found[2].replace(",", "")), told
