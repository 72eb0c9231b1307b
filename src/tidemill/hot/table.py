"""A streaming table in memory: the way of a batch from acceptance to its readers.

1. memory is reserved, or the writer waits, or it gets an error (backpressure);
2. under the write lock: a repeated (source, offset) is acknowledged again at once; rows below the
   watermark and rows that repeat a primary key are set apart; the rest get sequence numbers;
   everything is written as one frame of the log;
3. outside the lock the frame is made durable, together with those of other writers;
4. frames that are durable are published in the order they were written: readers see them now.

Single rows (``append_row``) go the same way without becoming Arrow on their own. ``room`` has the
first step, ``intake`` the checks of the second, ``publisher`` the last; ``replay`` takes a frame of
the log through the same steps, except that it is already written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from tidemill.catalog.model import Index, Package, Table
from tidemill.changes.model import Change, whole_fields
from tidemill.changes.needed import Needed
from tidemill.clock import Clock
from tidemill.errors import ClosedError
from tidemill.hot import frame
from tidemill.hot.change_writer import ChangeWriter
from tidemill.hot.costs import ScanCosts
from tidemill.hot.counters import Counters
from tidemill.hot.crash import point
from tidemill.hot.environment import Environment, NoHistory
from tidemill.hot.frame_meta import AppendMeta, TableState
from tidemill.hot.intake import Accepted, AppendResult, Sorted, Sorter
from tidemill.hot.log import Log, SegmentStart
from tidemill.hot.marks import Marks
from tidemill.hot.numbers import HistoryNumbers
from tidemill.hot.offsets import Offsets
from tidemill.hot.primary import PrimaryKeys
from tidemill.hot.progress import Progress
from tidemill.hot.published import Published
from tidemill.hot.publisher import Publisher
from tidemill.hot.replacements import Replacements
from tidemill.hot.retention import horizon_us
from tidemill.hot.room import Room
from tidemill.hot.row_writer import RowWriter
from tidemill.hot.side import late_batch, rejected_batch
from tidemill.hot.unit import ROW_BYTES_ESTIMATE, Unit
from tidemill.hot.view import HotView
from tidemill.hot.windows import Windows
from tidemill.subscribers import Subscribers

# A larger row goes the long way, where its true size is known and counted.
ROW_BYTES_MAX = 4 * ROW_BYTES_ESTIMATE
_NO_HISTORY = NoHistory()
_NOTHING_MOVED = HistoryNumbers()


class HotTable:
    def __init__(
        self,
        table: Table,
        clock: Clock,
        backpressure_wait_us: int,
        numbers: HistoryNumbers = _NOTHING_MOVED,
        environment: Environment = _NO_HISTORY,
        listeners: Subscribers[HotTable] | None = None,
    ) -> None:
        """``numbers`` are what history has of the table. ``listeners`` are told when rows can be
        read, outside of all locks."""
        assert table.time_column is not None
        settings = table.settings
        self.table = table
        self.counters = Counters()
        self.offsets = Offsets()
        self.progress = Progress(
            clock, settings["clock"] == "event", table.watermark_delay_us, settings["max_future"]
        )
        self.primary = PrimaryKeys(table.primary_key, table.table_id) if table.primary_key else None
        self.published = Published(table, _indexes_of(table, self.primary))
        self.published.moved_seq = self.published.last_seq = numbers.moved_seq
        self.published.replacements = Replacements(numbers.moved_seq)
        for span in sorted(numbers.loaded, key=lambda span: span.first_seq):
            if span.last_seq > numbers.moved_seq:
                self.published.loads.add(span.first_seq, span.last_seq)
        self.published.changes.add(numbers.changes)
        self.published.changes.last = self.published.changes.saved = numbers.last_change
        self.applied_deletes: frozenset[str] = (
            frozenset()
        )  # files of deletes that memory has carried out
        self.marks = Marks()
        self.publisher = Publisher(self.published, self.primary, self.progress, self.marks, clock)
        self.windows = Windows()
        self.costs = ScanCosts()
        # Files whose rows are in the log, and of which the catalog may not know yet.
        self.packages: tuple[Package, ...] = ()
        self.environment = environment
        self._room = Room(self, environment, backpressure_wait_us / 1_000_000)
        self.listeners = listeners or Subscribers()
        self._find_keys = None if self.primary is None else partial(environment.find_keys, self)
        self._log: Log | None = None
        self._rows = RowWriter(table.schema)
        self._clock = clock
        self._time_at = table.schema.get_field_index(table.time_column)
        self._write_lock = threading.RLock()
        self._next_seq = max(numbers.moved_seq, numbers.reserved_seq) + 1
        self._reserved_seq = numbers.reserved_seq
        self._log_holds = 0
        self.changing = ChangeWriter(self, clock, numbers.last_change)

    def open_log(self, log: Log) -> None:
        """Begin to accept rows; what the log holds was replayed before."""
        self._log = log

    @property
    def log(self) -> Log:
        if self._log is None:
            raise ClosedError(f'table "{self.table.name}" is closed or was dropped')
        return self._log

    @property
    def nbytes(self) -> int:
        """Memory of rows, indices, young keys and rows set aside."""
        young = 0 if self.primary is None else self.primary.nbytes
        publisher = self.publisher
        waiting = max(publisher.bytes_written - publisher.bytes_published, 0)
        return self.published.nbytes + young + waiting

    def view(self, needed: Sequence[Needed] | None = None) -> HotView:
        """What is published now, held still; with all changes, or at least with those that concern
        what is needed."""
        view = self.published.settled(needed)
        return self.publisher.settled_view() if view is None else view

    # -- append

    def append(self, accepted: Accepted) -> AppendResult:
        """Store an accepted batch as the table says; returns when it is durable and visible."""
        nbytes = accepted.nbytes + accepted.rows * self.published.directory_row_bytes
        deadline_s = time.monotonic() + self._room.wait_s
        while True:
            self._room.wait(nbytes, deadline_s)
            with self._write_lock:
                log = self.log
                log.check()
                if self.offsets.is_repeat(accepted.source, accepted.offset):
                    # Its first appearance may be in another thread's hands: wait for that too.
                    ticket, result = log.written_ticket(), None
                    break
                if self._room.fits(nbytes):
                    if self.primary is not None:
                        self.changing.settle(log, accepted.batches)
                    result = self._sort(accepted)
                    point("append.checked")
                    ticket = self._write(log, accepted, result)
                    break
        self._finish(log, ticket)
        if result is None:
            return AppendResult(accepted.rows, is_repeat=True)
        return result.summary(accepted.rows)

    def append_row(self, row: tuple[Any, ...]) -> bool:
        """Store one row that surely fits (plain values, times in microseconds).

        False if the row must go the whole way of ``append``: it is late, memory is scarce, or the
        table has a primary key."""
        if self.primary is not None:
            return False
        time_us = row[self._time_at]
        with self._write_lock:
            log = self.log
            watermark = self.progress.watermark_us()
            is_late = watermark is not None and time_us < watermark
            if is_late or not self._room.fits(ROW_BYTES_ESTIMATE):
                return False
            seq, newest = self._next_seq, self.progress.newest_of_one(time_us)
            encoded = frame.encode_row(seq, row, newest, self._clock.now_us())
            if len(encoded) > ROW_BYTES_MAX:
                return False
            ticket = log.write([encoded])
            self._next_seq = seq + 1
            self.progress.write(newest)
            self.counters.rows_in += 1
            self.counters.stored += 1
            unit = Unit(seq, rows=(row,), ticket=ticket, newest_us=newest)
            self.publisher.unpublished.append(unit)
        self._finish(log, ticket)
        return True

    def _finish(self, log: Log, ticket: int) -> None:
        log.wait_durable(ticket)
        self.publisher.publish(log.durable_ticket())
        point("append.published")
        self.listeners.tell(self)

    def is_acknowledged(self, source: str, offset: int) -> bool:
        """Whether an append of this source and offset was stored, durable and visible."""
        with self._write_lock:
            if not self.offsets.holds(source, offset):
                return False
            log, ticket = self.log, self.log.written_ticket()
        self._finish(log, ticket)
        return True

    # -- write

    def _sort(self, accepted: Accepted, leaving: frozenset[int] = frozenset()) -> Sorted:
        """``leaving`` are rows that go with the very frame: their keys are free."""
        sorter = Sorter(
            self.table,
            self.progress,
            self.primary,
            self.published,
            self._next_seq,
            self._find_keys,
            leaving,
        )
        return sorter.sort(accepted)

    def _write(
        self, log: Log, accepted: Accepted, result: Sorted, changes: tuple[Change, ...] = ()
    ) -> int:
        """Write one frame and advance the state that it describes; ``changes`` are what it updates
        and deletes before its rows come."""
        now_us = self._clock.now_us()
        late = rejected = None
        aside: list[frame.Section] = []
        if result.late:
            late = pa.concat_batches(
                [late_batch(rows, result.late_reason, now_us) for rows in result.late]
            )
            aside.append(frame.Section(frame.LATE, late.serialize()))
        if result.rejects:
            rejected = rejected_batch(result.rejects, now_us)
            aside.append(frame.Section(frame.REJECTED, rejected.serialize()))
        meta = AppendMeta(
            result.newest_us,
            now_us,
            result.ignored,
            result.late_stored,
            tuple(result.replaced),
            accepted.source,
            accepted.offset,
            accepted.packages,
            changes=tuple(whole_fields(change) for change in changes),
        )
        rows, nbytes = result.stored, accepted.nbytes
        ticket, own = self._rows.write(log, self._next_seq, meta, rows, aside, nbytes)
        newest = result.newest_us
        parts = (self._next_seq, own, (), late, rejected, meta.replaced, ticket, newest)
        unit = Unit(*parts, changes=changes)
        try:
            self.advance(unit, meta)
            self.publisher.add(unit)
        except BaseException as error:  # the log has the frame; nothing may be written over it
            log.stop(error)
            raise
        return ticket

    def advance(self, unit: Unit, meta: AppendMeta) -> None:
        """Count a unit; the same when it is written and when it is replayed."""
        self.counters.add(unit, meta.ignored, meta.late_stored)
        for change in unit.changes:
            self.changing.count(change)
        self.progress.write(meta.newest_us)
        if meta.packages:
            self.packages = (*self.packages, *meta.packages)
        if meta.source is not None and meta.offset is not None:
            self.offsets.add(meta.source, meta.offset)
        if self.primary is not None:
            seq = unit.first_seq
            for batch in unit.batches:
                if seq + batch.num_rows - 1 > self.published.moved_seq:
                    self.primary.add(batch, seq)
                seq += batch.num_rows
        self._next_seq = max(unit.first_seq + unit.row_count, self._reserved_seq + 1)

    # -- move

    def reserve(self, count: int, record: Callable[[int, int], None]) -> int:
        """Give sequence numbers to a load; ``record(first, last)`` makes that durable. Answers
        the first."""
        with self._write_lock:
            first, last = self._next_seq, self._next_seq + count - 1
            record(first, last)
            self._reserved_seq = last
            self._next_seq = last + 1
            with self.published.lock:
                self.published.loads.begin(first, last)
            return first

    def reached_seq(self) -> int | None:
        """The last number given out, loads included, if all rows up to it are published."""
        with self._write_lock:
            return None if self.publisher.unpublished else self._next_seq - 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no writer in, so that keys can be compared and files committed as one step."""
        with self._write_lock:
            if self._log is not None:
                self._finish(self._log, self._log.written_ticket())
            with self.changing.held_back():
                yield
        self.changing.pay()

    @contextmanager
    def holding_log(self) -> Iterator[None]:
        """Let retention remove no segment of the log: a move is reading them."""
        with self._write_lock:
            self._log_holds += 1
        try:
            yield
        finally:
            with self._write_lock:
                self._log_holds -= 1

    def forget(self, seqs: Iterable[int], paths: Iterable[str]) -> None:
        """Rows gave way to rows that were loaded: files of deletes name them, for good. Readers
        need not look into those files for them any more."""
        self.publisher.forget(seqs)
        self.applied_deletes = self.applied_deletes | frozenset(paths)

    def release(self, moved_seq: int, left_out: frozenset[int], deleted: frozenset[int]) -> None:
        """The catalog says that history holds the rows up to a sequence number: let go of them,
        of the log that kept them, and of writers who wait for room."""
        self.publisher.release(moved_seq, left_out, deleted)
        log = self._log
        if log is not None:
            log.remove_segments(self.published.needs, _speaks_of_others(self))
        self._room.tell()

    def settle_packages(self, settled: Sequence[Package]) -> None:
        """The catalog knows of these packages."""
        with self._write_lock:
            self.packages = tuple(each for each in self.packages if each not in settled)

    # -- change

    def set_table(self, table: Table) -> None:
        """Follow the catalog: other settings, other indices."""
        with self._write_lock:
            self.table = table
            self.publisher.set_table(table, _indexes_of(table, self.primary))
            self.progress.is_event = table.settings["clock"] == "event"
            self.progress.max_future_us = table.settings["max_future"]
            if self._log is not None:
                self._log.set_durability(table.settings["durability"])
        self.expire()

    def expire(self) -> int:
        """Drop blocks that retention no longer wants, and log segments nobody needs any more.

        Their rows were not to be seen any more before that (``retention``)."""
        before_us = horizon_us(self.table, self.progress.now_us())
        dropped = 0
        if before_us is not None:
            aside_us = self._clock.now_us() - self.table.settings["retention"]
            dropped = self.publisher.expire(before_us, aside_us)
        if dropped and self._log is not None and not self._log_holds:
            self._log.remove_segments(self.published.needs, _speaks_of_others(self))
        self._room.tell()
        return dropped

    def flush(self) -> None:
        """Force the log (durability = 'batch')."""
        log = self._log
        if log is not None:
            log.flush()

    def close(self) -> None:
        """Accept nothing more; what was acknowledged is in the log."""
        with self._write_lock:
            if self._log is not None:
                self._log.close()
                self._log = None

    # -- state and replay

    def start(self) -> SegmentStart:
        """For the beginning of a log segment: all that its frames do not say."""
        state = TableState(
            self.table.table_id,
            self.table.schema.serialize().to_pybytes(),
            replace(self.counters),
            self.progress.newest_us,
            self.offsets.dump(),
            self.published.moved_seq,
            last_change=self.changing.last_number,
        )
        return SegmentStart(self._next_seq, state)

    def restore(self, next_seq: int, state: TableState) -> None:
        """Be the table that a segment of the log begins with."""
        self.counters = replace(state.counters)
        self.progress.newest_us = state.newest_us
        self.offsets = Offsets.load(state.offsets)
        self._next_seq = max(next_seq, self._reserved_seq + 1)
        self.changing.restore(state.last_change)


def _speaks_of_others(hot: HotTable) -> bool:
    """Whether frames of a table's log speak of rows in older ones."""
    return hot.primary is not None or hot.published.changes.last > 0


def _indexes_of(table: Table, primary: PrimaryKeys | None) -> tuple[Index, ...]:
    own = (primary.index,) if primary is not None else ()
    return (*own, *table.indexes)
