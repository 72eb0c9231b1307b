"""Resolved changes: those that name rows by their numbers, since they had to be found at once."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.changes.model import DELETE, UPDATE, ChangeForm
from tidemill.types import SEQ, Column

OLD_TIME = "tm_time"  # of a row that is meant, whatever it becomes


def by_number(
    table: Table, rows: pa.Table, changed: tuple[Column, ...] | None
) -> tuple[ChangeForm, pa.RecordBatch]:
    """The change that gives rows their values of some columns (None: deletes them); they have
    their numbers and their old times."""
    form = _form(table, changed)
    columns = [rows.column(SEQ), times_of(rows), *(rows.column(c.name) for c in changed or ())]
    whole = pa.Table.from_arrays([c.combine_chunks() for c in columns], names=form.schema.names)
    return form, whole.cast(form.schema).combine_chunks().to_batches()[0]


@lru_cache(maxsize=1_000)
def _form(table: Table, changed: tuple[Column, ...] | None) -> ChangeForm:
    times = table.get_column(table.time_column or "")
    types = ("BIGINT", "BIGINT", *(column.type.name for column in changed or ()))
    sets = tuple((column.name, (2 + at,)) for at, column in enumerate(changed or ()))
    kind = DELETE if changed is None else UPDATE
    assert times.type.is_time
    # the bounds serve to find the span of time; rows are named by their numbers alone
    return ChangeForm(kind, types, ((SEQ, 0),), (), sets, frozenset(), (("=", 1),))


def times_of(rows: pa.Table) -> pa.ChunkedArray:
    """The times of rows as they were, in microseconds."""
    return rows.column(OLD_TIME).cast(pa.int64())


def places_of(rows: pa.Table) -> list[tuple[int, int]]:
    """The numbers of rows, with their times."""
    return list(zip(rows.column(SEQ).to_pylist(), times_of(rows).to_pylist(), strict=True))
