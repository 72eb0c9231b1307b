"""The queue of jobs: order, tables of their own, cancelling, failures, and the board."""

from __future__ import annotations

import operator
import threading

import pytest
from pipeline_kit import TIMEOUT_S, Gate, ToyJob

from tidemill.clock import FakeClock
from tidemill.errors import BackpressureError, ClosedError, QueryError
from tidemill.executions import Executions
from tidemill.pipeline.board import JobBoard, JobRecord
from tidemill.pipeline.executor import InlineExecutor, JobCancelledError, PipelineError
from tidemill.pipeline.job import JobContext, new_job_id
from tidemill.pipeline.jobs import Pipeline


def states(pipeline: Pipeline) -> list[str]:
    return [record.state for record in pipeline.board.records()]


def test_a_job_runs_and_commits(pipeline: Pipeline) -> None:
    called: list[int] = []
    handle = pipeline.submit(ToyJob())
    assert handle.wait(TIMEOUT_S).value == "value"
    handle.when_done(lambda: called.append(1))
    assert (handle.done(), handle.error(), called) == (True, None, [1])
    (record,) = pipeline.board.records()
    assert (record.state, record.rows, record.bytes, record.files) == ("committed", 2, 3, 4)
    assert (record.detail, record.error, record.is_ended) == ("played", None, True)
    assert record.planned_at_us == record.started_at_us == record.ended_at_us


def test_tasks_show_their_progress(pipeline: Pipeline) -> None:
    results: list[int] = []

    def run(context: JobContext) -> None:
        results.extend(context.run_tasks("toy", operator.neg, [1, 2, 3]))
        results.extend(context.run_tasks("toy", operator.neg, [4]))

    pipeline.submit(ToyJob(on_run=run)).wait(TIMEOUT_S)
    (record,) = pipeline.board.records()
    assert (record.tasks, record.tasks_done, results) == (4, 4, [-1, -2, -3, -4])


def test_a_job_that_fails_says_why_and_does_not_commit(pipeline: Pipeline) -> None:
    def fail(_context: JobContext) -> None:
        raise QueryError("it went wrong", hint="do better")

    def bug(_context: JobContext) -> None:
        raise KeyError("x")

    handles = [pipeline.submit(ToyJob(on_run=run)) for run in (fail, bug)]
    with pytest.raises(QueryError):
        handles[0].wait(TIMEOUT_S)
    with pytest.raises(KeyError):
        handles[1].wait(TIMEOUT_S)
    assert isinstance(handles[0].error(), QueryError)
    errors = [record.error for record in pipeline.board.records()]
    assert errors == ["it went wrong\nhint: do better", "KeyError: 'x'"]
    assert states(pipeline) == ["failed", "failed"]
    assert pipeline.submit(ToyJob()).wait(TIMEOUT_S).rows == 2


def test_exclusive_jobs_of_a_table_run_one_after_the_other(pipeline: Pipeline) -> None:
    gate, order = Gate(), []
    first = pipeline.submit(ToyJob(on_run=gate))
    gate.await_arrival()
    second = pipeline.submit(ToyJob(on_run=lambda c: order.append("second")))
    other = pipeline.submit(ToyJob(table_id=2, on_run=lambda c: order.append("other")))
    other.wait(TIMEOUT_S)
    assert (order, second.done(), pipeline.pending(1), pipeline.pending(1, "load")) == (
        ["other"],
        False,
        2,
        0,
    )
    gate.opened.set()
    first.wait(TIMEOUT_S)
    second.wait(TIMEOUT_S)
    assert order == ["other", "second"]


def test_a_load_runs_beside_a_move_and_commits_after_it(pipeline: Pipeline) -> None:
    gate, ran, order = Gate(), Gate(), []
    move = pipeline.submit(ToyJob(on_run=gate, on_commit=lambda: order.append("move")))
    gate.await_arrival()
    ran.opened.set()
    load = pipeline.submit(
        ToyJob("load", exclusive=False, on_run=ran, on_commit=lambda: order.append("load"))
    )
    ran.await_arrival()
    gate.opened.set()
    move.wait(TIMEOUT_S)
    load.wait(TIMEOUT_S)
    assert order == ["move", "load"]


