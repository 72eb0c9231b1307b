"""Any query over streaming tables gives what plain DuckDB gives over the same rows.

The streaming tables have blocks, a tail and indices of every kind, so the interval index and the
value indices choose rows for these queries; DuckDB's own tables have neither. ASOF joins may match
any of several rows of one time, so there every time is used once.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from random_queries import COLUMN_LIST, COLUMNS, Queries, random_rows

import tidemill
from tidemill import TidemillError

QUERIES_PER_SEED = 130
SEEDS = range(5)
INDEXES = (
    "s (k)",
    "s USING hash (h)",
    "s (v)",
    "s (d)",
    "s (name)",
    "s USING hash (k, name)",
    "s USING hash (flag)",
    "s USING hash (d)",
    "s (day)",
    "s USING hash (u)",
    "s (tz)",
    "s USING hash (f)",
    "s (tiny)",
    "r USING hash (k)",
    "r (h)",
    "r (u)",
    "r USING hash (tiny)",
    "r USING hash (v)",
    "r USING hash (day)",
)


class Pair:
    """The same rows twice: in a warehouse and in a DuckDB of its own."""

    def __init__(self, path: Path) -> None:
        self.db = tidemill.open(path, threads=1)
        self.duck = duckdb.connect()
        for setting in ("threads = 1", "TimeZone = 'UTC'"):
            self.duck.execute(f"SET {setting}")
        self._fill()

    def _fill(self) -> None:
        rng = random.Random(7)
        for table in ("s", "r"):
            with_late = "WATERMARK FOR ts AS ts - INTERVAL 10 SECOND"
            self.db.sql(
                f"CREATE STREAMING TABLE {table} ({COLUMN_LIST}, {with_late}) "
                "WITH (clock = 'event', durability = 'none')"
            )
            self.duck.execute(f"CREATE TABLE {table} ({COLUMN_LIST})")
        for number, index in enumerate(INDEXES[: len(INDEXES) // 2]):
            self.db.sql(f"CREATE INDEX i{number} ON {index}")
        for table, count in (("s", 500), ("r", 260)):
            rows = random_rows(rng, count, first_id=1_000 if table == "r" else 0)
            for batch in _cut(rng, rows):
                self._insert(table, batch)
        for number, index in enumerate(INDEXES[len(INDEXES) // 2 :], 100):
            self.db.sql(f"CREATE INDEX i{number} ON {index}")
        labels = [(k, label) for k in (*range(0, 12, 2), 3, 99) for label in ("x", "y")]
        values = ", ".join(f"({k}, '{label}')" for k, label in labels)
        for run in (self.db.sql, self.duck.execute):
            run("CREATE TABLE c (k INTEGER, label VARCHAR)")
            run(f"INSERT INTO c VALUES {values}")

    def _insert(self, table: str, rows: list[dict[str, Any]]) -> None:
        self.db.append(table, rows)
        given = pa.Table.from_pylist(
            [{**row, "u": None if row["u"] is None else str(row["u"])} for row in rows],
            schema=pa.schema([(name, _arrow(kind)) for name, kind in COLUMNS.items()]),
        )
        self.duck.register("given", given)
        self.duck.execute(f"INSERT INTO {table} SELECT * FROM given")
        self.duck.unregister("given")

    def close(self) -> None:
        self.db.close()
        self.duck.close()


def _arrow(kind: str) -> pa.DataType:
    return pa.string() if kind == "UUID" else tidemill.types.SqlType.parse(kind).arrow


def _cut(rng: random.Random, rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    start = 0
    while start < len(rows):
        size = rng.choice((1, 3, 20, 60))
        yield rows[start : start + size]
        start += size


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.hot.published.BLOCK_ROWS", 64)
        patch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 96)
        both = Pair(tmp_path_factory.mktemp("queries") / "w")
        yield both
        both.close()


def test_the_tables_have_blocks_and_a_tail(pair: Pair) -> None:
    states = pair.db.sql(
        "SELECT state, count(*) FROM tidemill.blocks WHERE table_name = 's' GROUP BY 1"
    )
    counts = dict(states.fetchall())
    assert counts["block"] >= 5
    assert counts["tail"] >= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_random_queries_agree_with_duckdb(pair: Pair, seed: int) -> None:
    queries = Queries(seed)
    answered = 0
    for _ in range(QUERIES_PER_SEED):
        text, params = queries.next()
        answered += compare(pair, text, params)
    assert answered > QUERIES_PER_SEED * 0.9


def compare(pair: Pair, text: str, params: list[Any]) -> bool:
    """Whether the query has an answer at all; both sides must agree on that and on the answer."""
    try:
        expected = pair.duck.execute(text, params or None).fetchall()
    except duckdb.Error:
        with pytest.raises(TidemillError):
            pair.db.sql(text, params or None)
        return False
    try:
        answer = pair.db.sql(text, params or None).fetchall()
    except Exception as error:
        pytest.fail(f"{type(error).__name__}: {error}\n{text}\n{params}")
    found, wanted = Counter(map(_plain, answer)), Counter(map(_plain, expected))
    assert found == wanted, (
        f"{text}\n{params}\nmissing: {list((wanted - found).elements())[:5]}\n"
        f"too much: {list((found - wanted).elements())[:5]}"
    )
    return True


def _plain(value: Any) -> Any:
    """A value that can be counted; NaN equals NaN, and 1.0 is not 1."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


