"""Partition-wise queries: how a query is spread, and that all ways of spreading answer alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from catalog_tables import reference, snapshot_of, stream, view
from warehouses import open_inline, quiet

from tidemill.clock import FakeClock
from tidemill.engine import Database
from tidemill.errors import QueryError
from tidemill.federation import scatter
from tidemill.federation.partial import PartialTask
from tidemill.federation.planner import make_plan
from tidemill.federation.shipping import WholeTask
from tidemill.pipeline.executor import InlineExecutor
from tidemill.sql.decompose import Decomposition, NotDecomposable
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query

SNAPSHOT = snapshot_of(
    stream(1, "s", {"ts": "TIMESTAMP", "k": "INTEGER", "v": "DOUBLE"}),
    reference(3, "cars", {"k": "INTEGER", "label": "VARCHAR"}),
    view(4, "sums", {"k": "INTEGER"}),
)


def spread(text: str) -> Decomposition | NotDecomposable:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return scatter.split(make_plan(statement.body, SNAPSHOT))


def test_a_sum_is_the_sum_of_its_parts() -> None:
    found = spread("SELECT k, sum(v), avg(v) FROM s WHERE v > 1 GROUP BY k")
    assert isinstance(found, Decomposition)
    assert found.scan.name.startswith("tm_scan_")


def test_reference_tables_go_along() -> None:
    assert isinstance(
        spread("SELECT label, count(*) FROM s JOIN cars USING (k) GROUP BY label"), Decomposition
    )


@pytest.mark.parametrize(
    "text",
    [
        "SELECT median(v) FROM s",
        "SELECT s.k FROM s JOIN sums ON s.k = sums.k",
        "SELECT name FROM tidemill.tables",
        "SELECT k, lag(v) OVER (ORDER BY ts) FROM s",
    ],
)
def test_what_is_no_such_sum_says_why(text: str) -> None:
    found = spread(text)
    assert isinstance(found, NotDecomposable)
    assert found.reason


# -- the same answer, however it is spread


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """200 rows in files of several partitions, 20 in memory."""
    path: Path = tmp_path_factory.mktemp("scatter") / "w"
    with quiet(), open_inline(path, FakeClock(10**15)) as opened:
        opened.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, v DOUBLE)")
        opened.sql("CREATE TABLE cars (k INTEGER, label VARCHAR)")
        opened.sql("INSERT INTO cars VALUES (0, 'a'), (1, 'b'), (2, 'a')")
        rows = "SELECT make_timestamp(3600000000 * i), i % 4, i * 0.5 FROM range({}, {}) r(i)"
        opened.sql(f"INSERT INTO s {rows.format(0, 200)}")
        opened.sql("FLUSH s")
        opened.sql(f"INSERT INTO s {rows.format(200, 220)}")
        yield opened
        opened.sql("RESET route")


@dataclass
class Given:
    """What was given to tasks."""

    partial: list[PartialTask] = field(default_factory=list)
    whole: list[WholeTask] = field(default_factory=list)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Given:
    given = Given()
    run = InlineExecutor.run

    def noting(self: InlineExecutor, *arguments: Any) -> list[Any]:
        for spec in arguments[3]:
            if isinstance(spec, PartialTask):
                given.partial.append(spec)
            elif isinstance(spec, WholeTask):
                given.whole.append(spec)
        return run(self, *arguments)

    monkeypatch.setattr(InlineExecutor, "run", noting)
    return given


def both(db: Database, text: str) -> tuple[list[object], list[object]]:
    found = []
    for route in ("local", "spark"):
        db.sql(f"SET route = '{route}'")
        found.append(db.sql(text).arrow().to_pylist())
    return found[0], found[1]


def test_split(db: Database, tasks: Given) -> None:
    local, spark = both(
        db, "SELECT label, count(*), sum(v) FROM s JOIN cars USING (k) GROUP BY label ORDER BY 1"
    )
    assert local == spark
    assert tasks.partial
    assert not tasks.whole
    assert all("t" in name for task in tasks.partial for name in task.references)


def test_shipped(db: Database, tasks: Given) -> None:
    local, spark = both(db, "SELECT k, median(v) FROM s GROUP BY k ORDER BY k")
    assert local == spark
    assert len(tasks.whole) == 1


def test_gathered(db: Database, tasks: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.federation.shipping.SHIPPED_BYTES_MAX", 1)
    local, spark = both(db, "SELECT median(v) FROM s WHERE v > 3 AND k = 1")
    assert local == spark
    assert tasks.partial
    assert not tasks.whole


def test_too_much_to_gather_is_an_error(
    db: Database, tasks: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.federation.shipping.SHIPPED_BYTES_MAX", 1)
    monkeypatch.setattr(scatter, "GATHERED_BYTES_MAX", 1)
    db.sql("SET route = 'spark'")
    with pytest.raises(QueryError, match="more rows here than query_memory"):
        db.sql("SELECT median(v) FROM s")


def test_a_reference_table_that_is_too_large_does_not_travel(
    db: Database, tasks: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scatter, "REFERENCE_BYTES_MAX", 1)
    db.sql("SET route = 'spark'")
    with pytest.raises(QueryError, match="too large to travel"):
        db.sql("SELECT label, count(*) FROM s JOIN cars USING (k) GROUP BY label")


def test_parts_that_duckdb_does_not_accept_run_as_a_whole(db: Database, tasks: Given) -> None:
    """The split knows no types: the error is the query's own."""
    db.sql("SET route = 'spark'")
    with pytest.raises(QueryError):
        db.sql("SELECT sum(label) FROM s JOIN cars USING (k)")
