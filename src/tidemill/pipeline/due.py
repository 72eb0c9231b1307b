"""Due: what history needs now, as an ordered tuple of rules over the situation of a warehouse.

A rule is a function from a ``Situation`` (the catalog's snapshot, the tables in memory, the clock,
the settings) to the work that is due: data, which ``keeping`` carries out in the order of
``RULES``. Rules change nothing and wait for nothing, so each can be tested with a situation made
by hand.

Moves are not among them: memory can fill within a second, so the *mover* measures tables more
often, by a thread of its own (``mover``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidemill.catalog.model import Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.history.publishing import DELTA
from tidemill.history.reading import file_span
from tidemill.history.storage import Storage
from tidemill.hot.retention import horizon_us
from tidemill.hot.table import HotTable
from tidemill.pipeline.changing import CARRY_OUT_PRIORITY, CarryOutJob, files_to_change
from tidemill.pipeline.compact import CompactJob, ExpireJob, expired_with_digests, plan_compact
from tidemill.pipeline.compaction import COMPACT_PRIORITY
from tidemill.pipeline.digest_compact import DigestCompactJob, plan_digest_compact
from tidemill.pipeline.job import Job

EXPIRE_PRIORITY = 0
FORGET_EVERY_S = 60.0
CHANGES_WAIT_MAX = 1_000
CHANGES_WAIT_US = 60_000_000


@dataclass(frozen=True)
class DueJob:
    """A job to submit."""

    job: Job[object]
    priority: int


@dataclass(frozen=True)
class DueForgetting:
    """Snapshots to forget: those that were superseded before a moment."""

    before_us: int


@dataclass(frozen=True)
class DueLooking:
    """A table in whose memory changes wait that nobody has looked for."""

    hot: HotTable


@dataclass(frozen=True)
class DuePublishing:
    """A table whose history others read, to be published if it has changed."""

    table: Table


@dataclass(frozen=True)
class DueTelling:
    """Others who look after something of their own, such as views, to be told."""

    allows_background: bool


Due: TypeAlias = DueJob | DueLooking | DueTelling | DuePublishing | DueForgetting


@dataclass(frozen=True)
class Situation:
    """What rules decide on.

    ``is_pending`` says whether a job of a kind waits or runs for a table. ``allows_background`` is
    false where work that nobody waits for is left to another process, ``allows_tidying`` also where
    the moment is not calm (``lifetime``).
    ``time_travel_us`` is how long snapshots are kept, None for ever; ``since_forgetting_s`` how
    long ago they were last forgotten."""

    snapshot: Snapshot
    tables: Mapping[int, HotTable]
    catalog: Catalog
    storage: Storage
    now_us: int
    is_pending: Callable[[int, str], bool]
    allows_background: bool
    allows_tidying: bool
    time_travel_us: int | None
    since_forgetting_s: float

    def with_history(self) -> Iterator[Table]:
        """The streaming tables that have files."""
        for table_id, history in self.snapshot.histories.items():
            table = self.snapshot.table(table_id)
            if table is not None and history.files and table_id in self.tables:
                yield table


def expire(now: Situation) -> Iterator[DueJob]:
    """Partitions that lie outside of the retention as wholes."""
    for table in now.with_history():
        horizon = horizon_us(table, now.tables[table.table_id].progress.now_us())
        if horizon is None or now.is_pending(table.table_id, "expire"):
            continue
        bounds = horizon, now.now_us - table.settings["retention"]
        if expired_with_digests(now.snapshot, table.table_id, *bounds):
            yield DueJob(ExpireJob(table, now.catalog, *bounds), EXPIRE_PRIORITY)


def compact(now: Situation) -> Iterator[DueJob]:
    """Files that should be fewer; one compaction of a table at a time."""
    for table in now.with_history() if now.allows_tidying else ():
        if now.is_pending(table.table_id, "compact"):
            continue
        now_us = now.tables[table.table_id].progress.now_us()
        cold = None if now_us is None else now_us - table.settings["hot"]
        history = now.snapshot.history(table.table_id)
        if plan_compact("", table, history, now.storage, cold) is not None:
            hot = now.tables[table.table_id]
            job = CompactJob(table, now.catalog, now.storage, cold, hot)
            yield DueJob(job, COMPACT_PRIORITY)


def carry_out(now: Situation) -> Iterator[DueJob]:
    """Changes that readers of files look through: once they are many, or old."""
    for table in now.with_history() if now.allows_tidying else ():
        hot = now.tables[table.table_id]
        changes = hot.published.every_change()
        if not changes or now.is_pending(table.table_id, "change"):
            continue
        history = now.snapshot.history(table.table_id)
        waiting = changes.reaching(*file_span(history))
        is_many = len(waiting) >= CHANGES_WAIT_MAX
        is_old = bool(waiting) and waiting[0].at_us <= now.now_us - CHANGES_WAIT_US
        if (is_many or is_old) and files_to_change(history, waiting):
            reason = f"{len(waiting):,} changes wait" if is_many else "changes have waited long"
            yield DueJob(CarryOutJob(hot, now.catalog, now.storage, reason), CARRY_OUT_PRIORITY)


def look(now: Situation) -> Iterator[DueLooking]:
    """Changes that have waited in memory for long, in a calm moment: the next query should find
    little to do."""
    for hot in now.tables.values() if now.allows_tidying else ():
        waiting = hot.published.changes.new[:1]
        if waiting and waiting[0].at_us <= now.now_us - CHANGES_WAIT_US:
            yield DueLooking(hot)


def compact_digests(now: Situation) -> Iterator[DueJob]:
    """Partials of partitions that have many files of them."""
    for table in now.with_history() if now.allows_tidying else ():
        for digest in now.snapshot.digests_of(table.table_id):
            if now.is_pending(table.table_id, "compact"):
                break
            history = now.snapshot.history(digest.table_id)
            if plan_digest_compact("", digest, history, now.storage):
                job = DigestCompactJob(digest, table, now.catalog, now.storage)
                yield DueJob(job, COMPACT_PRIORITY)


def tell(now: Situation) -> Iterator[DueTelling]:
    """At every now."""
    yield DueTelling(now.allows_background)


def publish(now: Situation) -> Iterator[DuePublishing]:
    """Tables that others read as Delta tables."""
    for table in now.snapshot.tables.values():
        if table.is_streaming and table.settings["publish"] == DELTA:
            yield DuePublishing(table)


def forget(now: Situation) -> Iterator[DueForgetting]:
    """Snapshots that nobody may ask for any more, now and then."""
    kept_us = now.time_travel_us
    if kept_us is not None and now.since_forgetting_s >= FORGET_EVERY_S:
        yield DueForgetting(now.now_us - kept_us)


Rule: TypeAlias = Callable[[Situation], Iterable[Due]]
RULES: tuple[Rule, ...] = (
    expire,
    compact,
    look,
    carry_out,
    compact_digests,
    tell,
    publish,
    forget,
)
