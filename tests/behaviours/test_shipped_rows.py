"""Queries that are not the sum of their parts: the smaller part of the rows travels.

Rows of memory go to the task that runs the query when most rows are in files, and rows of files
come here otherwise; both give what the local route gives, types, order, names and errors included.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from warehouses import difference, open_inline, quiet

import tidemill
from tidemill.errors import QueryError, TidemillError
from tidemill.federation import scatter
from tidemill.pipeline.spark import SparkRuntime

ROW = (
    "TIMESTAMP '2024-01-01' + INTERVAL (n) MINUTE, n, n % 7, (n * n % 11) / 4, 'x' || n % 5, "
    "n::HUGEINT * 10^30::HUGEINT, md5(n::VARCHAR)::UUID, INTERVAL (n) DAY, [n, NULL], "
    "{'a': n, 'b': 'y' || n}, 'ab'::BLOB, make_timestamptz(n * 3600000000)"
)
COLUMNS = (
    "ts TIMESTAMP, n INTEGER, k INTEGER, d DECIMAL(18,2), s VARCHAR, h HUGEINT, u UUID, "
    "i INTERVAL, l INTEGER[], m STRUCT(a INTEGER, b VARCHAR), b BLOB, tz TIMESTAMPTZ, "
    "WATERMARK FOR ts AS ts - INTERVAL '1' DAY"
)
QUERIES = [
    "SELECT median(n) FROM t",
    "SELECT k, median(d), quantile_disc(s, 0.4) FROM t GROUP BY k ORDER BY k",
    "SELECT n, row_number() OVER (PARTITION BY k ORDER BY ts) AS r FROM t ORDER BY n",
    "SELECT n, lag(s) OVER (ORDER BY ts) FROM t ORDER BY n",
    "SELECT count(*) FROM t AS a JOIN t AS b ON a.n = b.n + 1",
    "SELECT a.n, o.n FROM t AS a JOIN other AS o ON o.n = a.n ORDER BY 1",
    "SELECT a.n, r.word FROM t AS a JOIN words AS r ON r.k = a.k WHERE a.n > "
    "(SELECT median(n) FROM t) ORDER BY 1",
    "SELECT *, row_number() OVER (ORDER BY n) FROM t ORDER BY n",
    "SELECT n, n, n + 1 AS n, median(n) OVER () FROM t ORDER BY 1",
    "SELECT h, u, i, l, m, b, tz, rank() OVER (ORDER BY n) FROM t ORDER BY n",
    "SELECT s, quantile_cont(n, 0.3) FROM t WHERE k = 3 GROUP BY s ORDER BY s",
    "SELECT _seq, median(n) OVER () FROM t ORDER BY n",
    "SELECT median(n) FROM t WHERE n < 0",
    "WITH RECURSIVE c(i) AS (SELECT median(n) FROM t UNION ALL SELECT i - 50 FROM c WHERE i > 50) "
    "SELECT * FROM c ORDER BY i",
    "SELECT n FROM t WHERE n IN (SELECT n FROM other) AND n > (SELECT median(n) FROM t) ORDER BY n",
]


def fill(db: tidemill.Database, in_files: int, in_memory: int) -> None:
    db.sql(f"CREATE STREAMING TABLE t ({COLUMNS}) WITH (move = 'manual')")
    db.sql("CREATE INDEX ON t (k)")
    db.sql("CREATE STREAMING TABLE other (ts TIMESTAMP, n INTEGER) WITH (move = 'manual')")
    db.sql("CREATE TABLE words (k INTEGER, word VARCHAR)")
    db.sql("INSERT INTO words SELECT i, 'word ' || i FROM range(7) AS r(i)")
    db.sql(f"INSERT INTO t SELECT {ROW} FROM range({in_files}) AS r(n)")
    db.sql("FLUSH t")
    last = in_files + in_memory
    db.sql(f"INSERT INTO t SELECT {ROW} FROM range({in_files}, {last}) AS r(n)")
    db.sql("INSERT INTO other SELECT TIMESTAMP '2024-01-01', 3 * i FROM range(9) AS r(i)")


@pytest.fixture(scope="module")
def mostly_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidemill.Database]:
    with quiet(), open_inline(tmp_path_factory.mktemp("ship") / "w") as db:
        fill(db, 300, 40)
        yield db


@pytest.fixture(scope="module")
def mostly_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidemill.Database]:
    with quiet(), open_inline(tmp_path_factory.mktemp("gather") / "w") as db:
        fill(db, 40, 300)
        yield db


@pytest.fixture
def manners(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How queries of the Spark route ran."""
    found: list[str] = []
    for name in ("_run_shipped", "run_gathered", "_run_split"):
        method = getattr(scatter.Scatter, name)

        def noted(self: object, *given: object, _name: str = name, _run: object = method) -> object:
            found.append(_name.removeprefix("_").removeprefix("run_"))
            return _run(self, *given)  # type: ignore[operator]

        monkeypatch.setattr(scatter.Scatter, name, noted)
    return found


