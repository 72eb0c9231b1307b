"""Resolving: which rows, held as Arrow, changes touch, and what becomes of them.

Rows in memory get their changes like this when they are read, and rows that move on their
way. Runs are resolved one after the other, each over the rows as those before it left them.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.changes.model import Change
from tidemill.changes.patching import NO_SEQS, NewValues, Touched, merged, patched
from tidemill.changes.rewriting import DELETED, HasColumns, corrections_of, hits, written_by
from tidemill.changes.runs import Run, runs_of
from tidemill.changes.values import Named, connect, registered
from tidemill.errors import QueryError
from tidemill.threads import PerThread
from tidemill.types import SEQ

_ROWS = "tm_rows"


def resolve(table: HasColumns, rows: pa.Table, changes: Sequence[Change]) -> Touched:
    """What changes, in their order, make of rows, which have ``_seq`` and the columns that are
    read."""
    parts, runs = [], runs_of(changes)
    if len(runs) > 1:
        rows = rows.sort_by(SEQ)
    for run in runs:
        touched = _resolve_run(table, rows, run)
        if touched:
            parts.append(touched)
            if run is not runs[-1]:
                rows = _after(rows, touched)
    return merged(parts) if parts else Touched()


def _resolve_run(table: HasColumns, rows: pa.Table, run: Run) -> Touched:
    named = Named()
    reads = dict.fromkeys(name for group in run.groups.values() for name in group.form.reads)
    known = {name.lower(): name for name in rows.column_names}
    columns = [known[name.lower()] for name in reads if name.lower() in known]
    names = [named.put(each) for each in corrections_of(run)]
    named[_ROWS] = rows.select([*dict.fromkeys(columns), SEQ])
    sql = f"{hits(f'SELECT * FROM {_ROWS}', run, table, names)} ORDER BY {SEQ}"
    found = _query(sql, named)
    if not found.num_rows:
        return Touched()
    seqs = found.column(SEQ).to_numpy()
    deleted = found.column(DELETED).to_numpy(zero_copy_only=False).astype(bool)
    values: dict[str, NewValues] = {}
    for at, column in enumerate(written_by(run, table)):
        wrapped = found.column(f"w{at}")
        is_set = np.asarray(pc.is_valid(wrapped).to_numpy(zero_copy_only=False)) & ~deleted
        if is_set.any():
            # by their fields: Arrow does not filter or join structs of extension types
            inner = pa.concat_arrays([_cast(c.field(0), column.type.arrow) for c in wrapped.chunks])
            values[column.name] = NewValues(seqs[is_set], inner.filter(pa.array(is_set)))
    return Touched(np.asarray(seqs[deleted], dtype=np.int64), values)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type.equals(kind) else values.cast(kind)


def _after(rows: pa.Table, touched: Touched) -> pa.Table:
    """Rows as changes leave them, for those that come next."""
    batch = rows.combine_chunks().to_batches()
    if not batch:
        return rows
    (whole,) = batch
    seqs = np.asarray(whole.column(SEQ).to_numpy(), dtype=np.int64)
    known = set(whole.schema.names)
    own = Touched(NO_SEQS, {name: new for name, new in touched.columns.items() if name in known})
    left = pa.Table.from_batches([patched(whole, seqs, own)])
    if len(touched.deleted):
        left = left.filter(pa.array(~np.isin(seqs, touched.deleted)))
    return left


def _query(sql: str, sources: Named) -> pa.Table:
    connection = _connections.get()
    try:
        with registered(connection, sources):
            return connection.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        _connections.forget()
        raise QueryError(
            "changes of the table could not be carried out in its rows", detail=str(error)
        ) from error


_connections = PerThread(connect)
