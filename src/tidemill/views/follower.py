"""Followers: the states of digests in memory, kept abreast of their stream.

A follower holds one or more digests of one stream that are fed by the same rows. What it has taken
in is described by a sequence number (hot rows up to there) and by the digest files it has seen:

- rows behind the number are absorbed from memory, in chunks;
- a file that a move or a seal wrote holds rows that were absorbed before: it is only noted;
- a file that a load or a back-fill wrote is absorbed; one that a compaction wrote takes the place
  of files that were;
- whatever does not fit (rows left memory before they were absorbed, retention took rows away) is
  answered by building the state again, from files and hot rows. Digests with panes need that only
  if a read reaches back to where rows are missing.

All calls are made under the follower's lock, which readers hold while they read the state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidemill.catalog.model import DataFile, History, Snapshot
from tidemill.digests.arrays import NotPackable
from tidemill.digests.batch import Rows
from tidemill.digests.definition import Digest
from tidemill.errors import UnknownNameError
from tidemill.hot.table import HotTable
from tidemill.hot.view import TIME_US_MIN, View

CHUNK_ROWS = 131_072
CAME_THROUGH_MEMORY = ("move", "seal")


Narrow = Callable[[str], bool]
"""Whether a state may have fewer bits than its type."""


class Kept(Protocol):
    """States of some digests that absorb rows together; by the digests' table ids."""

    @property
    def kind(self) -> str: ...
    def absorb(self, rows: Rows) -> None: ...
    def absorb_partials(self, digest_id: int, partials: pa.Table) -> None: ...
    def table(self, digest_id: int) -> pa.Table:
        """Keys and states, merged; valid until the next change."""
        ...

    def select(self, digest_id: int, source: str, narrow: Narrow, more: Sequence[str] = ()) -> str:
        """A SELECT over ``table`` under a name, with the digest's exact types, but for states
        that may be narrow, and with more columns that the source has."""
        ...

    def is_steady(self, digest_id: int) -> bool:
        """Whether groups stay where they are in ``table``, and new ones come behind them."""
        ...

    def groups(self, digest_id: int) -> int: ...
    @property
    def nbytes(self) -> int: ...


MakeKept = Callable[[Sequence[Digest], bool], Kept]
"""Makes the states of digests; the second argument is whether they may be dense."""


@dataclass
class Figures:
    """What following has cost."""

    rows_in: int = 0
    seconds: float = 0.0
    rebuilds: int = 0
    last_seconds: float = 0.0


@dataclass(frozen=True)
class Source:
    """Where a follower reads: the stream's memory, the catalog's snapshot, digest files."""

    hot: HotTable
    snapshot: Callable[[], Snapshot]
    read_files: Callable[[Digest, Sequence[DataFile]], pa.Table]


class Round:
    """A stream as it is, for followers that take it in one after the other. Those that stand at
    the same place are given the same rows. With a view and a snapshot: as it was then, for
    followers that are not ahead of it."""

    def __init__(
        self, hot: HotTable, view: View | None = None, snapshot: Snapshot | None = None
    ) -> None:
        self.view = hot.view() if view is None else view
        self.snapshot = snapshot
        self._key: tuple[int, bool, int] | None = None

    def since(self, seq: int, with_seq: bool, rows_max: int) -> tuple[Rows, int]:
        """The rows behind a sequence number, and the number up to which they go."""
        if self._key != (seq, with_seq, rows_max):
            self._key = seq, with_seq, rows_max
            table, self._upto = self.view.since(seq, with_seq, rows_max)
            self._rows = Rows(table)
        return self._rows, self._upto


@dataclass(eq=False)
class _Member:
    digest: Digest
    history: History | None = None
    files: dict[int, DataFile] = field(default_factory=dict)