def test_loads_leave_a_thread_to_moves(pipeline: Pipeline) -> None:
    gate = Gate()
    loads = [pipeline.submit(ToyJob("load", n, exclusive=False, on_run=gate)) for n in (1, 2, 3)]
    gate.await_arrival()
    pipeline.submit(ToyJob("move", 9)).wait(TIMEOUT_S)
    assert [load.done() for load in loads] == [False] * 3
    assert states(pipeline) == ["running", "queued", "queued", "committed"]
    gate.opened.set()
    for load in loads:
        load.wait(TIMEOUT_S)


def test_the_smaller_priority_goes_first() -> None:
    executor = InlineExecutor(1)
    pipeline = Pipeline(executor, JobBoard(), FakeClock(), parallel=1)
    gate, order = Gate(), []
    pipeline.submit(ToyJob(on_run=gate))
    gate.await_arrival()
    handles = [
        pipeline.submit(ToyJob(on_run=lambda c, n=n: order.append(n)), priority=n)
        for n in (5, 1, 5, 0)
    ]
    gate.opened.set()
    for handle in handles:
        handle.wait(TIMEOUT_S)
    pipeline.close()
    executor.close()
    assert order == [0, 1, 5, 5]


def test_a_job_is_cancelled_in_the_queue_and_while_it_runs(pipeline: Pipeline) -> None:
    gate = Gate()
    running = pipeline.submit(
        ToyJob(on_run=lambda context: (gate(), context.check_cancelled()))  # type: ignore[func-returns-value]
    )
    gate.await_arrival()
    waiting = pipeline.submit(ToyJob())
    assert (waiting.cancel(), running.cancel()) == (True, True)
    gate.opened.set()
    for handle in (waiting, running):
        with pytest.raises(JobCancelledError):
            handle.wait(TIMEOUT_S)
    assert states(pipeline) == ["cancelled", "cancelled"]
    assert not running.cancel()


def test_a_statement_that_is_cancelled_cancels_the_job_that_it_waits_for(
    pipeline: Pipeline,
) -> None:
    executions, gate = Executions("w", FakeClock()), Gate()
    errors: list[BaseException] = []

    def run(context: JobContext) -> None:
        context.run_tasks("toy", operator.neg, [1, 2])
        gate()
        context.check_cancelled()

    def flush() -> None:
        handle = pipeline.submit(ToyJob(on_run=run))
        with executions.begin("FLUSH"):
            try:
                handle.wait_cancellable()
            except ClosedError as error:
                errors.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    gate.await_arrival()
    while not (running := [each for each in executions.running() if each.progress is not None]):
        thread.join(0.01)
    (execution,) = running
    assert execution.progress == 1.0
    closed = ClosedError("the warehouse was closed")
    assert executions.cancel(execution.query_id, closed)
    gate.opened.set()
    thread.join(TIMEOUT_S)
    assert errors == [closed]
    assert states(pipeline) == ["cancelled"]


def test_a_job_cancelled_after_its_last_task_does_not_commit(pipeline: Pipeline) -> None:
    gate, committed = Gate(), []
    handle = pipeline.submit(ToyJob(on_run=gate, on_commit=lambda: committed.append(1)))
    gate.await_arrival()
    handle.cancel()
    gate.opened.set()
    with pytest.raises(JobCancelledError):
        handle.wait(TIMEOUT_S)
    assert committed == []


def test_a_commit_is_not_broken_off(pipeline: Pipeline) -> None:
    gate = Gate()
    handle = pipeline.submit(ToyJob(on_commit=gate))
    gate.await_arrival()
    assert not handle.cancel()
    pipeline.cancel_table(1)
    gate.opened.set()
    assert handle.wait(TIMEOUT_S).rows == 2


def test_jobs_of_a_dropped_table_are_cancelled(pipeline: Pipeline) -> None:
    gate = Gate()
    first = pipeline.submit(ToyJob(on_run=gate))
    gate.await_arrival()
    second, other = pipeline.submit(ToyJob()), pipeline.submit(ToyJob(table_id=2))
    pipeline.cancel_table(1)
    gate.opened.set()
    for handle in (first, second):
        with pytest.raises(JobCancelledError):
            handle.wait(TIMEOUT_S)
    assert other.wait(TIMEOUT_S).rows == 2


