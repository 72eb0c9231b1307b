"""The writer of a table's changes (UPDATE, DELETE), a part of ``HotTable`` that stands by itself
for its size: it holds the table's write lock and counts with its numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.changes.model import (
    DELETE,
    Change,
    ChangeForm,
    Correction,
    Spans,
    plain_rows_of,
    span_of,
)
from tidemill.changes.needed import Needed
from tidemill.clock import Clock
from tidemill.config import EAGER
from tidemill.hot import frame
from tidemill.hot.frame_meta import ChangeMeta
from tidemill.hot.intake import Accepted, AppendResult
from tidemill.hot.log import Log
from tidemill.hot.unit import Unit
from tidemill.types import SEQ

if TYPE_CHECKING:
    from tidemill.hot.table import HotTable

CHANGE_BYTES = 500  # of a change with plain values, about
# Deletes rows by their numbers; the other slot is their time.
BY_NUMBER = ChangeForm(DELETE, ("BIGINT", "BIGINT"), ((SEQ, 0),), bounds=(("=", 1),))


class ChangeWriter:
    def __init__(self, hot: HotTable, clock: Clock, last_number: int) -> None:
        self._hot = hot
        self._clock = clock
        self.last_number = last_number
        self.saving = threading.Lock()  # held while changes go from the log to the catalog
        self._carried = last_number  # at once, in files as well
        self._is_held_back = self._is_owing = False

    def restore(self, last_number: int) -> None:
        """A segment of the log begins behind this change."""
        self.last_number = max(self.last_number, last_number)
        changes = self._hot.published.changes
        changes.last = max(changes.last, last_number)

    def replace(
        self,
        accepted: Accepted,
        gone: Sequence[Correction] = (),
        updated: tuple[ChangeForm, pa.RecordBatch] | None = None,
    ) -> AppendResult:
        """Rows come, others go (their numbers and times) or get new values; all or nothing, as one
        frame. The caller lets no other writer in (``paused``)."""
        hot = self._hot
        with hot._write_lock:
            log = hot.log
            log.check()
            if hot.primary is not None:
                self.settle(log, (*accepted.batches, *accepted.moved))
            result = hot._sort(accepted, frozenset(seq for seq, _ in gone if isinstance(seq, int)))
            changes = [] if updated is None else [self._made(updated[0], batch=updated[1])]
            if gone:
                number = self.last_number + 1 + len(changes)
                changes.append(replace(self._made(BY_NUMBER, tuple(gone)), number=number))
            ticket = hot._write(log, accepted, result, tuple(changes))
            self._is_owing |= self._is_held_back
        hot._finish(log, ticket)
        return result.summary(accepted.rows)

    def wait_for_room(self, nbytes: int) -> None:
        """Wait until so much more fits the table's memory, as ``append`` does; without locks."""
        self._hot._room.wait(nbytes, time.monotonic() + self._hot._room.wait_s)

    def change(
        self,
        form: ChangeForm,
        rows: tuple[Correction, ...] = (),
        batch: pa.RecordBatch | None = None,
        spared: Callable[[], Spans] | None = None,
        source: str | None = None,
        offset: int | None = None,
    ) -> bool:
        """Update or delete rows that arrived before; returns when that is durable and visible. With
        a source and an offset that were acknowledged before, nothing changes, and False is
        answered. ``spared`` gives the numbers of loads that are not committed yet. A change takes
        memory until all rows have it: if there is none left, the writer waits as with rows."""
        hot = self._hot
        nbytes = CHANGE_BYTES * max(len(rows), 1) if batch is None else int(batch.nbytes)
        if not self._is_held_back:  # whoever lets no other in has waited before
            self.wait_for_room(nbytes)
        with hot._write_lock:
            is_held_back = self._is_held_back  # by this very thread
            self._is_owing |= is_held_back
            log = hot.log
            log.check()
            if hot.offsets.is_repeat(source, offset):
                ticket, is_new = log.written_ticket(), False
            else:
                ticket = self._write(log, form, rows, batch, spared, source, offset)
                is_new = True
        hot._finish(log, ticket)
        if not is_held_back:
            self.carry_out()
        return is_new

    def _write(
        self,
        log: Log,
        form: ChangeForm,
        rows: tuple[Correction, ...],
        batch: pa.RecordBatch | None,
        spared: Callable[[], Spans] | None,
        source: str | None,
        offset: int | None,
    ) -> int:
        hot = self._hot
        change = self._made(form, rows, batch, spared)
        meta = ChangeMeta.of(change, source, offset)
        sections = [] if batch is None else [frame.Section(frame.CORRECTIONS, batch.serialize())]
        ticket = log.write(frame.encode(hot._next_seq, meta, sections))
        newest = hot.progress.newest_us
        unit = Unit(hot._next_seq, ticket=ticket, newest_us=newest, changes=(change,))
        try:
            self.advance(unit, meta)
            hot.publisher.unpublished.append(unit)
        except BaseException as error:  # the log has the frame; nothing may be written over it
            log.stop(error)
            raise
        return ticket

    def _made(
        self,
        form: ChangeForm,
        rows: tuple[Correction, ...] = (),
        batch: pa.RecordBatch | None = None,
        spared: Callable[[], Spans] | None = None,
    ) -> Change:
        low_us, high_us = span_of(form, rows if batch is None else plain_rows_of(form, batch))
        return Change(
            self.last_number + 1,
            self._hot._next_seq - 1,
            self._clock.now_us(),
            form,
            rows,
            batch,
            low_us,
            high_us,
            () if spared is None else spared(),
        )

    def count(self, change: Change) -> None:
        """A change is written, or was."""
        self.last_number = max(self.last_number, change.number)

    def advance(self, unit: Unit, meta: ChangeMeta) -> None:
        """Count a change; the same when it is written and when it is replayed."""
        for change in unit.changes:
            self.count(change)
        if meta.source is not None and meta.offset is not None:
            self._hot.offsets.add(meta.source, meta.offset)

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Carry nothing out at once for a while, but all that came of it at the end (``pay``). The
        caller lets no other writer in meanwhile."""
        before, self._is_held_back = self._is_held_back, True
        try:
            yield
        except BaseException:
            self._is_owing = False  # the next change pays
            raise
        finally:
            self._is_held_back = before

    def pay(self) -> None:
        """Carry out what was held back; without locks."""
        if self._is_owing:
            self._is_owing = False
            self.carry_out()

    def carry_out(self) -> None:
        """With ``changes = 'eager'``: carry changes out at once, in memory and in files. The caller
        holds no lock."""
        hot, last = self._hot, self.last_number
        if self._carried >= last or hot.table.settings["changes"] != EAGER:
            return
        hot.view()
        hot.environment.carry_out(hot)
        self._carried = max(self._carried, last)

    def settle(self, log: Log, batches: Iterable[pa.RecordBatch]) -> None:
        """See to it that rows with the keys of batches are gone if changes deleted them: their keys
        are free."""
        hot = self._hot
        if any(unit.changes for unit in list(hot.publisher.unpublished)):
            hot._finish(log, log.written_ticket())
        if not hot.published.changes.new:
            return
        table = hot.table
        keys = [Needed.of_keys(each, table.primary_key, table.time_column) for each in batches]
        if hot.published.settled(keys) is None:
            hot.publisher.settled_view()
