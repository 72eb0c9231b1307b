"""Views within one statement: all of them, and the streams beside them, at one moment.

While a statement holds views, it has the locks of their followers, so that none of their states can
get ahead. It then looks at the streams, once, and each state takes in just the rows of that look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.federation.planner import VIEW, Scan
from tidemill.federation.runner import Moment
from tidemill.views.answering import LiveView


@dataclass(frozen=True)
class Held:
    """Views by their ids; ``by_query`` if their queries are to be run as they stand."""

    views: Mapping[int, LiveView]
    by_query: bool

    @property
    def scans(self) -> list[Scan]:
        """The streams that the views read."""
        plans = [live.plan for live in self.views.values()]
        queries = [query.plan for plan in plans for query in plan.key_queries]
        return [scan for plan in (*plans, *queries) for scan in plan.scans]

    def read(self, view: Table, moment: Moment) -> pa.Table:
        """A view's answer at the moment; nobody works it out twice."""
        found = moment.answers.get(view.table_id)
        if found is None:
            live = self.views[view.table_id]
            answer = None if self.by_query else live.read_at(moment)
            found = answer.table if answer is not None else self._by_query(live, moment)
            moment.answers[view.table_id] = found
        return found

    def _by_query(self, live: LiveView, moment: Moment) -> pa.Table:
        for scan in live.plan.scans:
            if scan.kind == VIEW and scan.table is not None:
                self.read(scan.table, moment)
        return live.by_query_at(moment)
