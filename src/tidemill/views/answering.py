"""Answering: a view's followers brought up to date, its final query run, its answer kept.

1. **Nothing new**: no row was published, no file committed, no reference table changed and now has
   not passed a boundary since the last answer: that answer is served, without any lock.
2. **Something new**: one reader follows what is left and runs the final query, while it holds the
   followers; others wait and share its answer, if it began after they came.
3. Panes: the digest has what lies inside the window; of the panes at its edges the rows themselves
   are read (``edges``).

Where a state cannot answer (rows of the future in a window of rows, more memory than the view may
have), the view's query is run as it stands: slower, and the same answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import cached_property

import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock, from_us
from tidemill.digests.definition import Digest
from tidemill.digests.lacking import lacking
from tidemill.digests.progress import Progress
from tidemill.errors import QueryError, ViewFailedError
from tidemill.federation.duck import Duck, public
from tidemill.federation.planner import NOW, Plan
from tidemill.federation.references import References
from tidemill.federation.runner import Moment, Runner, stream_ids
from tidemill.hot.published import Published
from tidemill.hot.view import HotView
from tidemill.sql.maintain import ViewParts
from tidemill.sql.windows import NowBounds
from tidemill.stream.image import bounds_of, horizon_of
from tidemill.types import quote
from tidemill.views.bounded_state import TooLarge
from tidemill.views.edges import Edges, Found, round_at
from tidemill.views.follower import Follower, FollowerGone, Resting
from tidemill.views.key_joins import KeyJoins
from tidemill.views.moments import Moments


@dataclass(frozen=True, eq=False)
class Answer:
    """A view's rows with DuckDB's exact types, and when it is out of date."""

    table: pa.Table
    types: list[str]
    stamp: tuple[object, ...]
    began_s: float
    until_us: int | None  # now must not pass it; None: it does not matter


@dataclass
class Costs:
    """What reading a view has cost."""

    answers: int = 0
    served: int = 0
    last_seconds: float = 0.0
    by_query: int = 0


@dataclass(frozen=True)
class AnswerEnvironment:
    """What answering needs of the rooms around it."""

    catalog: Catalog
    duck: Duck
    runner: Runner
    references: References
    clock: Clock
    edges: Edges


@dataclass(eq=False)
class LiveView:
    """A view that is being kept."""

    table: Table
    parts: ViewParts
    digests: tuple[Digest, ...]
    plan: Plan  # of its query as it stands
    moments: Moments
    memory_max: int
    followers: Callable[[], Sequence[Follower]]
    isolate: Callable[[Follower], bool]
    renew: Callable[[], None]
    environment: AnswerEnvironment
    lookups: KeyJoins | None = None
    costs: Costs = field(default_factory=Costs)
    answer: Answer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _shown: tuple[Answer, pa.Table, list[str]] | None = None
    _last_until: tuple[int, int] | None = None
    is_too_large: bool = False
    failure: str | None = None  # for good: until it is asked to be made again
    _looked_at: object = None

    def read(self) -> Answer:
        """The answer now."""
        came_s = time.monotonic()
        answer = self.answer
        if answer is not None and self._is_fresh(answer):
            self.costs.served += 1
            return answer
        with self._lock:
            answer = self.answer
            if answer is not None and (answer.began_s >= came_s or self._is_fresh(answer)):
                self.costs.served += 1
                return answer
            began_s = time.perf_counter()
            answer = self._make()
            self.costs.last_seconds = time.perf_counter() - began_s
            self.costs.answers += 1
            self.answer = answer
            return answer

    def look_again(self) -> None:
        """Find out anew whether it failed: a back-fill that does makes no snapshot."""
        self._looked_at = None
        with suppress(ViewFailedError):
            self.check()
        if self.failure is not None:
            self.answer = None

    def read_at(self, moment: Moment) -> Answer | None:
        """The answer at a moment that was taken while the followers are held; None if the states
        cannot give it."""
        answer = self.answer
        if answer is not None and self._is_fresh(answer, moment):
            self.costs.served += 1
            return answer
        began_s = time.perf_counter()
        self.check()
        if self.is_too_large or not self.digests or self.lacking(moment):
            return None
        stamp = self._stamp(moment)
        try:
            found = self._from_states(moment.now_us, moment)
        except TooLarge:
            self.is_too_large = True
            return None
        except (FollowerGone, Resting, QueryError, pa.ArrowException, OverflowError):
            return None  # its query says what is wrong, if anything is
        if found is None:
            return None
        until_us = self._holds_until(moment.now_us, found)
        rows = self._named(found.table)
        answer = Answer(rows, found.types, stamp, moment.began_s, until_us)
        self.costs.last_seconds = time.perf_counter() - began_s
        self.costs.answers += 1
        self.answer = answer
        return answer

    def by_query_at(self, moment: Moment) -> pa.Table:
        """The rows of its query as it stands at a moment, which has the answers of the views that
        it reads."""
        self.costs.by_query += 1
        filled = self.environment.runner.fill_at(self.plan, None, moment)
        table, _ = self.environment.duck.query(
            filled.sql, filled.values, filled.sources, exact=True
        )
        return self._named(table)

    def shown(self) -> tuple[pa.Table, list[str]]:
        """The answer as users see it: with types that every library knows."""
        answer = self.read()
        shown = self._shown
        if shown is None or shown[0] is not answer:
            shown = self._shown = answer, *self.environment.duck.shown(answer.table, answer.types)
        return shown[1], shown[2]

    # -- whether the last answer still holds

    def _is_fresh(self, answer: Answer, moment: Moment | None = None) -> bool:
        now_us = self.environment.clock.now_us() if moment is None else moment.now_us
        if answer.until_us is not None and now_us > answer.until_us:
            return False
        return answer.stamp == self._stamp(moment)

    def _stamp(self, moment: Moment | None = None) -> tuple[object, ...]:
        """Changes with everything that the answer depends on, but for now."""
        snapshot = self.environment.catalog.snapshot() if moment is None else moment.pin.snapshot
        found: list[object] = [self.environment.references.changes if self.parts.above else 0]
        histories = snapshot.histories
        for source_id, table_id in self._read_ids:
            hot = self.environment.runner.hot_table(source_id)
            published = hot.published if moment is None else moment.view(source_id)
            found += [published.shown_rows, published.expired_rows, hot.table]
            found.append(_last_change(published))
            found += [histories.get(table_id), histories.get(source_id)]
        return tuple(found)

    def lacking(self, moment: Moment | None = None) -> list[Digest]:
        """The digests whose files do not have all changes (UPDATE, DELETE) of their rows."""
        found = []
        for digest in self.digests:
            hot = self.environment.runner.hot_table(digest.source_id)
            if not hot.published.changes.last:
                continue
            if moment is None:
                changes, snapshot = (
                    hot.published.every_change(),
                    self.environment.catalog.snapshot(),
                )
            else:
                changes, snapshot = moment.view(digest.source_id).changes, moment.pin.snapshot
            files = snapshot.history(digest.table_id).files
            if files and lacking(changes, digest, hot.table, files):
                found.append(digest)
        return found

    @cached_property
    def _read_ids(self) -> list[tuple[int, int]]:
        """The streams that it reads, and the tables that hold what it remembers of them."""
        read = [(digest.source_id, digest.table_id) for digest in self.digests]
        return read or [(each, each) for each in self.streams]

    # -- another answer

    def _make(self) -> Answer:
        began_s = time.monotonic()
        now_us = self.environment.clock.now_us()
        # The stamp before the rows: what arrives in between makes the answer stale, not wrong.
        stamp = self._stamp()
        self.check()
        found, changes = None, _last_changes(self)
        if self.digests and not self.is_too_large and not self.lacking():
            found = self._from_followers(now_us)
        if found is None or _last_changes(self) != changes or self.lacking():
            return self._by_query(began_s)
        until_us = self._holds_until(now_us, found)
        return Answer(self._named(found.table), found.types, stamp, began_s, until_us)

    def _holds_until(self, now_us: int, found: Found) -> int | None:
        ends = [self._until(now_us), self._retained_until(found)]
        return min((end for end in ends if end is not None), default=None)

    def _retained_until(self, found: Found) -> int | None:
        """Until when all rows are inside the retention; an event clock goes on with rows only."""
        ends = []
        for source_id, oldest_us in found.oldest_us.items():
            hot = self.environment.runner.hot_table(source_id)
            retention = hot.table.settings["retention"]
            if retention is not None and not hot.progress.is_event:
                ends.append(oldest_us + retention)
        return min(ends, default=None)

    @cached_property
    def streams(self) -> tuple[int, ...]:
        """The streams that its query reads, by their ids."""
        return stream_ids(self.plan)

    def _holds_by_itself(self) -> bool:
        """Whether an answer of the query depends on nothing but what there is to read."""
        hots = [self.environment.runner.hot_table(each) for each in self.streams]
        wall = [hot for hot in hots if not hot.progress.is_event]
        return self.moments.steps == () and not (
            any(hot.table.settings["retention"] is not None for hot in wall)
        )

    def _until(self, now_us: int) -> int | None:
        """Until when the answer holds by itself. That is a matter of now alone, so what was found
        for an earlier answer still holds."""
        before = self._last_until
        if before is not None and before[0] <= now_us <= before[1]:
            return before[1]
        until_us = self.moments.until(self.environment.duck, now_us, self._has_wall_clock())
        self._last_until = None if until_us is None else (now_us, until_us)
        return until_us

    def _named(self, rows: pa.Table) -> pa.Table:
        """The answer under the names that the view gives its columns."""
        return rows.rename_columns([column.name for column in self.table.columns])

    def check(self) -> None:
        """Raise if the view failed where its rows were moved, loaded or back-filled."""
        catalog = self.environment.catalog
        snapshot = catalog.snapshot()
        if snapshot is not self._looked_at:
            progress = [
                Progress.read(catalog.records.progress(each.table_id)) for each in self.digests
            ]
            self.failure = next((each.failed for each in progress if each.failed), None)
            self._looked_at = snapshot
        if self.failure is not None:
            raise self._failed(self.failure)

    def _failed(self, reason: str) -> ViewFailedError:
        name = quote(self.table.name)
        return ViewFailedError(
            f'view "{self.table.name}" failed on rows of its stream',
            detail=public(reason),
            hint=f"REFRESH MATERIALIZED VIEW {name} tries again; CREATE OR REPLACE MATERIALIZED "
            f"VIEW {name} gives it another query (try_cast, a CASE, a wider type)",
        )

    def _from_followers(self, now_us: int) -> Found | None:
        """The answer of the states. Where several views share one that fails, each gets its own,
        so that the others go on."""
        try:
            return self._from_states(now_us)
        except TooLarge:
            self.is_too_large = True
            self.renew()
            return None
        except Resting:
            return None
        except (QueryError, pa.ArrowException, OverflowError) as error:
            broken = [each for each in self.followers() if each.error is not None]
            if not broken:
                raise  # it is the final query that fails
            parted = [self.isolate(each) for each in broken]
            if any(parted):
                return self._from_followers(now_us)
            raise self._failed(str(error)) from error

    def _from_states(self, now_us: int, moment: Moment | None = None) -> Found | None:
        """The answer that the states give, or None if they cannot."""
        with ExitStack() as stack:
            followers = self.followers()
            own = sorted(set(followers), key=id)
            for follower in own:
                stack.enter_context(follower.lock)
            clocks = self._clocks() if moment is None else moment.clocks
            horizons = self._horizons(clocks) if moment is None else moment.horizons
            for follower in own:
                now = None if moment is None else round_at(moment, follower)
                follower.follow(shared=now)
                follower.reach(horizons[follower.hot.table.table_id], now)
            if sum(each.state.nbytes for each in own) > self.memory_max:
                raise TooLarge
            values = self._values(now_us, clocks)
            return self.environment.edges.answer(
                self.parts, self.digests, followers, values, horizons, self.lookups, moment
            )

    def _clocks(self) -> Mapping[str, NowBounds]:
        runner = self.environment.runner
        return {
            digest.parts.table.lower(): bounds_of(runner.hot_table(digest.source_id))
            for digest in self.digests
        }

    def _horizons(self, clocks: Mapping[str, NowBounds]) -> dict[int, int | None]:
        hots = {d.source_id: self.environment.runner.hot_table(d.source_id) for d in self.digests}
        return {
            digest.source_id: horizon_of(hots[digest.source_id], clocks[digest.parts.table.lower()])
            for digest in self.digests
        }

    def _values(self, now_us: int, clocks: Mapping[str, NowBounds]) -> dict[str, object]:
        values: dict[str, object] = {
            bound.name: bound.value(lambda name: clocks[name.lower()])
            for bound in self.parts.bounds
        }
        values[NOW] = from_us(now_us).replace(tzinfo=UTC)
        return values

    def _has_wall_clock(self) -> bool:
        """Whether windows slide by themselves, without any row."""
        runner = self.environment.runner
        return bool(self.parts.bounds) and any(
            not runner.hot_table(digest.source_id).progress.is_event for digest in self.digests
        )

    def _by_query(self, began_s: float) -> Answer:
        """The view's query as it stands."""
        self.costs.by_query += 1
        stamp = self._stamp()
        filled = self.environment.runner.fill(self.plan, None)
        table, types = self.environment.duck.query(
            filled.sql, filled.values, filled.sources, exact=True
        )
        until_us = self.environment.clock.now_us() - 1
        is_lasting = not self.digests and self._holds_by_itself()
        return Answer(self._named(table), types, stamp, began_s, None if is_lasting else until_us)


def _last_changes(view: LiveView) -> list[int]:
    runner = view.environment.runner
    return [runner.hot_table(each.source_id).published.changes.last for each in view.digests]


def _last_change(published: Published | HotView) -> int:
    return published.last_change if isinstance(published, HotView) else published.changes.last
