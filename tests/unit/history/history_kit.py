"""Tables, values of every type and files for the tests of history."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tidemill.catalog.model import DataFile, History, Index, NewFile, Table
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_rows
from tidemill.types import Column, SqlType

QUICK = settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
HOUR_US = 3_600_000_000
NOW_US = 1_700_000_000_000_000 // HOUR_US * HOUR_US

LEAVES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE"),
    *("VARCHAR", "BLOB", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
    *("INTERVAL", "UUID", "JSON"),
    *("DECIMAL(4,1)", "DECIMAL(9,3)", "DECIMAL(18,0)", "DECIMAL(38,10)"),
)
HOSTILE_NAMES = (
    'say "x"',
    "it's",
    "größe 数",
    "filename",
    "file_row_number",
    "SELECT",
    "f",
    "d.n",
    "tm_rows",
    "_at",
    "a\\b",
    "%s {x} $1 ?",
    " ",
)


def make_table(
    columns: Sequence[tuple[str, str]],
    indexes: Sequence[tuple[str, ...]] = (),
    primary_key: tuple[str, ...] = (),
    partition: str = "1 hour",
    time_type: str = "TIMESTAMP",
) -> Table:
    """A streaming table whose first column is the time column ``ts``."""
    made = (
        Column("ts", SqlType(time_type), nullable=False),
        *(Column(name, SqlType.parse(kind)) for name, kind in columns),
    )
    indices = tuple(Index(at, f"i{at}", 1, names, "hash") for at, names in enumerate(indexes, 1))
    given = {"partition": partition}
    return Table(1, "t", "streaming", made, primary_key, "ts", None, given, indices, 0)


def make_batch(table: Table, rows: Iterable[Sequence[Any]], first_seq: int = 1) -> pa.RecordBatch:
    """Rows, their times in microseconds, with sequence numbers."""
    held = [(*row, first_seq + at) for at, row in enumerate(rows)]
    schema = WriteSpec.of(table).schema
    columns = list(zip(*held, strict=True)) or [()] * len(schema)
    arrays = [build(kind, list(values)) for kind, values in zip(schema.types, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def write(
    storage: Storage, table: Table, *batches: pa.RecordBatch, job_id: str = "job", **changes: Any
) -> list[NewFile]:
    spec = dataclasses.replace(WriteSpec.of(table), **changes)
    return write_rows(storage, spec, batches, job_id, 0, "load")


def history_of(files: Iterable[NewFile]) -> History:
    """Files as the catalog would name them."""
    named = [
        DataFile(**{each.name: getattr(file, each.name) for each in dataclasses.fields(NewFile)})
        for file in files
    ]
    return History(1, files=tuple(sorted(named, key=lambda file: file.lo_us)))


def differences(
    connection: duckdb.DuckDBPyConnection, scan: str, given: pa.Table, names: Sequence[str]
) -> list[Any]:
    """Rows of which a scan gives other values than were given; text tells what SQL calls equal."""
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    tests = [
        f"g.{n} IS DISTINCT FROM s.{n} OR CAST(g.{n} AS VARCHAR) IS DISTINCT FROM "
        f"CAST(s.{n} AS VARCHAR)"
        for n in quoted
    ]
    return connection.execute(
        f"SELECT * FROM given AS g FULL JOIN ({scan}) AS s ON g._seq = s._seq "
        f"WHERE g._seq IS NULL OR s._seq IS NULL OR {' OR '.join(tests)}"
    ).fetchall()


def build(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """An Arrow array of Python values, for every type that a column may have."""
    mask = pa.array([value is None for value in values], pa.bool_())
    if kind == pa.uuid() or kind == pa.json_():
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if isinstance(kind, pa.OpaqueType):
        words = [None if v is None else (v % 2**128).to_bytes(16, "little") for v in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(words, kind.storage_type))
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return pa.array(values, pa.int64()).view(kind)
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        parts = [
            build(field.type, [None if v is None else v[at] for v in values])
            for at, field in enumerate(fields)
        ]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if pa.types.is_fixed_size_list(kind):
        flat = [part for v in values for part in (v or [None] * kind.list_size)]
        child = build(kind.value_type, flat)
        return pa.FixedSizeListArray.from_arrays(child, type=kind, mask=mask)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _build_varied(kind, values, mask)
    return pa.array(values, kind)


def _build_varied(kind: pa.DataType, values: list[Any], mask: pa.Array) -> pa.Array:
    flat = [part for v in values for part in (v or [])]
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or []))
    offsets = pa.array(ends, pa.int32())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(offsets, build(kind.value_type, flat), kind, mask=mask)
    keys = build(kind.key_type, [key for key, _ in flat])
    items = build(kind.item_type, [item for _, item in flat])
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    validity = pa.array([None if v is None else 0 for v in values], pa.int8()).buffers()[0]
    return pa.Array.from_buffers(
        kind, len(values), [validity, offsets.buffers()[1]], children=[entries]
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


def _words(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high) | st.sampled_from([low, high, 0])


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": _words(8, True),
    "SMALLINT": _words(16, True),
    "INTEGER": _words(32, True),
    "BIGINT": _words(64, True),
    "HUGEINT": _words(128, True),
    "UTINYINT": _words(8, False),
    "USMALLINT": _words(16, False),
    "UINTEGER": _words(32, False),
    "UBIGINT": _words(64, False),
    "UHUGEINT": _words(128, False),
    "FLOAT": st.floats(width=32) | st.sampled_from([0.0, -0.0]),
    "DOUBLE": st.floats() | st.sampled_from([0.0, -0.0]),
    "VARCHAR": _TEXT | st.sampled_from(["", "x" * 300, "\x00", "é" * 70]),
    "BLOB": st.binary(max_size=8) | st.sampled_from([b"", b"\xff" * 300]),
    "DATE": st.integers(-2_147_483_645, 2_147_483_645) | st.sampled_from([2**31 - 1, 1 - 2**31]),
    "TIME": st.integers(0, 86_400_000_000),
    "INTERVAL": st.tuples(
        _words(32, True),
        _words(32, True),
        st.integers(-9_223_372_036_854_775, 9_223_372_036_854_775).map(lambda us: us * 1_000),
    ).map(pa.MonthDayNano),
    "UUID": st.uuids().map(lambda given: given.bytes),
    "JSON": _JSON.map(json.dumps),
}
_TIMES = st.integers(-9_223_372_022_400_000_000, 9_223_372_036_854_775_806) | st.sampled_from(
    [2**63 - 1, 1 - 2**63, NOW_US, -62_135_596_800_000_000, 0, -1]
)


def values_of(kind: str) -> st.SearchStrategy[Any]:
    """Values of a SQL type as ``build`` takes them, NULL among them."""
    return st.none() | _some(duckdb.sqltype(kind))


def _some(duck: Any) -> st.SearchStrategy[Any]:
    name = str(duck)
    if name in _VALUES:
        return _VALUES[name]
    if name in ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"):
        return _TIMES
    parts = dict(duck.children)
    if duck.id == "decimal":
        end, scale = 10 ** parts["precision"] - 1, parts["scale"]
        return st.integers(-end, end).map(lambda n: Decimal((n < 0, _digits(n), -scale)))
    if duck.id == "struct":
        return st.tuples(*(st.none() | _some(part) for _, part in duck.children))
    if duck.id == "map":
        key = _some(parts["key"])
        item = st.none() | _some(parts["value"])
        return st.lists(st.tuples(key, item), max_size=1)
    child = st.none() | _some(parts["child"])
    if duck.id == "array":
        return st.lists(child, min_size=parts["size"], max_size=parts["size"])
    return st.lists(child, max_size=3)


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


def type_names() -> st.SearchStrategy[str]:
    """SQL types: plain ones, and nestings of all."""
    return st.recursive(
        st.sampled_from(LEAVES),
        lambda inner: st.one_of(
            inner.map(lambda t: f"{t}[]"),
            inner.map(lambda t: f"{t}[2]"),
            st.tuples(inner, inner).map(lambda t: f'STRUCT("a ""q""" {t[0]}, "ü, b)" {t[1]})'),
            st.tuples(st.sampled_from(LEAVES), inner).map(lambda t: f"MAP({t[0]}, {t[1]})"),
        ),
        max_leaves=4,
    )


def some_uuid(number: int) -> bytes:
    return uuid.UUID(int=number).bytes
