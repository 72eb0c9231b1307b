"""``SystemTables``: one maker for each system table, and the rooms that they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from tidemill.catalog.model import Package, Snapshot
from tidemill.clock import Clock, WallClock
from tidemill.config import Settings
from tidemill.executions import Execution
from tidemill.federation.system import definitions, files, information, memory, work
from tidemill.federation.system.rooms import (
    Counted,
    CountRows,
    JobLike,
    MoveLike,
    Rooms,
    SourceState,
    count_packages,
)
from tidemill.hot.table import HotTable
from tidemill.stream.counting import estimated_rows

_MAKERS: dict[str, Callable[[Rooms], pa.Table]] = {
    "tables": memory.tables,
    "columns": definitions.columns,
    "indexes": definitions.indexes,
    "blocks": memory.blocks,
    "partitions": files.partitions,
    "files": files.files,
    "snapshots": files.snapshots,
    "ingest": memory.ingest,
    "jobs": work.jobs,
    "moves": work.moves,
    "costs": work.costs,
    "sources": work.sources,
    "packages": work.packages,
    "views": work.views,
    "queries": work.queries,
    "spark": work.spark,
    "settings": definitions.settings,
    "information_schema.schemata": information.schemata,
    "information_schema.tables": information.tables,
    "information_schema.columns": information.columns,
}


class SystemTables:
    """Makes system tables from the rooms' present state.

    ``package_counts(table_id)`` gives (source, state, packages, rows, rejected, late, replaced)
    for each source and state; without it packages are counted one by one. ``sources_state`` is
    keyed by the source's name in lower case. ``snapshots`` gives (id, when committed), newest
    first. ``live_rows`` counts a history's rows; ``stream.counting`` does so exactly. ``views``,
    ``spark`` and ``costs`` give the rows of the system tables of those names, ``queries`` what is
    running.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        hot: Mapping[int, HotTable],
        reference_rows: Callable[[int], int],
        settings: Settings,
        *,
        jobs: Callable[[], Iterable[JobLike]] = lambda: (),
        moves: Callable[[], Iterable[MoveLike]] = lambda: (),
        packages: Callable[[int], Iterable[Package]] = lambda table_id: (),
        package_counts: Callable[[int], Iterable[Counted]] | None = None,
        sources_state: Callable[[], Mapping[str, SourceState]] = dict,
        snapshots: Callable[[], Iterable[tuple[int, int]]] = lambda: (),
        live_rows: CountRows = estimated_rows,
        clock: Clock | None = None,
        views: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        spark: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        queries: Callable[[], Iterable[Execution]] = tuple,
        costs: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
    ) -> None:
        self._rooms = Rooms(
            snapshot,
            hot,
            reference_rows,
            settings,
            jobs,
            moves,
            packages,
            package_counts or (lambda table_id: count_packages(packages(table_id))),
            sources_state,
            snapshots,
            live_rows,
            clock or WallClock(),
            views,
            spark,
            queries,
            costs,
        )

    def table(self, name: str) -> pa.Table:
        """The table of that name (without the schema ``tidemill``), as things stand now."""
        return _MAKERS[name](self._rooms)
