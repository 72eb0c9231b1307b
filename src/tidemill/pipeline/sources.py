"""Sources: folders and URLs that are looked at again and again, and loaded as packages arrive.

One thread looks at every source when it is due:

1. The pattern is listed. What was done with before, in the same size and of the same time, is
   passed over; after a restart the catalog tells what that is.
2. A package that changed within the last second, or since the last look, is left alone: somebody
   may still be writing it. The source is looked at again soon, then less and less often.
3. The others are loaded, at most ``BATCH_PACKAGES_MAX`` or ``BATCH_WEIGHT_MAX`` in a job and one
   job at a time. The job compares digests, so looking twice loads nothing twice.

A look or a job that fails is tried again, later each time; the error stands in the status until
it worked. After a failed job the next is half as large, so that a package which brings a whole
job down ends up alone, and is put off while the others go on.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemill.catalog.model import Package, Source
from tidemill.clock import Clock
from tidemill.errors import TidemillError
from tidemill.pipeline.executor import JobCancelledError, shown
from tidemill.pipeline.jobs import JobHandle
from tidemill.pipeline.load import LoadReport, split_options
from tidemill.pipeline.loading import CHANGED, LOADED, SET_ASIDE
from tidemill.pipeline.packages import Listed, list_packages
from tidemill.workers import Worker

BATCH_PACKAGES_MAX = 1_000
BATCH_WEIGHT_MAX = 4 << 30
QUIET_US = 1_000_000
BACKOFF_US_MAX = 300_000_000
ONCE_RECHECK_US_MAX = 60_000_000
KNOWN_NAMES_MAX = 1_000
WAIT_S_MAX = 1.0
_log = logging.getLogger("tidemill.sources")
CLOSE_TIMEOUT_S = 30.0

Submit = Callable[[Source, tuple[Listed, ...]], JobHandle[LoadReport]]
"""Queue a load of some packages of a source."""
Known = Callable[[int, Sequence[str]], Sequence[Package]]
"""What the catalog has recorded of a table's packages of these names."""
ListPackages = Callable[[str, Mapping[str, str]], list[Listed]]


@dataclass(frozen=True)
class SourceStatus:
    """How a source is doing. Counts are of this process; ``tidemill.packages`` has them all.

    ``state`` is loading, waiting (for packages or for the next look), failing, or done for a
    source that is looked at once.
    """

    source: Source
    state: str
    looked_at_us: int | None
    next_look_at_us: int | None
    listed: int
    waiting: int
    loaded: int
    set_aside: int
    rows: int
    rejected: int
    failures: int
    last_error: str | None
    job_id: str | None


@dataclass
class _Watched:
    """What the poller remembers of a source."""

    source: Source
    next_look_at_us: int
    looked_at_us: int | None = None
    is_done: bool = False
    batch_max: int = BATCH_PACKAGES_MAX
    settled: dict[str, tuple[int, int]] = field(default_factory=dict)
    unsettled: dict[str, tuple[int, int]] = field(default_factory=dict)
    postponed: dict[str, tuple[int, int]] = field(default_factory=dict)
    ready: deque[Listed] = field(default_factory=deque)
    batch: tuple[Listed, ...] = ()
    handle: JobHandle[LoadReport] | None = None
    listed: int = 0
    waiting: int = 0
    rechecks: int = 0
    failures: int = 0
    last_error: str | None = None
    loaded: int = 0
    set_aside: int = 0
    rows: int = 0
    rejected: int = 0

    def status(self) -> SourceStatus:
        state = "waiting"
        if self.handle is not None:
            state = "loading"
        elif self.failures:
            state = "failing"
        elif self.is_done:
            state = "done"
        return SourceStatus(
            self.source,
            state,
            self.looked_at_us,
            None if self.is_done else self.next_look_at_us,
            self.listed,
            self.waiting + len(self.ready) + len(self.batch),
            self.loaded,
            self.set_aside,
            self.rows,
            self.rejected,
            self.failures,
            self.last_error,
            self.handle.job_id if self.handle is not None else None,
        )


