"""One Parquet file: how each of its columns is laid out, so that readers skip what they can.

- zstd everywhere; whole numbers and times that seldom repeat as differences
  (DELTA_BINARY_PACKED), which is smaller and faster than anything else here;
- a dictionary where a sample shows few distinct values, and for texts and bytes that are all the
  same beside NULLs in some row group: DuckDB 2.0 takes such a group, when it is stored plainly and
  has statistics, to be constant, and forgets the NULLs;
- bloom filters for indexed columns that do not order the file. Floating point columns get none:
  0.0 equals -0.0, and their bits do not;
- least and greatest values of every plain column, which are what row groups are skipped by. A
  floating point column that holds NaN gets none: Parquet leaves NaN out of them, SQL calls it the
  greatest of all, and ``f > 5`` would lose rows.

Encodings are those that Spark's vectorised reader knows (BYTE_STREAM_SPLIT is not). The figures
are in docs/design/20261115-history-files.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SAMPLE_ROWS = 2_048
DICTIONARY_SHARE_MAX = 0.25
BLOOM_FALSE_POSITIVES = 0.01


@dataclass(frozen=True)
class Layout:
    """The columns with a dictionary, with differences, with statistics, and with bloom filters
    (for how many distinct values a row group)."""

    dictionary: tuple[str, ...]
    differences: tuple[str, ...]
    statistics: tuple[str, ...]
    blooms: dict[str, int]


def layout_of(rows: pa.RecordBatch, indexed: Collection[str], group_rows: int) -> Layout:
    """The layout of rows, of which columns are ``indexed`` without ordering the file."""
    dictionary, differences, statistics = [], [], []
    blooms = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        kind = column.type
        if "." in name or pa.types.is_nested(kind):
            continue  # the writer takes a dot for a step into a nested column
        if not (pa.types.is_floating(kind) and _has_nan(column)):
            statistics.append(name)
        if name in indexed and has_bloom(kind):
            blooms[name] = _distinct(column.slice(0, group_rows))
        if (_may_repeat(kind) and _repeats(column)) or _hides_nulls(column, group_rows):
            dictionary.append(name)
        elif _is_whole(kind):
            differences.append(name)
    return Layout(tuple(dictionary), tuple(differences), tuple(statistics), blooms)


def write_parquet(target: Any, rows: pa.RecordBatch, layout: Layout, group_rows: int) -> None:
    """Write rows to a path or an open file."""
    pq.write_table(
        pa.Table.from_batches([rows]),
        target,
        row_group_size=group_rows,
        compression="zstd",
        use_dictionary=list(layout.dictionary),
        column_encoding=dict.fromkeys(layout.differences, "DELTA_BINARY_PACKED"),
        write_statistics=list(layout.statistics),
        bloom_filter_options={
            name: {"ndv": count, "fpp": BLOOM_FALSE_POSITIVES}
            for name, count in layout.blooms.items()
        },
        store_decimal_as_integer=True,
        store_schema=False,
    )


def has_bloom(kind: pa.DataType) -> bool:
    """Types whose equal values have equal bits, in Parquet and in DuckDB's filters."""
    is_bytes = pa.types.is_string(kind) or pa.types.is_binary(kind) or kind == pa.uuid()
    return bool(_is_whole(kind) or is_bytes)


def _is_whole(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp)
    return any(test(kind) for test in tests)


def _may_repeat(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_decimal)
    return _is_whole(kind) or any(test(kind) for test in tests)


def _repeats(column: pa.Array) -> bool:
    """Whether a sample from all over the column has few distinct values."""
    if len(column) > SAMPLE_ROWS:
        step = np.linspace(0, len(column) - 1, SAMPLE_ROWS).astype(np.int64)
        column = column.take(pa.array(step))
    return _distinct(column) <= len(column) * DICTIONARY_SHARE_MAX


def _hides_nulls(column: pa.Array, group_rows: int) -> bool:
    """Whether bytes of some row group would look constant to DuckDB, NULLs and all."""
    kind = column.type
    if not column.null_count or pa.types.is_primitive(kind) or pa.types.is_boolean(kind):
        return False
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return True  # bytes of fixed size have no order here
    for start in range(0, len(column), group_rows):
        ends = pc.min_max(column.slice(start, group_rows))
        if ends["min"].is_valid and ends["min"] == ends["max"]:
            return True
    return False


def _distinct(column: pa.Array) -> int:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return max(int(pc.count_distinct(column).as_py()), 1)


def _has_nan(column: pa.Array) -> bool:
    return bool(pc.any(pc.is_nan(column)).as_py())
