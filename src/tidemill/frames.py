"""Frames: tables of other libraries, as Arrow tables.

pandas and Polars are never imported here: an object of theirs comes with its library loaded.

A pandas index is no column, but often holds the time. Levels that have a name, and times, come
along as columns that are marked in the schema's metadata; ``settle_index`` lets a table that rows
are appended to keep those it has columns for.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Collection
from numbers import Number
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.errors import RowsRejectedError

INDEX = b"tidemill.index"
UNNAMED = "index"
TIMES = (dt.date, dt.time, dt.timedelta, np.datetime64)
_STREAM = "__arrow_c_stream__"
_DICTIONARY = pa.dictionary(pa.int8(), pa.string()).id


def is_frame(value: object) -> bool:
    """Whether a value is a table of a library that we read: Arrow, pandas, Polars."""
    return isinstance(value, pa.Table | pa.RecordBatch) or _is_pandas(value) or _is_stream(value)


def as_table(rows: Any) -> pa.Table | None:
    """A frame as an Arrow table; None for what is none, such as dicts."""
    if isinstance(rows, pa.Table):
        return decoded(rows)
    if isinstance(rows, pa.RecordBatch):
        return decoded(pa.Table.from_batches([rows]))
    if _is_pandas(rows):
        return _from_pandas(rows)
    if _is_stream(rows):
        return decoded(_from_stream(rows))
    if isinstance(rows, list) and rows and all(isinstance(row, pa.RecordBatch) for row in rows):
        if any(not row.schema.equals(rows[0].schema) for row in rows):
            raise RowsRejectedError("the batches have different columns; nothing was stored")
        return decoded(pa.Table.from_batches(rows))
    return None


def no_rows(rows: object) -> RowsRejectedError:
    """The error for what has no rows in any form."""
    return RowsRejectedError(
        f"rows of type {type(rows).__name__} cannot be appended",
        hint="give Arrow, pandas or Polars data, a dict, a tuple, or a list of dicts or tuples",
    )


def decoded(table: pa.Table) -> pa.Table:
    """A table without dictionaries, which pandas and Polars make of categories."""
    for at, kind in enumerate(table.schema.types):
        if kind.id == _DICTIONARY:
            plain = _plain(kind.value_type)
            field = pa.field(table.schema.field(at).name, plain)
            table = table.set_column(at, field, _values(table.column(at), plain))
    return table


def settle_index(given: pa.Table, columns: Collection[str], time_column: str | None) -> pa.Table:
    """Rows for a table: of the index, the columns that the table has; times without a name are
    its time, if nothing else is."""
    marked = (given.schema.metadata or {}).get(INDEX)
    if marked is None:
        return given
    known = {name.lower() for name in columns}
    names = {name.lower() for name in given.column_names}
    for name, is_named in json.loads(marked).items():
        wanted = name if is_named else time_column
        is_taken = not is_named and wanted is not None and wanted.lower() in names
        if wanted is None or wanted.lower() not in known or is_taken:
            given = given.drop_columns([name])
        elif not is_named:
            given = given.rename_columns({name: wanted})
    return given.replace_schema_metadata(None)


def _is_pandas(value: object) -> bool:
    # While another thread imports pandas (Arrow does at need), the module is there half-made.
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    return frame is not None and isinstance(value, frame)


def _is_stream(value: object) -> bool:
    return hasattr(value, _STREAM) and not isinstance(value, type)


def _from_stream(rows: Any) -> pa.Table:
    try:
        return pa.RecordBatchReader.from_stream(rows).read_all()
    except (pa.ArrowException, TypeError, ValueError, OSError) as error:
        raise RowsRejectedError(
            f"the {type(rows).__name__} cannot be read as an Arrow table; nothing was stored",
            detail=(str(error).splitlines() or [""])[0],
        ) from error


def _from_pandas(frame: Any) -> pa.Table:
    for name, kind in frame.dtypes.items():
        if kind.kind == "O" and mixes_times_and_numbers({type(value) for value in frame[name]}):
            raise RowsRejectedError(
                f'column "{name}" has both times and numbers; nothing was stored',
                hint="give every column one type",
            )
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        return decoded(_with_index(table, frame.index))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise RowsRejectedError(
            "the pandas DataFrame cannot be read as Arrow; nothing was stored",
            detail=str(error),
            hint="give every column one type",
        ) from error


def _with_index(table: pa.Table, index: Any) -> pa.Table:
    marked: dict[str, bool] = {}
    for at in range(index.nlevels):
        level = index.get_level_values(at)
        is_named = level.name is not None
        name = str(level.name) if is_named else UNNAMED
        is_time = getattr(level.dtype, "kind", "") == "M"
        if (is_named or is_time) and name not in table.column_names:
            column = pa.array(level)
            table = table.add_column(len(marked), name, column)
            marked[name] = is_named
    return table.replace_schema_metadata({INDEX: json.dumps(marked)}) if marked else table


def mixes_times_and_numbers(kinds: Collection[type]) -> bool:
    """Whether a column of objects holds both, so that one could be taken for the other."""
    return any(issubclass(k, TIMES) for k in kinds) and any(issubclass(k, Number) for k in kinds)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of a dictionary's values; Polars has texts as views, which few functions know."""
    return pa.string() if pa.types.is_string_view(kind) else kind


def _values(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    chunks = []
    for chunk in column.chunks:
        known = chunk.dictionary
        known = known if known.type == kind else known.cast(kind)
        chunks.append(known.take(chunk.indices))
    return pa.chunked_array(chunks, kind)
