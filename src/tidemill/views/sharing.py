"""Which followers there are: one for each family of digests.

Digests of one stream with the same rows and keys (a family) are fed together, whichever views they
belong to. When views come or go, the followers concerned are made anew and build their states from
files and hot rows; those that stay as they were are kept. A follower that failed is parted, so that
each of its digests has one of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from tidemill.catalog.model import DataFile, Snapshot
from tidemill.catalog.store import Catalog
from tidemill.digests.definition import Digest
from tidemill.digests.partials import read_partials
from tidemill.federation.duck import Duck
from tidemill.history.storage import Storage
from tidemill.hot.table import HotTable
from tidemill.stream.feed import Feed
from tidemill.views.answering import LiveView
from tidemill.views.bounded_state import DigestStates, Share
from tidemill.views.follower import Follower, FollowerGone, FollowerInput
from tidemill.views.states import family_of, make_states


class Followers:
    """The followers of all views. ``share`` is called under the lock of the registry; what there
    is can be read without."""

    def __init__(
        self,
        tables: Mapping[int, HotTable],
        catalog: Catalog,
        storage: Storage,
        duck: Duck,
    ) -> None:
        self._tables = tables
        self._catalog = catalog
        self._storage = storage
        self._duck = duck
        self._by_digest: Mapping[int, Follower] = {}
        self._by_stream: Mapping[int, tuple[Follower, ...]] = {}
        self._alone: set[int] = set()  # digests that share no follower: one of theirs failed

    def of_stream(self, stream_id: int | None) -> Sequence[Follower]:
        """Those of a stream by its table id, or all."""
        if stream_id is not None:
            return self._by_stream.get(stream_id, ())
        return [each for found in self._by_stream.values() for each in found]

    def of_view(self, live: LiveView) -> list[Follower]:
        """Those of a view, digest by digest."""
        if live.is_too_large:
            return []
        by_digest = self._by_digest
        found = [by_digest.get(digest.table_id) for digest in live.digests]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            raise FollowerGone(f'view "{live.table.name}" was dropped')
        return known

    def part(self, follower: Follower) -> bool:
        """Let the digests of a follower share none from the next ``share`` on; whether that
        changes anything."""
        own = {digest.table_id for digest in follower.digests}
        if len(own) == 1 or own <= self._alone:
            return False
        self._alone |= own
        return True

    def forget(self) -> None:
        """Let the next ``share`` make all of them anew."""
        self._by_digest = {}

    def share(self, lives: Iterable[LiveView], snapshot: Snapshot) -> None:
        """One follower for each family of the views' digests."""
        kept = [live for live in lives if not live.is_too_large]
        known = {
            frozenset(digest.table_id for digest in each.digests): each
            for each in self._by_digest.values()
        }
        followers: dict[int, Follower] = {}
        for digests in self._families(kept, snapshot):
            hot = self._tables.get(digests[0].source_id)
            if hot is None:
                continue
            ids = frozenset(digest.table_id for digest in digests)
            follower = known.get(ids) or self._new(digests, hot)
            followers.update(dict.fromkeys(ids, follower))
        self._by_digest = followers
        _share_memory(kept, followers)
        by_stream: dict[int, list[Follower]] = defaultdict(list)
        for follower in dict.fromkeys(followers.values()):
            by_stream[follower.hot.table.table_id].append(follower)
        self._by_stream = {stream: tuple(found) for stream, found in by_stream.items()}

    def _families(self, lives: Sequence[LiveView], snapshot: Snapshot) -> list[list[Digest]]:
        families: dict[object, list[Digest]] = defaultdict(list)
        for live in lives:
            for digest in live.digests:
                moved = snapshot.history(digest.table_id).moved_seq
                is_alone = digest.table_id in self._alone
                family = (None if is_alone else family_of(digest)) or digest.table_id
                families[digest.source_id, moved, family].append(digest)
        return list(families.values())

    def _new(self, digests: Sequence[Digest], hot: HotTable) -> Follower:
        feed = Feed(hot, self._catalog, self._storage, self._duck)
        return Follower(digests, FollowerInput(feed, self._read_files), self._make_states)

    def _make_states(self, digests: Sequence[Digest], may_be_dense: bool) -> DigestStates:
        return make_states(digests, self._duck, may_be_dense)

    def _read_files(self, digest: Digest, files: Sequence[DataFile]) -> pa.Table:
        with self._duck.lent(exact=True) as cursor:
            return read_partials(self._storage, cursor, digest, files)


def _share_memory(lives: Sequence[LiveView], followers: Mapping[int, Follower]) -> None:
    """Tell each state which views it shares memory with."""
    shares: dict[Follower, list[Share]] = defaultdict(list)
    for live in lives:
        own = {followers[d.table_id] for d in live.digests if d.table_id in followers}
        for each in own:
            others = [other.state for other in own if other is not each]
            shares[each].append(Share(live.memory_max, others))
    for follower, found in shares.items():
        follower.state.shares = found
