"""Rows of memory that travel: what goes along, what does not, and what the task answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from warehouses import open_inline, quiet

from tidemill.clock import FakeClock
from tidemill.engine import Database
from tidemill.errors import QueryError
from tidemill.federation import shipping
from tidemill.federation.partial import to_ipc
from tidemill.federation.runner import Filled
from tidemill.federation.shipping import WholeTask, run_whole, shipping_refusal, travelling
from tidemill.history.storage import Storage
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query

MEDIAN = "SELECT median(v) FROM s WHERE k = 1"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """100 rows in files, 10 in memory."""
    path: Path = tmp_path_factory.mktemp("shipping") / "w"
    with quiet(), open_inline(path, FakeClock(10**15)) as opened:
        opened.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, v DOUBLE, text VARCHAR)")
        rows = "SELECT make_timestamp(1000000 * i), i % 2, i, 'x' FROM range({}, {}) r(i)"
        opened.sql(f"INSERT INTO s {rows.format(0, 100)}")
        opened.sql("FLUSH s")
        opened.sql(f"INSERT INTO s {rows.format(100, 110)}")
        yield opened


def filled(db: Database, text: str) -> Filled:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return db._runner.fill(db._querying.plan(statement, None), None)


def test_columns_that_nobody_reads_stay_here(db: Database) -> None:
    (rows,) = travelling(filled(db, MEDIAN)).values()
    assert rows.schema.field("text").type == pa.null()
    assert rows.schema.field("v").type == pa.float64()
    (rows,) = travelling(filled(db, "SELECT * FROM s ORDER BY v")).values()
    assert rows.column("text").to_pylist() == ["x"] * rows.num_rows


def test_the_smaller_part_travels(db: Database) -> None:
    query = filled(db, MEDIAN)
    assert shipping_refusal(query) is None
    hot = replace(query, selected=tuple(replace(each, past=None) for each in query.selected))
    assert shipping_refusal(hot) == "most of its rows are in memory"


def test_no_more_than_a_bound_travels(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "SHIPPED_BYTES_MAX", 10)
    refusal = shipping_refusal(filled(db, MEDIAN))
    assert refusal is not None
    assert "more than the 10 bytes" in refusal


def test_a_query_with_files_of_its_own_stays(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    path.write_text("k\n1\n")
    query = filled(db, f"SELECT median(v) FROM s JOIN read_csv('{path}') AS c ON c.k = s.k")
    assert shipping_refusal(query) == "the query reads files of its own"


def whole(
    sql: str, storage: Storage, tables: Mapping[str, pa.Table], memory_bytes: int = 1 << 27
) -> WholeTask:
    brought = {name: to_ipc(rows) for name, rows in tables.items()}
    return WholeTask(sql, storage, {"low": 1}, {}, brought, (), memory_bytes, 99)


def test_the_task_runs_the_query_and_tells_types(tmp_path: Path) -> None:
    rows = pa.table({"k": [1, 2, 3]})
    sql = "SELECT k, sum(k) OVER () AS total FROM given WHERE k > $low ORDER BY k"
    result = run_whole(whole(sql, Storage(str(tmp_path)), {"given": rows}))
    assert result.table().column("k").to_pylist() == [2, 3]
    assert result.types == ("BIGINT", "HUGEINT")


def test_its_memory_is_bounded(tmp_path: Path) -> None:
    sql = "SELECT range AS n, $low AS one FROM range(3000000)"
    with pytest.raises(QueryError):
        run_whole(whole(sql, Storage(str(tmp_path)), {}, 1 << 20))


def test_errors_are_the_querys_own(tmp_path: Path) -> None:
    with pytest.raises(QueryError):
        run_whole(whole("SELECT nothing, $low", Storage(str(tmp_path)), {}))


def test_the_task_of_a_query_answers_what_the_query_does(db: Database) -> None:
    query = filled(db, "SELECT k, median(v) AS m FROM s GROUP BY k ORDER BY k")
    task = WholeTask.of(query, db._runner._storage, {}, 1 << 27, 1)
    expected = [{"k": 0, "m": 54.0}, {"k": 1, "m": 55.0}]
    assert run_whole(task).table().to_pylist() == expected
    assert len(task.reads) == 1
