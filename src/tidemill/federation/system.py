"""System tables: what the warehouse knows of itself, as tables in the schema ``tidemill``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from tidemill.catalog.model import Snapshot, Table
from tidemill.config import Settings
from tidemill.hot.table import HotTable

SCHEMA = "tidemill"
_TEXT, _INT, _BOOL = pa.string(), pa.int64(), pa.bool_()
_TIME, _LAG = pa.timestamp("us"), pa.duration("us")

_FIELDS: dict[str, list[tuple[str, pa.DataType]]] = {
    "tables": [
        ("table_name", _TEXT),
        ("kind", _TEXT),
        ("rows", _INT),
        ("bytes", _INT),
        ("columns", _INT),
        ("primary_key", pa.list_(_TEXT)),
        ("time_column", _TEXT),
        ("watermark_delay", _LAG),
        ("created_at", _TIME),
    ],
    "columns": [
        ("table_name", _TEXT),
        ("position", _INT),
        ("column_name", _TEXT),
        ("type", _TEXT),
        ("nullable", _BOOL),
        ("default", _TEXT),
        ("is_key", _BOOL),
        ("is_time", _BOOL),
    ],
    "indexes": [
        ("index_name", _TEXT),
        ("table_name", _TEXT),
        ("columns", pa.list_(_TEXT)),
        ("method", _TEXT),
        ("bytes", _INT),
    ],
    "blocks": [
        ("table_name", _TEXT),
        ("block_id", _INT),
        ("state", _TEXT),
        ("first_seq", _INT),
        ("last_seq", _INT),
        ("rows", _INT),
        ("bytes", _INT),
        ("index_bytes", _INT),
        ("time_min", _TIME),
        ("time_max", _TIME),
        ("is_ordered", _BOOL),
    ],
    "ingest": [
        ("table_name", _TEXT),
        ("rows_in", _INT),
        ("stored", _INT),
        ("rejected", _INT),
        ("late", _INT),
        ("ignored", _INT),
        ("late_stored", _INT),
        ("replaced", _INT),
        ("expired", _INT),
        ("newest", _TIME),
        ("watermark", _TIME),
        ("lag", _LAG),
        ("memory_bytes", _INT),
        ("memory_limit_bytes", _INT),
        ("log_bytes", _INT),
        ("log_segments", _INT),
        ("accepts_rows", _BOOL),
    ],
    "settings": [
        ("scope", _TEXT),
        ("table_name", _TEXT),
        ("name", _TEXT),
        ("value", _TEXT),
        ("default", _TEXT),
        ("is_given", _BOOL),
        ("about", _TEXT),
    ],
}
NAMES = tuple(f"{SCHEMA}.{name}" for name in _FIELDS)

Row = dict[str, Any]


class SystemTables:
    """Makes system tables from the rooms' present state."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        hot: Mapping[int, HotTable],
        reference_rows: Callable[[int], int],
        settings: Settings,
    ) -> None:
        self._snapshot = snapshot
        self._hot = hot
        self._reference_rows = reference_rows
        self._settings = settings

    def table(self, name: str) -> pa.Table:
        """``tables``, ``columns``, ``indexes``, ``blocks``, ``ingest`` or ``settings``."""
        makers: dict[str, Callable[[Table], list[Row]]] = {
            "tables": self._tables,
            "columns": _columns,
            "indexes": self._indexes,
            "blocks": self._blocks,
            "ingest": self._ingest,
            "settings": _table_settings,
        }
        rows: list[Row] = []
        if name == "settings":
            rows += _settings_rows("database", None, self._settings)
        known = self._snapshot().tables
        for key in sorted(known):
            rows += makers[name](known[key])
        return pa.Table.from_pylist(rows, schema=schema(name))

    def _tables(self, table: Table) -> list[Row]:
        hot = self._hot.get(table.table_id)
        return [
            {
                "table_name": table.name,
                "kind": table.kind,
                "rows": hot.view().rows if hot else self._reference_rows(table.table_id),
                "bytes": hot.nbytes if hot else None,
                "columns": len(table.columns),
                "primary_key": list(table.primary_key),
                "time_column": table.time_column,
                "watermark_delay": table.watermark_delay_us,
                "created_at": table.created_at_us,
            }
        ]

    def _indexes(self, table: Table) -> list[Row]:
        hot = self._hot.get(table.table_id)
        blocks = hot.view().blocks if hot else ()
        rows = []
        for index in table.indexes:
            held = [block.directories.get(index.index_id) for block in blocks]
            rows.append(
                {
                    "index_name": index.name,
                    "table_name": table.name,
                    "columns": list(index.columns),
                    "method": index.method,
                    "bytes": sum(directory.nbytes for directory in held if directory),
                }
            )
        return rows

    def _blocks(self, table: Table) -> list[Row]:
        hot = self._hot.get(table.table_id)
        if hot is None:
            return []
        view = hot.view()
        rows: list[Row] = [
            {
                "block_id": block.block_id,
                "state": "block",
                "first_seq": block.first_seq,
                "last_seq": block.last_seq,
                "rows": block.rows,
                "bytes": block.nbytes,
                "index_bytes": block.index_bytes,
                "time_min": block.time_min_us,
                "time_max": block.time_max_us,
                "is_ordered": block.is_ordered,
            }
            for block in view.blocks
        ]
        rows += [
            {
                "state": "tail",
                "first_seq": piece.first_seq,
                "last_seq": piece.last_seq,
                "rows": piece.rows,
                "bytes": piece.batch.nbytes,
                "index_bytes": 0,
            }
            for piece in view.tail
        ]
        return [{"table_name": table.name, **row} for row in rows]

    def _ingest(self, table: Table) -> list[Row]:
        hot = self._hot.get(table.table_id)
        if hot is None:
            return []
        counters, progress = hot.counters.dump(), hot.progress
        log = hot.log
        expired = counters["stored"] - counters["replaced"] - hot.waiting_rows - hot.view().rows
        return [
            {
                "table_name": table.name,
                **counters,
                "expired": max(expired, 0),
                "newest": progress.newest_us,
                "watermark": progress.watermark_us(),
                "lag": progress.lag_us(),
                "memory_bytes": hot.nbytes,
                "memory_limit_bytes": table.settings["memory"],
                "log_bytes": log.size_bytes(),
                "log_segments": len(log.segments),
                "accepts_rows": log.failure is None,
            }
        ]


def schema(name: str) -> pa.Schema:
    return pa.schema(_FIELDS[name])


def _columns(table: Table) -> list[Row]:
    return [
        {
            "table_name": table.name,
            "position": position,
            "column_name": column.name,
            "type": column.type.name,
            "nullable": column.nullable,
            "default": column.default,
            "is_key": column.name in table.primary_key,
            "is_time": column.name == table.time_column,
        }
        for position, column in enumerate(table.columns, 1)
    ]


def _table_settings(table: Table) -> list[Row]:
    return _settings_rows("table", table.name, table.settings) if table.is_streaming else []


def _settings_rows(scope: str, table_name: str | None, settings: Settings) -> list[Row]:
    return [
        {
            "scope": scope,
            "table_name": table_name,
            "name": name,
            "value": settings.text(name),
            "default": setting.default,
            "is_given": name in settings.given,
            "about": setting.about,
        }
        for name, setting in settings.registry.items()
    ]
