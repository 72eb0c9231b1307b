"""The publisher: units that are written wait here until they are durable, then readers see them.

Units come in the order in which they were written, under the table's write lock, and are shown in
the same order, under the publish lock. Whatever else changes what readers see (retention, moves,
replaced rows, sealing the tail) holds that lock too, so that one change is made at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from tidemill.catalog.model import Index, Table
from tidemill.clock import Clock
from tidemill.hot.carrying import carry_out
from tidemill.hot.marks import Marks
from tidemill.hot.primary import PrimaryKeys
from tidemill.hot.progress import Progress
from tidemill.hot.published import Published
from tidemill.hot.unit import Unit
from tidemill.hot.view import HotView


class Publisher:
    """``unpublished`` are the units that readers do not see yet, oldest first."""

    def __init__(
        self,
        published: Published,
        primary: PrimaryKeys | None,
        progress: Progress,
        marks: Marks,
        clock: Clock,
    ) -> None:
        self.unpublished: deque[Unit] = deque()
        self._published = published
        self._primary = primary
        self._progress = progress
        self._marks = marks
        self._clock = clock
        self._lock = threading.Lock()
        self._carrying = threading.Lock()  # taken before the other
        # Of batches. One counter for each lock: a shared one would lose updates.
        self.bytes_written = 0
        self.bytes_published = 0

    @property
    def waiting_rows(self) -> int:
        """Rows that are written but not yet visible."""
        return sum(unit.row_count for unit in list(self.unpublished))

    def add(self, unit: Unit) -> None:
        """A batch is written; the caller holds the table's write lock."""
        self.bytes_written += unit.nbytes
        self.unpublished.append(unit)

    def publish(self, durable: int) -> None:
        """Show readers every unit that is durable, in the order written."""
        unpublished, published = self.unpublished, self._published
        with self._lock:
            while unpublished and unpublished[0].ticket <= durable:
                unit = unpublished[0]
                if unit.batches:
                    self.bytes_published += unit.nbytes
                published.show(unit)
                self._progress.show(unit.newest_us)
                unpublished.popleft()
            self._marks.add(self._clock.now_us(), published.last_seq)
            if published.is_due:
                self._seal()

    def show_again(self, unit: Unit) -> None:
        """Show a unit that the log brought back; nobody else has the table yet."""
        self._published.show(unit)
        if self._published.is_due:
            self._seal()

    def seal(self) -> None:
        """Turn the tail into blocks."""
        with self._lock:
            self._seal()

    def _seal(self) -> None:
        last_seq = self._published.seal()
        if self._primary is not None:
            self._primary.settle(last_seq)

    def settle_replaced(self) -> None:
        """Give the memory of replaced rows back without waiting for a reader."""
        with self._lock:
            self._published.settle_replaced()

    def settled_view(self) -> HotView:
        """What readers see, with all changes that came before. They are carried out without the
        locks that readers and writers need; others who wait for the same take what was found."""
        with self._carrying:
            found = self._published.uncarried()
            if not found.changes:
                return found.view
            carried = carry_out(found)
            with self._lock:
                deleted = self._published.settle(carried)
                if self._primary is not None and len(deleted):
                    self._primary.forget(deleted.tolist())
        return carried.view

    def forget(self, seqs: Iterable[int]) -> None:
        """Rows gave way to rows that were loaded."""
        held = [seq for seq in seqs if not self._published.loads.holds(seq)]
        with self._lock:
            self._published.remove(held)
            if self._primary is not None:
                self._primary.forget(held)

    def release(self, moved_seq: int, left_out: frozenset[int], deleted: frozenset[int]) -> None:
        """History holds the rows up to a sequence number (``Published.release``)."""
        with self._lock:
            self._published.release(moved_seq, left_out, deleted)
            if self._primary is not None:
                self._primary.settle(moved_seq)
            self._marks.forget(moved_seq)

    def expire(self, before_us: int, aside_before_us: int) -> int:
        """Drop what retention no longer wants; answers how many blocks."""
        with self._lock:
            return self._published.expire(before_us, aside_before_us)

    def set_table(self, table: Table, indexes: tuple[Index, ...]) -> None:
        with self._lock:
            self._published.set_table(table, indexes)