class SourcePoller:
    """Looks at sources. ``look`` does one round; ``start`` has a thread do it from then on."""

    def __init__(
        self,
        submit: Submit,
        known: Known,
        clock: Clock,
        listing: ListPackages = list_packages,
        may_load: Callable[[], bool] = lambda: True,
    ) -> None:
        """``may_load`` is asked before packages are loaded: they wait while it says no."""
        self._may_load = may_load
        self._submit = submit
        self._known = known
        self._clock = clock
        self._listing = listing
        self._lock = threading.Lock()
        self._watched: dict[int, _Watched] = {}
        self._worker = Worker("tidemill-sources", self._work, _log)

    def follow(self, sources: Iterable[Source]) -> None:
        """These are the sources now; a new one is looked at at once, a dropped one no more."""
        now_us = self._clock.now_us()
        by_id = {source.source_id: source for source in sources}
        with self._lock:
            dropped = [each for key, each in self._watched.items() if key not in by_id]
            self._watched = {
                key: self._watched.get(key) or _Watched(source, now_us)
                for key, source in by_id.items()
            }
        for watched in dropped:
            if watched.handle is not None:
                watched.handle.cancel()
        self._worker.wake()

    def status(self) -> list[SourceStatus]:
        return [watched.status() for watched in list(self._watched.values())]

    def look(self) -> None:
        """One round over all sources that are due or whose job has ended."""
        for watched in list(self._watched.values()):
            try:
                self._look_at(watched)
            except TidemillError as error:
                self._fail(watched, str(error))
            except Exception as error:  # a source that fails must not end the others
                self._fail(watched, shown(error))

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """End the thread; jobs under way belong to the pipeline."""
        self._worker.close(CLOSE_TIMEOUT_S)

    def _work(self, _is_woken: bool) -> float:
        self.look()
        return self._pause_s()

    def _pause_s(self) -> float:
        due = [
            each.next_look_at_us
            for each in list(self._watched.values())
            if each.handle is None and not each.is_done
        ]
        if not due:
            return WAIT_S_MAX
        return min(max((min(due) - self._clock.now_us()) / 1e6, 0.01), WAIT_S_MAX)

    # -- one source

    def _look_at(self, watched: _Watched) -> None:
        if watched.handle is not None:
            if not watched.handle.done():
                return
            self._settle(watched)
        if self._clock.now_us() < watched.next_look_at_us and (
            watched.failures or not watched.ready
        ):
            return
        if not watched.ready and not watched.is_done:
            self._list(watched)
        if watched.ready and self._may_load():
            self._load(watched)

    def _list(self, watched: _Watched) -> None:
        source, now_us = watched.source, self._clock.now_us()
        listed = self._listing(source.pattern, split_options(source.options)[1])
        watched.looked_at_us = now_us
        watched.listed = len(listed)
        names = {package.name for package in listed}
        watched.settled = {n: form for n, form in watched.settled.items() if n in names}
        fresh = [each for each in listed if watched.settled.get(each.name) != _form(each)]
        self._recall(watched, [each for each in fresh if each.name not in watched.settled])
        fresh = [each for each in fresh if watched.settled.get(each.name) != _form(each)]
        due = [each for each in fresh if watched.postponed.get(each.name, (0, 0))[1] <= now_us]
        quiet = [each for each in due if _is_quiet(each, watched.unsettled, now_us)]
        watched.ready = deque(quiet)
        watched.waiting = len(fresh) - len(quiet)
        watched.unsettled = {each.name: _form(each) for each in fresh}
        self._schedule(watched, now_us)

    def _schedule(self, watched: _Watched, now_us: int) -> None:
        every_us = watched.source.every_us
        watched.failures, watched.last_error = 0, None
        if watched.waiting:
            pause_us = min(QUIET_US << min(watched.rechecks, 20), every_us or ONCE_RECHECK_US_MAX)
            watched.rechecks += 1
        else:
            watched.rechecks = 0
            watched.is_done = every_us is None
            pause_us = every_us or 0
        watched.next_look_at_us = now_us + pause_us

    def _recall(self, watched: _Watched, listed: Sequence[Listed]) -> None:
        """Settle what the catalog knows and what has not been touched since."""
        for start in range(0, len(listed), KNOWN_NAMES_MAX):
            part = listed[start : start + KNOWN_NAMES_MAX]
            known: dict[str, list[Package]] = {}
            for package in self._known(watched.source.table_id, [each.name for each in part]):
                known.setdefault(package.name, []).append(package)
            for each in part:
                if any(is_as_recorded(each, package) for package in known.get(each.name, ())):
                    watched.settled[each.name] = _form(each)

    def _load(self, watched: _Watched) -> None:
        batch: list[Listed] = []
        weight = 0
        while watched.ready and len(batch) < watched.batch_max and weight < BATCH_WEIGHT_MAX:
            batch.append(watched.ready.popleft())
            weight += batch[-1].weight
        watched.batch = tuple(batch)
        try:
            watched.handle = self._submit(watched.source, watched.batch)
        except BaseException:
            watched.ready.extendleft(reversed(batch))
            watched.batch = ()
            raise
        watched.handle.when_done(self._worker.wake)

    def _settle(self, watched: _Watched) -> None:
        assert watched.handle is not None
        handle, watched.handle = watched.handle, None
        batch, watched.batch = watched.batch, ()
        try:
            report = handle.wait(0).value
        except JobCancelledError:
            watched.ready.extendleft(reversed(batch))
            raise
        except BaseException:
            self._halve(watched, batch)
            raise
        changed = []
        for taken in report.packages:
            if taken.state == CHANGED:
                changed.append(taken.reason)
                continue
            watched.settled[taken.listed.name] = _form(taken.listed)
            watched.postponed.pop(taken.listed.name, None)
            watched.loaded += taken.state == LOADED
            watched.set_aside += taken.state == SET_ASIDE
        watched.rows += report.rows
        watched.rejected += report.rejected
        watched.batch_max = min(2 * watched.batch_max, BATCH_PACKAGES_MAX)
        watched.failures = 0
        watched.last_error = changed[0] if changed else None
        if changed:
            self._again(watched, len(changed))

    def _again(self, watched: _Watched, waiting: int) -> None:
        """Packages were not whole, or out of reach: look again, also at a source of one look."""
        watched.waiting += waiting
        if watched.is_done:
            watched.is_done = False
            watched.next_look_at_us = self._clock.now_us() + QUIET_US

    def _halve(self, watched: _Watched, batch: tuple[Listed, ...]) -> None:
        """A job failed: try less at a time, and put off what fails alone."""
        watched.batch_max = max(len(batch) // 2, 1)
        if len(batch) > 1:
            watched.ready.extendleft(reversed(batch))
            return
        for each in batch:
            tries = watched.postponed.get(each.name, (0, 0))[0] + 1
            at_us = self._clock.now_us() + min(QUIET_US << min(tries, 20), BACKOFF_US_MAX)
            watched.postponed[each.name] = (tries, at_us)
        self._again(watched, len(batch))

    def _fail(self, watched: _Watched, error: str) -> None:
        watched.failures += 1
        watched.last_error = error
        base_us = watched.source.every_us or QUIET_US
        pause_us = min(base_us << min(watched.failures - 1, 20), max(BACKOFF_US_MAX, base_us))
        watched.next_look_at_us = self._clock.now_us() + pause_us


def _form(listed: Listed) -> tuple[int, int]:
    return listed.size, listed.modified_us


def _is_quiet(listed: Listed, before: Mapping[str, tuple[int, int]], now_us: int) -> bool:
    """Whether nobody seems to be writing a package. A time that lies ahead says nothing, so such a
    package must have stayed the same from one look to the next."""
    same = before.get(listed.name, _form(listed)) == _form(listed)
    if listed.modified_us > now_us:
        return listed.name in before and same
    return same and listed.modified_us <= now_us - QUIET_US


def is_as_recorded(listed: Listed, package: Package) -> bool:
    """Whether a package lies there as it was when it was loaded or set aside: of the same size,
    and not touched since. Otherwise a job compares its digest."""
    untouched = 0 < listed.modified_us <= package.loaded_at_us - QUIET_US
    return listed.size == package.size and untouched
