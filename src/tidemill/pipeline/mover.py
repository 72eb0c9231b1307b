"""The mover: looks at every table a few times a second and moves what its policy says.

``policy`` decides how long rows stay; here the tables are measured, the boundary is found (the
longest run of rows, in order of arrival, that are all old enough), and every decision is written
down with its reason, for ``tidemill.moves``. The mover holds no rows. One move of a table is under
way at a time; ingest and queries go on beside it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tidemill.clock import Clock
from tidemill.errors import TidemillError
from tidemill.hot import keys
from tidemill.hot.block import Block
from tidemill.hot.piece import Piece
from tidemill.hot.table import HotTable, Relief
from tidemill.hot.view import View
from tidemill.pipeline.policy import Choice, Measured, Rules, choose, is_worth, relieved

LOOK_EVERY_S = 0.25
RATE_HALF_LIFE_S = 5.0
RECORDS_MAX = 2_000
RETRY_AFTER_S = 5.0
# Spark takes seconds to start; it is asked to when a move can be foreseen: at this share of the
# fill that forces one, and in a process that may end before, when rows will fill it this soon.
WARM_SHARE = 0.25
WARM_BEFORE_S = 30.0
# A writer waits for a move as long as that is under way, but not for ever.
MOVE_S_MAX = 1_800.0
MOVED, WAITS, FAILED = "moved", "waits", "failed"
_log = logging.getLogger("tidemill.mover")


@dataclass(frozen=True)
class Record:
    """One decision: what was done, and why."""

    table_name: str
    at_us: int
    policy: str
    action: str
    reason: str
    keep_us: int
    rate_bytes_s: float
    fill: float
    rows: int = 0
    bytes: int = 0
    upto_seq: int | None = None
    job_id: str | None = None


@dataclass(frozen=True)
class Boundary:
    """How far a move goes, and what it would take."""

    upto_seq: int
    rows: int
    bytes: int


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
    looked_at_us: int
    stored: int
    rate_rows_s: float = 0.0
    pending: Handle | None = None
    record: Record | None = None
    retry_at_us: int = 0
    first_stored: int = 0  # when it was seen first
    is_waited_for: bool = False
    failure: str = ""  # of the last move
    started_at_us: int = 0

    @property
    def is_fed(self) -> bool:
        """Whether rows have come since this process has the table."""
        return self.is_waited_for or self.stored > self.first_stored


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
        self._wake = threading.Event()
        self._stopping = False
        self._leaving = False
        self._thread = threading.Thread(target=self._run, name="tidemill-mover", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def hurry(self, hot: HotTable) -> None:
        """A writer waits for memory: look at once."""
        watch = self._watches.get(hot.table.table_id)
        if watch is not None:
            watch.is_waited_for = True
        self._wake.set()

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

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(LOOK_EVERY_S)
            self._wake.clear()
            if self._stopping:
                return
            try:
                self.look()
            except Exception:  # whatever one look met, the next may not
                _log.exception("the mover could not look at the tables")

    def _look_at(self, table_id: int, hot: HotTable) -> None:
        now_us = self._clock.now_us()
        watch = self._watches.get(table_id)
        if watch is None:
            stored = hot.counters.stored
            watch = _Watch(now_us, now_us, stored, first_stored=stored)
            self._watches[table_id] = watch
        self._measure_rate(watch, hot, now_us)
        if watch.pending is not None:
            if not watch.pending.done():
                return
            self._finish(watch, now_us)
        if now_us < watch.retry_at_us:
            return
        self._decide(watch, hot, now_us)

    def _measure_rate(self, watch: _Watch, hot: HotTable, now_us: int) -> None:
        elapsed_s = (now_us - watch.looked_at_us) / 1e6
        if elapsed_s <= 0:
            return
        stored = hot.counters.stored
        rate = (stored - watch.stored) / elapsed_s
        weight = 1 - 0.5 ** (elapsed_s / RATE_HALF_LIFE_S)
        watch.rate_rows_s += weight * (rate - watch.rate_rows_s)
        watch.stored, watch.looked_at_us = stored, now_us

    def _finish(self, watch: _Watch, now_us: int) -> None:
        assert watch.pending is not None
        error = watch.pending.error()
        watch.pending = None
        watch.failure = "" if error is None else f"the last move failed: {error}"
        watch.moved_at_us = now_us
        if watch.record is not None and watch.record.action == MOVED:
            record = watch.record
            if error is not None:
                record = replace(record, action=FAILED, reason=f"{record.reason}; {error}")
                watch.retry_at_us = now_us + int(RETRY_AFTER_S * 1e6)
                _log.warning('a move of table "%s" failed: %s', record.table_name, error)
            self._records.append(record)
            watch.record = None

    def _decide(self, watch: _Watch, hot: HotTable, now_us: int) -> None:
        rules = rules_of(hot)
        rows = hot.published.row_count
        rate = watch.rate_rows_s * hot.nbytes / rows if rows else 0.0
        measured = Measured(
            now_us,
            hot.nbytes,
            hot.table.settings["memory"],
            rate,
            now_us - watch.moved_at_us,
            hot.windows.ages_us(now_us),
        )
        choice = choose(rules, measured)
        if watch.is_waited_for and not choice.is_forced:
            choice = relieved(rules, measured)
        self._warm_up(rules, measured)
        fill = measured.held_bytes / max(measured.memory_bytes, 1)
        record = Record(
            hot.table.name, now_us, rules.policy, WAITS, choice.reason, choice.keep_us, rate, fill
        )
        watch.record = record
        if not choice.is_due or not rows:
            return
        if not self._may_move(watch, choice):
            reason = f"{choice.reason}; it is left to a process that stays, or to FLUSH"
            watch.record = replace(record, reason=reason)
            return
        view = hot.view()
        if choice.is_forced:
            boundary = oldest(view, choice.release_bytes)
        else:
            boundary = older_than(hot, view, choice.keep_us)
            why_not = is_worth(rules, measured, boundary.bytes)
            if why_not is not None:
                watch.record = replace(record, reason=f"{choice.reason}; {why_not}")
                return
        if boundary.upto_seq <= view.moved_seq:
            return
        try:
            watch.pending = self._start(hot, boundary.upto_seq, choice.reason)
        except TidemillError as error:
            watch.retry_at_us = now_us + int(RETRY_AFTER_S * 1e6)
            watch.failure = f"the last move failed: {error}"
            watch.record = replace(record, action=FAILED, reason=f"{choice.reason}; {error}")
            self._records.append(watch.record)
            return
        watch.is_waited_for, watch.started_at_us = False, now_us
        watch.record = replace(
            record,
            action=MOVED,
            rows=boundary.rows,
            bytes=boundary.bytes,
            upto_seq=boundary.upto_seq,
            job_id=watch.pending.job_id,
        )

    def _warm_up(self, rules: Rules, measured: Measured) -> None:
        fill_bytes = rules.fill_max * measured.memory_bytes
        if measured.held_bytes < WARM_SHARE * fill_bytes:
            return
        left = fill_bytes - measured.held_bytes
        if measured.rate_bytes_s > 0 and left / measured.rate_bytes_s < WARM_BEFORE_S:
            self._life.need()
        else:
            self._life.foresee()

    def _may_move(self, watch: _Watch, choice: Choice) -> bool:
        """What memory demands is moved by whoever fills it; the rest needs a Spark that runs."""
        return (choice.is_forced and watch.is_fed) or self._life.allows_background()


def rules_of(hot: HotTable) -> Rules:
    settings = hot.table.settings
    return Rules(
        settings["move"],
        settings["move_every"],
        settings["move_fill"],
        settings["move_min"],
        settings["hot"],
    )


def _parts(view: View) -> tuple[Block | Piece, ...]:
    return (*view.blocks, *view.tail)


def oldest(view: View, wanted_bytes: int) -> Boundary:
    """The oldest rows that make up so many bytes."""
    upto, rows, held = view.moved_seq, 0, 0
    for part in _parts(view):
        if held >= wanted_bytes:
            break
        upto, rows, held = part.last_seq, rows + part.rows, held + int(part.batch.nbytes)
    return Boundary(upto, rows, held)


def older_than(hot: HotTable, view: View, keep_us: int) -> Boundary:
    """The longest run of rows from the oldest arrival on that are all older than ``keep_us``, by
    their time or, where a machine's clock rules, by their arrival."""
    now_us = hot.progress.now_us()
    if now_us is None:
        return Boundary(view.moved_seq, 0, 0)
    cutoff_us = now_us - keep_us
    arrived = 0 if hot.progress.is_event else hot.marks.seq_at(cutoff_us) or 0
    upto, rows, held = view.moved_seq, 0, 0
    for part in _parts(view):
        count = _old_rows(part, cutoff_us, arrived, view.table.time_column or "")
        if count:
            share = count / part.rows
            upto = part.last_seq if count == part.rows else int(part.seq_column()[count - 1])
            rows, held = rows + count, held + int(part.batch.nbytes * share)
        if count < part.rows:
            break
    return Boundary(upto, rows, held)


def _old_rows(part: Block | Piece, cutoff_us: int, arrived_seq: int, time_column: str) -> int:
    if part.last_seq <= arrived_seq:
        return part.rows
    if isinstance(part, Block) and part.time_max_us <= cutoff_us:
        return part.rows
    times = part.times if isinstance(part, Block) else keys.words(part.batch.column(time_column))
    newest_so_far = np.maximum.accumulate(times)
    by_time = int(np.searchsorted(newest_so_far, cutoff_us, "right"))
    by_arrival = int(np.searchsorted(part.seq_column(), arrived_seq, "right"))
    return max(by_time, by_arrival)
