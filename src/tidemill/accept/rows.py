"""Rows in any form, as Arrow batches of exactly the table's columns.

1. ``read`` turns the producer's form into Arrow tables with the producer's column names;
2. ``Acceptor.accept`` matches columns by name, casts them where nothing is lost, fills in what is
   missing, and tests NOT NULL and the range of times;
3. rows that fail are named with their reason: the batch is refused as a whole, or, if the table
   says ``rejected = 'divert'``, they are set aside.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Number
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.accept.cast import Caster, CastResult
from tidemill.accept.defaults import Defaults
from tidemill.accept.found import first_line
from tidemill.accept.kinds import plain
from tidemill.catalog.model import Table
from tidemill.clock import DATETIME_US_MAX, DATETIME_US_MIN
from tidemill.errors import RowsRejectedError
from tidemill.frames import as_table, mixes_times_and_numbers, no_rows, settle_index
from tidemill.rendering import row_as_json, shown
from tidemill.types import NESTING_MAX, Column, quote

EXAMPLES_MAX = 3
LEVELS_MAX = 2 * NESTING_MAX  # of a Python value


@dataclass(frozen=True)
class Checked:
    """Batches of the table's columns, and (row as JSON, reason) of the rows set aside."""

    batches: tuple[pa.RecordBatch, ...]
    rejects: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Acceptor:
    """Accepts rows for one table."""

    table: Table
    caster: Caster
    defaults: Defaults

    def accept(self, given: pa.Table, first_row: int = 1) -> Checked:
        """Check a table of rows; ``first_row`` is the number of its first row in error messages."""
        sources = self.match(given.column_names)
        _validate(given)
        batches, rejects = [], []
        row = first_row
        for part in given.combine_chunks().to_batches():
            batch, failures = self._check(part, sources)
            if failures:
                self.refuse_unless_diverted(failures, part.num_rows, row)
                rejects += rejects_of(part, failures)
                kept = np.setdiff1d(np.arange(part.num_rows), np.fromiter(failures, np.int64))
                batch = batch.take(pa.array(kept))
            row += part.num_rows
            batches.append(pa.RecordBatch.from_arrays(batch.columns, schema=self.table.schema))
        return Checked(tuple(batches), tuple(rejects))

    def match(self, names: Sequence[str]) -> list[int | None]:
        """For each column of the table, the place of its source among the given columns."""
        places: dict[str, int] = {}
        for at, name in enumerate(names):
            column = self.table.get_column(name)
            if column.name in places:
                raise RowsRejectedError(f'column "{name}" is given twice; nothing was stored')
            places[column.name] = at
        return [places.get(column.name) for column in self.table.columns]

    def _check(
        self, part: pa.RecordBatch, sources: list[int | None]
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        return self.check(
            part.num_rows,
            sources,
            lambda at, column: self.caster.cast_column(part.column(at), column),
        )

    def check(
        self,
        count: int,
        sources: list[int | None],
        cast_column: Callable[[int, Column], CastResult],
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The table's columns of so many rows, and which rows fail with what reason;
        ``cast_column`` casts one of the given columns, by its place, to a column of the table."""
        failures: dict[int, str] = {}
        arrays = []
        for column, source in zip(self.table.columns, sources, strict=True):
            if source is None:
                array = self.defaults.array(column, count)
            else:
                cast = cast_column(source, column)
                array = cast.array
                for row, reason in cast.failures.items():
                    failures.setdefault(row, reason)
            self._check_nulls(array, column, failures)
            if column.name == self.table.time_column:
                self._check_times(array, column, failures)
            arrays.append(array)
        names = [column.name for column in self.table.columns]
        return pa.RecordBatch.from_arrays(arrays, names=names), failures

    def _check_nulls(self, array: pa.Array, column: Column, failures: dict[int, str]) -> None:
        if column.nullable or array.null_count == 0:
            return
        for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)):
            failures.setdefault(int(row), f"{quote(column.name)} is NULL")

    def _check_times(self, array: pa.Array, column: Column, failures: dict[int, str]) -> None:
        times = array.view(pa.int64())
        span = pc.min_max(times).as_py()
        if span["min"] is None or (
            span["min"] >= DATETIME_US_MIN and span["max"] <= DATETIME_US_MAX
        ):
            return
        wrong = pc.or_(pc.less(times, DATETIME_US_MIN), pc.greater(times, DATETIME_US_MAX))
        for row in np.flatnonzero(pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)):
            failures.setdefault(int(row), f"{quote(column.name)} is outside the years 1 to 9999")

    def refuse_unless_diverted(
        self, failures: Mapping[int, str], count: int, first_row: int
    ) -> None:
        """Raise if rows fail of so many, unless the table sets such rows aside."""
        if self.table.settings["rejected"] == "divert":
            return
        rows = sorted(failures)[:EXAMPLES_MAX]
        examples = "; ".join(f"row {first_row + row}: {failures[row]}" for row in rows)
        more = f" and {len(failures) - len(rows)} more" if len(failures) > len(rows) else ""
        raise RowsRejectedError(
            f'{len(failures)} of {count} rows do not fit table "{self.table.name}"; '
            "nothing was stored",
            detail=examples + more,
            hint=divert_hint(self.table),
        )


def divert_hint(table: Table) -> str:
    """What to do about rows that do not fit."""
    if not table.is_streaming:
        return "correct them and try again"
    return "correct them, or ALTER TABLE … SET (rejected = 'divert') to set such rows aside"


def rejects_of(part: pa.RecordBatch, failures: Mapping[int, str]) -> list[tuple[str, str]]:
    """The rows that fail, as JSON, and their reasons."""
    rows = sorted(failures)
    places = pa.array(rows, pa.int64())
    columns = [plain(column).take(places) for column in part.columns]  # views cannot be taken
    bad = pa.RecordBatch.from_arrays(columns, names=part.schema.names)
    try:
        values = bad.to_pylist()
    except (ValueError, LookupError, OverflowError, pa.ArrowException):  # unknown to Python
        values = [
            {name: shown(column[at]) for name, column in zip(bad.schema.names, bad, strict=True)}
            for at in range(len(rows))
        ]
    texts = [row_as_json(row) for row in values]
    return [(text, failures[row]) for text, row in zip(texts, rows, strict=True)]


def _validate(given: pa.Table) -> None:
    """Arrow data from outside may lie about its buffers; believe nothing that can crash us."""
    is_simple = all(pa.types.is_primitive(field.type) for field in given.schema)
    try:
        given.validate(full=not is_simple)
    except pa.ArrowException as error:
        raise RowsRejectedError(
            "the batch is not valid Arrow data; nothing was stored", detail=str(error)
        ) from error


def read(rows: Any, table: Table, defaults: Defaults | None = None) -> pa.Table:
    """Rows in any of the forms a producer may have, as one Arrow table.

    With ``defaults``, a dict that lacks a column which others have gets its default there too."""
    framed = as_table(rows)
    if framed is not None:
        names = [column.name for column in table.columns]
        return settle_index(framed, names, table.time_column)
    if isinstance(rows, Mapping):
        return from_dicts([rows], table, defaults)
    if isinstance(rows, tuple):
        return _from_tuples([rows], table)
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        return _from_list(list(rows), table, defaults)
    raise no_rows(rows)


def _from_list(rows: list[Any], table: Table, defaults: Defaults | None) -> pa.Table:
    if not rows:
        return table.schema.empty_table()
    if all(isinstance(row, Mapping) for row in rows):
        return from_dicts(rows, table, defaults)
    if all(isinstance(row, tuple | list) for row in rows):
        return _from_tuples(rows, table)
    raise RowsRejectedError(
        "a list of rows must hold dicts only or tuples only",
        detail=f"the first row is a {type(rows[0]).__name__}",
    )


def from_dicts(
    rows: Sequence[Mapping[str, Any]], table: Table, defaults: Defaults | None = None
) -> pa.Table:
    """Objects as columns, under the names they use."""
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    columns = []
    for name in names:
        column, values = table.column(name), [row.get(name) for row in rows]
        if defaults is not None and column is not None and column.default is not None:
            missing = [at for at, row in enumerate(rows) if name not in row]
            given = defaults.array(column, len(missing)).to_pylist()
            for at, value in zip(missing, given, strict=True):
                values[at] = value
        columns.append(_array(values, column))
    return pa.Table.from_arrays(columns, names=names)


def from_columns(names: Sequence[str], columns: Sequence[Sequence[Any]], table: Table) -> pa.Table:
    """The values of each column of a table that is named."""
    pairs = zip(names, columns, strict=True)
    arrays = [_array(list(values), table.column(name)) for name, values in pairs]
    return pa.Table.from_arrays(arrays, names=list(names))


def _from_tuples(rows: Sequence[Sequence[Any]], table: Table) -> pa.Table:
    width = len(table.columns)
    wrong = next((row for row in rows if len(row) != width), None)
    if wrong is not None:
        raise RowsRejectedError(
            f'table "{table.name}" has {width} columns, a row has {len(wrong)} values; '
            "nothing was stored",
            hint="give tuples in the order of the columns, or dicts",
        )
    columns = zip(*rows, strict=True)
    arrays = [_array(list(v), c) for v, c in zip(columns, table.columns, strict=True)]
    return pa.Table.from_arrays(arrays, names=[column.name for column in table.columns])


def _array(values: list[Any], column: Column | None) -> pa.Array:
    """Python values as Arrow; what Arrow cannot give one type goes on as text or one by one."""
    if column is not None and column.type.name == "JSON":
        values = [
            v if isinstance(v, str) or v is None else _spelled(v, row_as_json) for v in values
        ]
    _check_levels(values)
    if column is not None and pa.types.is_map(column.type.arrow):
        values = [list(v.items()) if isinstance(v, Mapping) else v for v in values]
    for kind in _kinds(values, column):
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, RecursionError):
            continue
    if column is not None and pa.types.is_integer(column.type.arrow):
        values = [_whole(value) for value in values]
    texts = [_text(value) for value in values]
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:  # as bytes that are no UTF-8, so that the cast names the rows
        raw = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
        return pa.array(raw, pa.binary())


def _kinds(values: list[Any], column: Column | None) -> list[pa.DataType | None]:
    """The Arrow types to try; None lets Arrow guess, unless its guess would cut something off."""
    if column is None:
        return [None]
    target = column.type.arrow
    kinds = {type(value) for value in values}
    if mixes_times_and_numbers(kinds):
        return []  # Arrow would take numbers for microseconds
    if pa.types.is_nested(target) and any(_has_number_for_time(v, target) for v in values):
        return []
    if pa.types.is_map(target):
        return [target]
    if pa.types.is_temporal(target) and dt.date in kinds and len(kinds - {dt.date, type(None)}):
        return []  # Arrow would take datetimes for dates
    return [None, target] if pa.types.is_nested(target) else [None]


def _has_number_for_time(value: Any, kind: pa.DataType) -> bool:
    """Whether a number stands somewhere within a value where a time should."""
    if pa.types.is_temporal(kind):
        return isinstance(value, Number)
    if pa.types.is_struct(kind):
        pairs = [(value.get(f.name), f.type) for f in kind] if isinstance(value, Mapping) else []
    elif pa.types.is_map(kind):
        items = value if isinstance(value, list | tuple) else []
        items = [item for item in items if isinstance(item, list | tuple) and len(item) == 2]
        pairs = [pair for k, v in items for pair in ((k, kind.key_type), (v, kind.item_type))]
    elif pa.types.is_nested(kind) and isinstance(value, list | tuple):
        pairs = [(item, kind.value_type) for item in value]
    else:
        return False
    return any(_has_number_for_time(item, inner) for item, inner in pairs)


_TEXTABLE = (str, int, float, Decimal, dt.date, dt.time, dt.timedelta, UUID, list, tuple, Mapping)
_CONTAINERS = (list, tuple, Mapping)
_MISSING = ("NAType", "NaTType")  # pandas's own NULLs


def _whole(value: Any) -> Any:
    """7.0 as 7, so that it fits a column of integers as it would without a text beside it."""
    is_fraction = isinstance(value, float | Decimal) and not _is_nan(value)
    return int(value) if is_fraction and math.isfinite(value) and value == int(value) else value


def _is_nan(value: float | Decimal) -> bool:
    """A decimal may be a NaN that no function takes."""
    return value.is_nan() if isinstance(value, Decimal) else math.isnan(value)


def _check_levels(values: Sequence[Any]) -> None:
    """Refuse values that are nested deeper than any column; Arrow would take minutes for them."""
    kinds = {kind for kind in set(map(type, values)) if issubclass(kind, _CONTAINERS)}
    level = [value for value in values if type(value) in kinds] if kinds else []
    for _ in range(LEVELS_MAX):
        if not level:
            return
        items = (v for each in level for v in (each.values() if hasattr(each, "values") else each))
        level = list({id(v): v for v in items if isinstance(v, _CONTAINERS)}.values())
    raise RowsRejectedError(
        f"a value is nested more than {LEVELS_MAX} levels deep; nothing was stored",
        hint="keep deeper values as texts of a JSON column",
    )


def _spelled(value: Any, spell: Callable[[Any], str]) -> str:
    """A value as text; Python spells neither thousands of digits nor of levels."""
    try:
        return spell(value)
    except (ValueError, RecursionError, OverflowError) as error:
        raise RowsRejectedError(
            f"a value of type {type(value).__name__} is too long or too deep to be stored; "
            "nothing was stored",
            detail=first_line(error),
        ) from error


def _text(value: Any) -> str | None:
    if value is None or type(value).__name__ in _MISSING:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, (*_TEXTABLE, np.generic)):
        return _spelled(value, str)
    raise RowsRejectedError(
        f"a value of type {type(value).__name__} cannot be stored; nothing was stored",
        hint="give numbers, texts, bytes, dates and times, UUIDs, or lists and dicts of these",
    )
