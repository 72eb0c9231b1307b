"""Plain rows: tuples of plain values, times as microseconds and dates as days, and Arrow of them.

Rows that come one by one are kept like that until a thousand have gathered, since to make a batch
of one row costs more than all else on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def batch_of_rows(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.RecordBatch:
    """A batch of rows that came one by one, times as microseconds and dates as days."""
    columns = zip(*rows, strict=True)
    arrays = [_array(list(values), f.type) for values, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).view(kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)
