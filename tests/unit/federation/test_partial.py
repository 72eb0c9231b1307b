"""A task of a partition-wise query: the query's own SQL over files, values and tables given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
import sqlglot

from tidemill.errors import QueryError, TidemillError
from tidemill.federation.partial import (
    PartialResult,
    PartialTask,
    connect,
    from_ipc,
    run_partial,
    to_ipc,
)
from tidemill.federation.template import Template
from tidemill.history.storage import Storage

FILES = "SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, NULL)) AS t(k, name)"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def task_of(
    sql: str,
    storage: Storage,
    values: Mapping[str, object] | None = None,
    references: Mapping[str, bytes] | None = None,
    tables: Mapping[str, bytes] | None = None,
) -> PartialTask:
    """A task whose SQL reads the scan ``tm_scan_0``."""
    template = Template.of(sqlglot.parse_one(sql, read="duckdb"), {"tm_scan_0"})
    return PartialTask(
        template, "tm_scan_0", FILES, storage, values or {}, references or {}, tables or {}
    )


def test_the_scan_is_read_under_its_name(storage: Storage) -> None:
    result = run_partial(task_of('SELECT max(k) AS n FROM "tm_scan_0" AS s', storage))
    assert result.rows == 1
    assert result.table().to_pylist() == [{"n": 3}]


def test_values_go_along(storage: Storage) -> None:
    sql = 'SELECT k FROM "tm_scan_0" AS s WHERE k > $low ORDER BY k'
    assert run_partial(task_of(sql, storage, {"low": 1})).table().to_pydict() == {"k": [2, 3]}


def test_reference_tables_and_others_are_there_for_the_task_alone(storage: Storage) -> None:
    sql = (
        'SELECT s.k, r.label, o.x FROM "tm_scan_0" AS s '
        "JOIN reference.main.t7 AS r ON r.k = s.k JOIN others AS o ON true"
    )
    labels = to_ipc(pa.table({"k": [2], "label": ["two"]}))
    others = to_ipc(pa.table({"x": [9]}))
    task = task_of(sql, storage, {}, {"t7": labels}, {"others": others})
    for _ in range(2):  # the connection is used again
        assert run_partial(task).table().to_pylist() == [{"k": 2, "label": "two", "x": 9}]
    with pytest.raises(TidemillError):
        run_partial(task_of(sql, storage))


def test_errors_of_duckdb_are_errors_of_the_query(storage: Storage) -> None:
    with pytest.raises(QueryError):
        run_partial(task_of('SELECT name::INT FROM "tm_scan_0"', storage))


def test_rows_come_back_as_they_were() -> None:
    rows = pa.table({"a": pa.array([1, None], pa.int8()), "b": ["x", "y"]})
    assert from_ipc(to_ipc(rows)).equals(rows)
    assert PartialResult.of(rows).table().equals(rows)
    assert PartialResult.of(rows).rows == 2


def test_a_task_counts_in_utc_and_keeps_types() -> None:
    with connect() as connection:
        (zone,) = connection.execute("SELECT current_setting('TimeZone')").fetchall()
        assert zone == ("UTC",)
        found = connection.sql("SELECT 1::HUGEINT AS h").to_arrow_table()
        assert found.schema.field("h").type != pa.float64()
