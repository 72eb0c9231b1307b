"""The answer to a statement: an Arrow table with the SQL types it had, in the forms people want."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tidemill.errors import MissingPackageError
from tidemill.python_values import UNREADABLE, to_python

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

ROWS_AT_ONCE = 10_000
ROWS_SHOWN, COLUMNS_SHOWN, CELL_CHARS_SHOWN = 20, 30, 100


@dataclass(repr=False, eq=False)
class Result:
    """``message`` is the command tag (``SELECT 3``, ``INSERT 1``, ``CREATE TABLE``)."""

    table: pa.Table
    types: list[str]
    message: str
    elapsed_s: float = 0.0

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    @property
    def rowcount(self) -> int:
        return int(self.table.num_rows)

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table; HUGEINT as decimal, UUID and JSON as text."""
        return self.table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For whoever reads Arrow: pandas, Polars, DuckDB, or a query that names the result."""
        return self.table.__arrow_c_stream__(requested_schema)

    def df(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame."""
        frame: pd.DataFrame
        try:
            frame = self.table.to_pandas()
        except UNREADABLE:  # values that pandas or Python do not have: each column by itself
            import pandas as pd

            pairs = zip(self.table.columns, self.types, strict=True)
            frame = pd.DataFrame({at: _series(*pair) for at, pair in enumerate(pairs)})
            frame.columns = pd.Index(self.columns)
        return frame

    def pl(self) -> pl.DataFrame:
        """The rows as a Polars DataFrame."""
        try:
            import polars as pl
        except ImportError as error:
            raise MissingPackageError.of("a Polars frame", "polars", "polars") from error
        values = {
            at: to_python(self.table.column(at), self.types[at])
            for at, field in enumerate(self.table.schema)
            if _is_foreign(field.type)
        }
        known = [at for at in range(len(self.columns)) if at not in values]
        frame = pl.from_arrow(self.table.select(known))
        assert isinstance(frame, pl.DataFrame)
        for at, column in values.items():
            frame.insert_column(at, _polars_series(self.columns[at], column))
        return frame

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as Python tuples, however many were fetched before (see ``python_values``)."""
        columns = [
            to_python(column, kind)
            for column, kind in zip(self.table.columns, self.types, strict=True)
        ]
        return list(zip(*columns, strict=True)) if columns else []

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None after the last."""
        return next(self._rest, None)

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows, at most ``size``."""
        return list(islice(self._rest, size))

    @cached_property
    def _rest(self) -> Iterator[tuple[Any, ...]]:
        return iter(self)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """All rows from the first; they become Python's a piece at a time."""
        for start in range(0, self.rowcount, ROWS_AT_ONCE):
            rows = self.table.slice(start, ROWS_AT_ONCE)
            yield from Result(rows, self.types, self.message).fetchall()

    def __len__(self) -> int:
        return self.rowcount

    def __repr__(self) -> str:
        """The first rows as a table, for a prompt of Python."""
        return as_plain_text(self) if self.columns else f"<{self.message or 'no statement'}>"

    def _repr_html_(self) -> str:
        """The first rows as a table, for a notebook."""
        return as_html(self) if self.columns else f"<p>{escape(self.message)}</p>"

    def _head(self) -> Head:
        """The part that is shown: the first rows and columns as texts that are not long."""
        shown = self.table.select(range(min(len(self.columns), COLUMNS_SHOWN)))
        rows = Result(shown.slice(0, ROWS_SHOWN), self.types[:COLUMNS_SHOWN], "").fetchall()
        return Head(
            [_short(name) for name in shown.column_names],
            [["NULL" if value is None else _short(value) for value in row] for row in rows],
            self._size_text(),
        )

    def _size_text(self) -> str:
        rows = "1 row" if self.rowcount == 1 else f"{self.rowcount:,} rows"
        if self.rowcount > ROWS_SHOWN:
            rows += f", the first {ROWS_SHOWN} shown"
        width = len(self.columns)
        return rows + (f"; {COLUMNS_SHOWN} of {width} columns" if width > COLUMNS_SHOWN else "")


def _series(column: pa.ChunkedArray, kind: str) -> pd.Series[Any]:
    """A column for pandas; where it has no form for the values, they are Python's."""
    import pandas as pd

    for as_objects in (True, False):
        with suppress(*UNREADABLE):
            series: pd.Series[Any] = column.to_pandas(date_as_object=as_objects)
            return series
    return pd.Series(to_python(column, kind), dtype=object)


def _is_foreign(kind: pa.DataType) -> bool:
    """Whether Polars cannot read such a column."""
    if pa.types.is_interval(kind) or pa.types.is_union(kind):
        return True
    return any(_is_foreign(kind.field(at).type) for at in range(kind.num_fields))


def _polars_series(name: str, values: list[Any]) -> pl.Series:
    """Durations, where all intervals are some; else Python's values."""
    import polars as pl

    spans = all(value is None or isinstance(value, timedelta) for value in values)
    return pl.Series(name, values, dtype=pl.Duration("us") if spans else pl.Object)


class Head(NamedTuple):
    """The first rows of a result as texts, and how large the whole is."""

    names: list[str]
    rows: list[list[str]]
    size: str


def as_plain_text(result: Result) -> str:
    head = result._head()
    widths = [max(map(len, column)) for column in zip(head.names, *head.rows, strict=True)]

    def line(cells: list[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return " │ ".join(padded).rstrip()

    rule = "─┼─".join("─" * width for width in widths)
    return "\n".join([line(head.names), rule, *map(line, head.rows), f"({head.size})"])


def as_html(result: Result) -> str:
    head = result._head()
    names = "".join(f"<th>{escape(name)}</th>" for name in head.names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in head.rows
    )
    return (
        f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p>{escape(head.size)}</p>"
    )


def _short(value: object) -> str:
    text = " ".join(str(value)[: CELL_CHARS_SHOWN + 1].split("\n"))
    return text if len(text) <= CELL_CHARS_SHOWN else text[: CELL_CHARS_SHOWN - 1] + "…"


@dataclass(frozen=True)
class AppendResult:
    """What became of an append. ``is_repeat``: this source and offset was acknowledged before."""

    rows_in: int
    stored: int = 0
    late: int = 0
    rejected: int = 0
    ignored: int = 0
    replaced: int = 0
    is_repeat: bool = False


@dataclass(frozen=True)
class ChangeResult:
    """What became of corrections. ``is_repeat``: this source and offset was acknowledged before."""

    corrections: int
    is_repeat: bool = False


_NO_ROWS = pa.table({})


def done(message: str) -> Result:
    """The result of a statement that has no rows."""
    return Result(_NO_ROWS, [], message)


def lines_result(lines: list[str], message: str) -> Result:
    """Lines of text as a result of one column."""
    return Result(pa.table({message.lower(): lines}), ["VARCHAR"], message)