class Follower:
    def __init__(self, digests: Sequence[Digest], source: Source, make: MakeKept) -> None:
        assert len({digest.source_id for digest in digests}) == 1
        self.lock = threading.RLock()
        self.figures = Figures()
        self.digests = tuple(digests)
        self.stale_before_us = TIME_US_MIN  # panes that begin before may lack rows that are gone
        self._source = source
        self._make = make
        self._may_be_dense = True
        self.is_given_up = False
        self._members = {digest.table_id: _Member(digest) for digest in digests}
        self._kept: Kept | None = None
        self._time_column = digests[0].time_column
        self._with_seq = any(digest.with_seq for digest in digests)
        self.has_panes = all(_is_bounded(digest) for digest in digests)
        self.absorbed_seq = 0
        self.newest_us = TIME_US_MIN  # no row that was taken in is newer
        self._built_seq = 0  # rows behind it were taken from memory
        self._shown_rows = 0
        self._expired_rows = 0

    @property
    def hot(self) -> HotTable:
        return self._source.hot

    @property
    def kept(self) -> Kept:
        assert self._kept is not None, "follow comes first"
        return self._kept

    @property
    def is_built(self) -> bool:
        return self._kept is not None

    @property
    def lag_rows(self) -> int:
        """Rows that readers of the stream see and that the state does not hold yet."""
        return max(0, self.hot.published.shown_rows - self._shown_rows)

    def drop_state(self) -> None:
        """Give the memory back, for good: the state is larger than it may be."""
        with self.lock:
            self._kept = None
            self.is_given_up = True

    def follow(self, rows_max: int | None = None, shared: Round | None = None) -> bool:
        """Take in what is new, at most about so many rows; whether that was all. What is new may
        be shared with other followers of the stream."""
        with self.lock:
            began = time.perf_counter()
            rows = self.figures.rows_in
            try:
                return self._follow(rows_max, shared)
            except NotPackable:
                # Rows that arrays cannot hold exactly: from now on the general way.
                self._may_be_dense, self._kept = False, None
                is_fixed = shared is not None and shared.snapshot is not None
                return self._follow(rows_max, shared if is_fixed else None)
            finally:
                self.figures.last_seconds = time.perf_counter() - began
                if self.figures.rows_in > rows:
                    self.figures.seconds += self.figures.last_seconds

    def rebuild(self, shared: Round | None = None) -> None:
        """Forget the state and build it from files and hot rows."""
        with self.lock:
            self._kept = None
            self.follow(shared=shared)

    def _follow(self, rows_max: int | None, shared: Round | None) -> bool:
        # Memory first, the snapshot second: rows go from the one to the other, never back.
        now = Round(self.hot) if shared is None or self._is_ahead(shared.view) else shared
        snapshot = now.snapshot or self._source.snapshot()
        if self._kept is not None and not self._is_lost(now.view):
            is_all = self._absorb(now, rows_max)
            if self._note_files(snapshot):
                return is_all
        try:
            self._build(now, snapshot)
        except BaseException:  # half a state is none
            self._kept = None
            raise
        return True

    def _is_ahead(self, view: View) -> bool:
        """Whether a reader has followed since the view was taken."""
        return (
            view.published_seq < self.absorbed_seq
            or view.shown_rows < self._shown_rows
            or view.expired_rows < self._expired_rows
        )

    def _is_lost(self, view: View) -> bool:
        """Whether the state cannot be brought up to date by adding to it."""
        if view.moved_seq > self.absorbed_seq:
            # Numbers of loads lie in between, or rows that went to files before we took them.
            held = view.rows_behind(self.absorbed_seq)
            if view.shown_rows - self._shown_rows != held:
                return True
        if view.expired_rows == self._expired_rows:
            return False
        if not self.has_panes:
            return True
        self._expired_rows = view.expired_rows
        self.stale_before_us = max(self.stale_before_us, view.expired_us)
        return False

    def _covered(self, snapshot: Snapshot) -> int:
        return min(snapshot.history(digest_id).moved_seq for digest_id in self._members)

    def _absorb(self, now: Round, rows_max: int | None) -> bool:
        left = rows_max
        while True:
            chunk = CHUNK_ROWS if left is None else min(left, CHUNK_ROWS)
            rows, upto = now.since(self.absorbed_seq, self._with_seq, chunk)
            count = rows.table.num_rows
            if count:
                self.kept.absorb(rows)
                self.figures.rows_in += count
                self.newest_us = max(self.newest_us, rows.greatest(self._time_column))
            self.absorbed_seq = max(upto, self.absorbed_seq)
            if upto >= now.view.published_seq:
                self._shown_rows = now.view.shown_rows
                return True
            self._shown_rows += count
            if left is not None:
                left -= count
                if left <= 0:
                    return False

    # -- files

    def _note_files(self, snapshot: Snapshot) -> bool:
        """Take in files that are new; False if the state must be built again instead: rows are
        gone with their files, or may be in twice."""
        for digest_id, member in self._members.items():
            history = snapshot.history(digest_id)
            if history is member.history:
                continue
            now = {file.file_id: file for file in history.files}
            added = [file for file_id, file in now.items() if file_id not in member.files]
            gone = [file for file_id, file in member.files.items() if file_id not in now]
            if not self._note_gone(member, added, gone):
                return False
            if any(file.seq_max > self._built_seq for file in added if file.origin == "backfill"):
                return False  # rows that we took from memory may have gone to files it read
            waiting = self._take_files(member, added)
            member.files = {i: file for i, file in now.items() if i not in waiting}
            member.history = None if waiting else history
        return True

    def _note_gone(
        self, member: _Member, added: Sequence[DataFile], gone: Sequence[DataFile]
    ) -> bool:
        """Whether the files that are gone were merged into others, one commit after the last
        that was seen; with panes, rows that are gone for good are noted instead."""
        merged = [file for file in added if file.origin == "compact"]
        for file in merged:
            known = [
                each.generation
                for each in member.files.values()
                if (each.lo_us, each.hi_us) == (file.lo_us, file.hi_us)
            ]
            if not known or file.generation != max(known) + 1:
                return False
        places = {(file.lo_us, file.hi_us) for file in merged}
        for file in gone:
            if (file.lo_us, file.hi_us) in places:
                continue
            if not self.has_panes:
                return False
            self.stale_before_us = max(self.stale_before_us, file.hi_us)
        return True

    def _take_files(self, member: _Member, added: Sequence[DataFile]) -> set[int]:
        """Absorb files of rows that never were in memory; answers those that must wait, since
        they hold rows that came after the view was taken."""
        waiting, fresh = set(), []
        for file in added:
            if file.origin in CAME_THROUGH_MEMORY:
                if file.seq_max > self.absorbed_seq:
                    waiting.add(file.file_id)
            elif file.origin != "compact":
                fresh.append(file)
        for file in added:
            self.newest_us = max(self.newest_us, file.time_max_us)
        if fresh:
            partials = self._source.read_files(member.digest, fresh)
            self.kept.absorb_partials(member.digest.table_id, partials)
        return waiting

    # -- all of it

    def _build(self, now: Round, snapshot: Snapshot) -> None:
        view = now.view
        for digest_id in self._members:
            if snapshot.table(digest_id) is None:
                raise UnknownNameError("the view was dropped")
        kept = self._make(self.digests, self._may_be_dense)
        self._kept = kept
        self.figures.rebuilds += 1
        for digest_id, member in self._members.items():
            history = snapshot.history(digest_id)
            if history.files:
                partials = self._source.read_files(member.digest, history.files)
                kept.absorb_partials(digest_id, partials)
            member.history = history
            member.files = {file.file_id: file for file in history.files}
            newest = max((file.time_max_us for file in history.files), default=TIME_US_MIN)
            self.newest_us = max(self.newest_us, newest)
        self.absorbed_seq = self._built_seq = self._covered(snapshot)
        self._expired_rows = view.expired_rows
        self.stale_before_us = TIME_US_MIN
        self._shown_rows = view.shown_rows - view.rows
        self._absorb(now, None)


def _is_bounded(digest: Digest) -> bool:
    """Whether its windows end somewhere in the past."""
    pane = digest.parts.pane
    return pane is not None and pane.low is not None
