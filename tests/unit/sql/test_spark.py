"""Translating to Spark SQL, without a Spark: what is refused, and why; what is written, and how."""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import threading
from decimal import Decimal
from typing import Any

import duckdb
import pytest
import sqlglot
from random_queries import COLUMNS, Queries

from tidemill.sql.spark import (
    ALLOWED,
    NotOnTheList,
    SparkQuery,
    given_expression,
    result_sql,
    spark_type,
    to_spark,
    view_name,
)

TABLES = {
    "s": COLUMNS,
    "r": COLUMNS,
    "c": {"k": "INTEGER", "label": "VARCHAR"},
    "odd": {
        "Id": "INTEGER",
        "j": "JSON",
        "l": "INTEGER[]",
        "span": "INTERVAL",
        "w": "DECIMAL(30,6)",
    },
}


def translate(text: str, **values: Any) -> SparkQuery | NotOnTheList:
    tree = sqlglot.parse_one(text, dialect="duckdb")
    before = tree.sql(dialect="duckdb")
    found = to_spark(tree, lambda node: TABLES.get(node.name), values)
    assert tree.sql(dialect="duckdb") == before
    return found


def accepted(text: str, **values: Any) -> SparkQuery:
    found = translate(text, **values)
    assert isinstance(found, SparkQuery), found.reason
    return found


def test_a_query_knows_its_columns_and_what_it_reads() -> None:
    found = accepted("SELECT K AS key, sum(d), count(*) FROM s WHERE ts > '2024-03-01' GROUP BY k")
    assert found.names == ("key", "sum(d)", "count_star()")
    assert found.types == ("INTEGER", "DECIMAL(38,2)", "BIGINT")
    assert found.reads == {"s": ("k", "d", "ts")}
    assert "`s` AS t0" in found.sql
    assert "TIMESTAMP_NTZ'2024-03-01 00:00:00'" in found.sql
    assert found.uses < ALLOWED
    assert "aggregate sum number" in found.uses


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT strftime(ts, '%Y') FROM s", "function"),
        ("SELECT j FROM odd", "JSON"),
        ("SELECT l FROM odd", r"INTEGER\[\]"),
        ("SELECT * FROM odd", "JSON"),
        ("SELECT * FROM s LIMIT 1", "LIMIT without ORDER BY"),
        ("SELECT row_number() OVER () FROM s", "row_number without ORDER BY"),
        ("SELECT ln(v) FROM s", "function ln"),
        ("SELECT w * w FROM odd", "38 digits|DuckDB"),
        ("SELECT * FROM unknown", "unknown"),
        ("SELECT nothing FROM s", "nothing"),
        ("SELECT k FROM s, c", "ambiguous"),
        ("SELECT k FROM s GROUP BY ROLLUP (k)", "ROLLUP"),
        ("SELECT k FROM s NATURAL JOIN c", "method"),
        ("SELECT (SELECT max(x.id) FROM r WHERE r.k = x.k) FROM s x", "query around|correlated"),
        ("SELECT k FROM s WHERE (k IN (SELECT k FROM c)) IS NULL", "IN"),
        ("SELECT CAST(name AS INTEGER) FROM s", "cast from VARCHAR"),
        ("SELECT CAST(v AS VARCHAR) FROM s", "cast from DOUBLE"),
        ("SELECT TRY_CAST(k AS TINYINT) FROM s", "TRYCAST|function"),
        ("SELECT name = k FROM s", "text|DuckDB"),
        ("SELECT round(v, 2) FROM s", "round"),
        ("SELECT substring(name, 0, 2) FROM s", "argument 0"),
        ("SELECT name LIKE k::VARCHAR FROM s", "LIKE"),
        ("SELECT name LIKE 'a!%' ESCAPE '!' FROM s", "ESCAPE"),
        ("SELECT ts - ts FROM s", "TIMESTAMP"),
        ("SELECT random() FROM s", "function rand"),
        ("SELECT h + 1 FROM s", "UBIGINT"),
        ("SELECT avg(ts) FROM s", "avg of TIMESTAMP"),
        ("SELECT first(k) FROM s", "function"),
        ("SELECT NULL AS x FROM s", "NULL"),
        ("SELECT * FROM range(3)", "FROM"),
        ("SELECT k FROM s TABLESAMPLE 10%", "sample"),
        (
            "WITH RECURSIVE q AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM q) SELECT * FROM q",
            "WITH",
        ),
        ("SELECT k FROM s WHERE k = $1", "parameter"),
    ],
)
def test_what_is_refused_says_why(text: str, reason: str) -> None:
    found = translate(text)
    assert isinstance(found, NotOnTheList)
    assert re.search(reason, found.reason), found.reason


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (3, "CAST('3' AS INT)"),
        (2**40, "CAST('1099511627776' AS BIGINT)"),
        (Decimal("1.50"), "CAST('1.50' AS DECIMAL"),
        (float("nan"), "CAST('NaN' AS DOUBLE)"),
        (None, "CAST(NULL AS INT)"),
    ],
)
def test_parameters_become_typed_constants(value: Any, written: str) -> None:
    assert written in accepted("SELECT id FROM s WHERE k = $p", p=value).sql


