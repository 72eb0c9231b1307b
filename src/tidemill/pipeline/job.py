"""A job: what the pipeline runs, what it may use meanwhile, and what it gives.

A job is a frozen plan. It goes through two steps:

1. ``run`` writes files, by tasks of the executor, and returns what it has written. Nobody sees it
   yet, and it may be broken off at any moment.
2. ``Written.commit`` names the files in the catalog, in one transaction, and returns the outcome.

So the type of a job's result is known wherever it is waited for: a ``Job[T]`` that is submitted
gives a ``JobHandle[T]`` (``jobs``), whose outcome has a ``value`` of type ``T``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidemill.catalog.model import Table
from tidemill.hot.table import HotTable
from tidemill.pipeline.board import JobBoard
from tidemill.pipeline.executor import Executor, ignore

STARTING = "Spark is starting"

T_co = TypeVar("T_co", covariant=True)
Work = TypeVar("Work")
Spec = TypeVar("Spec")
Made = TypeVar("Made")


def new_job_id() -> str:
    """An id that no other job of any process has; files are named after it."""
    return secrets.token_hex(8)


@dataclass(frozen=True)
class Outcome(Generic[T_co]):
    """What a job did. ``value`` is for whoever submitted it, the rest for the board."""

    value: T_co
    rows: int = 0
    bytes: int = 0
    files: int = 0
    detail: str | None = None


class Uncommitted(Protocol[T_co]):
    """What a job has written and nobody sees yet.

    ``commit`` is one transaction of the catalog, called once, by the thread that ran the job, while
    no other job of the table commits. It is not broken off."""

    def commit(self) -> Outcome[T_co]: ...


@dataclass(frozen=True)
class Written(Generic[Work, T_co]):
    """What a job has written, with the function that commits it."""

    work: Work
    _commit: Callable[[Work], Outcome[T_co]]

    def commit(self) -> Outcome[T_co]:
        return self._commit(self.work)


@dataclass(frozen=True)
class Nothing(Generic[T_co]):
    """A job that found nothing to do, or whose run did all there is to do."""

    outcome: Outcome[T_co]

    def commit(self) -> Outcome[T_co]:
        return self.outcome


class Job(Protocol[T_co]):
    """A frozen plan that can be run. It is run once; to repeat it, submit it again."""

    @property
    def kind(self) -> str: ...
    @property
    def table_id(self) -> int: ...
    @property
    def table_name(self) -> str: ...
    @property
    def exclusive(self) -> bool:
        """Whether it has its table for itself from the beginning, or only to commit."""
        ...

    def explain(self) -> list[str]:
        """The plan, line by line: what it reads and what it makes of it."""
        ...

    def run(self, context: JobContext) -> Uncommitted[T_co]: ...


class OfTable:
    """A job that keeps its table as ``table``."""

    table: Table

    @property
    def table_id(self) -> int:
        return self.table.table_id

    @property
    def table_name(self) -> str:
        return self.table.name


class OfStream:
    """A job that keeps the memory of its stream as ``hot``."""

    hot: HotTable

    @property
    def table_id(self) -> int:
        return self.hot.table.table_id

    @property
    def table_name(self) -> str:
        return self.hot.table.name


@dataclass(frozen=True)
class JobContext:
    """What a running job may use."""

    job_id: str
    executor: Executor
    board: JobBoard
    check_cancelled: Callable[[], None]

    def run_tasks(
        self,
        name: str,
        function: Callable[[Spec], Made],
        specs: Sequence[Spec],
        on_done: Callable[[int, Made], None] = ignore,
        need_bytes: int = 0,
    ) -> list[Made]:
        """Run tasks and show their progress; may be called several times by one job."""
        self.check_cancelled()
        executor = self.executor
        known = self.board.get(self.job_id)
        tasks = (known.tasks if known else 0) + len(specs)
        self.board.update(self.job_id, tasks=tasks, ran_on=executor.place)

        def done(index: int, result: Made) -> None:
            self.board.count(self.job_id, tasks_done=1)
            on_done(index, result)

        with nullcontext() if executor.is_ready else self._waiting(known.detail if known else None):
            executor.prepare(self.check_cancelled)
        return executor.run(self.job_id, name, function, specs, done, need_bytes)

    @contextmanager
    def _waiting(self, detail: str | None) -> Iterator[None]:
        """Show that the job cannot begin yet, and the former detail afterwards."""
        self.board.update(self.job_id, detail=STARTING)
        try:
            yield
        finally:
            self.board.update(self.job_id, detail=detail)

    def count(self, rows: int = 0, bytes: int = 0) -> None:
        """Show rows and bytes that are done."""
        self.board.count(self.job_id, rows=rows, bytes=bytes)

    def tell(self, detail: str) -> None:
        """Show what the job is about."""
        self.board.update(self.job_id, detail=detail)
