"""Executions: the statements that run now, who runs them, and how each of them is broken off.

1. Whoever begins a statement, or an append, registers it (``Executions.begin``). While it runs, it
   is the *current* execution of its context.
2. What may take long says how it is broken off, for as long as it works: DuckDB, tasks on Spark,
   Spark's SQL, a job that is waited for, a pipe that is read (``cancellable``). It finds the
   execution in the context, so that nothing in between has to hand it on. A thread that helps out
   runs in a copy of the context.
3. ``Execution.cancel`` breaks off what the execution does now, and whatever it would begin next
   fails: a request that comes between two steps is not lost, and none reaches another statement.
4. Once they are closed, no execution begins, and ``wait`` waits for those of other threads.

Threads of the warehouse itself, such as the mover's, have no execution: nobody cancels them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from itertools import count
from threading import get_ident

from tidemill.clock import Clock
from tidemill.errors import ClosedError, QueryError, TidemillError

RUNNING, CANCELLING = "running", "cancelling"

Cancel = Callable[[TidemillError | None], object]
"""Breaks work off, from any thread. The error is what whoever waits for it is to be told; without
one, that it was cancelled."""
Progress = Callable[[], float | None]
"""How much of some work is done, from 0 to 1; None while that is not known."""


class Execution:
    """A statement that runs, or an append: who, what, since when, how far; and how to cancel it.
    A context manager, which the thread that runs it enters."""

    __slots__ = (
        "_is_cancelled",
        "_lock",
        "_owner",
        "_token",
        "_why",
        "_works",
        "query_id",
        "session",
        "started_at_us",
        "text",
        "thread",
    )

    def __init__(
        self, query_id: int, text: str, session: object, started_at_us: int, owner: Executions
    ) -> None:
        """There are a hundred thousand in a second, so what few need is made when they do."""
        self.query_id = query_id
        self.text = text
        self.session = session
        self.started_at_us = started_at_us
        self.thread = get_ident()
        self._owner = owner
        self._lock: threading.RLock | None = None  # made when it is needed
        self._works: list[_Work] = _NO_WORKS
        self._is_cancelled = False
        self._why: TidemillError | None = None
        self._token: Token[Execution | None] | None = None

    def __enter__(self) -> Execution:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _CURRENT.reset(self._token)
        self._owner._end(self)

    @property
    def state(self) -> str:
        return CANCELLING if self._is_cancelled else RUNNING

    @property
    def progress(self) -> float | None:
        """How much of what it does now is done, from 0 to 1; None where that is not known."""
        with self._locked:
            known = self._works[-1].progress if self._works else None
        return None if known is None else known()

    def cancel(self, why: TidemillError | None = None) -> None:
        """Break it off; waits for nothing. ``why`` is for those who wait for a job."""
        with self._locked:
            self._is_cancelled, self._why = True, why
            for work in self._works:
                work.cancel(why)

    def _add(self, work: _Work) -> None:
        with self._locked:
            if self._is_cancelled:
                raise self._why or QueryError("the statement was cancelled")
            self._works = [*self._works, work]

    def _remove(self, work: _Work) -> None:
        with self._locked:
            self._works = [each for each in self._works if each is not work]

    @property
    def _locked(self) -> threading.RLock:
        lock = self._lock
        if lock is None:
            with self._owner.lock:
                lock = self._lock = self._lock or threading.RLock()
        return lock


class _Work:
    """What an execution does at the moment, while this context lasts."""

    __slots__ = ("_execution", "cancel", "progress")

    def __init__(self, execution: Execution, cancel: Cancel, progress: Progress | None) -> None:
        self._execution = execution
        self.cancel = cancel
        self.progress = progress

    def __enter__(self) -> None:
        self._execution._add(self)

    def __exit__(self, *_: object) -> None:
        self._execution._remove(self)


_NO_WORKS: list[_Work] = []  # never added to
_CURRENT: ContextVar[Execution | None] = ContextVar("tidemill_execution", default=None)
_NOTHING: AbstractContextManager[None] = nullcontext()


def cancellable(cancel: Cancel, progress: Progress | None = None) -> AbstractContextManager[None]:
    """While it lasts, ``cancel`` breaks off what the current execution does. Raises if that was
    cancelled already; nothing where there is no execution."""
    execution = _CURRENT.get()
    return _NOTHING if execution is None else _Work(execution, cancel, progress)


@contextmanager
def uncancellable() -> Iterator[None]:
    """For what must be finished although the statement was cancelled: sweeping up after it."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


class Executions:
    """All that run in a warehouse. There are at most as many as threads that call it."""

    def __init__(self, warehouse: str, clock: Clock) -> None:
        self._warehouse = warehouse
        self._clock = clock
        self._numbers = count(1)
        self._running: dict[int, Execution] = {}
        self._is_closed = False
        self.lock = threading.RLock()  # by itself it is entered faster than the condition
        self._gate = threading.Condition(self.lock)
        self._busy_s = 0.0
        self._busy_since_s = 0.0

    def begin(self, text: str, session: object = None) -> Execution:
        """Register what the calling thread is going to run, and enter it."""
        started_at_us = self._clock.now_us()
        with self.lock:
            if self._is_closed:
                raise ClosedError(f'warehouse "{self._warehouse}" is closed', hint="open it again")
            running = self._running
            if not running:
                self._busy_since_s = time.monotonic()
            query_id = next(self._numbers)
            running[query_id] = execution = Execution(query_id, text, session, started_at_us, self)
        return execution

    def _end(self, execution: Execution) -> None:
        with self.lock:
            running = self._running
            del running[execution.query_id]
            if not running:
                self._busy_s += time.monotonic() - self._busy_since_s
            if self._is_closed:
                self._gate.notify_all()

    def running(self) -> list[Execution]:
        """In the order in which they began."""
        with self.lock:
            return list(self._running.values())

    def busy_s(self) -> float:
        """For how long at least one was running, so far."""
        with self.lock:
            since_s = time.monotonic() - self._busy_since_s if self._running else 0.0
            return self._busy_s + since_s

    def cancel(self, query_id: int, why: TidemillError | None = None) -> bool:
        """Cancel one; False if it has ended."""
        with self.lock:
            found = self._running.get(query_id)
        if found is None:
            return False
        found.cancel(why)
        return True

    def cancel_thread(self, thread: int | None, why: TidemillError | None = None) -> None:
        """Cancel those of a thread, by its identifier, or all."""
        for execution in self.running():
            if thread is None or execution.thread == thread:
                execution.cancel(why)

    def close(self) -> None:
        """Let no other begin."""
        with self.lock:
            self._is_closed = True

    def wait(self, timeout_s: float) -> bool:
        """Wait until those of other threads have ended; whether they have."""
        own = get_ident()
        with self.lock:
            return self._gate.wait_for(
                lambda: all(each.thread == own for each in self._running.values()), timeout_s
            )
