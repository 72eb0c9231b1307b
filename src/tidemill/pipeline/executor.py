"""Executors: run one function over many specs, each in a task of its own.

A job hands over a module-level function and a list of specs; the executor gives the results back
in order and tells of each as it is done. Specs and results are pickled bytes and small: rows stay
in files, which tasks read and write themselves. Two executors keep this contract:

- ``SparkExecutor`` makes every spec a Spark task (an RDD of bytes: no query planner is involved,
  so a first job costs 2 s and not 7, and a warm one about 0.1 s). A task that dies is run again by
  Spark, so a function must be harmless to repeat: whatever files it names in its result count, and
  no others. Small results travel twice, once with the accumulator that reports progress and once
  with the answer of the job; large ones are reported when the job has ended.
- ``InlineExecutor`` runs the same functions in threads of this process, without Java.

An error of ours (``TidemillError``) that a function raises is its answer: it is not tried again,
ends the other tasks, and reaches the caller as it was raised. Any other exception is a
``PipelineError`` with the reason that Spark gives.
"""

from __future__ import annotations

import os
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from tidemill.errors import ClosedError, TidemillError
from tidemill.errors import JobCancelledError as JobCancelledError
from tidemill.errors import PipelineError as PipelineError
from tidemill.history.memory import give_back
from tidemill.pipeline.spark import SparkRuntime

Spec = TypeVar("Spec")
Made = TypeVar("Made")
INLINE = "inline"
REASON_CHARS_MAX = 500
REPORT_BYTES_MAX = 1 << 16


def ignore(_index: int, _result: object) -> None:
    """An ``on_done`` for those who do not want to know."""


class Executor(Protocol):
    """Runs tasks. Safe to call from several threads; ``run`` blocks its caller.

    ``on_done(index, result)`` is called once per task, soon after it ended, from any thread and in
    any order; it must be quick. After a failure or a cancellation some calls may be missing.
    """

    @property
    def parallelism(self) -> int:
        """How many tasks run at once, as far as that is known."""
        ...

    @property
    def place(self) -> str:
        """Where tasks run, in a word or two for people."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether a job could begin at once."""
        ...

    def start(self) -> None:
        """Prepare for the first job in the background."""
        ...

    def prepare(self, check: Callable[[], None]) -> None:
        """Wait until a job can begin; ``check`` may raise to end the waiting."""
        ...

    def run(
        self,
        job_id: str,
        name: str,
        function: Callable[[Spec], Made],
        specs: Sequence[Spec],
        on_done: Callable[[int, Made], None] = ignore,
        need_bytes: int = 0,
    ) -> list[Made]:
        """The results in the order of the specs. The first word of ``name`` is the kind of work;
        kinds share the machine fairly. ``need_bytes`` is about what a task takes: of large ones
        fewer run at once, as the memory of the workers allows."""
        ...

    def cancel(self, job_id: str) -> None:
        """End the tasks of a job; its ``run`` raises ``JobCancelledError``."""
        ...

    def close(self) -> None: ...


def make_executor(master: str, runtime: SparkRuntime) -> Executor:
    """What the setting ``spark_master`` asks for."""
    return InlineExecutor() if master.strip().lower() == INLINE else SparkExecutor(runtime)


class InlineExecutor:
    """Tasks in threads of this process. A running task cannot be broken off, only awaited."""

    place = INLINE
    is_ready = True

    def __init__(self, parallelism: int | None = None) -> None:
        self.parallelism = parallelism or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.parallelism, "tidemill-task")
        self._cancelled = _Cancelled()

    def start(self) -> None:
        """Nothing to prepare."""

    def prepare(self, check: Callable[[], None]) -> None:
        """Nothing to wait for."""

    def run(
        self,
        job_id: str,
        name: str,
        function: Callable[[Spec], Made],
        specs: Sequence[Spec],
        on_done: Callable[[int, Made], None] = ignore,
        need_bytes: int = 0,
    ) -> list[Made]:
        def call(index: int, blob: bytes) -> Made:
            self._cancelled.check(job_id)
            result: Made = _open(perform(blob))
            on_done(index, result)
            return result

        with self._cancelled.during(job_id):
            blobs = [pack(function, spec) for spec in specs]
            try:
                futures = [self._pool.submit(call, at, blob) for at, blob in enumerate(blobs)]
            except RuntimeError as error:
                raise ClosedError("the executor was closed") from error
            _, rest = wait(futures, return_when=FIRST_EXCEPTION)
            for future in rest:
                future.cancel()
            wait(futures)
            self._cancelled.check(job_id)
            failures = (f.exception() for f in futures if not f.cancelled())
            if failure := next(filter(None, failures), None):
                if isinstance(failure, TidemillError):
                    raise failure
                raise PipelineError(f"{name} failed", detail=shown(failure)) from failure
            return [future.result() for future in futures]

    def cancel(self, job_id: str) -> None:
        self._cancelled.add(job_id)

    def close(self) -> None:
        """End the threads; a task that runs is awaited."""
        for job_id in self._cancelled.running():
            self.cancel(job_id)
        self._pool.shutdown(cancel_futures=True)


