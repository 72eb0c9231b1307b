"""What was defined: ``tidemill.columns``, ``tidemill.indexes``, ``tidemill.settings``."""

from __future__ import annotations

import pyarrow as pa

from tidemill.config import Settings
from tidemill.system.arrow import Row, make_table_of_rows
from tidemill.system.state import State


def columns(state: State) -> pa.Table:
    rows: list[Row] = [
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
        for table in state.tables()
        for position, column in enumerate(table.columns, 1)
    ]
    return make_table_of_rows("columns", rows)


def indexes(state: State) -> pa.Table:
    rows: list[Row] = []
    for table in state.tables():
        hot = state.hot.get(table.table_id)
        blocks = hot.published.view().blocks if hot else ()
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
    return make_table_of_rows("indexes", rows)


def settings(state: State) -> pa.Table:
    rows = _settings_rows("database", None, state.settings)
    for table in state.tables():
        if table.is_streaming:
            rows += _settings_rows("table", table.name, table.settings)
    return make_table_of_rows("settings", rows)


def _settings_rows(scope: str, table_name: str | None, given: Settings) -> list[Row]:
    return [
        {
            "scope": scope,
            "table_name": table_name,
            "name": name,
            "value": given.text(name),
            "default": setting.default,
            "is_given": name in given.given,
            "origin": given.origin(name),
            "about": setting.about,
        }
        for name, setting in given.registry.items()
    ]
