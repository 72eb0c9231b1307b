"""Kept continuous queries of a warehouse: who is due, in which order, and what becomes of errors.

Two threads evaluate them: one those that answer rows, one those that answer windows and ticks. A
minute of rows may take seconds to sum up, and rows that came meanwhile must not wait for it. Each
sleeps until rows are published in a stream that one of its queries reads (``poke``), until the
other has come farther, or, for streams that go by the machine's clock, a moment. Queries come after
those whose answers they read, so a chain of them is caught up in one round. A query that reads
another waits until that one is complete (``Clocks``), whichever thread evaluates it, so its answers
do not depend on who is faster.

An evaluation that fails is tried again, after a pause that grows from ``RETRY_S_MIN`` to
``RETRY_S_MAX``; meanwhile the query stands still, and ``status`` shows the error. Nothing is lost:
it goes on where it stood, as long as the rows it needs are kept.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidemill.catalog.model import NewTable, Table
from tidemill.errors import TidemillError
from tidemill.hot.crash import point
from tidemill.hot.table import HotTable
from tidemill.sql import statements as st
from tidemill.views.kept.closes import Closes
from tidemill.views.kept.creating import design, has_own_time
from tidemill.views.kept.definition import (
    Definition,
    definition_of,
    is_kept,
    loads_source_of,
    slide_text,
    source_of,
)
from tidemill.views.kept.environment import KeptEnvironment
from tidemill.views.kept.every_row import EveryRow
from tidemill.views.kept.ledger import Ledger
from tidemill.views.kept.reads import depends_on, reads_others, table_names
from tidemill.views.kept.streams import Streams, clock_of_hot, time_of
from tidemill.views.kept.ticks import Ticks
from tidemill.workers import Worker

# How often streams with the machine's clock are looked at.
LOOK_EVERY_S = 0.2
# How often all are: a load's rows come without a poke.
IDLE_S = 5.0
RETRY_S_MIN, RETRY_S_MAX = 0.1, 30.0
_log = logging.getLogger("tidemill.views")


class Course(Protocol):
    """How a kept query goes on, by its slide."""

    notice: str | None

    def step(self) -> bool:
        """Evaluate what is due next; False if nothing is."""
        ...

    @property
    def last_us(self) -> int | None:
        """The moment of the last evaluation."""
        ...

    @property
    def complete_us(self) -> int | None:
        """No answer with an earlier time is to come; None before the first evaluation."""
        ...


@dataclass(frozen=True)
class KeptStatus:
    """One kept query, as ``tidemill.views`` shows it."""

    name: str
    table_id: int
    slide: str
    streams: tuple[str, ...]
    last_us: int | None
    lag_us: int | None
    lag_rows: int | None
    evaluations: int
    rows_out: int
    cost_ms: float | None
    error: str | None
    notice: str | None
    kind: str = "kept"


class KeptQuery:
    """A kept query and how it is doing."""

    def __init__(self, table: Table, environment: KeptEnvironment, clocks: Clocks) -> None:
        self.table = table
        self.definition: Definition = definition_of(table)
        self.streams = Streams(environment, self.definition, clocks)
        self.evaluations = 0
        self.cost_ms: float | None = None
        self.error: TidemillError | None = None
        self.retry_at_s = 0.0
        self.turn = threading.RLock()  # one evaluation at a time
        self._retry_s = RETRY_S_MIN
        self._environment = environment
        self._names = table_names(self.definition.tree())
        self._ledgers: tuple[Ledger, ...] = ()
        self._course: Course | None = None
        self._last_changes: list[int] = []  # of its streams

    @property
    def course(self) -> Course:
        """Made when it is first needed: a query whose stream is gone has none."""
        if self._course is None:
            self.streams.tables()
            self._course = self._make()
        return self._course

    def _make(self) -> Course:
        environment, table, definition = self._environment, self.table, self.definition
        is_noted = reads_others(definition.tree(), environment.snapshot())
        ledger = Ledger(environment, table, source_of(table.table_id), is_noted)
        self._ledgers = (ledger,)
        column = time_of(table)
        own = has_own_time(definition, table, environment)
        if definition.slide.every_us is not None:
            return Ticks(definition, environment, self.streams, ledger, column)
        if definition.slide.on_close:
            return Closes(definition, environment, self.streams, ledger, column, own)
        loads = Ledger(environment, table, loads_source_of(table.table_id), is_noted)
        self._ledgers = (ledger, loads)
        return EveryRow(definition, environment, self.streams, ledger, loads, column, own)

    def step(self) -> bool:
        began = time.perf_counter()
        self._follow_changes()
        has_worked = self.course.step()
        if has_worked:
            self.evaluations += 1
            self.cost_ms = (time.perf_counter() - began) * 1_000
        self.error, self._retry_s, self.retry_at_s = None, RETRY_S_MIN, 0.0
        return has_worked

    def _follow_changes(self) -> None:
        """Rows that it holds were updated or deleted: it goes on as after a restart, from the last
        answer, with the rows as they are now. Answers that were given stay."""
        streams = self.streams.tables()
        numbers = [self._environment.hot(each).published.changes.last for each in streams]
        if self._course is not None and numbers != self._last_changes:
            self.close()
            self._course = None
        self._last_changes = numbers

    def reads(self, table_id: int) -> bool:
        """Whether its answers depend on a reference table, perhaps by way of views."""
        snapshot = self._environment.snapshot()
        found = (snapshot.find(name) for name in self._names)
        return any(table is not None and depends_on(table, table_id, snapshot) for table in found)

    def fail(self, error: TidemillError) -> None:
        """Try again later."""
        self.error = error
        self.retry_at_s = time.monotonic() + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)

    @property
    def complete_us(self) -> int | None:
        return None if self._course is None else self._course.complete_us

    def status(self) -> KeptStatus:
        course = self._course
        last_us = None if course is None else course.last_us
        try:
            clock_us = self.streams.clock_us()
            lag_rows = course.lag_rows() if isinstance(course, EveryRow) else None
        except TidemillError:  # a stream is gone; the error says so
            clock_us = lag_rows = None
        lag_us = None if clock_us is None or last_us is None else max(clock_us - last_us, 0)
        return KeptStatus(
            self.table.name,
            self.table.table_id,
            slide_text(self.definition.slide),
            tuple(begin.name for begin in self.definition.streams),
            last_us,
            lag_us,
            lag_rows,
            self.evaluations,
            sum(ledger.rows_out for ledger in self._ledgers),
            self.cost_ms,
            None if self.error is None else str(self.error),
            None if course is None else course.notice,
        )

    def close(self) -> None:
        for ledger in self._ledgers:
            ledger.close()


class Clocks:
    """Up to where streams are complete. A kept query's table is as far as the query is, which may
    be farther than its newest answer, or less far: rows may still come that it answers."""

    def __init__(self, environment: KeptEnvironment) -> None:
        self._environment = environment
        self.kept: dict[int, KeptQuery] = {}

    def __call__(self, table: Table) -> int | None:
        found = self.kept.get(table.table_id)
        return clock_of_hot(self._environment.hot(table)) if found is None else found.complete_us

    def at_creation(self, table: Table) -> int | None:
        """The same; of a query that was not evaluated yet, its newest answer."""
        clock_us = self(table)
        return clock_of_hot(self._environment.hot(table)) if clock_us is None else clock_us


PauseOf = Callable[[Sequence[KeptQuery]], float]
"""How long some queries need not be looked at, unless something wakes them."""


class Lane:
    """A thread that evaluates some of the queries, and what wakes it."""

    def __init__(self, name: str, round_: Callable[[Lane], bool], pause_s: PauseOf) -> None:
        self.kept: tuple[KeptQuery, ...] = ()  # in the order in which they depend on each other
        self._round, self._pause_s = round_, pause_s
        self._watched: frozenset[int] = frozenset()
        self.worker = Worker(name, self._work, _log)

    def follow(self, kept: tuple[KeptQuery, ...]) -> None:
        self.kept = kept
        self._watched = frozenset(
            begin.table_id for each in kept for begin in each.definition.streams
        )
        self.worker.wake()

    def poke(self, table_id: int) -> None:
        """Rows were published in a table. Cheap: called for every append."""
        if table_id in self._watched:
            self.worker.wake()

    def _work(self, _is_woken: bool) -> float:
        return 0.0 if self._round(self) else self._pause_s(self.kept)


class KeptQueries:
    def __init__(self, environment: KeptEnvironment) -> None:
        self._environment = environment
        self._clocks = Clocks(environment)
        self._kept: tuple[KeptQuery, ...] = ()  # in the order in which they depend on each other
        self._rows = Lane("tidemill-kept-rows", self._round, self._pause_s)
        self._windows = Lane("tidemill-kept-windows", self._round, self._pause_s)
        self._lanes = (self._rows, self._windows)
        self._following = threading.Lock()

    # -- from the engine

    def start(self) -> None:
        self.follow()
        for lane in self._lanes:
            lane.worker.start()

    def close(self) -> None:
        """Stop, after the evaluations in progress, and note how far the queries came."""
        for lane in self._lanes:
            lane.worker.close()
        for kept in self._kept:
            try:
                with kept.turn:
                    kept.close()
            except TidemillError as error:  # an empty evaluation is repeated, no more
                _log.warning('kept query "%s": %s', kept.table.name, error)

    def design(self, statement: st.CreateKeptQuery) -> NewTable:
        """The table of a kept query that is to be made; raises if it cannot be kept."""
        return design(statement, self._environment, self._clocks.at_creation)

    def follow(self) -> None:
        """Look at the kept queries that the catalog has now."""
        point("kept.followed")
        with self._following:
            known = self._clocks.kept
            tables = [
                each for each in self._environment.snapshot().tables.values() if is_kept(each)
            ]
            made = {
                each.table_id: known.get(each.table_id)
                or KeptQuery(each, self._environment, self._clocks)
                for each in tables
            }
            self._clocks.kept = made
            self._kept = _in_order(made)
            self._rows.follow(tuple(k for k in self._kept if k.definition.slide.every_row))
            self._windows.follow(tuple(k for k in self._kept if not k.definition.slide.every_row))
        for kept in known.values():
            if kept.table.table_id not in made:
                with kept.turn:  # its last evaluation has ended
                    pass

    def poke(self, hot: HotTable) -> None:
        """Rows of a stream were published. Cheap: called for every append."""
        for lane in self._lanes:
            lane.poke(hot.table.table_id)

    def catch_up(self) -> int:
        """Evaluate everything that is due now; answers the number of evaluations. If a query
        fails, the others go on, and its error is raised in the end."""
        failed: TidemillError | None = None
        count = 0
        for kept in self._kept:
            with kept.turn:
                try:
                    while kept.step():
                        count += 1
                except TidemillError as error:
                    kept.fail(error)
                    failed = failed or error
        if failed is not None:
            raise failed
        return count

    def look_once(self) -> bool:
        """One step of every query that has something to do; whether there may be more."""
        is_busy = [self._round(lane) for lane in self._lanes]
        return any(is_busy)

    def answer_before_change(self, table_id: int) -> None:
        """Before a reference table changes: evaluate what is due of the queries that read it, with
        the table as it still is. A query that fails does not hold up the change."""
        if not any(kept.reads(table_id) for kept in self._kept):
            return
        for kept in self._behind(table_id):
            with kept.turn:
                try:
                    while kept.step():
                        pass
                except Exception as error:
                    self._note(kept, error)

    def _behind(self, table_id: int) -> list[KeptQuery]:
        """The queries that read a table, and those whose answers they read, in order."""
        needed: set[int] = set()
        for kept in reversed(self._kept):
            if kept.table.table_id in needed or kept.reads(table_id):
                needed.add(kept.table.table_id)
                needed.update(begin.table_id for begin in kept.definition.streams)
        return [kept for kept in self._kept if kept.table.table_id in needed]

    def status(self) -> list[KeptStatus]:
        return [kept.status() for kept in self._kept]

    # -- the threads

    def _round(self, lane: Lane) -> bool:
        """One step of every query of a lane that has something to do."""
        is_busy = False
        for kept in lane.kept:
            if lane.worker.is_stopping:
                return False
            if kept.retry_at_s > time.monotonic():
                continue
            with kept.turn:
                if self._clocks.kept.get(kept.table.table_id) is not kept:
                    continue  # it was dropped meanwhile
                before_us = kept.complete_us
                try:
                    is_busy = kept.step() or is_busy
                except Exception as error:
                    self._note(kept, error)
            if kept.complete_us != before_us:
                self._wake_others(lane)
        return is_busy

    def _wake_others(self, lane: Lane) -> None:
        """A query came farther, perhaps without an answer: others may wait for that."""
        for other in self._lanes:
            if other is not lane:
                other.worker.wake()

    def _note(self, kept: KeptQuery, error: Exception) -> None:
        if self._environment.snapshot().table(kept.table.table_id) is None:
            return  # it was dropped under our hands
        known = error if isinstance(error, TidemillError) else TidemillError(str(error))
        if kept.error is None or kept.error.message != known.message:
            _log.warning('kept query "%s": %s', kept.table.name, known)
        kept.fail(known)

    def _pause_s(self, some: Sequence[KeptQuery]) -> float:
        """Until one of some queries may have something to do without a row arriving."""
        waits = [IDLE_S]
        now_s = time.monotonic()
        for kept in some:
            if kept.error is not None:
                waits.append(max(kept.retry_at_s - now_s, 0.0))
            elif self._goes_by_machine(kept):
                waits.append(LOOK_EVERY_S)
        return min(waits)

    def _goes_by_machine(self, kept: KeptQuery) -> bool:
        if kept.definition.slide.every_row:
            return False
        try:
            tables = kept.streams.tables()
            return any(not self._environment.hot(table).progress.is_event for table in tables)
        except TidemillError:
            return False


def _in_order(kept: dict[int, KeptQuery]) -> tuple[KeptQuery, ...]:
    """Queries behind those whose answers they read."""
    ordered: dict[int, KeptQuery] = {}

    def visit(table_id: int) -> None:
        found = kept.get(table_id)
        if found is None or table_id in ordered:
            return
        for begin in found.definition.streams:
            if begin.table_id < table_id:  # a stream is older than its readers
                visit(begin.table_id)
        ordered[table_id] = found

    for table_id in sorted(kept):
        visit(table_id)
    return tuple(ordered.values())
