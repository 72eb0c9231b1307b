"""Rows of small queries over reference tables alone, kept while none of these tables changes.

A query that is read first (``first``) would cost as much as the lookup that it is made for, if it
were run each time. Reference tables change seldom, and every change is counted: rows that were read
at a count are what the query gives for as long as the count stands. It is odd while a change is
being made, and then nothing is kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping

import pyarrow as pa

from tidemill.federation.plan import Plan

QUERIES_MAX = 64
QUERY_BYTES_MAX = 256 * 1024

_Key = tuple[Plan, tuple[tuple[str, type, object], ...]]


class ReferenceRows:
    """``changes`` counts those of reference tables, twice each. At most 64 queries of 256 kB are
    kept; the one that was read the longest ago goes first."""

    def __init__(self, changes: Callable[[], int]) -> None:
        self._changes = changes
        self._kept: OrderedDict[_Key, tuple[int, pa.Table]] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, plan: Plan, values: Mapping[str, object], read: Callable[[], pa.Table]
    ) -> pa.Table:
        """The rows of a plan with these values, kept or read now."""
        changes = self._changes()
        if plan.scans or plan.files or plan.uses_now or changes % 2:
            return read()
        key = plan, tuple((name, type(value), value) for name, value in values.items())
        try:
            found = self._kept.get(key)
        except TypeError:  # a list among the values
            return read()
        if found is not None and found[0] == changes:
            return found[1]
        rows = read()
        if rows.nbytes <= QUERY_BYTES_MAX and self._changes() == changes:
            self._keep(key, changes, rows)
        return rows

    def _keep(self, key: _Key, changes: int, rows: pa.Table) -> None:
        with self._lock:
            self._kept[key] = changes, rows
            self._kept.move_to_end(key)
            while len(self._kept) > QUERIES_MAX:
                self._kept.popitem(last=False)
