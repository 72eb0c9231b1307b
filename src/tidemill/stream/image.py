"""The image: a streaming table as a reader sees it at one moment.

It is taken in three steps, whose order is the rule:

1. the table's clock (what RECENT calls now, and the retention's horizon), and which files of
   deletes memory has carried out: ``look``;
2. the rows in memory, held still: also ``look``;
3. the catalog's snapshot: ``Look.at``. Rows go from memory to files and never back, and memory lets
   go of them only when the snapshot names the files. So the view is cut at the snapshot's
   ``moved_seq``, every row is seen exactly once, and nobody waits for anybody.

A statement looks at all its tables before it takes the snapshot, so they are of one moment.

The rows in memory have all changes (UPDATE, DELETE) that came before the look, or at least those
that concern the reader; those in files get them while they are read, and the changes come from the
look as well, with the view.

What no longer counts is part of the image: rows of files that rows in memory replaced or that
files of deletes name, and rows in memory that a load replaced just now, whose file of deletes the
snapshot has and memory has not carried out (``pending``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidemill.catalog.model import DataFile, History, Snapshot, Table
from tidemill.changes.files import may_touch
from tidemill.changes.model import Change
from tidemill.changes.needed import EVERYTHING, NO_COLUMNS, Needed
from tidemill.changes.pending import Pending
from tidemill.clock import DATETIME_US_MAX, DATETIME_US_MIN
from tidemill.history.reading import file_span
from tidemill.history.window import Window
from tidemill.hot.retention import horizon_us
from tidemill.hot.table import HotTable
from tidemill.hot.view import HotView, Selection, Wanted
from tidemill.sql.windows import NowBounds
from tidemill.stream.relation import NO_FILES, HistoryScan, SeqRange, pruned_scan, retained
from tidemill.stream.removed import Deletes, Removed
from tidemill.types import SEQ


@dataclass(frozen=True)
class Look:
    """What a table's memory shows; the snapshot is taken after it."""

    hot: HotTable
    now: NowBounds
    horizon_us: int | None  # no older row may be seen
    applied: frozenset[str]  # files of deletes that memory has carried out
    view: HotView

    def at(self, snapshot: Snapshot) -> Image:
        """The image with a snapshot that was taken after the look."""
        table = self.hot.table
        history = snapshot.history(table.table_id)
        pending = _pending(table, history, self.applied)
        return Image(table, self.view.after(history.moved_seq), history, pending, self.horizon_us)


@dataclass(frozen=True)
class Image:
    """One table at one moment: its rows in memory behind the snapshot's boundary, its files."""

    table: Table
    view: HotView
    history: History
    pending: tuple[DataFile, ...]  # files of deletes that name rows of the view
    horizon_us: int | None = None

    @property
    def removed(self) -> Removed:
        """Rows of files that no longer count."""
        return Removed.of(self.history.deletes, self.view.removed)

    @property
    def is_settled(self) -> bool:
        """Whether all rows of the view count: no load has just replaced some of them."""
        return not self.pending

    def in_files(
        self,
        wanted: Wanted,
        seq_range: SeqRange | None = None,
        needed: Needed = EVERYTHING,
    ) -> HistoryScan:
        """What a scan reads of history; with a range, rows of these numbers only. ``needed`` says
        what it makes of the rows."""
        if not self.history.files:
            return NO_FILES
        changes = self.concerning(wanted, needed)
        removed = Removed.of((), self.view.removed)
        part = pruned_scan(self.history, wanted, removed, changes)
        times = retained(self.table, wanted.horizon_us)
        window = _window(self.table, wanted)
        part = replace(part, times=times, window=window, seq_range=seq_range)
        return HistoryScan((part,), 0 if part.pruned is None else part.pruned.total_files)

    def changes_in_files(self) -> Sequence[Change]:
        """The changes on which it depends which rows of files there are."""
        pending = self.concerning(Wanted(), NO_COLUMNS)
        return pending if any(may_touch(c, f) for c in pending for f in self.history.files) else ()

    def concerning(self, wanted: Wanted, needed: Needed) -> Pending:
        """The changes that rows of files may need for a scan."""
        pending = self.view.changes
        if not pending:
            return pending
        return pending.concerning(self.in_history(wanted, needed))

    def in_history(self, wanted: Wanted, needed: Needed) -> Needed:
        """What a scan makes of rows of files."""
        return needed.within(*file_span(self.history)).within(*wanted.span)

    def in_memory(self, wanted: Wanted, deletes: Deletes) -> tuple[pa.Table, Selection | None]:
        """The rows in memory that a scan can need, and how they were selected; without the latter
        if a load has just replaced some of them."""
        if not self.pending:
            selection = self.view.select(wanted)
            return selection.table, selection
        rows = self.view.select(replace(wanted, with_seq=True, newest=None)).table
        rows = deletes.filter(rows, self.pending, self.table.name)
        return rows if wanted.with_seq else rows.drop_columns([SEQ]), None


def _window(table: Table, wanted: Wanted) -> Window | None:
    if table.time_column is None or (wanted.low_us is None and wanted.high_us is None):
        return None
    return Window(table.get_column(table.time_column), wanted.low_us, wanted.high_us)


def look(
    hot: HotTable, now: NowBounds | None = None, needed: Sequence[Needed] | None = None
) -> Look:
    """Look at a table; ``now`` is another moment that counts as now. Changes that do not concern
    what is ``needed`` (None: everything) may go on waiting."""
    now = now or bounds_of(hot)
    applied = hot.applied_deletes
    return Look(hot, now, horizon_of(hot, now), applied, hot.view(needed))


def bounds_of(hot: HotTable) -> NowBounds:
    """What the table calls now. It is asked before the view is taken: a row that arrives between
    the two is newer than the upper bound, and RECENT leaves it to the next reader."""
    now_us, upper_us = hot.progress.now_us(), hot.progress.upper_us()
    if now_us is None:  # an event clock that believes nothing yet: nothing is recent
        return NowBounds(DATETIME_US_MIN, DATETIME_US_MIN)
    return NowBounds(now_us, DATETIME_US_MAX if upper_us is None else upper_us)


def horizon_of(hot: HotTable, now: NowBounds) -> int | None:
    """From when on rows may be seen, by what the table calls now."""
    return horizon_us(hot.table, None if now.now_us == DATETIME_US_MIN else now.now_us)


def _pending(table: Table, history: History, applied: frozenset[str]) -> tuple[DataFile, ...]:
    if not table.primary_key:
        return ()
    later = (file for file in history.deletes if file.seq_max > history.moved_seq)
    return tuple(file for file in later if file.path not in applied)
