"""Executors: the same contract in threads and on Spark."""

from __future__ import annotations

import operator
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.errors import ClosedError, DefinitionError
from tidemill.pipeline.executor import (
    Executor,
    InlineExecutor,
    JobCancelledError,
    PipelineError,
    SparkExecutor,
    make_executor,
    reason_of,
)
from tidemill.pipeline.spark import QUICK_START, SparkRuntime
from tidemill.types import SqlType

FAR_S = 240.0


@pytest.fixture(scope="module")
def spark(no_spark: None) -> Iterator[SparkExecutor]:
    with SparkRuntime("local[2]", conf=QUICK_START) as runtime:
        executor = SparkExecutor(runtime)
        executor.start()
        yield executor
        executor.close()


@pytest.fixture(params=["inline", pytest.param("spark", marks=pytest.mark.spark)])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "spark":
        yield request.getfixturevalue("spark")
        return
    inline = InlineExecutor(2)
    yield inline
    inline.close()


def test_results_come_in_order_and_each_is_told_once(executor: Executor) -> None:
    told: dict[int, Any] = {}

    def on_done(index: int, result: Any) -> None:
        assert index not in told
        told[index] = result

    specs = list(range(9))
    assert executor.run("job", "load t", operator.neg, specs, on_done) == [-n for n in specs]
    assert told == {n: -n for n in specs}
    assert executor.parallelism >= 1


def test_nothing_to_do(executor: Executor) -> None:
    assert executor.run("job", "load t", operator.neg, []) == []


def test_our_errors_arrive_as_they_were_raised(executor: Executor) -> None:
    with pytest.raises(DefinitionError) as caught:
        executor.run("job", "load t", SqlType.parse, ["int", "strange"])
    assert "strange" in caught.value.message
    assert caught.value.hint == 'did you mean "STRING"?'


def test_other_errors_say_why(executor: Executor) -> None:
    with pytest.raises(PipelineError) as caught:
        executor.run("job", "load t", operator.neg, ["text"])
    assert caught.value.message.startswith("load t failed")
    assert str(caught.value.detail).startswith("TypeError: bad operand")


def test_large_results_are_told_too(executor: Executor) -> None:
    told: list[int] = []
    results = executor.run("job", "load t", bytes, [300_000, 1], lambda at, _: told.append(at))
    assert [len(result) for result in results] == [300_000, 1]
    assert sorted(told) == [0, 1]


def test_jobs_of_several_threads_do_not_mix(executor: Executor) -> None:
    results: dict[int, list[int]] = {}

    def run(number: int) -> None:
        specs = range(number * 10, number * 10 + 4)
        results[number] = executor.run(f"job {number}", "load t", operator.neg, list(specs))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(FAR_S)
    assert results == {n: [-n * 10 - at for at in range(4)] for n in range(3)}


def test_cancelling_what_does_not_run_does_nothing(executor: Executor) -> None:
    executor.cancel("nobody")
    assert executor.run("nobody", "load t", operator.neg, [1]) == [-1]


def test_inline_tasks_that_wait_are_cancelled() -> None:
    executor = InlineExecutor(1)
    try:
        with pytest.raises(JobCancelledError):
            executor.run(
                "job", "load t", operator.neg, [1, 2], lambda at, _: executor.cancel("job")
            )
    finally:
        executor.close()
    with pytest.raises(ClosedError):
        executor.run("job", "load t", operator.neg, [1])


def test_the_setting_chooses() -> None:
    executor = make_executor("inline", SparkRuntime())
    assert isinstance(executor, InlineExecutor)
    executor.close()
    assert isinstance(make_executor("local[*]", SparkRuntime()), SparkExecutor)


def test_the_reason_of_a_lost_task_is_found() -> None:
    text = "Job aborted due to stage failure: Task 0 failed, most recent failure: worker crashed"
    assert reason_of(text) == "worker crashed"
    assert reason_of("") == "no reason is known"


@pytest.mark.spark
def test_a_running_spark_job_is_cancelled(spark: SparkExecutor) -> None:
    spark.run("warm", "load t", operator.neg, [1])
    with pytest.raises(JobCancelledError):
        spark.run(
            "job",
            "load t",
            time.sleep,
            [0, 600, 600],
            lambda at, _: threading.Thread(target=spark.cancel, args=("job",)).start(),
        )
    assert spark.run("job", "load t", operator.neg, [1]) == [-1]


@pytest.mark.spark
def test_a_task_whose_worker_dies_is_tried_again_and_then_given_up(spark: SparkExecutor) -> None:
    with pytest.raises(PipelineError) as caught:
        spark.run("job", "load t", os._exit, [3])
    assert "Python worker exited unexpectedly" in str(caught.value.detail)
    assert spark.run("job", "load t", operator.neg, [1]) == [-1]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_spark_starts_again_after_its_jvm_was_killed(
    spark: SparkExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    spark.run("warm", "load t", operator.neg, [1])
    pid = spark.runtime.pid
    assert pid is not None

    def kill(_index: int, _result: Any) -> None:
        os.kill(pid, signal.SIGKILL)

    with pytest.raises(PipelineError) as caught:
        spark.run("job", "load t", time.sleep, [0, 600], kill)
    assert "Spark ended" in caught.value.message
    assert spark.run("job", "load t", operator.neg, [1]) == [-1]
    capfd.readouterr()  # pyspark tells of the lost connection
