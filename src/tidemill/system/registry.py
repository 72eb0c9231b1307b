"""The registry: which function makes which system table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import pyarrow as pa

from tidemill.system import changes, definitions, files, information, memory, work
from tidemill.system.state import State

Maker: TypeAlias = Callable[[State], pa.Table]

MAKERS: Mapping[str, Maker] = {
    "tables": memory.tables,
    "columns": definitions.columns,
    "indexes": definitions.indexes,
    "blocks": memory.blocks,
    "changes": changes.changes,
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


class WarehouseTables:
    """The ``SystemTables`` of a warehouse."""

    def __init__(self, state: State) -> None:
        self._state = state

    def table(self, name: str) -> pa.Table:
        """The table of that name (without the schema ``tidemill``), as things stand now."""
        return MAKERS[name](self._state)