def test_parameters_of_other_types() -> None:
    moment = dt.datetime(2024, 3, 1, 11, 0, 0, 5)
    text = "SELECT id FROM s WHERE ts > $a AND tz > $b AND day = $c AND name = $d AND flag = $e"
    values = {
        "a": moment,
        "b": moment.replace(tzinfo=dt.UTC),
        "c": moment.date(),
        "d": "it's ${x}\\",
        "e": True,
    }
    sql = accepted(text, **values).sql
    assert "TIMESTAMP_NTZ'2024-03-01 11:00:00.000005'" in sql
    assert "TIMESTAMP'2024-03-01 11:00:00.000005Z'" in sql
    assert "DATE'2024-03-01'" in sql
    assert "'it\\'s \\u0024{x}\\\\'" in sql
    assert isinstance(translate("SELECT id FROM s WHERE k = $p", p=object()), NotOnTheList)
    assert isinstance(translate("SELECT id FROM s WHERE k = $p", p=[1]), NotOnTheList)


def test_nulls_and_types_are_written_out() -> None:
    sql = accepted("SELECT k / 2 AS a, k % 2 AS b FROM s ORDER BY a DESC, id LIMIT 3").sql
    assert "DESC NULLS LAST" in sql
    assert "ASC NULLS LAST" in sql
    assert "CAST(t0.`k` AS DOUBLE)" in sql


def test_tables_with_schemas_have_views_of_their_own() -> None:
    tree = sqlglot.parse_one('SELECT k FROM reference.main."T5" AS c', dialect="duckdb")
    found = to_spark(tree, lambda node: {"k": "INTEGER"} if node.name == "T5" else None)
    assert isinstance(found, SparkQuery)
    assert found.reads == {"reference_main_t5": ("k",)}
    node = tree.find(sqlglot.exp.Table)
    assert node is not None
    assert view_name(node) == "reference_main_t5"


def test_columns_go_to_spark_and_come_back() -> None:
    values = {
        "UBIGINT": "18446744073709551615",
        "HUGEINT": "-99999999999999999999999999999999999999",
        "UUID": "'00000000-0000-0000-0000-00000000000a'",
        "UTINYINT": "255",
        "DECIMAL(9,2)": "1.50",
        "VARCHAR": "'x'",
    }
    with duckdb.connect() as connection:
        for kind, value in values.items():
            connection.execute(
                f'CREATE OR REPLACE TABLE t AS SELECT CAST({value} AS {kind}) AS "a"'
            )
            given = connection.sql(
                f"SELECT {given_expression('a', kind)} AS c0 FROM t"
            ).to_arrow_table()
            connection.register("given", given)
            query = SparkQuery("", ("a",), (kind,), {}, frozenset())
            back = connection.sql(result_sql(query, "given"))
            assert [str(found) for found in back.types] == [kind]
            assert back.fetchall() == connection.execute("SELECT a FROM t").fetchall()
            connection.unregister("given")
    assert spark_type("TIMESTAMP") == "TIMESTAMP_NTZ"
    assert spark_type("TIMESTAMP WITH TIME ZONE") == "TIMESTAMP"
    assert spark_type("INTERVAL") is None


def test_most_random_queries_are_accepted() -> None:
    queries = Queries(5)
    answers = []
    for _ in range(150):
        text, params = queries.next()
        answers.append(translate(text, **{str(at): value for at, value in enumerate(params, 1)}))
    assert sum(isinstance(answer, SparkQuery) for answer in answers) > 75


def test_broken_queries_are_refused_and_raise_nothing() -> None:
    rng, queries = random.Random(1), Queries(9)
    for _ in range(120):
        words = queries.next()[0].split(" ")
        others = queries.next()[0].split(" ")
        for _ in range(rng.randrange(1, 4)):
            words[rng.randrange(len(words))] = rng.choice([*others, "SEMI", ")", "("])
        try:
            tree = sqlglot.parse_one(" ".join(words), dialect="duckdb")
        except sqlglot.errors.SqlglotError:
            continue
        assert isinstance(
            to_spark(tree, lambda node: TABLES.get(node.name)), SparkQuery | NotOnTheList
        )


def test_another_thread_may_fork() -> None:
    """pyspark forks to start Java; the child must not close the DuckDB that is asked."""
    accepted("SELECT k FROM s")
    statuses: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(0)
        statuses.append(os.waitpid(child, 0)[1])

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert statuses == [0]
