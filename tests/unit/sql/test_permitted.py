"""What a query may name: nothing that writes, no inner tables, and a decision on every function."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from tidemill.errors import SqlSyntaxError, UnknownNameError, UnsupportedError
from tidemill.sql.parser import parse, parse_one
from tidemill.sql.permitted import FILE_FUNCTIONS, REFUSED

HARMLESS = frozenset((Path(__file__).parent / "duckdb_functions.txt").read_text().split())
WRITES = (
    "UPDATE r SET a = 1 RETURNING a",
    "DELETE FROM r RETURNING a",
    "INSERT INTO r VALUES (1) RETURNING a",
    "MERGE INTO r USING s ON r.a = s.a WHEN MATCHED THEN DELETE",
)
PLACES = (
    "WITH d AS ({}) SELECT * FROM d",
    "WITH d AS MATERIALIZED ({}) SELECT * FROM d",
    "SELECT * FROM (WITH d AS ({}) SELECT * FROM d) AS x",
    "SELECT (WITH d AS ({}) SELECT max(a) FROM d)",
    "EXPLAIN WITH d AS ({}) SELECT * FROM d",
    "EXPLAIN ANALYZE WITH d AS ({}) SELECT * FROM d",
    "CREATE TABLE x AS WITH d AS ({}) SELECT * FROM d",
    "CREATE MATERIALIZED VIEW v AS WITH d AS ({}) SELECT count(*) FROM d, s",
    "CREATE STREAMING TABLE k AS WITH d AS ({}) SELECT * FROM d, s EVERY ROW",
    "INSERT INTO r WITH d AS ({}) SELECT * FROM d",
    "COPY (WITH d AS ({}) SELECT * FROM d) TO 'x.csv'",
    "UPDATE r SET a = 2 WHERE a IN (WITH d AS ({}) SELECT a FROM d)",
    "WITH d AS ({}) DELETE FROM r WHERE a IN (SELECT a FROM d)",
)
INNER = (
    "reference.main.t1",
    "reference.t1",
    '"Reference"."main"."t1"',
    "memory.main.x",
    "temp.x",
    "system.information_schema.tables",
    "pg_catalog.pg_tables",
    "memory.information_schema.tables",
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("write", WRITES)
def test_a_query_does_not_write(place: str, write: str) -> None:
    with pytest.raises((UnsupportedError, SqlSyntaxError)) as caught:
        parse(place.format(write))
    assert caught.value.hint


def test_the_error_says_what_to_do() -> None:
    with pytest.raises(UnsupportedError, match="UPDATE inside a query is not offered") as caught:
        parse(PLACES[0].format(WRITES[0]))
    assert "a statement of its own" in str(caught.value)


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM {}",
        "TABLE {}",
        "SUMMARIZE {}",
        "SELECT 1 WHERE EXISTS (FROM {})",
        "UPDATE {} SET a = 1",
        "DELETE FROM {}",
        "DELETE FROM r USING {} AS x WHERE true",
        "CREATE MATERIALIZED VIEW v AS SELECT count(*) FROM {}",
        "INSERT INTO r VALUES (1) ON CONFLICT (a) DO UPDATE SET a = (SELECT max(a) FROM {})",
        "INSERT INTO r VALUES (1) RETURNING (SELECT max(a) FROM {})",
    ],
)
def test_inner_names(text: str, name: str) -> None:
    with pytest.raises(UnknownNameError, match="is not a table of this warehouse"):
        parse(text.format(name))


def functions() -> list[str]:
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions()"
        ).fetchall()
    return sorted(str(name) for (name,) in rows)


def test_every_function_is_decided_on() -> None:
    """A new DuckDB brings new functions: look at each, then name it in one of the lists."""
    named = {name for name in functions() if re.fullmatch(r"[A-Za-z]\w*", name)}
    named -= {name for name in named if re.match(r"(icu_)?collate_", name)}
    lists = (set(HARMLESS), set(REFUSED), set(FILE_FUNCTIONS))
    assert sum(map(len, lists)) == len(set().union(*lists))
    assert named - set().union(*lists) == set()
    assert set().union(*lists) - named == set()


@pytest.mark.parametrize("name", sorted(set(REFUSED) - {"show"}))
@pytest.mark.parametrize(
    "text",
    [
        "SELECT {}()",
        "SELECT * FROM {}('x')",
        'SELECT * FROM main."{}"(1)',
        "SELECT upper(main.{}(1))",
        "SELECT 'x'.{}()",
    ],
)
def test_refused_functions(text: str, name: str) -> None:
    with pytest.raises((UnsupportedError, SqlSyntaxError)) as caught:
        parse(text.format(name))
    assert caught.value.hint


@pytest.mark.parametrize("name", [n for n in functions() if n.startswith("__internal")])
def test_inner_functions(name: str) -> None:
    with pytest.raises(UnsupportedError):
        parse(f"SELECT {name}(1)")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT histogram(a) FROM r",
        "SELECT * FROM range(3)",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM tidemill.tables",
        "SELECT * FROM main.r",
        "INSERT INTO r VALUES (1) ON CONFLICT (a) DO UPDATE SET a = excluded.a RETURNING *",
        "INSERT INTO r VALUES (1) ON CONFLICT DO NOTHING",
        "WITH d AS (SELECT 1 AS a) DELETE FROM r WHERE a IN (SELECT a FROM d)",
    ],
)
def test_what_is_allowed(text: str) -> None:
    parse_one(text)


def test_histogram_of_a_table_by_its_name() -> None:
    with pytest.raises(UnsupportedError):
        parse("SELECT * FROM histogram('reference.main.t1', a)")


def test_a_query_keeps_no_rejects() -> None:
    with pytest.raises(UnsupportedError, match="store_rejects"):
        parse("SELECT * FROM read_csv('x.csv', store_rejects = true)")
