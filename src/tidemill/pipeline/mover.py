"""The mover: looks at every table a few times a second and moves what its policy says.

``measuring`` measures the tables, ``policy`` decides how long rows stay, ``boundary`` finds how far
a move goes; here the moves are begun, and every decision is kept with its reason (``decisions``),
for ``tidemill.moves``. The mover holds no rows. One move of a table is under way at a time; ingest
and queries go on beside it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tidemill.clock import Clock
from tidemill.errors import TidemillError
from tidemill.hot.environment import Relief
from tidemill.hot.table import HotTable
from tidemill.pipeline.boundary import boundary_of
from tidemill.pipeline.decisions import (
    FAILED,
    MOVED,
    WAITS,
    Record,
    measure,
    planned,
    record_of,
    rules_of,
)
from tidemill.pipeline.estimates import LOOK_EVERY_S
from tidemill.pipeline.measuring import FlowMeter
from tidemill.pipeline.policy import Choice, Measured, choose, is_worth, relieved
from tidemill.workers import Worker

RECORDS_MAX = 2_000
RETRY_AFTER_S = 5.0
# Spark takes seconds to start; it is asked to when a move can be foreseen: at this share of the
# fill that forces one, and in a process that may end before, when rows will fill it this soon.
WARM_SHARE = 0.25
WARM_BEFORE_S = 30.0
# A writer waits for a move as long as that is under way, but not for ever.
MOVE_S_MAX = 1_800.0
_log = logging.getLogger("tidemill.mover")


class Handle(Protocol):
    """A move under way."""

    @property
    def job_id(self) -> str: ...

    def done(self) -> bool: ...

    def error(self) -> BaseException | None: ...


class Life(Protocol):
    """Who decides when Spark starts; see ``lifetime``."""

    @property
    def is_long(self) -> bool: ...

    def foresee(self) -> None: ...

    def need(self) -> None: ...

    def allows_background(self) -> bool: ...


class Always:
    """The life of a process that has nothing to start."""

    is_long = True

    def foresee(self) -> None: ...

    def need(self) -> None: ...

    def allows_background(self) -> bool:
        return True


StartMove = Callable[[HotTable, int, str], Handle]
"""Begin to move a table's rows up to a sequence number, for a reason."""


@dataclass
class _Watch:
    """What the mover remembers of a table."""

    moved_at_us: int
    meter: FlowMeter
    first_stored: int  # when it was seen first
    pending: Handle | None = None
    record: Record | None = None
    retry_at_us: int = 0
    is_waited_for: bool = False
    failure: str = ""  # of the last move
    started_at_us: int = 0

    @property
    def is_fed(self) -> bool:
        """Whether rows have come since this process has the table."""
        return self.is_waited_for or self.meter.stored > self.first_stored


