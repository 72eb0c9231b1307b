"""How the columns of partials stand in Parquet files, exactly.

Like the rows of tables (``history.encoding``), with two differences. A state may have types that no
table has; whatever is not known to come back as it was is stored as text. And sums of integers are
HUGEINT, in nearly every digest: they are stored as their sixteen bytes, which costs nothing, and
DuckDB, which reads bytes, is given numbers again by changing the column's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

from tidemill.types import Column, quote

_PLAIN = frozenset(
    {
        *("boolean", "tinyint", "smallint", "integer", "bigint", "float", "double", "decimal"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "varchar", "blob", "uuid"),
        *("date", "time", "timestamp", "timestamp with time zone"),
    }
)
_HUGE = frozenset({"hugeint", "uhugeint"})
_BYTES = pa.binary(16)


def stored_select(columns: Sequence[Column], source: str) -> str:
    """A SELECT of partials as they are stored; numbers of sixteen bytes are left to ``packed``."""
    given = [_cast(column, _stored(column.type.name)) for column in columns]
    return f"SELECT {', '.join(given)} FROM {source}"


def read_select(columns: Sequence[Column], source: str) -> str:
    """A SELECT of stored partials as they were; numbers of sixteen bytes are left to
    ``unpacked``."""
    given = [_cast(c, "BLOB" if _is_huge(c.type.name) else c.type.name) for c in columns]
    return f"SELECT {', '.join(given)} FROM {source}"


def packed(rows: pa.Table) -> pa.Table:
    """Columns of numbers of sixteen bytes as bytes."""
    for at, name in enumerate(rows.column_names):
        kind = rows.schema.field(at).type
        if isinstance(kind, pa.OpaqueType) and kind.storage_type == _BYTES:
            rows = rows.set_column(at, name, _recast(rows.column(at), lambda chunk: chunk.storage))
    return rows


def unpacked(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Columns of bytes as the numbers that they stand for."""
    for at, column in enumerate(columns):
        if _is_huge(column.type.name):
            kind = column.type.arrow
            numbers = [
                pa.ExtensionArray.from_storage(kind, chunk.cast(_BYTES))
                for chunk in rows.column(at).chunks
            ]
            rows = rows.set_column(at, column.name, pa.chunked_array(numbers, kind))
    return rows


def _recast(column: pa.ChunkedArray, change: Any) -> pa.ChunkedArray:
    return pa.chunked_array([change(chunk) for chunk in column.chunks], _BYTES)


def _cast(column: Column, kind: str) -> str:
    name = quote(column.name)
    return f"CAST({name} AS {kind}) AS {name}"


@lru_cache(maxsize=1_000)
def _is_huge(name: str) -> bool:
    return duckdb.sqltype(name).id in _HUGE


@lru_cache(maxsize=1_000)
def _stored(name: str) -> str:
    return name if _is_huge(name) else _stored_as(duckdb.sqltype(name))


def _stored_as(duck: Any) -> str:
    if duck.id in _PLAIN:
        return str(duck)
    if duck.id == "struct":
        parts = [f"{quote(name)} {_stored_as(part)}" for name, part in duck.children]
        return f"STRUCT({', '.join(parts)})"
    if duck.id == "map":
        return f"MAP({', '.join(_stored_as(part) for _, part in duck.children)})"
    if duck.id == "list":
        return f"{_stored_as(duck.children[0][1])}[]"
    if duck.id == "array":
        held = dict(duck.children)
        return f"{_stored_as(held['child'])}[{held['size']}]"
    return "VARCHAR"
