"""Completing views: history is back-filled into their digests, and complete ones take their names.

A view that replaces another waits beside it until its digests have all of history. Jobs that failed
are submitted again after a while; REFRESH waits for all of it, and lets digests that failed on rows
begin again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidemill.catalog.model import NEXT_SUFFIX, Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.digests.definition import Digest
from tidemill.digests.progress import Progress
from tidemill.errors import TidemillError, UnknownNameError
from tidemill.history.storage import Storage
from tidemill.hot.table import HotTable
from tidemill.pipeline.backfill import BackfillJob
from tidemill.pipeline.jobs import JobHandle, Pipeline
from tidemill.pipeline.redigesting import RedigestJob
from tidemill.views.answering import LiveView
from tidemill.views.defining import ReviveDigest, ViewDefinition, swap_view

BACKFILL_PRIORITY = 5
RETRY_S = 10.0
REDIGEST_S = 10.0
SETTLE_TRIES = 100
_log = logging.getLogger("tidemill.views")


class LiveViews(Protocol):
    """The views that are kept."""

    def live(self) -> list[LiveView]: ...

    def live_view(self, view: Table) -> LiveView:
        """One of them; raises if it was dropped."""
        ...

    def follow_catalog(self) -> None:
        """Take up views that are new and let go of those that are gone."""
        ...


@dataclass(frozen=True)
class Jobs:
    """Where back-fills run, and over what."""

    catalog: Catalog
    storage: Storage
    pipeline: Pipeline
    streams: Mapping[int, HotTable]


class Completing:
    """Not thread-safe, but for ``wait`` and what only reads: the registry's turn is held."""

    def __init__(self, views: LiveViews, jobs: Jobs) -> None:
        self._views = views
        self._catalog = jobs.catalog
        self._jobs = jobs
        self.backfills: dict[int, JobHandle[int]] = {}  # by digest; the newest of each
        self.redigests: dict[int, JobHandle[None]] = {}  # the same
        self._redone_s: dict[int, float] = {}
        self._tried_s: dict[int, float] = {}

    def progress(self, digest: Digest) -> Progress:
        return Progress.read(self._catalog.records.progress(digest.table_id))

    def error_of(self, live: LiveView) -> str | None:
        """Why the last back-fill of a view failed."""
        for digest in live.digests:
            for handle in (
                self.backfills.get(digest.table_id),
                self.redigests.get(digest.table_id),
            ):
                error = handle.error() if handle is not None else None
                if error is not None:
                    return str(error)
        return None

    def look(self, may_backfill: bool) -> None:
        """Submit back-fills that are due, and let complete views take their names."""
        snapshot = self._catalog.snapshot()
        for live in self._views.live():
            live.look_again()
            for digest in live.digests:
                if may_backfill and not self.progress(digest).is_complete:
                    self.backfill(digest, snapshot)
            for digest in _lacking(live) if may_backfill else ():
                self.redigest(digest, snapshot)
            self._try_to_swap(live.table)

    def backfill(self, digest: Digest, snapshot: Snapshot) -> None:
        handle = self.backfills.get(digest.table_id)
        if handle is not None and not handle.done():
            return
        is_failed = handle is not None and handle.error() is not None
        since_s = time.monotonic() - self._tried_s.get(digest.table_id, -RETRY_S)
        stream = snapshot.table(digest.source_id)
        table = snapshot.table(digest.table_id)
        if stream is None or table is None or (is_failed and since_s < RETRY_S):
            return
        hot = self._jobs.streams.get(digest.source_id)
        job = BackfillJob(table, stream, self._catalog, self._jobs.storage, hot)
        self._tried_s[digest.table_id] = time.monotonic()
        self.backfills[digest.table_id] = self._jobs.pipeline.submit(job, BACKFILL_PRIORITY)

    def redigest(self, digest: Digest, snapshot: Snapshot, is_asked: bool = False) -> None:
        """Have changed rows digested again: now if somebody asks for it, else now and then."""
        handle = self.redigests.get(digest.table_id)
        if handle is not None and not handle.done():
            return
        since_s = time.monotonic() - self._redone_s.get(digest.table_id, -REDIGEST_S)
        table, hot = snapshot.table(digest.table_id), self._jobs.streams.get(digest.source_id)
        if table is None or hot is None or (since_s < REDIGEST_S and not is_asked):
            return
        if not self.progress(digest).is_complete:
            return  # a back-fill comes first
        job = RedigestJob(table, hot, self._catalog, self._jobs.storage)
        self._redone_s[digest.table_id] = time.monotonic()
        self.redigests[digest.table_id] = self._jobs.pipeline.submit(job, BACKFILL_PRIORITY)

    def settle(self, concerned: Sequence[LiveView]) -> None:
        """Wait until digests have all changes that were made before."""
        for live in concerned:
            for _ in range(SETTLE_TRIES):
                for digest in (found := _lacking(live)):
                    self.redigest(digest, self._catalog.snapshot(), is_asked=True)
                for digest in found:
                    handle = self.redigests.get(digest.table_id)
                    if handle is not None:
                        handle.wait()
                if not found:
                    break

    def _try_to_swap(self, view: Table) -> None:
        """One that cannot be read waits on, and is in nobody's way."""
        since_s = time.monotonic() - self._tried_s.get(view.table_id, -RETRY_S)
        if since_s < RETRY_S:
            return
        try:
            self.swap_if_complete(view)
        except TidemillError as error:
            _log.warning('while replacing view "%s": %s', view.name, error)
            self._tried_s[view.table_id] = time.monotonic()

    def swap_if_complete(self, view: Table) -> None:
        """Let a view take the place of the one that it replaces, if it has all of history."""
        table = self._catalog.snapshot().table(view.table_id)
        if table is None or ViewDefinition.of(table).replaces is None:
            return
        live = self._views.live_view(table)
        if not all(self.progress(digest).is_complete for digest in live.digests):
            return
        live.read()
        swap_view(self._catalog, table)
        self._views.follow_catalog()

    def concerned(self, view: Table) -> list[LiveView]:
        """A view, and the one that is to replace it."""
        names = (view.name, f"{view.name}{NEXT_SUFFIX}")
        return [live for live in self._views.live() if live.table.name in names]

    def revive(self, concerned: Sequence[LiveView]) -> None:
        """Let digests that failed begin again, with the history of their streams before them."""
        for live in concerned:
            failed = [each for each in live.digests if self.progress(each).failed is not None]
            for digest in failed:
                stream = self._catalog.snapshot().table(digest.source_id)
                if stream is not None:
                    job = ReviveDigest(self._catalog, stream, digest.table_id)
                    self._jobs.pipeline.submit(job, BACKFILL_PRIORITY).wait()
            live.look_again()

    def wait(self, concerned: Sequence[LiveView]) -> bool:
        """Wait for the back-fills of some views; False if none was left to wait for."""
        waiting = [
            digest.table_id
            for live in concerned
            for digest in live.digests
            if not self.progress(digest).is_complete
        ]
        for digest_id in waiting:
            handle = self.backfills.get(digest_id)
            if handle is not None:  # or the view came after the look; the next one sees to it
                handle.wait()
        return bool(waiting)


def _lacking(live: LiveView) -> list[Digest]:
    """The digests of a view that lack changes; none if its streams are gone."""
    try:
        return live.lacking()
    except UnknownNameError:
        return []
