"""The pipeline: a queue of jobs, and the threads that run them.

A job (``job``) is planned by whoever submits it, and is run and committed here. One that fails or
is killed before its commit has changed nothing: its files are orphans, which VACUUM removes, and it
can be run again. Commits of one table never overlap. An *exclusive* job (a move, a compaction) has
its table for itself from the beginning of its run, since what it plans on must still be so when it
commits; others (a load) only for their commit. Loads can be long, so they never take the last
thread: moves go on beside them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tidemill.clock import Clock
from tidemill.errors import BackpressureError, ClosedError, TidemillError
from tidemill.executions import cancellable
from tidemill.pipeline.board import (
    CANCELLED,
    COMMITTED,
    FAILED,
    QUEUED,
    RUNNING,
    JobBoard,
    JobRecord,
)
from tidemill.pipeline.executor import Executor, JobCancelledError, PipelineError, shown
from tidemill.pipeline.job import Job, JobContext, Outcome, new_job_id

QUEUE_JOBS_MAX = 1_000
PARALLEL_JOBS = 2
CLOSE_TIMEOUT_S = 60.0

T = TypeVar("T")
Commit = Callable[[], Outcome[object]]


@dataclass(eq=False)
class _Entry:
    """A submitted job: where it stands, and those who wait for it."""

    job: Job[object]
    job_id: str
    priority: int
    number: int
    run: Callable[[JobContext], Commit]
    ended: threading.Event = field(default_factory=threading.Event)
    is_cancelled: bool = False
    why: TidemillError | None = None  # it was cancelled, if not by a request
    is_committing: bool = False
    outcome: Outcome[object] | None = None
    error: BaseException | None = None
    callbacks: list[Callable[[], None]] = field(default_factory=list)


@dataclass(eq=False)
class _Slot(Generic[T]):
    """Where a job's outcome is put, for its handle."""

    outcome: Outcome[T] | None = None


class JobHandle(Generic[T]):
    """A submitted job, to wait for or to cancel."""

    def __init__(self, pipeline: Pipeline, entry: _Entry, slot: _Slot[T]) -> None:
        self.job_id = entry.job_id
        self._pipeline = pipeline
        self._entry = entry
        self._slot = slot

    def done(self) -> bool:
        return self._entry.ended.is_set()

    def error(self) -> BaseException | None:
        """Why the job failed or was cancelled; None if it was committed or has not ended."""
        return self._entry.error if self._entry.ended.is_set() else None

    def progress(self) -> float | None:
        """How much of it is done, by its tasks; None before it has any."""
        record = self._pipeline.board.get(self.job_id)
        return record.tasks_done / record.tasks if record is not None and record.tasks else None

    def wait(self, timeout_s: float | None = None) -> Outcome[T]:
        """The outcome of a committed job; raises the error of one that failed."""
        if not self._entry.ended.wait(timeout_s):
            raise PipelineError(f"job {self.job_id} did not end within {timeout_s:g} seconds")
        if self._entry.error is not None:
            raise self._entry.error
        assert self._slot.outcome is not None
        return self._slot.outcome

    def wait_cancellable(self) -> Outcome[T]:
        """The same for a statement: whoever cancels the statement cancels the job."""
        with cancellable(self.cancel, self.progress):
            return self.wait()

    def cancel(self, why: TidemillError | None = None) -> bool:
        """Whether the job will end without a commit; waits for nothing. ``why`` is what those who
        wait for it get to know; without it, that it was cancelled."""
        return self._pipeline.cancel(self.job_id, why)

    def when_done(self, call: Callable[[], None]) -> None:
        """Call once the job has ended, from its thread, or at once if it has."""
        self._pipeline._when_done(self._entry, call)