class Mover:
    def __init__(
        self,
        tables: Mapping[int, HotTable],
        clock: Clock,
        start: StartMove,
        life: Life | None = None,
    ) -> None:
        """``life`` says whether moves that memory does not demand may run, and starts Spark."""
        self._life = life or Always()
        self._tables = tables
        self._clock = clock
        self._start = start
        self._watches: dict[int, _Watch] = {}
        self._records: deque[Record] = deque(maxlen=RECORDS_MAX)
        self._lock = threading.RLock()
        self._leaving = False
        self._worker = Worker("tidemill-mover", self._work, _log, first_s=LOOK_EVERY_S)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        self._worker.close()

    def hurry(self, hot: HotTable) -> None:
        """A writer waits for memory: look at once."""
        watch = self._watches.get(hot.table.table_id)
        if watch is not None:
            watch.is_waited_for = True
        self._worker.wake()

    def leave(self) -> None:
        """The process ends: nobody shall wait for a move any more."""
        self._leaving = True

    def relief(self, hot: HotTable) -> Relief:
        """Whether a move of the table is under way, so that waiting for it is worth while. One
        that follows a failure is not counted on."""
        if self._leaving:
            return Relief(failure="the warehouse is being closed")
        watch = self._watches.get(hot.table.table_id)
        if watch is None or watch.failure:
            return Relief(failure=watch.failure if watch else "")
        in_time = self._clock.now_us() - watch.started_at_us < MOVE_S_MAX * 1e6
        return Relief(watch.pending is not None and in_time)

    def records(self) -> list[Record]:
        """All decisions that are remembered; of waiting, the last of each table."""
        with self._lock:
            waiting = [w.record for w in self._watches.values() if w.record is not None]
            return [*self._records, *(r for r in waiting if r.action == WAITS)]

    def look(self) -> None:
        """Look at every table once."""
        with self._lock:
            tables = list(self._tables.items())
            for table_id in set(self._watches) - {table_id for table_id, _ in tables}:
                del self._watches[table_id]
            for table_id, hot in tables:
                self._look_at(table_id, hot)

    def _work(self, _is_woken: bool) -> float:
        self.look()
        return LOOK_EVERY_S

    def _look_at(self, table_id: int, hot: HotTable) -> None:
        now_us, stored = self._clock.now_us(), hot.counters.stored
        watch = self._watches.get(table_id)
        if watch is None:
            watch = self._watches[table_id] = _Watch(now_us, FlowMeter(now_us, stored), stored)
        watch.meter.look(stored, now_us)
        if watch.pending is not None:
            if not watch.pending.done():
                return
            self._finish(watch, hot, now_us)
        if now_us < watch.retry_at_us:
            return
        self._decide(watch, hot, now_us)

    def _finish(self, watch: _Watch, hot: HotTable, now_us: int) -> None:
        assert watch.pending is not None
        error = watch.pending.error()
        watch.pending = None
        watch.failure = "" if error is None else f"the last move failed: {error}"
        watch.moved_at_us = now_us
        watch.meter.end(now_us, hot.nbytes, is_good=error is None)
        if watch.record is not None and watch.record.action == MOVED:
            record = replace(watch.record, stayed_bytes=hot.nbytes)
            if error is not None:
                record = replace(record.saying(str(error)), action=FAILED)
                watch.retry_at_us = now_us + int(RETRY_AFTER_S * 1e6)
                _log.warning('a move of table "%s" failed: %s', record.table_name, error)
            self._records.append(record)
            watch.record = None

    def _decide(self, watch: _Watch, hot: HotTable, now_us: int) -> None:
        rules = rules_of(hot)
        measured = measure(hot, watch.meter, now_us, now_us - watch.moved_at_us)
        choice = choose(rules, measured)
        if watch.is_waited_for and not choice.is_forced:
            choice = relieved(rules, measured)
        self._warm_up(choice, measured)
        record = watch.record = record_of(hot.table.name, rules, measured, choice)
        if not choice.is_due or not measured.held_rows:
            return
        if not self._may_move(watch, choice):
            watch.record = record.saying("it is left to a process that stays, or to FLUSH")
            return
        view = hot.view()
        boundary = boundary_of(hot, view, choice)
        why_not = None if choice.is_forced else is_worth(rules, boundary.bytes)
        if why_not is not None:
            watch.record = record.saying(why_not)
        elif boundary.upto_seq > view.moved_seq:
            flow = watch.meter.flow(measured.row_bytes, boundary.bytes)  # c_k of this k
            measured = replace(measured, flow=flow)
            self._begin(watch, hot, measured, planned(record, rules, measured, view, boundary))

    def _begin(self, watch: _Watch, hot: HotTable, measured: Measured, record: Record) -> None:
        assert record.upto_seq is not None
        now_us = measured.now_us
        try:
            watch.pending = self._start(hot, record.upto_seq, record.reason)
        except TidemillError as error:
            watch.retry_at_us = now_us + int(RETRY_AFTER_S * 1e6)
            watch.failure = f"the last move failed: {error}"
            watch.record = replace(record.saying(str(error)), action=FAILED)
            self._records.append(watch.record)
            return
        watch.is_waited_for, watch.started_at_us = False, now_us
        watch.meter.begin(now_us, measured.held_bytes, measured.row_bytes, record.bytes)
        watch.record = replace(record, action=MOVED, job_id=watch.pending.job_id)

    def _warm_up(self, choice: Choice, measured: Measured) -> None:
        fill_bytes = choice.fill_share * measured.memory_bytes
        if measured.held_bytes < WARM_SHARE * fill_bytes:
            return
        is_fed = measured.flow.rate_bytes_s > 0
        if is_fed and choice.full_us is not None and choice.full_us < WARM_BEFORE_S * 1e6:
            self._life.need()
        else:
            self._life.foresee()

    def _may_move(self, watch: _Watch, choice: Choice) -> bool:
        """What memory demands is moved by whoever fills it; the rest needs a Spark that runs."""
        return (choice.is_forced and watch.is_fed) or self._life.allows_background()
