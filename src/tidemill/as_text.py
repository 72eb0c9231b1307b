"""Results as texts: DuckDB itself writes the values, so they look as they do in a query.

It works in chunks, so that a result of any size can be written while little of it is text. JSON
has neither NaN nor infinities; there they are null, as JavaScript writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.config import DUCKDB_CLOSED
from tidemill.errors import SettingError
from tidemill.result import Result
from tidemill.text_result import TextResult, Texts
from tidemill.types import quote

TEXT, JSON = "text", "json"
ROWS_PER_CHUNK = 10_000
CHUNK_BYTES = 1_000_000


def text_result(result: Result, form: str, rows_max: int | None = None) -> TextResult:
    """A result's rows as texts of each value, or as one JSON object a row."""
    if form not in (TEXT, JSON):
        raise SettingError(f'form "{form}" does not exist', hint="the forms are text and json")
    table = result.table if rows_max is None else result.table.slice(0, rows_max)
    chunks = json_chunks(table) if form == JSON else text_chunks(table)
    return TextResult(
        tuple(result.columns),
        tuple(result.types),
        result.message,
        result.elapsed_s,
        result.rowcount,
        chunks,
    )


def text_chunks(table: pa.Table) -> Iterator[Texts]:
    """The values of each column as DuckDB writes them."""
    if not table.num_columns:
        return
    names = [f"c{index}" for index in range(table.num_columns)]
    casts = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in names)
    for chunk in _chunks(table.rename_columns(names)):
        texts = _cursor().from_arrow(chunk).project(casts).to_arrow_table()
        yield [column.to_pylist() for column in texts.columns]


def json_chunks(table: pa.Table) -> Iterator[Texts]:
    """Each row as a JSON object, in one column."""
    names = unique(table.column_names)
    if not names:
        return
    plain = pa.table([_finite_column(column) for column in table.columns], names=names)
    fields = ", ".join(f"{quote(name)} := {quote(name)}" for name in names)
    for chunk in _chunks(plain):
        rows = (
            _cursor()
            .from_arrow(chunk)
            .project(f"CAST(to_json(struct_pack({fields})) AS VARCHAR)")
            .fetchall()
        )
        yield [[row for (row,) in rows]]


def unique(names: Sequence[str]) -> list[str]:
    """Names without repetition, for formats that need it: a, a becomes a, a_1."""
    seen: set[str] = set()
    found = []
    for name in names:
        candidate, number = name, 0
        while candidate.lower() in seen:
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate.lower())
        found.append(candidate)
    return found


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    """Pieces of bounded size; a row that is larger than that is a piece of its own."""
    row_bytes = table.nbytes // max(table.num_rows, 1) + 1
    rows = max(1, min(ROWS_PER_CHUNK, CHUNK_BYTES // row_bytes))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _finite_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not _has_floats(column.type):
        return column
    chunks = [_finite(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type)


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    return any(_has_floats(kind.field(at).type) for at in range(kind.num_fields))


def _finite(array: pa.Array) -> pa.Array:
    """An array with NULL for every NaN and infinity in it, however deep."""
    kind = array.type
    if not _has_floats(kind):
        return array
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(array), array, pa.scalar(None, kind))
    gone = array.is_null()
    if pa.types.is_struct(kind):
        fields = [_finite(array.field(at)) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=gone)
    if pa.types.is_map(kind):
        offsets = _offsets(array)
        return pa.MapArray.from_arrays(
            offsets, array.keys, _finite(array.items), type=kind, mask=gone
        )
    if pa.types.is_fixed_size_list(kind):
        values = array.values[array.offset * kind.list_size :][: len(array) * kind.list_size]
        return pa.FixedSizeListArray.from_arrays(_finite(values), type=kind, mask=gone)
    return type(array).from_arrays(_offsets(array), _finite(array.values), type=kind, mask=gone)


def _offsets(array: pa.Array) -> pa.Array:
    """A copy of the offsets that starts at zero places: a mask goes with no sliced array."""
    return pa.array(array.offsets.to_numpy(zero_copy_only=False), array.offsets.type)


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={**DUCKDB_CLOSED})
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _cursor() -> duckdb.DuckDBPyConnection:
    """A cursor of this call's own: cursors do not share work between threads."""
    return _duckdb().cursor()