class SparkExecutor:
    """Tasks on Spark: on this machine's cores or on a cluster, as the runtime's master says."""

    def __init__(self, runtime: SparkRuntime) -> None:
        self.runtime = runtime
        self._cancelled = _Cancelled()
        self._listeners: dict[str, Callable[[int, bytes], None]] = {}
        self._lock = threading.Lock()
        self._reports: Any = None
        self._reports_of: Any = None

    place = "Spark"

    @property
    def is_ready(self) -> bool:
        return self.runtime.is_ready

    @property
    def parallelism(self) -> int:
        if not self.runtime.is_ready:
            return os.cpu_count() or 1
        return int(self.runtime.session().sparkContext.defaultParallelism)

    def start(self) -> None:
        self.runtime.start_in_background()

    def prepare(self, check: Callable[[], None]) -> None:
        self.runtime.session(check)

    def run(
        self,
        job_id: str,
        name: str,
        function: Callable[[Spec], Made],
        specs: Sequence[Spec],
        on_done: Callable[[int, Made], None] = ignore,
        need_bytes: int = 0,
    ) -> list[Made]:
        if not specs:
            return []
        with self._cancelled.during(job_id):
            blobs = [pack(function, spec) for spec in specs]
            context = self.runtime.session(partial(self._cancelled.check, job_id)).sparkContext
            self._cancelled.check(job_id)
            listener = _Listener(on_done, partial(context.cancelJobGroup, job_id))
            self._listeners[job_id] = listener.hear
            try:
                slots = self._slots(len(blobs), need_bytes)
                answers = self._collect(context, job_id, name, blobs, slots)
            except Exception as error:  # of py4j or pyspark, which raise what they like
                self._cancelled.check(job_id)
                if listener.failure is not None:
                    raise listener.failure from None
                raise self._failure(name, error) from error
            finally:
                del self._listeners[job_id]
            self._cancelled.check(job_id)
            for index, answer in enumerate(answers):
                listener.hear(index, answer)
            if listener.failure is not None:
                raise listener.failure
            return [listener.results[index] for index in range(len(specs))]

    def cancel(self, job_id: str) -> None:
        if self._cancelled.add(job_id) and self.runtime.is_ready:
            with suppress(Exception):  # a Spark that went away has nothing to cancel
                self.runtime.session().sparkContext.cancelJobGroup(job_id)

    def close(self) -> None:
        for job_id in self._cancelled.running():
            self.cancel(job_id)

    def _slots(self, tasks: int, need_bytes: int) -> int:
        """How many tasks may run at once."""
        if not need_bytes or not self.runtime.is_local:
            return tasks
        return min(max(self.runtime.workers_bytes // need_bytes, 1), tasks)

    def _collect(
        self, context: Any, job_id: str, name: str, blobs: list[bytes], slots: int
    ) -> list[bytes]:
        task = partial(_task, self._reporter(context), job_id)
        context.setJobGroup(job_id, name, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", name.partition(" ")[0])
        try:
            numbered = list(enumerate(blobs))
            answers: list[bytes] = context.parallelize(numbered, slots).map(task).collect()
            return answers
        finally:
            with suppress(Exception):
                for key in ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool"):
                    context.setLocalProperty(key, None)

    def _reporter(self, context: Any) -> Any:
        """The accumulator of a Spark context, through which tasks report."""
        with self._lock:
            if self._reports_of is not context:
                self._reports = context.accumulator([], _Reports(self._hear))
                self._reports_of = context
            return self._reports

    def _hear(self, job_id: str, index: int, answer: bytes) -> None:
        with suppress(Exception):  # it runs on the thread of pyspark that must never end
            if listener := self._listeners.get(job_id):
                listener(index, answer)

    def _failure(self, name: str, error: Exception) -> PipelineError:
        if not self.runtime.is_alive():
            self.runtime.forget()
            return PipelineError(
                f"{name} failed: Spark ended",
                detail=shown(error),
                hint="nothing was stored; Spark starts again with the next job",
            )
        return PipelineError(f"{name} failed on Spark", detail=reason_of(str(error)))


class _Listener(Generic[Made]):
    """Takes the answers of one job, each once, and ends the job at the first error."""

    def __init__(self, on_done: Callable[[int, Made], None], stop: Callable[[], None]) -> None:
        self._on_done = on_done
        self._stop = stop
        self._lock = threading.Lock()
        self.results: dict[int, Made] = {}
        self.failure: TidemillError | None = None

    def hear(self, index: int, answer: bytes) -> None:
        with self._lock:
            if index in self.results or self.failure is not None:
                return
            try:
                result = self.results[index] = _open(answer)
            except TidemillError as error:
                self.failure = error
        if self.failure is None:
            self._on_done(index, result)
        else:
            # Not on this thread: it is Spark's scheduler that waits for it.
            threading.Thread(target=self._stop, name="tidemill-stop", daemon=True).start()


class _Reports:
    """How the accumulator adds: a list in a task, and in the driver straight to the listener."""

    def __init__(self, hear: Callable[[str, int, bytes], None] | None = None) -> None:
        self._hear = hear

    def __reduce__(self) -> tuple[Any, ...]:
        return _Reports, ()

    def zero(self, _value: Any) -> list[Any]:
        return []

    def addInPlace(self, held: list[Any], more: list[Any]) -> list[Any]:  # noqa: N802
        if self._hear is None:
            return [*held, *more]
        for report in more:
            self._hear(*report)
        return held


class _Cancelled:
    """Which jobs run, and which of them are to end."""

    def __init__(self) -> None:
        self._running: dict[str, bool] = {}

    @contextmanager
    def during(self, job_id: str) -> Iterator[None]:
        self._running[job_id] = False
        try:
            yield
        finally:
            self._running.pop(job_id, None)

    def running(self) -> list[str]:
        return list(self._running)

    def add(self, job_id: str) -> bool:
        if job_id not in self._running:
            return False
        self._running[job_id] = True
        return True

    def check(self, job_id: str) -> None:
        if self._running.get(job_id):
            raise JobCancelledError("the job was cancelled; nothing was stored")


def pack(function: Callable[[Spec], Made], spec: Spec) -> bytes:
    return pickle.dumps((function, spec), pickle.HIGHEST_PROTOCOL)


def perform(blob: bytes) -> bytes:
    """Run one task; its answer, or our error as its answer."""
    function, spec = pickle.loads(blob)
    try:
        answer = True, function(spec)
    except TidemillError as error:
        answer = False, error
    return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)


def _task(reports: Any, job_id: str, numbered: tuple[int, bytes]) -> bytes:
    index, blob = numbered
    try:
        answer = perform(blob)
    finally:
        give_back()
    if len(answer) <= REPORT_BYTES_MAX:
        reports.add([(job_id, index, answer)])
    return answer


def _open(answer: bytes) -> Any:
    is_good, value = pickle.loads(answer)
    if not is_good:
        raise value
    return value


def shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")[:REASON_CHARS_MAX]


_PYTHON_ERROR = re.compile(r"^(?!.*(?:^|\.)PythonException\b)[\w.]*(?:Error|Exception|Exit)\b.*$")
_LOST = re.compile(r"(?:Reason|most recent failure): *(.*)")


def reason_of(text: str) -> str:
    """What went wrong, out of the page that Spark makes of it: the exception of the task.

    >>> reason_of("Job aborted: Task 0 failed 1 times\\nTraceback (most recent call last):\\n"
    ...           "  File …\\nValueError: no such thing\\n\\n\\tat org.apache.spark.Some(…)")
    'ValueError: no such thing'
    """
    lines = [line.strip() for line in text.splitlines() if not line.startswith("\tat ")]
    after = lines[lines.index("Traceback (most recent call last):") :] if _is_python(lines) else []
    for line in after:
        if _PYTHON_ERROR.match(line):
            return line[:REASON_CHARS_MAX]
    lost = [found[1] for line in lines if (found := _LOST.search(line))]
    return (lost or [line for line in lines if line] or ["no reason is known"])[0][
        :REASON_CHARS_MAX
    ]


def _is_python(lines: list[str]) -> bool:
    return "Traceback (most recent call last):" in lines
