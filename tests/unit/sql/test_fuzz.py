"""Whatever the text, the parser answers with statements or with a TidemillError."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as some
from sqlglot import exp
from support import rewrite, table

from tidemill.errors import TidemillError
from tidemill.sql.parser import parse
from tidemill.sql.predicates import find_scans
from tidemill.sql.statements import Query
from tidemill.sql.travel import find_clause, moment_us, take_system_time
from tidemill.sql.windows import NowBounds

VALID = """
CREATE STREAMING TABLE t (ts TIMESTAMP, vid BIGINT NOT NULL DEFAULT 5, x STRUCT(a INT)[],
  PRIMARY KEY (vid, ts), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (hot = '1 hour')

CREATE OR REPLACE TABLE r (a INT PRIMARY KEY, b DECIMAL(10, 2) UNIQUE, CHECK (a > 0))

CREATE TABLE r AS SELECT 1 AS a

CREATE UNIQUE INDEX IF NOT EXISTS i ON t USING hash (a, b)

DROP STREAMING TABLE IF EXISTS t

ALTER TABLE t SET (late = 'divert', hot = INTERVAL '5' MINUTE)

SHOW INDEXES ON t

DESCRIBE tidemill.tables

INSERT INTO t (a, b) VALUES (1, 'x''y'), (-2.5e3, TIMESTAMP '2024-01-01 00:00:00')

INSERT INTO t VALUES (?, now(), $$a;b$$) ON CONFLICT DO NOTHING RETURNING *

COPY t (a) FROM 'x.csv' (HEADER, DELIMITER '|', COLUMNS {'a': 'INT'})

COPY (SELECT * FROM t) TO 'x.parquet' WITH (FORMAT parquet)

UPDATE t SET a = $1 WHERE b IN (SELECT c FROM u)

DELETE FROM t WHERE a = :name

EXPLAIN ANALYZE SELECT * FROM t$late; TRUNCATE t

WITH x AS (SELECT a, sum(b) OVER (PARTITION BY c) FROM RECENT(t, INTERVAL '5' MINUTE))
  SELECT * FROM x LEFT JOIN HOP(t, ts, INTERVAL '1' MINUTE, size => INTERVAL '5' MINUTE) h
  ON x.a = h.a WHERE h.a BETWEEN 1 AND 2 ORDER BY 1 LIMIT 5

FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) SELECT apply(l, lambda x: x + 1)[1:2]

SELECT CASE WHEN a THEN {'k': v} ELSE MAP {'a': 1} END::STRUCT(k INT), * EXCLUDE (b) FROM t -- x

PIVOT t ON a USING sum(b) ORDER BY ALL LIMIT 5

FLUSH main."t u"; VACUUM t; RESET ALL; SHOW route

CREATE OR REPLACE SOURCE s FROM 'in/*.csv.gz' FORMAT csv WITH (delimiter = '|', header = true)
  INTO t (a, b) EVERY INTERVAL '10' SECOND

SET SESSION route TO 'spark_sql'; DROP SOURCE IF EXISTS "s"; SHOW PARTITIONS FROM t

SELECT * FROM t AS a FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01' JOIN u v (x, y)
  FOR SYSTEM_TIME AS OF now() - INTERVAL '1' HOUR USING (x), t FOR SYSTEM_TIME AS OF $1 AS b
""".strip().split("\n\n")
WORDS = """
( ) [ ] { } , ; . : :: ' " $ $$ ? - -- /* */ * = => := -> \\ ` é 😀 _seq
SELECT FROM WHERE TABLE STREAMING PRIMARY KEY WATERMARK FOR AS WITH VALUES INSERT INTO INTERVAL
FOR SYSTEM_TIME AS OF SOURCE EVERY VACUUM RESET SET SHOW
NOT NULL DEFAULT lambda EXPLAIN COPY RECENT( TUMBLE( SESSION( 9999999999999999999 1e999
"""
PIECES = [*WORDS.split(), "\0"]
TABLES = {
    "t": table("t", "ts", ts="TIMESTAMP", a="INTEGER"),
    "u": table("u", "ts", ts="TIMESTAMP", a="INTEGER"),
}


@some.composite
def mutated(draw: some.DrawFn) -> str:
    text = draw(some.sampled_from(VALID))
    for _ in range(draw(some.integers(1, 4))):
        at = draw(some.integers(0, len(text)))
        cut = draw(some.integers(0, 12))
        piece = draw(some.one_of(some.sampled_from(PIECES), some.just(""), some.text(max_size=3)))
        space = draw(some.sampled_from(["", " "]))
        text = text[:at] + space + piece + space + text[at + cut :]
    return text


def survive(text: str) -> None:
    with contextlib.suppress(TidemillError):
        for statement in parse(text):
            assert statement.text in text
            if isinstance(statement, Query):
                tree = statement.body.copy()
                for node, moment in take_system_time(tree):
                    assert node.root() is tree
                    with contextlib.suppress(TidemillError):
                        moment_us(moment, ["2024-01-01"], 0)
                assert find_clause(tree) is None
                tree = rewrite(tree, TABLES.get, lambda name: NowBounds(0, 0))
                assert isinstance(tree, exp.Expression)
                find_scans(tree, TABLES.get)


@settings(max_examples=400, deadline=None)
@given(mutated())
def test_mutations_of_valid_statements(text: str) -> None:
    survive(text)


@settings(max_examples=150, deadline=None)
@given(some.lists(some.sampled_from(PIECES), max_size=30).map(" ".join))
def test_words_at_random(text: str) -> None:
    survive(text)


@settings(max_examples=100, deadline=None)
@given(some.text(max_size=60))
def test_any_text(text: str) -> None:
    survive(text)


def test_valid_statements_are_valid() -> None:
    for text in VALID:
        assert parse(text)
