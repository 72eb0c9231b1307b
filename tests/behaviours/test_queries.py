"""Any query gives what plain DuckDB gives over the same rows, wherever they lie and it runs.

The streaming tables have blocks, a tail and indices of every kind, files in many partitions and
revisions, so indices and the ranges of files choose rows for these queries; DuckDB's own tables
have none of it. ASOF joins may match any of several rows of one time, so there every time is used
once. ``--queries N`` asks more: N on the local route over all layouts, a tenth of it on the others.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from random_queries import COLUMN_LIST, COLUMNS, random_rows
from stream_queries import StreamQueries, StreamQuery
from warehouses import LAYOUTS, difference, files_of, fill, open_inline, quiet

import tidemill
from tidemill import TidemillError
from tidemill.errors import UnsupportedError
from tidemill.pipeline.spark import SparkRuntime

SEEDS = range(4)
LAYOUTS_WITH_FILES = LAYOUTS[1:]
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


class Plain:
    """The rows in a DuckDB of its own."""

    def __init__(self) -> None:
        self.duck = duckdb.connect()
        for setting in ("threads = 1", "TimeZone = 'UTC'"):
            self.duck.execute(f"SET {setting}")
        rng = random.Random(7)
        self.batches = {
            table: list(_cut(rng, random_rows(rng, count, first_id)))
            for table, count, first_id in (("s", 500, 0), ("r", 260, 1_000))
        }
        schema = pa.schema([(name, _arrow(kind)) for name, kind in COLUMNS.items()])
        for table, batches in self.batches.items():
            rows = [
                {**row, "u": None if row["u"] is None else str(row["u"])}
                for batch in batches
                for row in batch
            ]
            given = pa.Table.from_pylist(rows, schema=schema)
            self.duck.register("given", given)
            self.duck.execute(f"CREATE TABLE {table} ({COLUMN_LIST})")
            self.duck.execute(f"INSERT INTO {table} SELECT * FROM given")
            self.duck.unregister("given")
        labels = [(k, label) for k in (*range(0, 12, 2), 3, 99) for label in ("x", "y")]
        values = ", ".join(f"({k}, '{label}')" for k, label in labels)
        self.labels = f"CREATE TABLE c (k INTEGER, label VARCHAR); INSERT INTO c VALUES {values}"
        self.duck.execute(self.labels)


class Pair:
    """The same rows twice: in a warehouse, in some layout, and in plain DuckDB."""

    def __init__(self, db: tidemill.Database, plain: Plain, layout: str) -> None:
        self.db = db
        self.duck = plain.duck
        self.layout = layout
        self._fill(plain)

    def _fill(self, plain: Plain) -> None:
        half = len(INDEXES) // 2
        for table in plain.batches:
            self.db.sql(
                f"CREATE STREAMING TABLE {table} ({COLUMN_LIST}, "
                "WATERMARK FOR ts AS ts - INTERVAL 10 SECOND) WITH (clock = 'event', "
                "durability = 'none', partition = '30 minutes', move = 'manual')"
            )
        for number, index in enumerate(INDEXES[:half]):
            self.db.sql(f"CREATE INDEX i{number} ON {index}")
        for table, batches in plain.batches.items():
            fill(self.db, table, batches, self.layout)
        for number, index in enumerate(INDEXES[half:], half):
            self.db.sql(f"CREATE INDEX i{number} ON {index}")
        self.db.sql(plain.labels)

    def compare(self, query: StreamQuery) -> bool:
        """Whether the query has an answer; both sides must agree on that and on the answer."""
        params = query.params or None
        try:
            expected = self.duck.execute(query.plain, params)
        except duckdb.Error:
            with pytest.raises(TidemillError):
                self.db.sql(query.text, params)
            return False
        kinds = [str(column[1]) for column in expected.description or ()]
        try:
            answer = self.db.sql(query.text, params)
        except UnsupportedError:
            raise
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\n{query.text}\n{params}")
        found = difference(answer.fetchall(), expected.fetchall(), query.is_ordered)
        assert found is None, f"{query.text}\n{params}\n{found}"
        assert answer.types == kinds, f"{query.text}\n{params}"
        return True


def _arrow(kind: str) -> pa.DataType:
    return pa.string() if kind == "UUID" else tidemill.types.SqlType.parse(kind).arrow


def _cut(rng: random.Random, rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    start = 0
    while start < len(rows):
        size = rng.choice((1, 3, 20, 60))
        yield rows[start : start + size]
        start += size


@pytest.fixture(scope="module")
def plain() -> Iterator[Plain]:
    made = Plain()
    yield made
    made.duck.close()


@pytest.fixture(scope="module", params=LAYOUTS)
def pair(
    request: pytest.FixtureRequest, plain: Plain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with quiet() as patch:
        patch.setattr("tidemill.hot.published.BLOCK_ROWS", 32)
        patch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 48)
        with open_inline(tmp_path_factory.mktemp("queries") / "w") as db:
            yield Pair(db, plain, request.param)


def test_rows_lie_where_the_layout_says(pair: Pair) -> None:
    states = pair.db.sql(
        "SELECT state, sum(rows)::BIGINT FROM tidemill.blocks WHERE table_name = 's' GROUP BY 1"
    )
    counts = dict(states.fetchall())
    in_memory = sum(counts.values())
    if pair.layout == "history":
        assert in_memory == 0
    else:
        assert counts["block"] > 0
        assert counts["tail"] > 0
    if pair.layout == "hot":
        assert in_memory == 500
        assert files_of(pair.db, "s") == 0
    else:
        snapshot = pair.db.catalog.snapshot()
        partitions = snapshot.history(snapshot.get("s").table_id).partitions
        assert len(partitions) > (1 if pair.layout == "compacted" else 4)
        assert any(len(partition.files) > 1 for partition in partitions)


def ask(pair: Pair, seed: int, count: int) -> None:
    queries = StreamQueries(seed)
    answered = sum(pair.compare(queries.take()) for _ in range(count))
    assert answered > count * 0.9


@pytest.mark.parametrize("seed", SEEDS)
def test_local(pair: Pair, query_count: int, seed: int) -> None:
    pair.db.sql("SET route = 'local'")
    share = -(-query_count // (len(LAYOUTS) * len(SEEDS)))
    ask(pair, seed + 10 * LAYOUTS.index(pair.layout), share)


def test_by_partition_in_this_process(pair: Pair, query_count: int) -> None:
    pair.db.sql("SET route = 'spark'")
    try:
        ask(pair, 100 + LAYOUTS.index(pair.layout), max(40, query_count // 10 // len(LAYOUTS)))
    finally:
        pair.db.sql("RESET route")


@pytest.fixture(scope="module")
def on_spark(
    plain: Plain, shared_spark: SparkRuntime, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with quiet() as patch:
        patch.setattr("tidemill.hot.published.BLOCK_ROWS", 32)
        patch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 48)
        folder = tmp_path_factory.mktemp("on_spark") / "w"
        with open_inline(folder, spark_master="local[2]") as db:
            yield Pair(db, plain, "split")


@pytest.mark.spark
def test_by_partition_on_spark(on_spark: Pair, query_count: int) -> None:
    on_spark.db.sql("SET route = 'spark'")
    ask(on_spark, 200, max(100, query_count // 10))


@pytest.mark.spark
def test_spark_sql(on_spark: Pair, query_count: int) -> None:
    """What Spark's own SQL accepts it answers like DuckDB; refusals do not count."""
    on_spark.db.sql("SET route = 'spark_sql'")
    queries = StreamQueries(300)
    wanted = max(100, query_count // 10)
    accepted = 0
    for asked in range(40 * wanted):
        if accepted == wanted:
            break
        if asked == 200 and not accepted:
            pytest.skip("the route spark_sql accepts nothing yet")
        accepted += accepts(on_spark, queries.take())
    assert accepted == wanted


def accepts(pair: Pair, query: StreamQuery) -> bool:
    try:
        return pair.compare(query)
    except UnsupportedError:
        return False


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


@pytest.fixture
def two_rows(tmp_path: Path) -> Iterator[tidemill.Database]:
    """A row with a text and one without, in a file."""
    with quiet(), open_inline(tmp_path / "w") as db:
        db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, name VARCHAR)")
        db.sql("CREATE INDEX ON t (k)")
        db.sql("CREATE TABLE c (k INT)")
        db.sql("INSERT INTO c VALUES (1)")
        db.append("t", [(MOMENT, 1, None), (MOMENT, 2, "a")])
        db.sql("FLUSH t")
        yield db


def test_keys_of_a_subquery_by_partition(two_rows: tidemill.Database) -> None:
    two_rows.sql("SET route = 'spark'")
    query = "SELECT count(*) FROM t WHERE k IN (SELECT k FROM c WHERE k > 0)"
    assert two_rows.sql(query).fetchall() == [(1,)]


@pytest.mark.parametrize("condition", ["name IS NULL", "coalesce(name, 'z') = 'z'"])
def test_null_beside_equal_texts(two_rows: tidemill.Database, condition: str) -> None:
    assert two_rows.sql(f"SELECT count(*) FROM t WHERE {condition}").fetchall() == [(1,)]


@pytest.mark.xfail(strict=True, reason="the parser reads no comparison inside ROLLUP (…)")
def test_rollup_of_a_comparison(two_rows: tidemill.Database) -> None:
    query = "SELECT k > 1, count(*) FROM t GROUP BY ROLLUP (k > 1) ORDER BY ALL"
    assert two_rows.sql(query).fetchall() == [(False, 1), (True, 1), (None, 2)]
