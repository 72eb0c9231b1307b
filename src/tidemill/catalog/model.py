"""What the catalog knows, as frozen data: tables, columns, indices, one snapshot of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from tidemill.config import TABLE_SETTINGS, Settings
from tidemill.errors import Position, UnknownNameError, did_you_mean
from tidemill.types import Column

STREAMING = "streaming"
REFERENCE = "reference"


@dataclass(frozen=True)
class Index:
    """A value index; ``method`` is 'ordered' or 'hash'."""

    index_id: int
    name: str
    table_id: int
    columns: tuple[str, ...]
    method: str
    unique: bool = False


@dataclass(frozen=True)
class NewTable:
    """A table to be made; what ``Table`` adds to it, the catalog gives."""

    name: str
    kind: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    time_column: str | None = None
    watermark_delay_us: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table as one snapshot sees it. ``table_id`` is never used twice.

    ``constraints`` holds what a reference table has besides its primary key, as SQL text.
    """

    table_id: int
    name: str
    kind: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    time_column: str | None
    watermark_delay_us: int | None
    given_settings: Mapping[str, str]
    indexes: tuple[Index, ...]
    created_at_us: int
    constraints: tuple[str, ...] = ()

    @property
    def is_streaming(self) -> bool:
        return self.kind == STREAMING

    @cached_property
    def settings(self) -> Settings:
        return Settings(TABLE_SETTINGS, self.given_settings)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([column.field for column in self.columns])

    def column(self, name: str) -> Column | None:
        """The column of that name, whatever its case."""
        return self._by_lower.get(name.lower())

    def get_column(self, name: str, position: Position | None = None) -> Column:
        """The column of that name, or an error that suggests the nearest."""
        column = self.column(name)
        if column is None:
            known = [column.name for column in self.columns]
            raise UnknownNameError(
                f'table "{self.name}" has no column "{name}"',
                hint=did_you_mean(name, known) or f"the columns are {', '.join(known[:50])}",
                position=position,
            )
        return column

    @cached_property
    def _by_lower(self) -> dict[str, Column]:
        return {column.name.lower(): column for column in self.columns}


@dataclass(frozen=True)
class Snapshot:
    """All tables at one commit. Names are compared without case, as SQL does."""

    snapshot_id: int
    committed_at_us: int
    tables: Mapping[str, Table]

    def find(self, name: str) -> Table | None:
        return self.tables.get(name.lower())

    def get(self, name: str, position: Position | None = None) -> Table:
        table = self.find(name)
        if table is None:
            known = [known.name for known in self.tables.values()]
            raise UnknownNameError(
                f'table "{name}" does not exist',
                hint=did_you_mean(name, known) or "SHOW TABLES lists the tables",
                position=position,
            )
        return table

    def table(self, table_id: int) -> Table | None:
        """The table of that id, if it lives in this snapshot."""
        return self._by_id.get(table_id)

    @cached_property
    def _by_id(self) -> dict[int, Table]:
        return {table.table_id: table for table in self.tables.values()}

    def find_index(self, name: str) -> Index | None:
        for table in self.tables.values():
            for index in table.indexes:
                if index.name.lower() == name.lower():
                    return index
        return None
