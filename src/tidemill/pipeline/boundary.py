"""Boundaries: how far a move goes, as a sequence number, and what it would take.

Rows leave in the order of their arrival. A move takes the longest run, from the oldest arrival on,
of rows that are all old enough and that no window by count wants; or, when memory is full, the
oldest rows that make up so many bytes. A boundary never lies beyond what is published.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.hot import keys
from tidemill.hot.block import Block
from tidemill.hot.piece import Piece, rows_up_to
from tidemill.hot.table import HotTable
from tidemill.hot.view import HotView
from tidemill.pipeline.policy import Choice


@dataclass(frozen=True)
class Boundary:
    """How far a move goes, and what it would take."""

    upto_seq: int
    rows: int
    bytes: int


def boundary_of(hot: HotTable, view: HotView, choice: Choice) -> Boundary:
    """How far a move goes that was chosen."""
    if choice.is_forced:
        return oldest(view, choice.release_bytes)
    return older_than(hot, view, choice.kept.keep_us, choice.kept.keep_rows)


def oldest(view: HotView, wanted_bytes: int) -> Boundary:
    """The oldest rows that make up so many bytes."""
    upto, rows, held = view.moved_seq, 0, 0
    for part in _parts(view):
        if held >= wanted_bytes:
            break
        upto, rows, held = part.last_seq, rows + part.rows, held + int(part.batch.nbytes)
    return Boundary(upto, rows, held)


def older_than(hot: HotTable, view: HotView, keep_us: int, keep_rows: int = 0) -> Boundary:
    """The longest run of rows from the oldest arrival on that are all older than ``keep_us``, by
    their time or, where a machine's clock rules, by their arrival. The last ``keep_rows`` to
    arrive stay in any case."""
    now_us = hot.progress.now_us()
    if now_us is None:
        return Boundary(view.moved_seq, 0, 0)
    cutoff_us = now_us - keep_us
    arrived = 0 if hot.progress.is_event else hot.marks.seq_at(cutoff_us) or 0
    rows_max = max(view.rows - keep_rows, 0)
    upto, rows, held = view.moved_seq, 0, 0
    for part in _parts(view):
        old = _old_rows(part, cutoff_us, arrived, view.table.time_column or "")
        count = min(old, rows_max - rows)
        if count:
            share = count / part.rows
            upto = part.last_seq if count == part.rows else int(part.seq_column()[count - 1])
            rows, held = rows + count, held + int(part.batch.nbytes * share)
        if count < part.rows:
            break
    return Boundary(upto, rows, held)


def oldest_us(view: HotView, after_seq: int) -> int | None:
    """t'_b: the earliest time of the rows behind a sequence number; None if there are none."""
    found = [
        us
        for part in _parts(view)
        if part.last_seq > after_seq
        and (us := _earliest_us(part, after_seq, view.table.time_column or "")) is not None
    ]
    return min(found, default=None)


def _earliest_us(part: Block | Piece, after_seq: int, time_column: str) -> int | None:
    if isinstance(part, Block) and part.first_seq > after_seq:
        return part.time_min_us
    times = _times(part, time_column)[rows_up_to(part, after_seq) :]
    return int(times.min()) if len(times) else None


def _parts(view: HotView) -> tuple[Block | Piece, ...]:
    return (*view.blocks, *view.tail)


def _times(part: Block | Piece, time_column: str) -> npt.NDArray[Any]:
    return part.times if isinstance(part, Block) else keys.words(part.batch.column(time_column))


def _old_rows(part: Block | Piece, cutoff_us: int, arrived_seq: int, time_column: str) -> int:
    if part.last_seq <= arrived_seq:
        return part.rows
    if isinstance(part, Block) and part.time_max_us <= cutoff_us:
        return part.rows
    newest_so_far = np.maximum.accumulate(_times(part, time_column))
    by_time = int(np.searchsorted(newest_so_far, cutoff_us, "right"))
    by_arrival = int(np.searchsorted(part.seq_column(), arrived_seq, "right"))
    return max(by_time, by_arrival)
