"""Values: the corrections of changes as Arrow, and as SQL where they are few.

Few of them stand in the text of a scan. Many are tables that the text names, and that go with it to
whoever runs it: registered here, as Arrow IPC with a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import count

import duckdb
import pyarrow as pa

from tidemill.changes.model import Change, ChangeForm
from tidemill.config import DUCKDB_CLOSED
from tidemill.plain_rows import batch_of_rows
from tidemill.threads import PerThread
from tidemill.types import literal

ORDER, UPTO = "n", "upto"
_FIELDS = [pa.field(ORDER, pa.int64()), pa.field(UPTO, pa.int64())]
_WHOLE = frozenset(
    f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
)


def batch_of(change: Change) -> pa.RecordBatch:
    """The corrections of a change."""
    if change.batch is not None:
        return change.batch
    return batch_of_rows(change.rows, change.form.schema)


def table_of(changes: Sequence[Change], places: Mapping[int, int]) -> pa.Table:
    """The corrections of changes of one form: their places, which begin for each change with the
    one given by its number, the last number of a row that each may touch, and the slots."""
    form = changes[0].form
    parts = []
    rows = [row for change in changes if change.batch is None for row in change.rows]
    if all(change.batch is None for change in changes):
        parts = [_slots(form, rows)]
    else:
        parts = [_slots(form, change.rows, change.batch) for change in changes]
    slots = pa.Table.from_batches(parts, form.schema) if form.types else None
    counts = [change.count for change in changes]
    pairs = list(zip(changes, counts, strict=True))
    order = [places[c.number] + at for c, count in pairs for at in range(count)]
    upto = [c.upto_seq for c, count in pairs for _ in range(count)]
    columns = [pa.array(order, pa.int64()), pa.array(upto, pa.int64())]
    fields = list(_FIELDS)
    if slots is not None:
        columns += [column.combine_chunks() for column in slots.columns]
        fields += list(slots.schema)
    return pa.table(columns, schema=pa.schema(fields))


def _slots(
    form: ChangeForm, rows: Sequence[tuple[object, ...]], batch: pa.RecordBatch | None = None
) -> pa.RecordBatch:
    if batch is not None:
        return batch
    if not form.types:
        return pa.record_batch([], schema=form.schema)
    if not rows:
        return pa.RecordBatch.from_pylist([], schema=form.schema)
    return batch_of_rows(rows, form.schema)


def literals_of(change: Change) -> list[list[str]]:
    """SQL of the values of each slot, one for each correction."""
    form = change.form
    if change.batch is not None:
        return [_texts(change.batch.column(at), kind) for at, kind in enumerate(form.types)]
    return [
        [literal_of(row[at], kind) for row in change.rows] for at, kind in enumerate(form.types)
    ]


def literal_of(value: object, kind: str) -> str:
    """SQL of a plain value of a type."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if kind == "TIMESTAMP":
        return f"make_timestamp({value}::BIGINT)"
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"make_timestamptz({value}::BIGINT)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "DATE" and isinstance(value, int):
        return f"CAST(DATE '1970-01-01' + {value} AS DATE)"
    if kind in _WHOLE:
        return f"CAST({value} AS {kind})"
    if isinstance(value, float):
        return f"CAST({literal(repr(value))} AS {kind})"  # without quotes it were a DECIMAL first
    if isinstance(value, bytes):
        return f"from_hex({literal(value.hex())})"
    if isinstance(value, timedelta):
        return f"to_microseconds({value // timedelta(microseconds=1)})"
    if kind == "VARCHAR":
        return _text(str(value))
    return f"CAST({_text(str(value))} AS {kind})"


def _text(value: str) -> str:
    """A text literal; DuckDB's parser ends a text at a zero byte."""
    parts = [literal(part) for part in value.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def _texts(column: pa.Array, kind: str) -> list[str]:
    """SQL of values of any type, as DuckDB writes and reads them."""
    tm_values = pa.table({"v": column})  # noqa: F841  (DuckDB finds it by name)
    if kind == "BLOB":
        read = "to_hex(v)"
    else:
        read = "CAST(v AS VARCHAR)"
    found = _connections.get().sql(f"SELECT {read} FROM tm_values").fetchall()
    return [_cast(text, kind) for (text,) in found]


def _cast(text: str | None, kind: str) -> str:
    if text is None:
        return f"CAST(NULL AS {kind})"
    if kind == "BLOB":
        return f"from_hex({literal(text)})"
    return f"CAST({_text(text)} AS {kind})"


def connect() -> duckdb.DuckDBPyConnection:
    """A small DuckDB with the meaning of the owner's, whose Arrow keeps every type as it is."""
    connection = duckdb.connect(":memory:", config={**DUCKDB_CLOSED})
    for setting in ("arrow_lossless_conversion = true", "TimeZone = 'UTC'", "threads = 1"):
        connection.execute(f"SET {setting}")
    return connection


_connections = PerThread(connect)

_names = count(1)


class Named(dict[str, pa.Table]):
    """Tables of corrections that a text of SQL names; no two of a process have one name."""

    def put(self, rows: pa.Table) -> str:
        """Name a table."""
        name = f"tm_corrections_{next(_names)}"
        self[name] = rows
        return name


@contextmanager
def registered(
    connection: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]
) -> Iterator[None]:
    """Let a connection know tables by their names for a while."""
    for name, rows in tables.items():
        connection.register(name, rows)
    try:
        yield
    finally:
        for name in tables:
            connection.unregister(name)
