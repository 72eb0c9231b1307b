"""Upkeep: the thread that follows streams while nobody reads.

An append only notes that there is something to do (``poke``). The thread takes in what has gathered
once it is worth a chunk, once nothing came for a moment, or after a second: as long as rows keep
coming, readers take in the few that are left faster than they would wait for it. A writer who is
further ahead than ``LAG_ROWS_MAX`` takes in a chunk itself: so the lag has a bound, and what a view
costs is paid by those who feed it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from tidemill.errors import UnknownNameError
from tidemill.hot.table import HotTable
from tidemill.views.bounded_state import CHUNK_ROWS, TooLarge
from tidemill.views.follower import Follower, Resting, Round
from tidemill.workers import Worker

LAG_ROWS_WORTH = 65_536
LAG_ROWS_MAX = 4_000_000
IDLE_S = 0.1
LAG_S_MAX = 1.0
RETRY_S = 10.0
_log = logging.getLogger("tidemill.views")


class Upkeep:
    def __init__(
        self,
        followers_of: Callable[[int | None], Sequence[Follower]],
        on_failure: Callable[[Follower], object],
    ) -> None:
        """``followers_of`` gives those of a stream by its table id, or all; ``on_failure`` hears
        of one that could not follow."""
        self._followers_of = followers_of
        self._on_failure = on_failure
        self._failed_s: WeakKeyDictionary[Follower, float] = WeakKeyDictionary()
        self._has_come = False
        self._all_s = time.monotonic()
        self._worker = Worker("tidemill-views", self._work, _log, first_s=IDLE_S)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        self._worker.close()

    def poke(self, hot: HotTable) -> None:
        """Rows of a stream were published."""
        followers = self._followers_of(hot.table.table_id)
        if not followers:
            return
        self._has_come = True
        worth = False
        shared: Round | None = None
        for follower in followers:
            lag = follower.lag_rows
            worth = worth or lag >= LAG_ROWS_WORTH
            if lag > LAG_ROWS_MAX and follower.state.is_built:
                shared = shared or Round(follower.arrivals())
                self._follow(follower, shared)  # whatever becomes of it, the rows are stored
        if worth:
            self._worker.wake()

    def _work(self, is_worth: bool) -> float:
        is_busy, self._has_come = self._has_come, False
        is_due = time.monotonic() > self._all_s + LAG_S_MAX
        with_few = is_due or not (is_worth or is_busy)
        if with_few:
            self._all_s = time.monotonic()
        self._follow_all(with_few)
        return IDLE_S

    def _follow_all(self, with_few: bool) -> None:
        rounds: dict[HotTable, Round] = {}
        for follower in self._followers_of(None):
            if self._worker.is_stopping:
                return
            lag = follower.lag_rows
            is_new = not follower.state.is_built
            if is_new or lag >= LAG_ROWS_WORTH or (lag and with_few):
                if follower.hot not in rounds:
                    rounds[follower.hot] = Round(follower.arrivals())
                self._follow(follower, rounds[follower.hot])

    def _follow(self, follower: Follower, shared: Round) -> None:
        if follower.is_given_up or self._failed_s.get(follower, 0.0) > time.monotonic():
            return
        try:
            if not follower.follow(CHUNK_ROWS, shared):
                self._worker.wake()
        except (UnknownNameError, TooLarge, Resting):
            pass  # the view was dropped under our hands, or is answered by its query from now on
        except Exception as error:  # a reader meets it again, and is told
            _log.warning('while following table "%s": %s', follower.hot.table.name, error)
            self._failed_s[follower] = time.monotonic() + RETRY_S
            self._on_failure(follower)
