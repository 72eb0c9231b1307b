"""The registry: all views of a warehouse, the followers that feed them, and what the engine asks.

Followers are shared: digests of one stream with the same rows and keys (``family``) are fed
together, whichever views they belong to. When views come or go, the followers concerned are made
anew and build their states from files and hot rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from tidemill.catalog.model import NEXT_SUFFIX, DataFile, Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock
from tidemill.config import VIEW_SETTINGS, Settings
from tidemill.digests.definition import Digest
from tidemill.digests.partials import read_partials
from tidemill.digests.progress import Progress
from tidemill.errors import DependencyError, TidemillError, UnknownNameError
from tidemill.federation.duck import Duck
from tidemill.federation.planner import VIEW, make_plan
from tidemill.federation.references import References, place_of
from tidemill.federation.runner import Runner, ViewReader
from tidemill.history.storage import Storage
from tidemill.hot.table import HotTable
from tidemill.hot.tier import HotTier
from tidemill.pipeline.backfill import BackfillJob
from tidemill.pipeline.jobs import JobHandle, Pipeline
from tidemill.sql.maintain import ViewParts
from tidemill.sql.maintain.lookups import plan_lookup
from tidemill.sql.statements import CreateView
from tidemill.types import quote
from tidemill.views.answering import Answer, LiveView, Rooms
from tidemill.views.defining import (
    NewView,
    ReviveDigest,
    ViewDefinition,
    check_view,
    dependents,
    drop_view,
    make_view,
    orphans,
    release_joined,
    swap_view,
)
from tidemill.views.edges import Edges
from tidemill.views.follower import Follower, FollowerGone, Kept, Source
from tidemill.views.held import Held
from tidemill.views.lookups import Lookups
from tidemill.views.moments import Moments
from tidemill.views.states import family_of, make_kept
from tidemill.views.status import explain_view, status_row
from tidemill.views.upkeep import Upkeep

BACKFILL_PRIORITY = 5
RETRY_S = 10.0
READ_TRIES = 100
T = TypeVar("T")
_log = logging.getLogger("tidemill.views")


@dataclass(frozen=True)
class House:
    """The rooms that views use."""

    catalog: Catalog
    tier: HotTier
    duck: Duck
    references: References
    storage: Storage
    pipeline: Pipeline
    clock: Clock


class Views:
    def __init__(self, house: House, make_runner: Callable[[ViewReader], Runner]) -> None:
        """``make_runner`` makes what runs queries: it reads views here, and views run queries."""
        self.house = house
        self.runner = make_runner(self)
        self._lock = threading.RLock()  # of the registry itself; held shortly
        self._turn = threading.RLock()  # one definition or replacement at a time
        self._live: dict[int, LiveView] = {}
        self._followers: dict[int, Follower] = {}  # by digest
        self._by_stream: dict[int, tuple[Follower, ...]] = {}
        self._backfills: dict[int, JobHandle[int]] = {}  # by digest; the newest of each
        self._tried_s: dict[int, float] = {}
        self._rooms = Rooms(
            house.catalog,
            house.duck,
            self.runner,
            house.references,
            house.clock,
            Edges(house.duck, self.runner, house.catalog, place_of),
        )
        self._alone: set[int] = set()  # digests that share no follower: one of theirs failed
        self.upkeep = Upkeep(self._followers_of, self.isolate)

    def open(self) -> None:
        """Take up the views that the catalog knows."""
        left = orphans(self.house.catalog.snapshot())
        if left:
            with self.house.catalog.transaction() as change:
                for digest in left:
                    change.drop_table(digest.table_id)
        for view in release_joined(self.house.catalog):
            _log.warning('view "%s" is answered by its query until it is replaced', view.name)
        self.follow_catalog()
        self.upkeep.start()

    def close(self) -> None:
        self.upkeep.close()

    # -- reading

    def read(self, view: Table) -> pa.Table:
        """A view's answer with exact types."""
        return self._reading(view, lambda live: live.read().table)

    @contextmanager
    def held(self, views: Sequence[Table], at_us: int | None) -> Iterator[Held]:
        """Views, and those that they read, as they will be at one moment.

        With ``at_us`` another moment is now, which states do not know: their queries are run."""
        lives: dict[int, LiveView] = {}
        waiting = list(views)
        while waiting:
            view = waiting.pop()
            if view.table_id not in lives:
                live = lives[view.table_id] = self._live_view(view)
                scans = live.plan.scans
                waiting += [s.table for s in scans if s.kind == VIEW and s.table is not None]
        with ExitStack() as stack:
            if at_us is None:
                found: set[Follower] = set()
                for live in lives.values():
                    with suppress(FollowerGone):  # then its query is run
                        found.update(live.followers())
                for follower in sorted(found, key=id):
                    stack.enter_context(follower.lock)
            yield Held(lives, by_query=at_us is not None)

    def shown(self, view: Table) -> tuple[pa.Table, list[str]]:
        """A view's answer as users see it."""
        return self._reading(view, lambda live: live.shown())

    def answer(self, view: Table) -> Answer:
        return self._reading(view, lambda live: live.read())

    def _reading(self, view: Table, read: Callable[[LiveView], T]) -> T:
        """Read a view, whatever happens to others meanwhile: those that share a follower with it
        may be dropped or replaced, and so may the view itself be replaced."""
        for _ in range(READ_TRIES):
            live = self._live_view(view)
            try:
                return read(live)
            except FollowerGone:
                self.follow_catalog()
        raise UnknownNameError(
            f'view "{view.name}" could not be read: views are replaced all the time',
            hint="run the statement again",
        )

    def _live_view(self, view: Table) -> LiveView:
        """The view as it is kept, or the one that took its name meanwhile."""
        live = self._live.get(view.table_id)
        if live is not None and self.house.catalog.snapshot().table(view.table_id) is not None:
            return live
        self.follow_catalog()
        live = self._live.get(view.table_id)
        if live is not None:
            return live
        again = self.house.catalog.snapshot().find(view.name)
        if again is None or not again.is_view:
            raise UnknownNameError(f'view "{view.name}" was dropped')
        live = self._live.get(again.table_id)
        if live is None or again.columns != view.columns:
            raise UnknownNameError(
                f'view "{view.name}" was replaced by one with other columns while it was read',
                hint="run the statement again",
            )
        return live

    def live(self) -> list[LiveView]:
        return list(self._live.values())

    def followers(self, live: LiveView) -> list[Follower]:
        """Of a view, digest by digest."""
        if live.is_too_large:
            return []
        with self._lock:
            found = [self._followers.get(digest.table_id) for digest in live.digests]
        missing = [each for each in found if each is None]
        if missing:
            raise FollowerGone(f'view "{live.table.name}" was dropped')
        return [each for each in found if each is not None]

    def isolate(self, follower: Follower) -> bool:
        """Give the digests of a follower that failed one each; whether that changes anything."""
        own = {digest.table_id for digest in follower.digests}
        if len(own) == 1 or own <= self._alone:
            return False
        self._alone |= own
        self.follow_catalog()
        return True

    # -- what there is

    def follow_catalog(self) -> None:
        """Take up views that are new and let go of those that are gone."""
        with self._lock:
            snapshot = self.house.catalog.snapshot()
            wanted = {view.table_id: view for view in snapshot.views}
            for table_id in set(self._live) - set(wanted):
                del self._live[table_id]
            for table_id, view in wanted.items():
                known = self._live.get(table_id)
                if known is None:
                    self._live[table_id] = self._take_up(view, snapshot)
                else:
                    known.table = view
            self._share(snapshot)

    def _take_up(self, view: Table, snapshot: Snapshot) -> LiveView:
        definition = ViewDefinition.of(view)
        digests = tuple(Digest.of(_digest(snapshot, each)) for each in definition.digests)
        settings = Settings(VIEW_SETTINGS, view.given_settings)
        live = LiveView(
            view,
            definition.parts,
            digests,
            make_plan(definition.tree, snapshot),
            Moments.of(definition.parts),
            settings["memory"],
            lambda: self.followers(live),
            self.isolate,
            self.follow_catalog,
            self._rooms,
            self._lookups(definition.parts, snapshot, settings["memory"]),
        )
        return live

    def _lookups(self, parts: ViewParts, snapshot: Snapshot, memory: int) -> Lookups | None:
        def columns_of(table_id: int) -> list[str]:
            table = snapshot.table(table_id)
            return [] if table is None else [column.name for column in table.columns]

        plan = plan_lookup(parts, columns_of)
        rooms = self._rooms
        return None if plan is None else Lookups(plan, rooms.duck, rooms.references, memory)

    def _share(self, snapshot: Snapshot) -> None:
        """One follower for each family of digests; those that stay as they were are kept."""
        families: dict[object, list[Digest]] = defaultdict(list)
        kept = [live for live in self._live.values() if not live.is_too_large]
        for live in kept:
            for digest in live.digests:
                moved = snapshot.history(digest.table_id).moved_seq
                is_alone = digest.table_id in self._alone
                family = (None if is_alone else family_of(digest)) or digest.table_id
                families[digest.source_id, moved, family].append(digest)
        known = {
            frozenset(digest.table_id for digest in each.digests): each
            for each in self._followers.values()
        }
        followers: dict[int, Follower] = {}
        for digests in families.values():
            hot = self.house.tier.tables.get(digests[0].source_id)
            if hot is None:
                continue
            ids = frozenset(digest.table_id for digest in digests)
            follower = known.get(ids) or self._new_follower(digests, hot)
            followers.update(dict.fromkeys(ids, follower))
        self._followers = followers
        sharing: dict[Follower, list[tuple[int, list[Follower]]]] = defaultdict(list)
        for live in kept:
            own = {followers[d.table_id] for d in live.digests if d.table_id in followers}
            for each in own:
                sharing[each].append(
                    (live.memory_max, [other for other in own if other is not each])
                )
        for follower, found in sharing.items():
            follower.sharing = found
        by_stream: dict[int, list[Follower]] = defaultdict(list)
        for follower in dict.fromkeys(followers.values()):
            by_stream[follower.hot.table.table_id].append(follower)
        self._by_stream = {stream: tuple(found) for stream, found in by_stream.items()}

    def _new_follower(self, digests: Sequence[Digest], hot: HotTable) -> Follower:
        source = Source(hot, self.house.catalog.snapshot, self._read_files)
        return Follower(digests, source, self._make_kept)

    def _make_kept(self, digests: Sequence[Digest], may_be_dense: bool) -> Kept:
        return make_kept(digests, self.house.duck, may_be_dense)

    def _read_files(self, digest: Digest, files: Sequence[DataFile]) -> pa.Table:
        with self.house.duck.lent(exact=True) as cursor:
            return read_partials(self.house.storage, cursor, digest, files)

    def _followers_of(self, stream_id: int | None) -> Sequence[Follower]:
        if stream_id is not None:
            return self._by_stream.get(stream_id, ())
        return [each for found in self._by_stream.values() for each in found]

    # -- what is known of them

    def status(self) -> list[dict[str, Any]]:
        """The rows of ``tidemill.views``."""
        snapshot = self.house.catalog.snapshot()
        shown = {table.table_id for table in snapshot.listed}
        found = [live for live in self.live() if live.table.table_id in shown]
        rows = []
        for live in found:
            with suppress(FollowerGone):  # it was dropped or replaced just now
                rows.append(status_row(self, live, snapshot))
        return rows

    def explain(self, view: Table) -> list[str]:
        return explain_view(self, self._live_view(view))

    def error_of(self, live: LiveView, followers: Sequence[Follower]) -> str | None:
        """Why the view failed, or its last back-fill, or the last try to follow its streams."""
        errors = [live.failure, *(follower.error for follower in followers)]
        if any(errors):
            return next(error for error in errors if error)
        for digest in live.digests:
            handle = self._backfills.get(digest.table_id)
            error = handle.error() if handle is not None else None
            if error is not None:
                return str(error)
        return None

    # -- definitions

    def check(self, statement: CreateView) -> NewView:
        snapshot = self.house.catalog.snapshot()
        Settings(VIEW_SETTINGS, statement.settings)
        return check_view(
            statement.name,
            statement.query,
            statement.query_text,
            snapshot,
            dict(statement.settings),
            statement.columns,
            statement.position,
        )

    def create(self, statement: CreateView, replaces: Table | None) -> Table:
        """Make a view; it answers from now on, unless it waits to replace another."""
        with self._turn:
            new = self.check(statement)
            if replaces is not None:  # one that waited may have taken its place meanwhile
                replaces = self.house.catalog.snapshot().find(statement.name)
            if replaces is not None:
                self.check_unused(replaces, "replaced")
                self._drop_next(replaces)
            view = make_view(new, replaces, self.house.catalog, self.house.pipeline)
            try:
                self.follow_catalog()
                self._live_view(view).read()
            except BaseException:  # what cannot be read is not made
                self.drop(view)
                raise
            self.look()
            return view

    def drop(self, view: Table) -> None:
        with self._turn:
            drop_view(self.house.catalog, view)
            self.follow_catalog()

    def _drop_next(self, view: Table) -> None:
        """A replacement that was not complete gives way to another one."""
        for each in self.house.catalog.snapshot().views:
            if ViewDefinition.of(each).replaces == view.table_id:
                drop_view(self.house.catalog, each)

    def dependents(self, table: Table) -> list[Table]:
        """The views and kept queries that read it, and views that wait to replace another."""
        return dependents(self.house.catalog.snapshot(), table.table_id)

    def check_unused(self, table: Table, word: str) -> None:
        """Refuse to take away what views read."""
        users = self.dependents(table)
        if users:
            kinds = {
                user.name.removesuffix(NEXT_SUFFIX): "MATERIALIZED VIEW"
                if user.is_view
                else "TABLE"
                for user in users
            }
            names = ", ".join(f'"{name}"' for name in kinds)
            kind = "view" if table.is_view else "table"
            drops = [f"DROP {noun} {quote(name)}" for name, noun in kinds.items()]
            raise DependencyError(
                f'{kind} "{table.name}" cannot be {word}: it is read by {names}',
                hint=f"drop what reads it first: {'; '.join(drops)}",
            )

    # -- history

    def progress(self, digest: Digest) -> Progress:
        return Progress.read(self.house.catalog.records.progress(digest.table_id))

    def look(self, may_backfill: bool = True) -> None:
        """Submit back-fills that are due, and let complete views take their names."""
        with self._turn:
            snapshot = self.house.catalog.snapshot()
            for live in self.live():
                live.look_again()
                for digest in live.digests:
                    if may_backfill and not self.progress(digest).is_complete:
                        self._backfill(digest, snapshot)
                self._try_to_swap(live.table)

    def _backfill(self, digest: Digest, snapshot: Snapshot) -> None:
        handle = self._backfills.get(digest.table_id)
        if handle is not None and not handle.done():
            return
        is_failed = handle is not None and handle.error() is not None
        since_s = time.monotonic() - self._tried_s.get(digest.table_id, -RETRY_S)
        stream = snapshot.table(digest.source_id)
        table = snapshot.table(digest.table_id)
        if stream is None or table is None or (is_failed and since_s < RETRY_S):
            return
        house = self.house
        job = BackfillJob(table, stream, house.catalog, house.storage)
        self._tried_s[digest.table_id] = time.monotonic()
        self._backfills[digest.table_id] = house.pipeline.submit(job, BACKFILL_PRIORITY)

    def _try_to_swap(self, view: Table) -> None:
        """One that cannot be read waits on, and is in nobody's way."""
        since_s = time.monotonic() - self._tried_s.get(view.table_id, -RETRY_S)
        if since_s < RETRY_S:
            return
        try:
            self._swap_if_complete(view)
        except TidemillError as error:
            _log.warning('while replacing view "%s": %s', view.name, error)
            self._tried_s[view.table_id] = time.monotonic()

    def _swap_if_complete(self, view: Table) -> None:
        snapshot = self.house.catalog.snapshot()
        table = snapshot.table(view.table_id)
        if table is None or ViewDefinition.of(table).replaces is None:
            return
        live = self._live_view(table)
        if not all(self.progress(digest).is_complete for digest in live.digests):
            return
        live.read()
        swap_view(self.house.catalog, table)
        self.follow_catalog()

    def _revive(self, concerned: Sequence[LiveView]) -> None:
        """Let digests that failed begin again, with the history of their streams before them."""
        for live in concerned:
            failed = [each for each in live.digests if self.progress(each).failed is not None]
            for digest in failed:
                stream = self.house.catalog.snapshot().table(digest.source_id)
                if stream is not None:
                    job = ReviveDigest(self.house.catalog, stream, digest.table_id)
                    self.house.pipeline.submit(job, BACKFILL_PRIORITY).wait()
            live.look_again()

    def refresh(self, view: Table) -> Answer:
        """Wait until a view, and one that is to replace it, has all of history; then answer."""
        names = (view.name, f"{view.name}{NEXT_SUFFIX}")
        self._revive([live for live in self.live() if live.table.name in names])
        while True:
            self.look()
            concerned = [live for live in self.live() if live.table.name in names]
            waiting = [
                digest.table_id
                for live in concerned
                for digest in live.digests
                if not self.progress(digest).is_complete
            ]
            if not waiting:
                break
            for digest_id in waiting:
                handle = self._backfills.get(digest_id)
                if handle is not None:  # or the view came after the look; the next one sees to it
                    handle.wait()
        for live in concerned:
            live.look_again()
        with self._turn:
            for live in concerned:  # what hinders a replacement is told
                self._swap_if_complete(live.table)
        return self.answer(self.house.catalog.snapshot().get(view.name))


def _digest(snapshot: Snapshot, table_id: int) -> Table:
    table = snapshot.table(table_id)
    if table is None:
        raise UnknownNameError("the view was dropped")
    return table
