"""A window: the span of time that a scan can need, as files, row groups and DuckDB see it.

A query's own conditions stay in the query. A window says besides, of each file, whether rows of
other times are in it, and puts the span into the SELECT that reads the file: then DuckDB surely
skips the row groups of other times, and nobody needs to check their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.catalog.model import FILE_REPLACED, FILE_ROWS, NewFile
from tidemill.history.encoding import read_expression
from tidemill.types import Column, quote

# What DuckDB's make_timestamp takes.
_FINITE_US = range(-9_223_372_022_400_000_000, 9_223_372_036_854_775_807)


@dataclass(frozen=True)
class Window:
    """Times of a table's time column, both ends included; None is an open end."""

    column: Column
    low_us: int | None = None
    high_us: int | None = None

    def __post_init__(self) -> None:
        for name in ("low_us", "high_us"):
            if getattr(self, name) is not None and getattr(self, name) not in _FINITE_US:
                object.__setattr__(self, name, None)

    def cuts(self, file: NewFile) -> bool:
        """Whether rows of a file lie outside."""
        if file.kind not in (FILE_ROWS, FILE_REPLACED):
            return False  # it has no such column
        is_low = self.low_us is not None and file.time_min_us < self.low_us
        return is_low or (self.high_us is not None and file.time_max_us > self.high_us)

    def is_since(self, time_us: int) -> bool:
        """Whether all times before a moment lie outside."""
        return self.low_us is not None and self.low_us >= time_us

    def tests(self, alias: str = "") -> list[str]:
        """What holds for the rows inside, in SQL."""
        name = read_expression(self.column, alias + quote(self.column.name))
        low, high = self.low_us, self.high_us
        return [
            *([] if low is None else [f"{name} >= {_moment(self.column, low)}"]),
            *([] if high is None else [f"{name} <= {_moment(self.column, high)}"]),
        ]


def _moment(column: Column, time_us: int) -> str:
    zone = "" if column.type.name == "TIMESTAMP" else "tz"
    return f"make_timestamp{zone}({time_us}::BIGINT)"
