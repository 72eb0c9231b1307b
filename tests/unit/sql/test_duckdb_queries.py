"""What DuckDB's SELECT has survives the parser: same answers from the text and from the tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import body, duck

QUERIES = (Path(__file__).parent / "duckdb_queries.sql").read_text().splitlines()
SETUP = (
    """CREATE TABLE t AS SELECT
      timestamp '2024-01-01' + to_seconds(range) AS ts, (range % 5)::int AS vid, range * 1.5 AS spd,
      'n' || range % 3 AS s, [range, range + 1] AS l, {'a': range, 'b': 'x'} AS st,
      map {'k': range} AS m, json_object('a', range) AS j FROM range(20)""",
    """CREATE TABLE u AS SELECT
      timestamp '2024-01-01' + to_seconds(range * 2) AS ts, (range % 4)::int AS vid, range AS q
      FROM range(8)""",
)


@pytest.mark.parametrize("text", QUERIES, ids=[text[:60] for text in QUERIES])
def test_same_answer(text: str) -> None:
    with duck() as connection:
        for statement in SETUP:
            connection.execute(statement)
        expected = connection.execute(text).fetchall()
        got = connection.execute(body(text).sql("duckdb")).fetchall()
    assert sorted(map(repr, got)) == sorted(map(repr, expected))
