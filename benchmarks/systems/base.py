"""What a contender must be able to do.

``prepare`` turns an Arrow batch into whatever the system takes best, outside of the time that is
measured; ``insert`` stores one prepared batch, durably, and is what the clock measures. Questions
name their parameters ``:name``; a system writes them in its own way.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.data import BASE_US, COLUMNS

TABLE = "reports"
_EPOCH = dt.datetime(1970, 1, 1)
_PARAMETER = re.compile(r"(?<!:):([a-z]+)\b")

Row = tuple[Any, ...]


class System:
    """A contender in a folder of its own. ``is_read`` says that it is there to be asked: then it
    may be loaded in any way it likes and gets every index that helps the questions."""

    # micros(ts) in the system's SQL: whole microseconds since the first report's day began
    micros = f"epoch_us(ts) - {BASE_US}"

    def __init__(self, folder: Path, is_read: bool) -> None:
        self.folder = folder
        self.is_read = is_read

    def settings(self) -> dict[str, str]:
        """Version, index, and all that bears on durability, read back from the system itself."""
        raise NotImplementedError

    def prepare(self, batch: pa.RecordBatch) -> Any:
        return pa.Table.from_batches([batch])

    def insert(self, prepared: Any) -> None:
        raise NotImplementedError

    def load(self, batches: Iterator[pa.RecordBatch], cars: pa.Table) -> None:
        """Fill the table and the table of cars, for the read tests."""
        raise NotImplementedError

    def ask(self, sql: str, values: Mapping[str, Any]) -> Any:
        """Run a question and bring the whole answer here, in the system's usual form."""
        raise NotImplementedError

    def time(self, us: int) -> Any:
        """A time as the system takes it for a parameter."""
        return to_time(us)

    def execute(self, sql: str) -> None:
        """Run a statement as its text stands: one that inserts a row, for instance."""
        raise NotImplementedError

    def time_literal(self, us: int) -> str:
        return f"TIMESTAMP '{to_time(us)}'"

    def rows(self, answer: Any) -> list[Row]:
        """An answer as plain rows that can be compared between systems."""
        return plain_rows(answer)

    def close(self) -> None:
        raise NotImplementedError

    # -- what every system can do the same way

    def totals(self) -> Row:
        """Count and sums of all columns, times as ``micros``."""
        sums = ", ".join(f"sum({self.micros if c == 'ts' else c})" for c in COLUMNS)
        found = self.rows(self.ask(f"SELECT count(*), {sums} FROM {TABLE}", {}))[0]
        return tuple(int(value) for value in found)

    def lookup(self, vid: int) -> list[Row]:
        rest = ", ".join(COLUMNS[1:])
        sql = f"SELECT {self.micros} AS us, {rest} FROM {TABLE} WHERE vid = :vid"
        return sorted(self.rows(self.ask(sql, {"vid": vid})))


def spelled(sql: str, form: str) -> str:
    """The question with its parameters spelled as a system wants them, e.g. ``$name``."""
    return _PARAMETER.sub(lambda match: form.replace("name", match[1]), sql)


def to_time(us: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=us)


def plain_rows(answer: Any) -> list[Row]:
    """An Arrow table, or rows of any kind, as plain rows."""
    if isinstance(answer, pa.Table):
        answer = zip(*(column.to_pylist() for column in answer.columns), strict=True)
    return [tuple(_plain(value) for value in row) for row in answer]


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value
