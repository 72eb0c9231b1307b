"""Followers: the states of digests in memory, kept abreast of their stream.

A follower holds one or more digests of one stream that are fed by the same rows. What it has taken
in is described by a position of the stream's feed (hot rows up to there) and by the digest files it
has seen:

- rows behind the position are absorbed as the feed gives them out of memory, in chunks;
- a file that a move or a seal wrote holds rows that were absorbed before: it is only noted;
- a file that a load or a back-fill wrote is absorbed; one that a compaction wrote takes the place
  of files that were;
- whatever does not fit (rows left memory before they were absorbed, retention took rows away, the
  feed takes rows back) is answered by building the state again, from files and hot rows. Digests
  with panes need that only if a read reaches back to where rows are missing.

Rows that get outside the retention must leave the answer at once, and a state cannot give rows
back. So once there are such rows, a state begins with a time ahead of the retention's horizon, the
``cut``: rows between the two are read with every answer (``edges``), and when the horizon has
passed the cut, the state is built again with the next one, a part of the retention later. Panes
need no cut: a read chooses among them.

All calls are made under the follower's lock, which readers hold while they read the state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidemill.catalog.model import DataFile, History, Snapshot
from tidemill.changes.pending import Pending
from tidemill.digests.arrays import NotPackable
from tidemill.digests.batch import Rows
from tidemill.digests.definition import Digest
from tidemill.digests.lacking import concerning
from tidemill.errors import UnknownNameError
from tidemill.hot.retention import horizon_us
from tidemill.hot.table import HotTable
from tidemill.hot.view import BEFORE_ALL_US, HotView
from tidemill.pipeline.redigesting import REDONE
from tidemill.stream.feed import Arrivals, Feed
from tidemill.stream.position import Position, Seen
from tidemill.views.bounded_state import CHUNK_ROWS, BoundedState, DigestStates, ReadFiles, TooLarge

CUTS_A_RETENTION = 16
CAME_THROUGH_MEMORY = ("move", "seal")
RESTS = 20  # times as long as it took to build a state again because of changes


class Resting(Exception):
    """Rows that the state holds were changed, and it was built again for that just before: the
    view is answered by its query for a while."""


class FollowerGone(UnknownNameError):
    """One of the digests is gone, which may be another view's: there are other followers now."""


MakeStates = Callable[[Sequence[Digest], bool], DigestStates]
"""Makes the states of digests; the second argument is whether they may be dense."""


@dataclass
class Figures:
    """What following has cost."""

    rows_in: int = 0
    seconds: float = 0.0
    rebuilds: int = 0
    last_seconds: float = 0.0


@dataclass(frozen=True)
class FollowerInput:
    """Where a follower reads: the stream's feed, and digest files."""

    feed: Feed
    read_files: ReadFiles


@dataclass(frozen=True)
class Chunk:
    """Rows of a stream, and the number up to which they are all."""

    rows: Rows
    upto_seq: int


class Round:
    """A stream as it is, for followers that take it in one after the other. Those that stand at
    the same place are given the same rows. With a snapshot: as it was then, for followers that are
    not ahead of it."""

    def __init__(self, arrivals: Arrivals, snapshot: Snapshot | None = None) -> None:
        self.arrivals = arrivals
        self.snapshot = snapshot
        self._key: tuple[int, bool, int] | None = None

    @property
    def view(self) -> HotView:
        return self.arrivals.view

    def next_chunk(self, position: Position, with_seq: bool, rows_max: int) -> Chunk:
        """The next rows behind a position."""
        if self._key != (position.seq, with_seq, rows_max):
            self._key = position.seq, with_seq, rows_max
            batch = self.arrivals.next_batch(position, rows_max, with_seq)
            self._chunk = Chunk(Rows(batch.rows), batch.upto_seq)
        return self._chunk


@dataclass(eq=False)
class _Member:
    digest: Digest
    history: History | None = None
    files: dict[int, DataFile] = field(default_factory=dict)


