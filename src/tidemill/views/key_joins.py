"""Joins that are kept: for each group, the row of a reference table with its key.

Joining a million groups with a million rows takes 40 ms, and gives what it gave at the last read
but for new groups. So the columns found are kept beside the groups, in their order
(``sql.maintain.key_joins``); a read looks up the groups that came since. When the table has changed
the query is asked as it stands, and if it has not changed again by the next read, all groups are
looked up anew: a table that changes at every read is joined at every read.

A few new groups are not worth a join with a million rows (5 ms): where keys are numbers or times,
the table is read once, put in the order of its keys, and searched.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.digests.arrays import whole
from tidemill.digests.definition import Digest
from tidemill.federation.duck import Duck
from tidemill.federation.references import References, place_of
from tidemill.hot import keys
from tidemill.sql.maintain.key_joins import FOUND, KeyJoinPlan
from tidemill.views.bounded_state import DigestStates

GROUPS_MIN = 1 << 16  # of fewer, all are joined as fast
_KEYS = "tm_keys"
_CHUNKS_MAX = 16  # one more for each look-up, until they are put into one piece


@dataclass(frozen=True, eq=False)
class _ByKey:
    """A reference table by its keys, of which each is there once."""

    words: npt.NDArray[np.generic]  # its keys, in order
    columns: pa.Table

    @property
    def nbytes(self) -> int:
        return int(self.words.nbytes + self.columns.nbytes)

    def find(self, wanted: pa.Array) -> pa.Table:
        """What is found for keys, in their order."""
        words = keys.words(wanted)
        places = np.minimum(np.searchsorted(self.words, words), max(len(self.words) - 1, 0))
        is_found = wanted.is_valid().to_numpy(zero_copy_only=False)
        is_found &= (self.words[places] == words) if len(self.words) else False
        rows = pa.array(places, mask=~is_found)
        columns = [column.take(rows) for column in self.columns.columns]
        columns.append(pa.ExtensionArray.from_storage(pa.bool8(), pa.array(is_found.view(np.int8))))
        return pa.table(columns, names=[*self.columns.column_names, FOUND])


@dataclass(frozen=True, eq=False)
class _Found:
    """What was found for the first groups of a state, and the count of changes it is good for."""

    kept: weakref.ref[DigestStates]
    changes: int
    columns: pa.Table | None = None  # None: it is not known yet, or keys are found more than once
    is_known: bool = False
    by_key: _ByKey | None = None
    may_search: bool = True


class KeyJoins:
    """The join of one view; used by one reader at a time, who holds the follower's lock."""

    def __init__(self, plan: KeyJoinPlan, duck: Duck, references: References, memory: int) -> None:
        """``memory`` is how many bytes may be kept."""
        self.plan = plan
        self._duck = duck
        self._references = references
        self._memory = memory
        self._found: _Found | None = None

    def columns(self, digest: Digest, kept: DigestStates) -> pa.Table | None:
        """The columns found for all groups, in their order; None if they are to be joined."""
        groups = kept.groups(digest.table_id)
        changes = self._references.changes
        if groups < GROUPS_MIN or changes % 2 or not kept.is_steady(digest.table_id):
            self._found = None
            return None
        found = self._found
        if found is None or found.kept() is not kept or found.changes != changes:
            self._found = _Found(weakref.ref(kept), changes)
            return None
        if found.is_known and found.columns is None:
            return None
        found = self._extended(digest, kept, groups, found)
        if self._references.changes != changes:
            self._found = None
            return None
        self._found = found
        return found.columns

    def _extended(self, digest: Digest, kept: DigestStates, groups: int, found: _Found) -> _Found:
        """With the groups that came since; without columns if a key is found more than once, or
        if all of them take more memory than they may."""
        known, by_key = found.columns, found.by_key
        first = 0 if known is None else known.num_rows
        if known is not None and first == groups:
            return found
        wanted = kept.table(digest.table_id).column(self.plan.key).slice(first)
        if known is not None and by_key is None and found.may_search:
            by_key = self._by_key(wanted.type)
        new = self._joined(wanted, first) if by_key is None else by_key.find(whole(wanted))
        columns = new if known is None else pa.concat_tables([known, new])
        if columns.column(0).num_chunks > _CHUNKS_MAX:
            columns = columns.combine_chunks()
        if columns.num_rows != groups or columns.nbytes > self._memory:
            columns, by_key = None, None
        elif by_key is not None and columns.nbytes + by_key.nbytes > self._memory:
            by_key = None
        may_search = known is None or by_key is not None
        return replace(found, columns=columns, is_known=True, by_key=by_key, may_search=may_search)

    def _joined(self, wanted: pa.ChunkedArray, first: int) -> pa.Table:
        """What is found for keys, asked of DuckDB."""
        slots = pa.array(np.arange(first, first + len(wanted), dtype=np.int64))
        sql = self.plan.find_sql(_KEYS, place_of(self.plan.reference))
        sources = {_KEYS: pa.table([slots, wanted], names=["slot", "key"])}
        return self._duck.query(sql, {}, sources, exact=True)[0]

    def _by_key(self, kind: pa.DataType) -> _ByKey | None:
        """The table by its keys, unless they are of another type, or there more than once."""
        if not keys.is_numeric(kind) or pa.types.is_floating(kind):
            return None
        sql = self.plan.table_sql(place_of(self.plan.reference))
        none, _ = self._duck.query(f"{sql} LIMIT 0", {}, {}, exact=True)
        if none.schema.field(0).type != kind:
            return None
        rows, _ = self._duck.query(sql, {}, {}, exact=True)
        if rows.nbytes > self._memory:
            return None
        words = keys.words(whole(rows.column(0)))
        order = np.argsort(words, kind="stable")
        words = words[order]
        if (words[1:] == words[:-1]).any():
            return None
        columns = rows.drop_columns([rows.column_names[0]])
        return _ByKey(words, columns.take(keys.row_numbers(order)))
