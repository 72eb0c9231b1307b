"""The registry: all views of a warehouse, and what the engine asks of them.

It knows the views that the catalog has (``follow_catalog``), reads them, and makes and drops them.
Their followers are in ``sharing``; how they come by the history of their streams is in
``completing``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from tidemill.catalog.model import NEXT_SUFFIX, Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock
from tidemill.config import VIEW_SETTINGS, Settings
from tidemill.digests.definition import Digest
from tidemill.errors import DependencyError, UnknownNameError
from tidemill.federation.duck import Duck
from tidemill.federation.planner import VIEW, make_plan
from tidemill.federation.references import References, place_of
from tidemill.federation.runner import Runner, ViewReader
from tidemill.history.storage import Storage
from tidemill.hot.tier import HotTier
from tidemill.pipeline.jobs import Pipeline
from tidemill.sql.maintain import ViewParts
from tidemill.sql.maintain.key_joins import plan_lookup
from tidemill.sql.statements import CreateView
from tidemill.types import quote
from tidemill.views.answering import Answer, AnswerEnvironment, LiveView
from tidemill.views.completing import Completing, Jobs
from tidemill.views.defining import (
    NewView,
    ViewDefinition,
    check_view,
    dependents,
    drop_view,
    make_view,
    orphans,
    release_joined,
)
from tidemill.views.edges import Edges
from tidemill.views.follower import Follower, FollowerGone
from tidemill.views.held import Held
from tidemill.views.key_joins import KeyJoins
from tidemill.views.moments import Moments
from tidemill.views.sharing import Followers
from tidemill.views.status import explain_view, status_row
from tidemill.views.upkeep import Upkeep

READ_TRIES = 100
T = TypeVar("T")
_log = logging.getLogger("tidemill.views")


@dataclass(frozen=True)
class ViewEnvironment:
    """The rooms that views use."""

    catalog: Catalog
    tier: HotTier
    duck: Duck
    references: References
    storage: Storage
    pipeline: Pipeline
    clock: Clock


class Views:
    def __init__(
        self, environment: ViewEnvironment, make_runner: Callable[[ViewReader], Runner]
    ) -> None:
        """``make_runner`` makes what runs queries: it reads views here, and views run queries."""
        self.environment = environment
        self.runner = make_runner(self)
        self._lock = threading.RLock()  # of the registry itself; held shortly
        self._turn = threading.RLock()  # one definition or replacement at a time
        self._live: dict[int, LiveView] = {}
        catalog, storage = environment.catalog, environment.storage
        self._followers = Followers(environment.tier.tables, catalog, storage, environment.duck)
        self.completing = Completing(
            self, Jobs(catalog, storage, environment.pipeline, environment.tier.tables)
        )
        self._answering = AnswerEnvironment(
            environment.catalog,
            environment.duck,
            self.runner,
            environment.references,
            environment.clock,
            Edges(environment.duck, self.runner, environment.catalog, place_of),
        )
        self.upkeep = Upkeep(self._followers.of_stream, self.isolate)

    def open(self) -> None:
        """Take up the views that the catalog knows."""
        left = orphans(self.environment.catalog.snapshot())
        if left:
            with self.environment.catalog.transaction() as change:
                for digest in left:
                    change.drop_table(digest.table_id)
        for view in release_joined(self.environment.catalog):
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
                live = lives[view.table_id] = self.live_view(view)
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
            live = self.live_view(view)
            try:
                return read(live)
            except FollowerGone:
                self.follow_catalog()
        raise UnknownNameError(
            f'view "{view.name}" could not be read: views are replaced all the time',
            hint="run the statement again",
        )

    def live_view(self, view: Table) -> LiveView:
        """The view as it is kept, or the one that took its name meanwhile."""
        live = self._live.get(view.table_id)
        if (
            live is not None
            and self.environment.catalog.snapshot().table(view.table_id) is not None
        ):
            return live
        self.follow_catalog()
        live = self._live.get(view.table_id)
        if live is not None:
            return live
        again = self.environment.catalog.snapshot().find(view.name)
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
        with self._lock:
            return self._followers.of_view(live)

    def isolate(self, follower: Follower) -> bool:
        """Give the digests of a follower that failed one each; whether that changes anything."""
        if not self._followers.part(follower):
            return False
        self.follow_catalog()
        return True

    # -- what there is

    def follow_catalog(self) -> None:
        """Take up views that are new and let go of those that are gone."""
        with self._lock:
            snapshot = self.environment.catalog.snapshot()
            wanted = {view.table_id: view for view in snapshot.views}
            for table_id in set(self._live) - set(wanted):
                del self._live[table_id]
            for table_id, view in wanted.items():
                known = self._live.get(table_id)
                if known is None:
                    self._live[table_id] = self._take_up(view, snapshot)
                else:
                    known.table = view
            self._followers.share(self._live.values(), snapshot)

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
            self._answering,
            self._lookups(definition.parts, snapshot, settings["memory"]),
        )
        return live

    def _lookups(self, parts: ViewParts, snapshot: Snapshot, memory: int) -> KeyJoins | None:
        def columns_of(table_id: int) -> list[str]:
            table = snapshot.table(table_id)
            return [] if table is None else [column.name for column in table.columns]

        plan = plan_lookup(parts, columns_of)
        environment = self._answering
        return (
            None
            if plan is None
            else KeyJoins(plan, environment.duck, environment.references, memory)
        )

    # -- what is known of them

    def status(self) -> list[dict[str, Any]]:
        """The rows of ``tidemill.views``."""
        snapshot = self.environment.catalog.snapshot()
        shown = {table.table_id for table in snapshot.listed}
        found = [live for live in self.live() if live.table.table_id in shown]
        rows = []
        for live in found:
            with suppress(FollowerGone):  # it was dropped or replaced just now
                rows.append(status_row(self, live, snapshot))
        return rows

    def explain(self, view: Table) -> list[str]:
        return explain_view(self, self.live_view(view))

    # -- definitions

    def check(self, statement: CreateView) -> NewView:
        snapshot = self.environment.catalog.snapshot()
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
                replaces = self.environment.catalog.snapshot().find(statement.name)
            if replaces is not None:
                self.check_unused(replaces, "replaced")
                _drop_next(self.environment.catalog, replaces)
            view = make_view(new, replaces, self.environment.catalog, self.environment.pipeline)
            try:
                self.follow_catalog()
                self.live_view(view).read()
            except BaseException:  # what cannot be read is not made
                self.drop(view)
                raise
            self.look()
            return view

    def drop(self, view: Table) -> None:
        with self._turn:
            drop_view(self.environment.catalog, view)
            self.follow_catalog()

    def dependents(self, table: Table) -> list[Table]:
        """The views and kept queries that read it, and views that wait to replace another."""
        return dependents(self.environment.catalog.snapshot(), table.table_id)

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

    def look(self, may_backfill: bool = True) -> None:
        """Submit back-fills that are due, and let complete views take their names."""
        with self._turn:
            self.completing.look(may_backfill)

    def refresh(self, view: Table) -> Answer:
        """Wait until a view, and one that is to replace it, has all of history, with all changes;
        then answer."""
        completing = self.completing
        completing.revive(completing.concerned(view))
        while True:
            self.look()
            concerned = completing.concerned(view)
            if not completing.wait(concerned):
                break
        completing.settle(concerned)
        for live in concerned:
            live.look_again()
        with self._turn:
            for live in concerned:  # what hinders a replacement is told
                completing.swap_if_complete(live.table)
        return self.answer(self.environment.catalog.snapshot().get(view.name))


def _drop_next(catalog: Catalog, view: Table) -> None:
    """A replacement that was not complete gives way to another one."""
    for each in catalog.snapshot().views:
        if ViewDefinition.of(each).replaces == view.table_id:
            drop_view(catalog, each)


def _digest(snapshot: Snapshot, table_id: int) -> Table:
    table = snapshot.table(table_id)
    if table is None:
        raise UnknownNameError("the view was dropped")
    return table