class Follower:
    def __init__(self, digests: Sequence[Digest], source: FollowerInput, make: MakeStates) -> None:
        assert len({digest.source_id for digest in digests}) == 1
        self.lock = threading.RLock()
        self.figures = Figures()
        self.digests = tuple(digests)
        self.stale_before_us = BEFORE_ALL_US  # panes that begin before may lack rows that are gone
        self._source = source
        self._make = make
        self._may_be_dense = True
        self.is_given_up = False
        self.error: str | None = None  # why it could not follow the last time
        self._members = {digest.table_id: _Member(digest) for digest in digests}
        self.state = BoundedState(digests[0].time_column, source.read_files)
        self._with_seq = any(digest.with_seq for digest in digests)
        self.is_paned = all(digest.parts.pane is not None for digest in digests)
        self.has_panes = all(_is_bounded(digest) for digest in digests)
        self.position = Position()  # rows up to there were taken in
        self.moved_seq = 0  # history had all rows up to it when the state was brought up to date
        self._built_seq = 0  # rows behind it were taken from memory
        self._shown_rows = 0
        self._expired_rows = 0
        self._changed = 0  # rows were taken in with all changes up to this number
        self._rests_until_s = 0.0

    @property
    def hot(self) -> HotTable:
        return self._source.feed.hot

    def arrivals(self) -> Arrivals:
        """The rows that its stream has in memory now."""
        return self._source.feed.arrivals()

    @property
    def lag_rows(self) -> int:
        """Rows that readers of the stream see and that the state does not hold yet."""
        return max(0, self.hot.published.shown_rows - self._shown_rows)

    def drop_state(self) -> None:
        """Give the memory back, for good: the state is larger than it may be."""
        with self.lock:
            self.state.drop()
            self.is_given_up = True

    def follow(self, rows_max: int | None = None, shared: Round | None = None) -> bool:
        """Take in what is new, at most about so many rows; whether that was all. What is new may
        be shared with other followers of the stream."""
        with self.lock:
            if self.is_given_up:
                raise TooLarge
            began = time.perf_counter()
            rows = self.figures.rows_in
            try:
                is_all = self._followed(rows_max, shared)
                self.error = None
                return is_all
            except TooLarge:
                self.drop_state()
                raise
            except Resting:
                raise
            except Exception as error:
                self.state.drop()  # half a state is none
                self.error = str(error)
                raise
            finally:
                self.figures.last_seconds = time.perf_counter() - began
                if self.figures.rows_in > rows:
                    self.figures.seconds += self.figures.last_seconds

    def _followed(self, rows_max: int | None, shared: Round | None) -> bool:
        try:
            return self._follow(rows_max, shared)
        except NotPackable:
            # Rows that arrays cannot hold exactly: from now on the general way.
            self._may_be_dense = False
            self.state.drop()
            is_fixed = shared is not None and shared.snapshot is not None
            return self._follow(rows_max, shared if is_fixed else None)

    def rebuild(self, shared: Round | None = None) -> None:
        """Forget the state and build it from files and hot rows."""
        with self.lock:
            self.state.drop()
            self.follow(shared=shared)

    def reach(self, horizon_us: int | None, shared: Round | None = None) -> None:
        """Have no row in the state that is outside the retention. With panes a read sees to it."""
        if horizon_us is None or self.is_paned:
            return
        if horizon_us > max(self.state.oldest_us, self.state.cut_us):
            self.rebuild(shared)

    def _follow(self, rows_max: int | None, shared: Round | None) -> bool:
        # Memory first, the snapshot second: rows go from the one to the other, never back.
        feed = self._source.feed
        now = Round(feed.arrivals()) if shared is None or self._is_ahead(shared.view) else shared
        snapshot = now.snapshot or feed.catalog.snapshot()
        is_changed = self.state.is_built and self._is_changed(now.view)
        if is_changed and time.monotonic() < self._rests_until_s:
            raise Resting
        if self.state.is_built and not is_changed and not self._is_lost(now.arrivals):
            is_all = self._absorb(now, rows_max)
            if self._note_files(snapshot):
                return is_all
        began_s = time.monotonic()
        try:
            self._build(now, snapshot)
        except BaseException:  # half a state is none
            self.state.drop()
            raise
        if is_changed:
            ended_s = time.monotonic()
            self._rests_until_s = ended_s + RESTS * (ended_s - began_s)
        return True

    def _is_changed(self, view: HotView) -> bool:
        """Whether rows that were taken in from memory have changed since (UPDATE, DELETE); what
        files of partials lack is for others to see. Changes of columns that no digest reads are
        none."""
        if view.last_change <= self._changed:
            return False
        new = view.last_change - self._changed
        known = view.changes.reaching(None, None, self._changed)
        if self.position.seq <= self._built_seq or (
            len(known) == new and not any(self._concerns(known, digest) for digest in self.digests)
        ):
            self._changed = view.last_change
            return False
        return True

    def _concerns(self, changes: Pending, digest: Digest) -> bool:
        """Whether changes may matter to a digest's rows that were taken from memory."""
        found = concerning(changes, digest, self.hot.table)
        return bool((found.uptos > self._built_seq).any())

    def _is_ahead(self, view: HotView) -> bool:
        """Whether a reader has followed since the view was taken."""
        return (
            view.published_seq < self.position.seq
            or view.shown_rows < self._shown_rows
            or view.expired_rows < self._expired_rows
            or view.last_change < self._changed
        )

    def _is_lost(self, arrivals: Arrivals) -> bool:
        """Whether the state cannot be brought up to date by adding to it."""
        if arrivals.have_left(self.position, self._shown_rows):
            return True
        if self._source.feed.takes_back(self.position):
            return True
        view = arrivals.view
        if view.expired_rows == self._expired_rows:
            return False
        if not self.has_panes and view.expired_us >= self.state.cut_us:
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
            taken = now.next_chunk(self.position, self._with_seq, chunk)
            count = taken.rows.table.num_rows
            if count:
                self.state.take_rows(taken.rows)
                self.figures.rows_in += count
            if taken.upto_seq > self.position.seq:
                self.position = Position(taken.upto_seq, seen=self.position.seen)
            if taken.upto_seq >= now.view.published_seq:
                self._shown_rows = now.view.shown_rows
                self.moved_seq = now.view.moved_seq
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
            if any(file.origin == REDONE for file in added):
                return False
            if not self._note_gone(member, added, gone):
                return False
            if any(file.seq_max > self._built_seq for file in added if file.origin == "backfill"):
                return False  # rows that we took from memory may have gone to files it read
            waiting = self._take_files(member, added)
            if waiting is None:
                return False
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
            if (file.lo_us, file.hi_us) in places or file.time_max_us < self.state.cut_us:
                continue
            if not self.has_panes:
                return False
            self.stale_before_us = max(self.stale_before_us, file.hi_us)
        return True

    def _take_files(self, member: _Member, added: Sequence[DataFile]) -> set[int] | None:
        """Absorb files of rows that never were in memory; answers those that must wait, since
        they hold rows that came after the view was taken. None if a file has older rows than the
        state may have, and others."""
        waiting, fresh = set(), []
        for file in added:
            if file.origin in CAME_THROUGH_MEMORY:
                if file.seq_max > self.position.seq:
                    waiting.add(file.file_id)
            elif file.origin != "compact" and file.time_max_us >= self.state.cut_us:
                fresh.append(file)
        if any(file.time_min_us < self.state.cut_us for file in fresh):
            return None
        self.state.note_times(added)
        self.state.note_oldest(fresh)
        if fresh:
            self.state.take_partials(member.digest, fresh)
        return waiting

    # -- all of it

    def _build(self, now: Round, snapshot: Snapshot) -> None:
        view = now.view
        for digest_id in self._members:
            if snapshot.table(digest_id) is None:
                raise FollowerGone("a view was dropped or replaced while its stream was followed")
        self.figures.rebuilds += 1
        cut_us = self._cut_of(view, snapshot)
        self.state.begin(self._make(self.digests, self._may_be_dense), cut_us)
        for digest_id, member in self._members.items():
            history = snapshot.history(digest_id)
            files = [file for file in history.files if file.time_min_us >= cut_us]
            if files:
                self.state.take_partials(member.digest, files)
                self.state.note_oldest(files)
            member.history = history
            member.files = {file.file_id: file for file in history.files}
            self.state.note_times(history.files)
        self._changed = view.last_change
        self._built_seq = self._covered(snapshot)
        self.position = Position(self._built_seq, seen=Seen(view.published_seq))
        self._expired_rows = view.expired_rows
        self.stale_before_us = BEFORE_ALL_US
        self._shown_rows = view.shown_rows - view.rows
        self._absorb(now, None)

    def _cut_of(self, view: HotView, snapshot: Snapshot) -> int:
        """Where a state begins that is made now: with all rows, unless some will soon be outside
        the retention, or are."""
        table = self.hot.table
        horizon = horizon_us(table, self.hot.progress.now_us())
        if horizon is None or self.is_paned:
            return BEFORE_ALL_US
        files = [file for each in self._members for file in snapshot.history(each).files]
        held = [view.span_us[0]] if view.rows else []
        cut: int = horizon + table.settings["retention"] // CUTS_A_RETENTION
        if min([*held, *(file.time_min_us for file in files)], default=cut) >= cut:
            return BEFORE_ALL_US
        for file in sorted(files, key=lambda file: file.time_min_us):
            if file.time_min_us < cut <= file.time_max_us:
                cut = file.time_max_us + 1  # of a file all partials are taken, or none
        return cut


def _is_bounded(digest: Digest) -> bool:
    """Whether its windows end somewhere in the past."""
    pane = digest.parts.pane
    return pane is not None and pane.low is not None