MOMENT = dt.datetime(2024, 3, 1, 11, 0, 1)
PARAMETERS: list[tuple[str, Any, Any]] = [
    ("SELECT ?, ?", [1, "x"], (1, "x")),
    ("SELECT $2, $1, $2", [1, 2], (2, 1, 2)),
    ("SELECT :a, :b, :a", {"a": 1, "b": None}, (1, None, 1)),
    ("SELECT $a + $b", {"a": 1, "b": 2}, (3,)),
    ("SELECT count(*) FROM s WHERE k = ? AND h = ?", [3, 1], None),
    ("SELECT count(*) FROM s WHERE k IN (?, ?) OR name = ?", [1, 2, "a"], None),
    ("SELECT count(*) FROM s WHERE ts >= $1 AND ts < $1 + INTERVAL 30 MINUTE", [MOMENT], None),
    ("SELECT count(*) FROM s WHERE tz >= ?", [MOMENT.replace(tzinfo=dt.UTC)], None),
    ("SELECT count(*) FROM s WHERE day = ?", [MOMENT.date()], None),
    ("SELECT count(*) FROM s WHERE d < ?", [Decimal("12.25")], None),
    ("SELECT count(*) FROM s WHERE v = ?", [1.5], None),
    ("SELECT count(*) FROM s WHERE u = ?", [uuid.UUID(int=1 << 124)], None),
    ("SELECT count(*) FROM s WHERE flag = ?", [True], None),
    ("SELECT count(*) FROM s WHERE k = ?", [None], (0,)),
    ("SELECT count(*) FROM s WHERE list_contains(?, k)", [[1, 2]], None),
    ("SELECT count(*) FROM (SELECT * FROM s LIMIT ?)", [7], (7,)),
    ("WITH q AS (SELECT ? AS k) SELECT count(*) FROM s JOIN q USING (k)", [3], None),
    ("SELECT '?', \"k\", $$ $1 $$, ? FROM s WHERE id = 1 -- ?", ["x"], None),
    ("SELECT ?::VARCHAR", ["'; DROP TABLE s; --"], ("'; DROP TABLE s; --",)),
]


@pytest.mark.parametrize(("text", "params", "expected"), PARAMETERS)
def test_parameters(pair: Pair, text: str, params: Any, expected: Any) -> None:
    answer = pair.db.sql(text, params).fetchone()
    native = text.replace(":a", "$a").replace(":b", "$b")
    assert answer == (
        pair.duck.execute(native, params).fetchone() if expected is None else expected
    )
    assert pair.db.sql(text, params).fetchone() == answer  # from the plan that was kept


def test_a_kept_plan_takes_other_values(pair: Pair) -> None:
    text = "SELECT count(*) FROM s WHERE k = ? AND ts > ?"
    for key in range(-6, 26):
        params = [key, MOMENT]
        assert pair.db.sql(text, params).fetchall() == pair.duck.execute(text, params).fetchall()
