"""``information_schema``: the warehouse's tables and columns as the SQL standard names them.

Programs that do not know Tidemill ask there what exists. DuckDB's own would show inner names.
"""

from __future__ import annotations

import re

import pyarrow as pa

from tidemill.federation.system import CATALOG, SCHEMA
from tidemill.sql.names import INFORMATION_SCHEMA
from tidemill.system.arrow import Row, make_table_of_rows
from tidemill.system.state import State

MAIN = "main"
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}


def schemata(state: State) -> pa.Table:
    del state
    rows: list[Row] = [
        {"catalog_name": CATALOG, "schema_name": name, "schema_owner": CATALOG}
        for name in (MAIN, SCHEMA, INFORMATION_SCHEMA)
    ]
    return make_table_of_rows("information_schema.schemata", rows)


def tables(state: State) -> pa.Table:
    rows: list[Row] = [
        {
            "table_catalog": CATALOG,
            "table_schema": MAIN,
            "table_name": table.name,
            "table_type": "VIEW" if table.is_view else "BASE TABLE",
            "is_insertable_into": "NO" if table.is_view else "YES",
        }
        for table in state.tables()
    ]
    return make_table_of_rows("information_schema.tables", rows)


def columns(state: State) -> pa.Table:
    rows: list[Row] = [
        {
            "table_catalog": CATALOG,
            "table_schema": MAIN,
            "table_name": table.name,
            "column_name": column.name,
            "ordinal_position": position,
            "column_default": column.default,
            "is_nullable": "YES" if column.nullable else "NO",
            "data_type": column.type.name,
            **_precision(column.type.name),
        }
        for table in state.tables()
        for position, column in enumerate(table.columns, 1)
    ]
    return make_table_of_rows("information_schema.columns", rows)


def _precision(kind: str) -> Row:
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None:
        return {"numeric_precision": int(decimal[1]), "numeric_scale": int(decimal[2])}
    if kind.removeprefix("U") in _BITS:
        return {"numeric_precision": _BITS[kind.removeprefix("U")], "numeric_scale": 0}
    return {"datetime_precision": 6} if kind.startswith("TIMESTAMP") else {}
