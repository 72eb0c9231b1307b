"""All definitions, one at a time: what one has checked must still be so when it commits."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from tidemill.catalog.store import Catalog
from tidemill.federation.references import References
from tidemill.history.guard import Guard
from tidemill.hot.tier import HotTier
from tidemill.pipeline.keeping import Keeping
from tidemill.pipeline.loads.loads import Loads
from tidemill.result import Result
from tidemill.statements.call import Call, Handler, Handlers, RunQuery
from tidemill.statements.definitions.indexes import IndexDefinitions
from tidemill.statements.definitions.making import Making
from tidemill.statements.definitions.sources import SourceDefinitions
from tidemill.statements.definitions.tables import TableDefinitions
from tidemill.statements.definitions.views import ViewDefinitions
from tidemill.views.continuous import KeptQueries
from tidemill.views.registry import Views


def definitions(
    catalog: Catalog,
    tier: HotTier,
    references: References,
    keeping: Keeping,
    loads: Loads,
    views: Views,
    kept: KeptQueries,
    guard: Guard,
    query: RunQuery,
) -> Handlers:
    making = Making(catalog, tier, references, keeping, loads, views, kept)
    tables = TableDefinitions(catalog, making, tier, references, keeping.publishing, views, query)
    parts = (
        tables.handlers,
        IndexDefinitions(catalog, making, references).handlers,
        ViewDefinitions(catalog, making, tier, views, kept).handlers,
        SourceDefinitions(catalog, loads, guard).handlers,
    )
    return in_turn(parts)


def in_turn(parts: Iterable[Handlers]) -> Handlers:
    """Handlers of which one at a time carries out a statement."""
    turn = threading.RLock()

    def waiting(handler: Handler) -> Handler:
        def run(call: Call[Any]) -> Result:
            with turn:
                return handler(call)

        return run

    return {kind: waiting(handler) for part in parts for kind, handler in part.items()}
