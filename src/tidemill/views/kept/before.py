"""PREV in the windows of many rows: columns of the row before, at hand instead of computed.

``rewrite_prev`` makes ``lag(x, n) OVER (…)`` of PREV, which DuckDB would sort ten thousand little
windows for. The rows of a window stand together and in order (``newest``), so the row that is n
before is the one n places up, if it belongs to the same window. So ``lag`` gives way to columns of
the windows: the expression, over columns that were moved down by n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.hot import keys
from tidemill.sql.fold import constant
from tidemill.sql.prev import MADE
from tidemill.sql.scopes import enclosing_select, is_named_by
from tidemill.views.kept.holding import numbers
from tidemill.views.kept.tagging import ROW

_PREFIX = "tm_before_"


@dataclass(frozen=True)
class Before:
    """A column of the windows: ``column`` of the row that is ``rows`` before; without a column,
    whether there is such a row."""

    rows: int
    column: str | None = None

    @property
    def name(self) -> str:
        return f"{_PREFIX}{self.rows}" + ("" if self.column is None else f"_{self.column}")


def take_before(source: exp.Table, table: Table) -> tuple[Before, ...]:
    """Put columns of the rows before in the place of PREV, in the SELECT of a FROM item over the
    windows; answers those that the windows must have. What does not fit stays as it is."""
    select = enclosing_select(source)
    known = {column.name.lower(): column.name for column in table.columns}
    if select is None or any(name.startswith(_PREFIX) for name in known):
        return ()
    found: list[Before] = []
    for item in select.expressions:
        window = item.this if isinstance(item, exp.Alias) else None
        if not isinstance(window, exp.Window) or MADE not in window.meta:
            continue
        made = _value(window, known, source.alias_or_name)
        if made is not None:
            found += made[1]
            window.replace(made[0])
    return tuple(dict.fromkeys(found))


def _value(
    window: exp.Window, known: dict[str, str], alias: str
) -> tuple[exp.Expression, list[Before]] | None:
    """What takes the place of ``lag``, and the columns that it reads."""
    value, *offset = [part.copy() for part in window.this.expressions]
    rows = constant(offset[0]) if offset else 1
    if not isinstance(rows, int):
        return None
    found = []
    for column in value.find_all(exp.Column):
        name = known.get(column.name.lower())
        if name is None or column.args.get("db") or not is_named_by(column, alias):
            return None  # the whole row, or a field of a value
        found.append(Before(rows, name))
        column.set("this", exp.to_identifier(found[-1].name, quoted=True))
    if isinstance(value, exp.Column):
        return value, found
    has_one = Before(rows)
    then = exp.If(this=exp.column(has_one.name, quoted=True), true=value)
    return exp.Case(ifs=[then]), [*found, has_one]


def with_before(windows: pa.Table, columns: Sequence[Before]) -> pa.Table:
    """The windows with such columns."""
    if not columns:
        return windows
    windows = windows.combine_chunks()
    of, size = numbers(windows, ROW), windows.num_rows
    for rows in dict.fromkeys(column.rows for column in columns):
        has_one = np.zeros(size, np.bool_)
        if rows < size:
            has_one[rows:] = of[rows:] == of[:-rows]
        places = np.maximum(np.arange(size) - rows, 0)
        up = keys.row_numbers(places)
        if not has_one.all():
            bits = pa.py_buffer(np.packbits(has_one, bitorder="little"))
            up = pa.Array.from_buffers(pa.int64(), size, [bits, up.buffers()[1]])
        for column in columns:
            if column.rows != rows:
                continue
            if column.column is None:
                windows = windows.append_column(column.name, pa.array(has_one))
            else:
                moved = windows.column(column.column).take(up)
                windows = windows.append_column(column.name, moved)
    return windows
