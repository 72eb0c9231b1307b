"""Loading on a real Spark: the same as in threads, also when tasks are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline_kit import TIMEOUT_S, Warehouse, hour, make_table, put

from tidemill.clock import FakeClock
from tidemill.errors import RowsRejectedError
from tidemill.history.storage import Storage
from tidemill.pipeline import packages
from tidemill.pipeline.board import JobBoard
from tidemill.pipeline.executor import SparkExecutor
from tidemill.pipeline.jobs import Pipeline
from tidemill.pipeline.spark import SparkRuntime

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark_pipeline(shared_spark: SparkRuntime) -> Iterator[Pipeline]:
    executor = SparkExecutor(shared_spark)
    pipeline = Pipeline(executor, JobBoard(), FakeClock(1_700_000_000_000_000))
    yield pipeline
    pipeline.close()
    executor.close()


@pytest.fixture
def warehouse(tmp_path: Path, spark_pipeline: Pipeline) -> Warehouse:
    return Warehouse(Storage(str(tmp_path / "data")), spark_pipeline)


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "TASK_WEIGHT_MIN", 1)


def test_many_packages_in_many_tasks(warehouse: Warehouse, tmp_path: Path) -> None:
    for number in range(12):
        rows = [(hour(second % 3, second), number, 0.5, "x") for second in range(50)]
        put(tmp_path / "in", f"{number:02}.csv.gz", rows)
    put(tmp_path / "in", "bad.csv", [(hour(1), "one", 0.5, "x")])
    report = warehouse.load(make_table(), tmp_path / "in" / "*", source="feed")
    assert report.explain() == "packages: 12 loaded, 1 set aside"
    assert (report.rows, len(warehouse.rows())) == (600, 600)
    assert len(set(warehouse.rows("_seq"))) == 600
    record = warehouse.pipeline.board.records()[-1]
    assert (record.state, record.rows, record.tasks_done) == ("committed", 600, record.tasks)
    assert record.tasks > 1
    assert warehouse.load(make_table(), tmp_path / "in" / "*", source="feed").rows == 0
    assert warehouse.on_disk() == {file.path for file in warehouse.environment.files}


def test_copy_fails_with_the_reason_of_its_task(warehouse: Warehouse, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.csv", [(hour(1), 1, 0.5, "x")])
    put(tmp_path / "in", "b.csv", [(hour(1), "one", 0.5, "x")])
    handle = warehouse.submit(make_table(), tmp_path / "in" / "*")
    with pytest.raises(RowsRejectedError, match=r"b\.csv"):
        handle.wait(TIMEOUT_S)
    assert warehouse.environment.commits == []
