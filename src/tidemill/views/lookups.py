"""Joins that are kept: for each group, the row of a reference table with its key.

Joining a million groups with a million rows takes 40 ms, and gives what it gave at the last read
but for new groups. So the columns found are kept beside the groups, in their order
(``sql.maintain.lookups``); a read looks up the groups that came since. When the table has changed
the query is asked as it stands, and if it has not changed again by the next read, all groups are
looked up anew: a table that changes at every read is joined at every read.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.digests.definition import Digest
from tidemill.federation.duck import Duck
from tidemill.federation.references import References, place_of
from tidemill.sql.maintain.lookups import LookupPlan
from tidemill.views.follower import Kept

GROUPS_MIN = 1 << 16  # of fewer, all are joined as fast
_KEYS = "tm_keys"


@dataclass(frozen=True, eq=False)
class _Found:
    """What was found for the first groups of a state, and the count of changes it is good for."""

    kept: weakref.ref[Kept]
    changes: int
    columns: pa.Table | None  # None: it is not known yet, or keys are found more than once
    is_known: bool


class Lookups:
    """The join of one view; used by one reader at a time, who holds the follower's lock."""

    def __init__(self, plan: LookupPlan, duck: Duck, references: References, memory: int) -> None:
        """``memory`` is how many bytes may be kept."""
        self.plan = plan
        self._duck = duck
        self._references = references
        self._memory = memory
        self._found: _Found | None = None

    def columns(self, digest: Digest, kept: Kept) -> pa.Table | None:
        """The columns found for all groups, in their order; None if they are to be joined."""
        groups = kept.groups(digest.table_id)
        changes = self._references.changes
        if groups < GROUPS_MIN or changes % 2 or not kept.is_steady(digest.table_id):
            self._found = None
            return None
        found = self._found
        if found is None or found.kept() is not kept or found.changes != changes:
            self._found = _Found(weakref.ref(kept), changes, None, False)
            return None
        if found.is_known and found.columns is None:
            return None
        columns = self._extended(digest, kept, groups, found.columns)
        if self._references.changes != changes:
            columns = None
            self._found = None
        else:
            self._found = _Found(found.kept, changes, columns, True)
        return columns

    def _extended(
        self, digest: Digest, kept: Kept, groups: int, known: pa.Table | None
    ) -> pa.Table | None:
        """With the groups that came since; None if a key is found more than once, or all of them
        take more memory than they may."""
        first = 0 if known is None else known.num_rows
        if known is not None and first == groups:
            return known
        keys = kept.table(digest.table_id).column(self.plan.key).slice(first)
        slots = pa.array(np.arange(first, groups, dtype=np.int64))
        sql = self.plan.find_sql(_KEYS, place_of(self.plan.reference))
        sources = {_KEYS: pa.table([slots, keys], names=["slot", "key"])}
        new, _ = self._duck.query(sql, {}, sources, exact=True)
        if new.num_rows != groups - first:
            return None
        both = new if known is None else pa.concat_tables([known, new])
        return both if both.nbytes <= self._memory else None
