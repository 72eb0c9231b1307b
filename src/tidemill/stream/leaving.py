"""Leaving: which rows leave memory for files, and what becomes of those that no longer count.

A move takes the rows up to a sequence number. The log that it reads still has rows which are not
rows of the table any more: retention or newer rows took them out. So numbers say what leaves:

- ``live`` rows become rows of history;
- ``replaced`` rows, which newer ones replaced before they could move, go to files that only
  readers of the past see;
- ``deleted`` rows are in history already, and rows in memory replaced them: a file of deletes names
  them from now on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tidemill.catalog.model import History, NewFile, Table
from tidemill.changes.model import Change
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_deletes
from tidemill.hot.block import Block
from tidemill.hot.piece import Piece
from tidemill.hot.table import HotTable
from tidemill.hot.view import HotView

ORIGIN = "move"

Seqs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Live:
    """Which rows of the log are meant: ranges of their numbers."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, seqs: Iterable[int]) -> Live:
        ordered = np.array(sorted(seqs), dtype=np.int64)
        return cls(tuple(_runs(ordered)) if len(ordered) else ())

    @property
    def rows(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def mask(self, seqs: Seqs) -> npt.NDArray[np.bool_]:
        firsts = np.array([first for first, _ in self.ranges], dtype=np.int64)
        lasts = np.array([last for _, last in self.ranges], dtype=np.int64)
        at = np.searchsorted(firsts, seqs, "right") - 1
        return (at >= 0) & (seqs <= lasts[np.maximum(at, 0)]) if len(firsts) else at >= 0


NO_ROWS = Live()


@dataclass(frozen=True)
class Leaving:
    """The rows that leave memory, behind ``after_seq`` and up to ``upto_seq``. ``left_out`` are
    replaced rows that are not written as rows of the table: others that were replaced since are
    in its files, and are removed there. ``changes`` are carried out in the rows as they leave: all
    up to the number ``changed``."""

    after_seq: int
    upto_seq: int
    live: Live
    replaced: Live = NO_ROWS
    left_out: frozenset[int] = frozenset()
    deleted: frozenset[int] = frozenset()
    changes: tuple[Change, ...] = ()
    changed: int = 0

    @classmethod
    def of(
        cls,
        view: HotView,
        upto_seq: int,
        left_out: frozenset[int] = frozenset(),
        replaced: Iterable[int] = (),
    ) -> Leaving:
        """The rows of a view up to a number; those ``replaced`` are for the past, unless the view
        still has them."""
        live, past = live_of(view, upto_seq), Live.of(replaced)
        return cls(view.moved_seq, upto_seq, live, past, left_out, view.removed)

    def write_removed(
        self, storage: Storage, table: Table, history: History, label: str
    ) -> list[NewFile]:
        """Name the rows of history that were replaced in a file of deletes."""
        span = _span_of(history, self.deleted)
        if span is None:
            return []
        spec, seqs = WriteSpec.of(table), sorted(self.deleted)
        return [write_deletes(storage, spec, *span, seqs, label, 0, ORIGIN)]

    def release(self, hot: HotTable) -> None:
        """The catalog has the files: let memory go of the rows."""
        hot.release(self.upto_seq, self.left_out, self.deleted)


def leaving(hot: HotTable, upto_seq: int | None) -> Leaving:
    """What leaves memory now, up to a number; without one, all that is published."""
    reached = hot.reached_seq() or 0
    view = hot.view()
    # All that is published; past numbers of loads, too, where no row waits in between.
    last = max(view.published_seq, reached)
    upto = last if upto_seq is None else min(upto_seq, view.published_seq)
    upto = max(upto, view.moved_seq)
    # Replaced rows before the rest: one that is replaced in between is then in neither list; it
    # is removed from files that do not hold it, which does no harm.
    left_out = hot.published.replaced_up_to(upto)
    view = hot.view()
    # Once more, since those replaced in between were rows of the table as well. Rows that changes
    # deleted are for the past, too; a change that comes later finds what was moved in files.
    past = {*hot.published.replaced_up_to(upto), *_deleted(hot, upto)}
    rows = Leaving.of(view, upto, left_out, past)
    changes = tuple(each for each in view.changes if each.upto_seq > view.moved_seq)
    return replace(rows, changes=changes, changed=view.last_change)


def _deleted(hot: HotTable, upto_seq: int) -> list[int]:
    with hot.published.lock:
        found: list[int] = hot.published.changes.deleted_up_to(upto_seq).tolist()
        return found


def live_of(view: HotView, upto_seq: int) -> Live:
    """The rows of a view up to a sequence number."""
    ranges: list[tuple[int, int]] = []
    parts: tuple[Block | Piece, ...] = (*view.blocks, *view.tail)
    for part in parts:
        if part.first_seq > upto_seq:
            break
        is_whole = part.seqs is None
        runs = [(part.first_seq, part.last_seq)] if is_whole else _runs(part.seq_column())
        for first, last in runs:
            if ranges and ranges[-1][1] == first - 1:
                ranges[-1] = (ranges[-1][0], min(last, upto_seq))
            elif first <= upto_seq:
                ranges.append((first, min(last, upto_seq)))
    return Live(tuple(ranges))


def _runs(seqs: Seqs) -> list[tuple[int, int]]:
    breaks = np.flatnonzero(np.diff(seqs) != 1)
    firsts = np.concatenate((seqs[:1], seqs[breaks + 1]))
    lasts = np.concatenate((seqs[breaks], seqs[-1:]))
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _span_of(history: History, seqs: Iterable[int]) -> tuple[int, int] | None:
    """The span of time of the files that may hold some rows."""
    wanted = list(seqs)
    found = [
        file
        for partition in history.partitions
        for file in partition.files
        if any(file.seq_min <= seq <= file.seq_max for seq in wanted)
    ]
    if not found:
        return None
    return min(file.lo_us for file in found), max(file.hi_us for file in found)