def test_the_queue_is_bounded() -> None:
    executor = InlineExecutor(1)
    pipeline = Pipeline(executor, JobBoard(), FakeClock(), parallel=1, queue_max=2)
    gate = Gate()
    pipeline.submit(ToyJob(on_run=gate))
    gate.await_arrival()
    for _ in range(2):
        pipeline.submit(ToyJob())
    with pytest.raises(BackpressureError) as caught:
        pipeline.submit(ToyJob("move"))
    assert "2 jobs wait already; the move was not taken" in caught.value.message
    gate.opened.set()
    pipeline.close()
    executor.close()


def test_closing_cancels_what_waits_and_what_runs() -> None:
    executor = InlineExecutor(1)
    pipeline = Pipeline(executor, JobBoard(), FakeClock(), parallel=1)
    gate = Gate()
    running = pipeline.submit(ToyJob(on_run=gate))
    gate.await_arrival()
    waiting = pipeline.submit(ToyJob())
    running.when_done(lambda: None)
    gate.opened.set()
    pipeline.close()
    executor.close()
    assert waiting.done()
    assert running.done()
    with pytest.raises(ClosedError):
        pipeline.submit(ToyJob())


def test_waiting_has_an_end(pipeline: Pipeline) -> None:
    gate = Gate()
    handle = pipeline.submit(ToyJob(on_run=gate), job_id="named")
    gate.await_arrival()
    with pytest.raises(PipelineError, match="job named did not end within 0 seconds"):
        handle.wait(0)
    assert handle.error() is None
    gate.opened.set()
    handle.wait(TIMEOUT_S)


def test_the_board_forgets_the_oldest_that_ended() -> None:
    board = JobBoard(kept=2)
    for name in ("a", "b", "c", "d"):
        board.add(JobRecord(name, "load", 1, "t", "queued", 0))
    for name in ("b", "c", "d"):
        board.update(name, state="committed")
    assert [record.job_id for record in board.records()] == ["a", "c", "d"]
    assert board.get("b") is None


def test_job_ids_differ() -> None:
    assert len({new_job_id() for _ in range(100)}) == 100


def test_who_waits_for_a_job_of_a_closed_pipeline_is_told_that_it_was_closed(
    pipeline: Pipeline,
) -> None:
    gate = Gate()
    running = pipeline.submit(ToyJob(on_run=gate))
    gate.await_arrival()
    waiting = pipeline.submit(ToyJob())
    closer = threading.Thread(target=pipeline.close)
    closer.start()
    with pytest.raises(ClosedError, match="was closed before"):
        waiting.wait(TIMEOUT_S)
    gate.opened.set()
    closer.join()
    assert running.done()


def test_a_reason_for_cancelling_reaches_those_who_wait(pipeline: Pipeline) -> None:
    gate = Gate()
    running = pipeline.submit(ToyJob(on_run=gate))
    gate.await_arrival()
    waiting = pipeline.submit(ToyJob())
    pipeline.cancel_table(1, QueryError("the table was dropped"))
    gate.opened.set()
    for handle in (running, waiting):
        with pytest.raises(QueryError, match="was dropped"):
            handle.wait(TIMEOUT_S)
    assert states(pipeline) == ["cancelled", "cancelled"]


def test_what_was_broken_off_by_nobody_has_failed(pipeline: Pipeline) -> None:
    def broken(_context: JobContext) -> None:
        raise JobCancelledError("the group was cancelled")

    handle = pipeline.submit(ToyJob(on_run=broken))
    with pytest.raises(PipelineError, match="nobody asked") as caught:
        handle.wait(TIMEOUT_S)
    assert not isinstance(caught.value, JobCancelledError)
    assert states(pipeline) == ["failed"]


def test_a_job_shows_where_its_tasks_ran(pipeline: Pipeline) -> None:
    pipeline.submit(
        ToyJob(on_run=lambda context: context.run_tasks("toy", operator.neg, [1]))
    ).wait(TIMEOUT_S)
    pipeline.submit(ToyJob()).wait(TIMEOUT_S)
    assert [record.ran_on for record in pipeline.board.records()] == ["inline", None]
