"""Columns that Parquet or Spark hold as something else: the third route gives DuckDB's answers.

Unsigned integers, HUGEINTs and UUIDs lie in files of history (in every encoding that is written
there) and in memory; the same rows are in a DuckDB of its own.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from warehouses import difference, flush, open_inline, quiet

from tidemill.engine import Database
from tidemill.errors import UnsupportedError
from tidemill.pipeline.spark import SparkRuntime
from tidemill.types import literal

pytestmark = pytest.mark.spark

START = dt.datetime(2024, 3, 1)
COLUMNS = (
    "ts TIMESTAMP, id INTEGER, u8 UTINYINT, u16 USMALLINT, u32 UINTEGER, u64 UBIGINT, hg HUGEINT, "
    "u UUID, up UBIGINT, odd UHUGEINT, big HUGEINT"
)
ROWS = 900
UINTS = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}
NINES = 10**38 - 1  # the greatest number that Spark holds

QUESTIONS = (
    "SELECT id, u8, u16, u32, u64, hg, u, up FROM t",
    "SELECT "
    + ", ".join(
        f"min({name}), max({name}), count({name}), count(DISTINCT {name})"
        for name in (*UINTS, "hg", "u", "up")
    )
    + ", sum(u8), sum(u16), sum(u32) FROM t",
    "SELECT u, u8, count(*), min(hg), max(u64) FROM t GROUP BY u, u8",
    *(
        f"SELECT id FROM t WHERE {name} >= {2 ** (bits - 1)} OR {name} < 7 OR {name} IS NULL"
        for name, bits in UINTS.items()
    ),
    "SELECT id FROM t WHERE u8 = 255 OR u16 = 65535 OR u32 = 4294967295",
    f"SELECT id FROM t WHERE hg = {NINES} OR hg BETWEEN -5 AND {2**64} OR hg < -{2**64}",
    "SELECT id FROM t WHERE up BETWEEN 9223372036854775900 AND 9223372036854776000",
    f"SELECT id FROM t WHERE u > '{uuid.UUID(int=2**127 - 1)}' OR u = '{uuid.UUID(int=1)}' "
    f"OR u IN ('{uuid.UUID(int=0)}') OR u IS NULL",
    "SELECT a.id, b.id FROM t a JOIN t b ON a.u = b.u AND a.u8 = b.u8 WHERE a.id < 40",
    "SELECT a.id, b.id FROM t a JOIN t b ON a.u64 = b.hg WHERE a.u64 < 100",
    "SELECT id, row_number() OVER (PARTITION BY u8 ORDER BY u DESC, id) FROM t",
    "SELECT id, u, CAST(u AS VARCHAR), CAST(u64 AS VARCHAR) FROM t ORDER BY u NULLS FIRST, id "
    "LIMIT 50",
    "SELECT id, u64 FROM t ORDER BY u64 DESC, id LIMIT 50",
)


def rows() -> list[tuple[Any, ...]]:
    """Few values (a dictionary), many, and rising ones (differences); NULLs everywhere."""
    rng = random.Random(5)

    def unsigned(number: int, bits: int) -> int:
        edges = (0, 1, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1)
        return rng.choice(edges) if number % 300 < 150 else rng.randrange(2**bits)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    made = []
    for number in range(ROWS):
        huge = rng.choice((0, 1, -1, NINES, -NINES, 2**64, -(2**64) - 1, rng.getrandbits(100)))
        ident = rng.choice((0, 1, 2**127, 2**128 - 1, rng.getrandbits(128)))
        made.append(
            (
                START + dt.timedelta(seconds=number),
                number,
                *(maybe(unsigned(number, bits)) for bits in UINTS.values()),
                maybe(huge),
                maybe(str(uuid.UUID(int=ident))),
                2**63 + number,
                2**127 + number,
                2**127 - 1 - number,
            )
        )
    return made


def _values(row: tuple[Any, ...]) -> str:
    return f"({', '.join('NULL' if each is None else literal(str(each)) for each in row)})"


class Pair:
    def __init__(self, db: Database, duck: duckdb.DuckDBPyConnection) -> None:
        self.db, self.duck = db, duck

    def compare(self, text: str) -> None:
        answer = self.db.sql(text)
        expected = self.duck.execute(text)
        kinds = [str(column[1]) for column in expected.description or ()]
        found = difference(answer.fetchall(), expected.fetchall(), "LIMIT" in text)
        assert found is None, f"{text}\n{found}"
        assert answer.types == kinds, text

    def runs_on_spark(self, text: str) -> bool:
        lines = [str(row[0]) for row in self.db.sql(f"EXPLAIN {text}").fetchall()]
        return any("Spark's own SQL" in line for line in lines)


@pytest.fixture(scope="module")
def pair(shared_spark: SparkRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = rows()
    folder = tmp_path_factory.mktemp("types") / "w"
    duck = duckdb.connect()
    duck.execute(f"CREATE TABLE t ({COLUMNS})")
    duck.execute(f"INSERT INTO t VALUES {', '.join(map(_values, made))}")
    with quiet(), open_inline(folder, spark_master="local[2]") as db:
        db.sql(f"CREATE STREAMING TABLE t ({COLUMNS}) WITH (move = 'manual', clock = 'event')")
        third = ROWS // 3
        for start in (0, third):
            db.append("t", made[start : start + third])
            flush(db, "t")
        db.append("t", made[2 * third :])
        db.sql("SET route = 'spark_sql'")
        yield Pair(db, duck)
    duck.close()


@pytest.mark.parametrize("text", QUESTIONS)
def test_answers_are_duckdbs(pair: Pair, text: str) -> None:
    assert pair.runs_on_spark(text)
    pair.compare(text)


def test_spark_itself_answers(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the local route, which would hide an error of Spark's."""

    def forbidden(*_: object) -> None:
        pytest.fail("the query ran locally")

    monkeypatch.setattr("tidemill.federation.runner.Runner.run_filled", forbidden)
    for text in QUESTIONS[:3]:
        pair.compare(text)


@pytest.mark.parametrize("until", [600, ROWS])
def test_what_spark_cannot_hold_is_answered_locally(pair: Pair, until: int) -> None:
    """Numbers of 39 digits, in files, and in memory as well."""
    first = START + dt.timedelta(seconds=until)
    pair.compare(f"SELECT id, big FROM t WHERE ts < TIMESTAMP '{first}'")


def test_what_is_not_verified_is_refused_with_a_hint(pair: Pair) -> None:
    with pytest.raises(UnsupportedError) as caught:
        pair.db.sql("SELECT max(odd) FROM t")
    assert caught.value.hint
