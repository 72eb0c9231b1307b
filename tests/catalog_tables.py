"""Tables and snapshots of a catalog that is not there, for tests of what only reads definitions."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.catalog.model import REFERENCE, STREAMING, VIEW, Index, Snapshot, Table
from tidemill.types import Column, SqlType


def stream(
    table_id: int,
    name: str,
    columns: Mapping[str, str],
    settings: Mapping[str, str] | None = None,
    indexes: Mapping[str, str] | None = None,
) -> Table:
    """A streaming table whose first column is its time; ``indexes`` are columns and methods."""
    made = tuple(
        Index(at, f"by_{column}", table_id, (column,), method)
        for at, (column, method) in enumerate((indexes or {}).items(), 1)
    )
    typed = _columns(columns)
    return Table(table_id, name, STREAMING, typed, (), typed[0].name, None, settings or {}, made, 0)


def reference(table_id: int, name: str, columns: Mapping[str, str]) -> Table:
    return Table(table_id, name, REFERENCE, _columns(columns), (), None, None, {}, (), 0)


def view(table_id: int, name: str, columns: Mapping[str, str]) -> Table:
    return Table(table_id, name, VIEW, _columns(columns), (), None, None, {}, (), 0)


def snapshot_of(*tables: Table) -> Snapshot:
    return Snapshot(1, 0, {table.name.lower(): table for table in tables})


def _columns(columns: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(Column(name, SqlType.parse(kind)) for name, kind in columns.items())
