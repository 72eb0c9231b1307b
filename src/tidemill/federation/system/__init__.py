"""System tables: what the warehouse knows of itself, as tables in the schema ``tidemill``.

They are made when somebody reads them, from the present state of the rooms:

- ``fields``: their names, columns and types;
- ``rooms``: where the state comes from, and how columns become a table;
- ``definitions``: columns, indexes, settings;
- ``information``: tables and columns under the names of the SQL standard, for other programs;
- ``memory``: tables, blocks, ingest;
- ``files``: partitions, files, snapshots;
- ``work``: queries, jobs, moves, costs, sources, packages.
"""

from __future__ import annotations

from tidemill.federation.system.fields import INFORMATION_NAMES, NAMES, SCHEMA, schema
from tidemill.federation.system.makers import SystemTables
from tidemill.federation.system.rooms import (
    ContributedRows,
    JobLike,
    MoveLike,
    PackageCount,
    SourceState,
)

__all__ = [
    "INFORMATION_NAMES",
    "NAMES",
    "SCHEMA",
    "ContributedRows",
    "JobLike",
    "MoveLike",
    "PackageCount",
    "SourceState",
    "SystemTables",
    "schema",
]
