"""query_memory bounds the answer too: it is counted while it comes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from warehouses import ROUTES, open_inline, quiet

import tidemill
from tidemill.errors import QueryError

BYTES = 50_000_000
PEAK = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from warehouses import open_inline
from tidemill.errors import QueryError
with open_inline(Path(sys.argv[2]), query_memory='100 MB') as db:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        db.sql("SELECT i, i + 1 FROM range(100000000) AS r(i)")
    except QueryError as error:
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidemill.Database]:
    path: Path = tmp_path_factory.mktemp("memory")
    with quiet(), open_inline(path / "w", query_memory=str(BYTES)) as db:
        db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, s VARCHAR)")
        db.sql(
            "INSERT INTO t SELECT TIMESTAMP '2024-01-01' + INTERVAL (i) SECOND, 'text ' || i "
            "FROM range(150000) AS r(i)"
        )
        db.sql("FLUSH t")
        yield db


def too_large(db: tidemill.Database, query: str) -> QueryError:
    with pytest.raises(QueryError) as caught:
        db.sql(query)
    return caught.value


@pytest.mark.parametrize(
    "query",
    [
        "SELECT i, i + 1 FROM range(100000000) AS r(i)",
        "SELECT repeat('x', 1000) FROM range(1000000)",
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 100) "
        "SELECT a.i FROM c AS a, c AS b, c AS d, c AS e",
    ],
)
def test_an_answer_that_is_too_large(db: tidemill.Database, query: str) -> None:
    error = too_large(db, query)
    assert error.message == "the answer takes more memory than query_memory allows"
    assert all(word in str(error.hint) for word in ("LIMIT", "COPY", "query_memory"))
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(150_000,)]


@pytest.mark.parametrize("route", ROUTES)
def test_rows_of_a_stream(db: tidemill.Database, route: str) -> None:
    db.sql(f"SET route = '{route}'")
    assert "query_memory allows" in str(too_large(db, "SELECT a.s FROM t AS a, range(100) AS r"))
    assert db.sql("SELECT * FROM t").rowcount == 150_000
    db.sql("RESET route")


def test_a_file_takes_what_memory_does_not(db: tidemill.Database, tmp_path: Path) -> None:
    query = "SELECT i, i + 1 AS j FROM range(5000000) AS r(i)"
    too_large(db, query)
    assert db.sql(f"COPY ({query}) TO '{tmp_path}/x.parquet'").message == "COPY 5000000"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT CASE WHEN i < 200000 THEN i ELSE error('no') END FROM range(300000) r(i)", "no"),
        (
            "SELECT (CASE WHEN i < 200000 THEN i::VARCHAR ELSE 'x' END)::INT "
            "FROM range(300000) AS r(i)",
            "could not convert",
        ),
    ],
)
def test_an_error_among_later_rows(db: tidemill.Database, query: str, said: str) -> None:
    assert said in too_large(db, query).message


def test_the_peak(tmp_path: Path) -> None:
    """A process of its own, since memory that was used once stays with a process."""
    tests = str(Path(__file__).parent.parent)
    command = [sys.executable, "-c", PEAK, tests, str(tmp_path / "w")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500, f"{done.stdout} MiB"
