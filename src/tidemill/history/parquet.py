"""One Parquet file: how each of its columns is laid out, so that readers skip what they can.

- zstd everywhere; whole numbers and times that seldom repeat as differences
  (DELTA_BINARY_PACKED), which is smaller and faster than anything else here;
- a dictionary where a sample shows few distinct values, and for texts and bytes that are all the
  same beside NULLs in some row group: DuckDB 2.0 takes such a group, when it is stored plainly and
  has statistics, to be constant, and forgets the NULLs;
- bloom filters for indexed columns that do not order the file, and for the one that does if its
  values come and go with time and the filters are small. Floating point columns get none: 0.0
  equals -0.0, and their bits do not;
- least and greatest values of every plain column, which are what row groups are skipped by. A
  floating point column that holds NaN gets none: Parquet leaves NaN out of them, SQL calls it the
  greatest of all, and ``f > 5`` would lose rows.

Encodings are those that Spark's vectorised reader knows (BYTE_STREAM_SPLIT is not). The figures
are in docs/design/20261115-history-files.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemill.history.slices import spans_of

SAMPLE_ROWS = 2_048
DICTIONARY_SHARE_MAX = 0.25
BLOOM_FALSE_POSITIVES = 0.01
BLOOM_REPEATS_MIN = 16  # of a key in a row group: a filter takes two bytes for each key
BLOOM_SHARED_MAX = 0.5


@dataclass(frozen=True)
class Layout:
    """The columns with a dictionary, with differences, with statistics, and with bloom filters
    (for how many distinct values a row group)."""

    dictionary: tuple[str, ...]
    differences: tuple[str, ...]
    statistics: tuple[str, ...]
    blooms: dict[str, int]


def layout_of(
    rows: pa.RecordBatch,
    indexed: Collection[str],
    ends: Sequence[int],
    key: str | None = None,
    is_whole: bool = True,
) -> Layout:
    """The layout of rows in row groups that end so, of which columns are ``indexed`` without
    ordering the file; ``key`` orders its slices. Unless they are the whole file, its other rows may
    hold anything."""
    dictionary, differences, statistics = [], [], []
    blooms = {}
    start, end = max(spans_of(ends), key=lambda span: span[1] - span[0], default=(0, 0))
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        kind = column.type
        if "." in name or pa.types.is_nested(kind):
            continue  # the writer takes a dot for a step into a nested column
        if not (pa.types.is_floating(kind) and (not is_whole or _has_nan(column))):
            statistics.append(name)
        is_indexed = name in indexed or (name == key and _comes_and_goes(column, ends))
        if is_indexed and has_bloom(kind):
            blooms[name] = _distinct(column.slice(start, end - start))
        is_hiding = _may_hide_nulls(kind) if not is_whole else _hides_nulls(column, ends)
        if (_may_repeat(kind) and _repeats(column)) or is_hiding:
            dictionary.append(name)
        elif _is_whole(kind):
            differences.append(name)
    return Layout(tuple(dictionary), tuple(differences), tuple(statistics), blooms)


def open_parquet(target: Any, schema: pa.Schema, layout: Layout) -> pq.ParquetWriter:
    """A writer to a path or an open file. Each table that it is given becomes a row group."""
    return pq.ParquetWriter(
        target,
        schema,
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


def write_groups(writer: pq.ParquetWriter, rows: pa.RecordBatch, ends: Sequence[int]) -> None:
    """Write rows in row groups that end so."""
    for start, end in spans_of(ends):
        writer.write_batch(rows.slice(start, end - start), row_group_size=end - start)


def write_parquet(target: Any, rows: pa.RecordBatch, layout: Layout, ends: Sequence[int]) -> None:
    """Write rows to a path or an open file."""
    with open_parquet(target, rows.schema, layout) as writer:
        write_groups(writer, rows, ends)


def has_bloom(kind: pa.DataType) -> bool:
    """Types whose equal values have equal bits, in Parquet and in DuckDB's filters."""
    is_bytes = pa.types.is_string(kind) or pa.types.is_binary(kind) or kind == pa.uuid()
    return bool(_is_whole(kind) or is_bytes)


def _comes_and_goes(column: pa.Array, ends: Sequence[int]) -> bool:
    """Whether row groups that have the same range of keys have few keys in common, and each key
    several times: then a filter tells more than the range, and is small."""
    spans = list(spans_of(ends))
    if len(spans) < 2 or not has_bloom(column.type):
        return False
    first, last = (_known(column.slice(s, e - s)) for s, e in (spans[0], spans[-1]))
    if not len(last) or len(first) < _distinct(first) * BLOOM_REPEATS_MIN:
        return False
    one, other = pc.min_max(first), pc.min_max(last)
    is_apart = pc.or_(pc.less(one["max"], other["min"]), pc.less(other["max"], one["min"]))
    if is_apart.as_py():
        return False  # the ranges tell
    shared = pc.mean(pc.is_in(first, value_set=last).cast(pa.int8())).as_py()
    return bool(shared < BLOOM_SHARED_MAX)


def _known(column: pa.Array) -> pa.Array:
    """The values that are not NULL, of a type that has a least one."""
    values = _storage(column.drop_null())
    return values.cast(pa.binary()) if pa.types.is_fixed_size_binary(values.type) else values


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


def _hides_nulls(column: pa.Array, ends: Sequence[int]) -> bool:
    """Whether bytes of some row group would look constant to DuckDB, NULLs and all."""
    kind = column.type
    if not column.null_count or not _may_hide_nulls(kind):
        return False
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return True  # bytes of fixed size have no order here
    for start, end in spans_of(ends):
        least = pc.min_max(column.slice(start, end - start))
        if least["min"].is_valid and least["min"] == least["max"]:
            return True
    return False


def _may_hide_nulls(kind: pa.DataType) -> bool:
    return not (pa.types.is_primitive(kind) or pa.types.is_boolean(kind))


def _distinct(column: pa.Array) -> int:
    return max(int(pc.count_distinct(_storage(column)).as_py()), 1)


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _has_nan(column: pa.Array) -> bool:
    return bool(pc.any(pc.is_nan(column)).as_py())
