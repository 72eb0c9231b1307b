"""The answer to a statement: an Arrow table with the SQL types it had, in the forms people want."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.errors import MissingPackageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@dataclass(frozen=True)
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

    def df(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame."""
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    def pl(self) -> pl.DataFrame:
        """The rows as a Polars DataFrame."""
        try:
            import polars as pl
        except ImportError as error:
            raise MissingPackageError.of("a Polars frame", "polars", "polars") from error
        frame = pl.from_arrow(self.table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows as Python tuples, integers of any size as int, UUIDs as uuid.UUID."""
        columns = [
            _values(column, kind)
            for column, kind in zip(self.table.columns, self.types, strict=True)
        ]
        return list(zip(*columns, strict=True)) if columns else []

    def fetchone(self) -> tuple[Any, ...] | None:
        rows = self.table.slice(0, 1)
        return Result(rows, self.types, self.message).fetchall()[0] if rows.num_rows else None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def __repr__(self) -> str:
        return f"<{self.message}: {self.rowcount} rows, columns {', '.join(self.columns)}>"


def _values(column: pa.ChunkedArray, kind: str) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if kind in ("HUGEINT", "UHUGEINT"):
        return [None if value is None else int(value) for value in values]
    if kind == "UUID":
        return [None if value is None else uuid.UUID(str(value)) for value in values]
    return values


def done(message: str) -> Result:
    """The result of a statement that has no rows."""
    return Result(pa.table({}), [], message)


def lines_result(lines: list[str], message: str) -> Result:
    """Lines of text as a result of one column."""
    return Result(pa.table({message.lower(): lines}), ["VARCHAR"], message)