def both(db: tidemill.Database, query: str) -> None:
    """The same rows, names and types on both routes."""
    answers = []
    for route in ("local", "spark"):
        db.sql(f"SET route = '{route}'")
        answers.append(db.sql(query))
    db.sql("RESET route")
    here, there = answers
    assert difference(there.fetchall(), here.fetchall(), is_ordered=True) is None
    assert there.types == here.types
    assert there.arrow().schema.equals(here.arrow().schema)


@pytest.mark.parametrize("query", QUERIES)
def test_rows_of_memory_travel(
    mostly_files: tidemill.Database, manners: list[str], query: str
) -> None:
    both(mostly_files, query)
    assert manners == ["shipped"]


@pytest.mark.parametrize("query", QUERIES)
def test_rows_of_files_travel(
    mostly_memory: tidemill.Database, manners: list[str], query: str
) -> None:
    both(mostly_memory, query)
    assert manners == ["gathered"]


def test_what_can_be_split_is_split(mostly_files: tidemill.Database, manners: list[str]) -> None:
    both(mostly_files, "SELECT k, sum(n) FROM t GROUP BY k ORDER BY k")
    assert manners == ["split"]


def test_only_columns_that_are_read_travel(mostly_files: tidemill.Database) -> None:
    from tidemill.federation.shipping import travelling
    from tidemill.sql import parse

    db = mostly_files
    filled = db._runner.fill(db._querying.plan(parse("SELECT median(n) FROM t")[0], None), None)
    (rows,) = travelling(filled).values()
    assert rows.num_rows == 40
    assert [f.name for f in rows.schema if str(f.type) != "null"] == ["n"]
    assert rows.schema.names == [*filled.selected[0].table.schema.names]


def test_rows_that_were_replaced_or_are_out_of_sight_do_not_travel(
    tmp_path: Path, manners: list[str]
) -> None:
    with quiet(), open_inline(tmp_path / "w") as db:
        db.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, n INTEGER, PRIMARY KEY (ts)) WITH "
            "(on_conflict = 'replace', move = 'manual', clock = 'event', retention = '5 minutes')"
        )
        some = "SELECT TIMESTAMP '2024-01-01' + INTERVAL (i) SECOND, {} FROM range({}, {}) r(i)"
        db.sql(f"INSERT INTO t {some.format('i', 0, 400)}")
        db.sql("FLUSH t")
        db.sql(f"INSERT INTO t {some.format('-i', 350, 410)}")
        both(db, "SELECT count(*), median(n), min(n) FROM t")
        assert manners == ["shipped"]
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(301,)]


def test_the_past_travels_too(mostly_files: tidemill.Database, manners: list[str]) -> None:
    both(mostly_files, "SELECT median(n) FROM t FOR SYSTEM_TIME AS OF now()")
    assert manners == ["shipped"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT median(nope) FROM t",
        "SELECT median(s::DATE) FROM t",
        "SELECT median(CASE WHEN n = 299 THEN 'x' ELSE '1' END::INT) FROM t",
    ],
)
def test_an_error_is_the_same_error(mostly_files: tidemill.Database, query: str) -> None:
    errors = []
    for route in ("local", "spark"):
        mostly_files.sql(f"SET route = '{route}'")
        with pytest.raises(TidemillError) as caught:
            mostly_files.sql(query)
        errors.append((caught.value.code, caught.value.message, caught.value.hint))
    mostly_files.sql("RESET route")
    assert errors[0] == errors[1]
    both(mostly_files, QUERIES[0])  # the next one is answered


def test_an_answer_is_bounded_in_the_task(tmp_path: Path, manners: list[str]) -> None:
    query = "SELECT a.n, r.range FROM t AS a, range(1000000) AS r WHERE a.n > {}"
    with quiet(), open_inline(tmp_path / "w", query_memory="100 MB") as db:
        fill(db, 300, 40)
        db.sql("SET route = 'spark'")
        with pytest.raises(QueryError, match="query_memory allows"):
            db.sql(query.format("(SELECT median(n) FROM t)"))
    assert manners == ["shipped"]


def test_a_large_reference_table_keeps_the_rows_here(
    mostly_files: tidemill.Database, manners: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scatter, "REFERENCE_BYTES_MAX", 10)
    both(mostly_files, QUERIES[6])
    assert manners == ["gathered"]


def test_so_do_files_that_the_query_reads_itself(
    mostly_files: tidemill.Database, manners: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("n\n1\n2\n")
    both(mostly_files, f"SELECT median(t.n) FROM t JOIN '{path}' AS f ON f.n = t.n")
    assert manners == ["gathered"]


def test_on_spark(shared_spark: SparkRuntime, tmp_path: Path, manners: list[str]) -> None:
    with quiet(), tidemill.open(tmp_path / "w", lifetime="long", serve_local="off") as db:
        fill(db, 300, 40)
        for query in QUERIES:
            both(db, query)
        assert set(manners) == {"shipped"}
