"""Corrections by key, from Python: batches of rows that update or delete those with their keys.

A batch is one change with as many corrections as it has rows; later rows of a batch count. Values
are cast by the rules of an append: where anything would be lost, the batch is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidemill.accept.rows import read
from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.changes.model import DELETE, UPDATE, ChangeForm
from tidemill.errors import RowsRejectedError, UnknownNameError, UnsupportedError
from tidemill.hot.table import HotTable
from tidemill.result import ChangeResult
from tidemill.statements.naming import check_writable
from tidemill.statements.stream_changes import spared_by
from tidemill.statements.targets import Target, Targets
from tidemill.statements.writing import check_source
from tidemill.types import Column


class Corrections:
    def __init__(self, catalog: Catalog, hot: Mapping[int, HotTable], targets: Targets) -> None:
        self._catalog = catalog
        self._hot = hot
        self._targets = targets

    def update(
        self,
        name: str,
        rows: Any,
        key: Sequence[str] | None,
        source: str | None,
        offset: int | None,
    ) -> ChangeResult:
        """Give the rows with the keys of a batch its other values."""
        return self._change(UPDATE, name, rows, key, source, offset)

    def delete(
        self,
        name: str,
        keys: Any,
        key: Sequence[str] | None,
        source: str | None,
        offset: int | None,
    ) -> ChangeResult:
        """Delete the rows with the keys of a batch."""
        return self._change(DELETE, name, keys, key, source, offset)

    def _change(
        self,
        kind: str,
        name: str,
        rows: Any,
        key: Sequence[str] | None,
        source: str | None,
        offset: int | None,
    ) -> ChangeResult:
        target = self._targets.get(name)
        table = target.table
        check_writable(table)
        if not table.is_streaming:
            raise UnsupportedError(
                f'reference table "{table.name}" is changed by statements',
                hint="UPDATE … FROM df, DELETE … USING df, or INSERT … ON CONFLICT DO UPDATE",
            )
        check_source(source, offset)
        given = _read(rows, table)
        columns = [table.get_column(each) for each in given.column_names]
        by = _keys(table, columns, key, kind)
        batch = _accepted(target, given, columns)
        hot = self._hot.get(table.table_id)
        if hot is None:
            raise UnknownNameError(f'table "{table.name}" was dropped')
        form = _form(kind, table, columns, by)
        slots = pa.RecordBatch.from_arrays(batch.columns, schema=form.schema)
        if not slots.num_rows and source is None:
            return ChangeResult(0)
        is_new = hot.changing.change(
            form,
            batch=slots,
            spared=lambda: spared_by(self._catalog, hot),
            source=source,
            offset=offset,
        )
        return ChangeResult(slots.num_rows, is_repeat=not is_new)


def _read(rows: Any, table: Table) -> pa.Table:
    if isinstance(rows, list):
        names = {frozenset(row) for row in rows if isinstance(row, Mapping)}
        if len(names) > 1:
            raise RowsRejectedError(
                "corrections of one batch must have the same columns; nothing was changed",
                hint="give each set of columns a batch of its own",
            )
    if isinstance(rows, tuple) or (isinstance(rows, list) and rows and isinstance(rows[0], tuple)):
        raise RowsRejectedError(
            "corrections need the names of their columns; nothing was changed",
            hint="give dicts, or a frame",
        )
    return read(rows, table)


def _keys(
    table: Table, columns: Sequence[Column], key: Sequence[str] | None, kind: str
) -> tuple[str, ...]:
    """The columns that name rows."""
    if key is None and not table.primary_key:
        raise RowsRejectedError(
            f'table "{table.name}" has no primary key; nothing was changed',
            hint="key = ['column', …] says by which columns rows are found",
        )
    wanted = table.primary_key if key is None else key
    if isinstance(wanted, str):
        wanted = (wanted,)
    by = tuple(table.get_column(each).name for each in wanted)
    given = {column.name for column in columns}
    if missing := [name for name in by if name not in given]:
        raise RowsRejectedError(
            f'the corrections lack the key column "{missing[0]}"; nothing was changed'
        )
    sets = [column for column in columns if column.name not in by]
    fixed = [c.name for c in sets if c.name in (table.time_column, *table.primary_key)]
    if kind == UPDATE and fixed:
        raise RowsRejectedError(
            f'corrections do not change "{fixed[0]}"; nothing was changed',
            hint="the time and the primary key are changed by the statement UPDATE",
        )
    if kind == UPDATE and not sets:
        raise RowsRejectedError("the corrections set no column; nothing was changed")
    return by


def _accepted(target: Target, given: pa.Table, columns: Sequence[Column]) -> pa.RecordBatch:
    """The corrections in the columns' own types."""
    narrow = replace(target.table, columns=tuple(columns), primary_key=(), indexes=())
    checked = replace(target.acceptor, table=narrow).accept(given)
    if checked.rejects:
        raise RowsRejectedError(
            f"{len(checked.rejects)} corrections do not fit; nothing was changed",
            detail=f"for example: {checked.rejects[0][1]}",
        )
    if not given.num_rows:
        return pa.RecordBatch.from_pylist([], narrow.schema)
    return pa.concat_batches(checked.batches)


def _form(kind: str, table: Table, columns: Sequence[Column], by: Sequence[str]) -> ChangeForm:
    places = {column.name: at for at, column in enumerate(columns)}
    sets = [column.name for column in columns if column.name not in by] if kind == UPDATE else []
    time = table.time_column
    return ChangeForm(
        kind,
        tuple(column.type.name for column in columns),
        tuple((name, places[name]) for name in by),
        (),
        tuple((name, (places[name],)) for name in sets),
        frozenset(by),
        (("=", places[time]),) if time in by and time is not None else (),
    )