class Pipeline:
    """Runs jobs, those with a smaller priority number first, then in the order they came."""

    def __init__(
        self,
        executor: Executor,
        board: JobBoard,
        clock: Clock,
        parallel: int = PARALLEL_JOBS,
        queue_max: int = QUEUE_JOBS_MAX,
    ) -> None:
        self.executor = executor
        self.board = board
        self._clock = clock
        self._parallel = parallel
        self._queue_max = queue_max
        self._gate = threading.Condition()
        self._queue: list[_Entry] = []
        self._running: dict[str, _Entry] = {}
        self._busy: set[int] = set()
        self._number = 0
        self._closed = False
        self._threads: list[threading.Thread] = []

    def submit(self, job: Job[T], priority: int = 0, job_id: str | None = None) -> JobHandle[T]:
        """Queue a job; refused when too many wait already. A plan that names files has its id
        already, from ``new_job_id``."""
        slot: _Slot[T] = _Slot()
        with self._gate:
            if self._closed:
                raise ClosedError("the pipeline was closed")
            if len(self._queue) >= self._queue_max:
                raise BackpressureError(
                    f"{len(self._queue)} jobs wait already; the {job.kind} was not taken",
                    hint="tidemill.jobs shows what they wait for",
                )
            self._number += 1
            run = _running(job, slot)
            entry = _Entry(job, job_id or new_job_id(), priority, self._number, run)
            self.board.add(
                JobRecord(
                    entry.job_id,
                    job.kind,
                    job.table_id,
                    job.table_name,
                    QUEUED,
                    self._clock.now_us(),
                )
            )
            self._queue.append(entry)
            self._queue.sort(key=lambda each: (each.priority, each.number))
            self._start_threads()
            self._gate.notify_all()
        return JobHandle(self, entry, slot)

    def pending(self, table_id: int, kind: str | None = None) -> int:
        """How many jobs of a table wait or run."""
        with self._gate:
            entries = [*self._queue, *self._running.values()]
        return sum(e.job.table_id == table_id and kind in (None, e.job.kind) for e in entries)

    def cancel(self, job_id: str, why: TidemillError | None = None) -> bool:
        """Take a job from the queue, or break off its run. A commit is not broken off."""
        with self._gate:
            waiting = next((each for each in self._queue if each.job_id == job_id), None)
            running = self._running.get(job_id)
            if waiting is not None:
                self._queue.remove(waiting)
            elif running is None or running.is_committing:
                return False
            else:
                running.is_cancelled, running.why = True, why
                self._gate.notify_all()
        if waiting is not None:
            self._end(waiting, CANCELLED, why or JobCancelledError("the job was cancelled"))
        else:
            self.executor.cancel(job_id)
        return True

    def cancel_table(self, table_id: int, why: TidemillError | None = None) -> None:
        """Cancel all jobs of a table, for instance because it is dropped."""
        with self._gate:
            entries = [*self._queue, *self._running.values()]
        for entry in entries:
            if entry.job.table_id == table_id:
                self.cancel(entry.job_id, why)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Cancel what waits and runs, let commits end, and join the threads."""
        with self._gate:
            self._closed = True
            entries = [*self._queue, *self._running.values()]
            self._gate.notify_all()
        for entry in entries:
            what = f'{entry.job.kind} of table "{entry.job.table_name}"'
            closed = ClosedError(f"the warehouse was closed before the {what} was done")
            self.cancel(entry.job_id, closed)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    # -- the threads

    def _start_threads(self) -> None:
        """One more thread for one more job, up to the bound."""
        wanted = min(self._parallel, len(self._queue) + len(self._running))
        while len(self._threads) < wanted:
            name = f"tidemill-job-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (entry := self._take()) is not None:
            try:
                outcome = self._perform(entry)
            except JobCancelledError as error:
                self._leave(entry)
                if entry.is_cancelled:
                    self._end(entry, CANCELLED, entry.why or error)
                else:
                    failure = f"the {entry.job.kind} was broken off, and nobody asked for that"
                    self._end(entry, FAILED, PipelineError(failure, detail=error.message))
            except Exception as error:
                self._leave(entry)
                self._end(entry, FAILED, error)
            else:
                self._leave(entry)
                entry.outcome = outcome
                self._end(entry, COMMITTED, None)

    def _take(self) -> _Entry | None:
        """The first job that may run now; None when the pipeline is closed."""
        with self._gate:
            while True:
                if self._closed:
                    return None
                entry = next((each for each in self._queue if self._may_run(each.job)), None)
                if entry is not None:
                    self._queue.remove(entry)
                    self._running[entry.job_id] = entry
                    if entry.job.exclusive:
                        self._busy.add(entry.job.table_id)
                    return entry
                self._gate.wait()

    def _may_run(self, job: Job[object]) -> bool:
        if job.exclusive:
            return job.table_id not in self._busy
        shared = sum(not each.job.exclusive for each in self._running.values())
        return shared < max(self._parallel - 1, 1)

    def _perform(self, entry: _Entry) -> Outcome[object]:
        job_id = entry.job_id
        self.board.update(job_id, state=RUNNING, started_at_us=self._clock.now_us())

        def check_cancelled() -> None:
            if entry.is_cancelled:
                raise JobCancelledError("the job was cancelled; nothing was stored")

        context = JobContext(job_id, self.executor, self.board, check_cancelled)
        commit = entry.run(context)
        self._begin_commit(entry)
        return commit()

    def _begin_commit(self, entry: _Entry) -> None:
        """Wait until no other job of the table commits; the last moment to be cancelled."""
        table_id = entry.job.table_id
        with self._gate:
            if not entry.job.exclusive:
                self._gate.wait_for(lambda: table_id not in self._busy or entry.is_cancelled)
            if entry.is_cancelled:
                raise JobCancelledError("the job was cancelled; nothing was stored")
            self._busy.add(table_id)
            entry.is_committing = True

    def _leave(self, entry: _Entry) -> None:
        with self._gate:
            del self._running[entry.job_id]
            if entry.job.exclusive or entry.is_committing:
                self._busy.discard(entry.job.table_id)
            self._gate.notify_all()

    def _end(self, entry: _Entry, state: str, error: BaseException | None) -> None:
        changes: dict[str, Any] = {"state": state, "ended_at_us": self._clock.now_us()}
        if (outcome := entry.outcome) is not None:
            changes |= {"rows": outcome.rows, "bytes": outcome.bytes, "files": outcome.files}
            if outcome.detail is not None:
                changes["detail"] = outcome.detail
        if error is not None:
            changes["error"] = str(error) if isinstance(error, TidemillError) else shown(error)
        self.board.update(entry.job_id, **changes)
        entry.error = error
        with self._gate:
            entry.ended.set()
            callbacks, entry.callbacks = entry.callbacks, []
        for call in callbacks:
            call()

    def _when_done(self, entry: _Entry, call: Callable[[], None]) -> None:
        with self._gate:
            if not entry.ended.is_set():
                entry.callbacks.append(call)
                return
        call()


def _running(job: Job[T], slot: _Slot[T]) -> Callable[[JobContext], Commit]:
    """A job's steps for the threads, which need not know the type of its value."""

    def run(context: JobContext) -> Commit:
        written = job.run(context)

        def commit() -> Outcome[object]:
            slot.outcome = written.commit()
            return slot.outcome

        return commit

    return run
