"""Results as text: tables that fit the terminal, csv, json, markdown.

DuckDB itself turns values into text, so a value looks in the shell as it looks in a query.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from tidemill.cli.style import BOLD, DIM, paint
from tidemill.config import DUCKDB_CLOSED
from tidemill.types import quote

FORMATS = ("table", "csv", "json", "markdown")
ROWS_PER_CHUNK = 10_000
COLUMN_WIDTH_MIN = 8
NULL = "NULL"
ELLIPSIS = "…"

_NUMERIC = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|UINTEGER|DECIMAL.*|FLOAT|DOUBLE)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

Texts = list[list[str | None]]


def render(
    result: Any,
    style: str,
    *,
    width: int | None = None,
    rows_max: int | None = None,
    color: bool = False,
) -> Iterator[str]:
    """The lines of a result. ``width`` and ``rows_max`` bound tables; other formats have all."""
    table: pa.Table = result.arrow()
    if style == "csv":
        return _csv(table)
    if style == "json":
        return _json(table)
    numeric = [bool(_NUMERIC.fullmatch(name)) for name in result.types]
    if style == "markdown":
        return _markdown(table, numeric)
    return _table(table, numeric, width, rows_max, color)


def to_texts(table: pa.Table) -> Texts:
    """The columns of a table as DuckDB writes their values; NULL is None."""
    names = [f"c{index}" for index in range(table.num_columns)]
    casts = ", ".join(f"CAST({name} AS VARCHAR) AS {name}" for name in names)
    relation = _duckdb().from_arrow(table.rename_columns(names))
    texts = relation.project(casts).to_arrow_table()
    return [column.to_pylist() for column in texts.columns]


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={**DUCKDB_CLOSED})
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, ROWS_PER_CHUNK):
        yield table.slice(start, ROWS_PER_CHUNK)


def _csv(table: pa.Table) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.column_names)
    yield _drain(buffer)
    for chunk in _chunks(table):
        writer.writerows(zip(*to_texts(chunk), strict=True))
        yield _drain(buffer)


def _drain(buffer: io.StringIO) -> str:
    text = buffer.getvalue().removesuffix("\n")
    buffer.seek(0)
    buffer.truncate()
    return text


def _json(table: pa.Table) -> Iterator[str]:
    yield "["
    left = table.num_rows
    names = _unique(table.column_names)
    fields = ", ".join(f"{quote(name)} := {quote(name)}" for name in names)
    for chunk in _chunks(table):
        relation = _duckdb().from_arrow(chunk.rename_columns(names))
        rows = relation.project(f"CAST(to_json(struct_pack({fields})) AS VARCHAR)").fetchall()
        for (row,) in rows:
            left -= 1
            yield row + ("," if left else "")
    yield "]"


def _unique(names: Sequence[str]) -> list[str]:
    """Names without repetition, for formats that need it: a, a becomes a, a_1."""
    seen: set[str] = set()
    unique = []
    for name in names:
        candidate, number = name, 0
        while candidate.lower() in seen:
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate.lower())
        unique.append(candidate)
    return unique


def _markdown(table: pa.Table, numeric: Sequence[bool]) -> Iterator[str]:
    def line(cells: Sequence[str | None]) -> str:
        texts = (_printable(NULL if cell is None else cell).replace("|", "\\|") for cell in cells)
        return "| " + " | ".join(texts) + " |"

    yield line(table.column_names)
    yield "|" + "|".join("--:" if right else "---" for right in numeric) + "|"
    for chunk in _chunks(table):
        for row in zip(*to_texts(chunk), strict=True):
            yield line(row)


def _table(
    table: pa.Table,
    numeric: Sequence[bool],
    width: int | None,
    rows_max: int | None,
    color: bool,
) -> Iterator[str]:
    if not table.num_columns:
        return
    shown = table if rows_max is None else table.slice(0, rows_max)
    columns = [[None if text is None else _printable(text) for text in c] for c in to_texts(shown)]
    names = [_printable(name) for name in table.column_names]
    widths = [
        max(_length(name), *(_length(NULL if text is None else text) for text in column), 1)
        for name, column in zip(names, columns, strict=True)
    ]
    kept = fit(widths, width)
    gap = any(after - before > 1 for before, after in pairwise(kept))
    limits = _limits([widths[index] for index in kept], None if width is None else width - 4 * gap)

    def line(cells: Sequence[str | None], style: str) -> str:
        parts: list[str] = []
        for place, (index, limit) in enumerate(zip(kept, limits, strict=True)):
            if place and index - kept[place - 1] > 1:
                parts.append(f" {ELLIPSIS} ")
            text = cells[index]
            padded = f" {_pad(NULL if text is None else text, limit, numeric[index])} "
            parts.append(
                paint(padded, DIM if text is None else style, color and bool(style or text is None))
            )
        return "│".join(parts).rstrip()

    yield line(names, BOLD)
    yield "┼".join(
        ("───┼" if place and index - kept[place - 1] > 1 else "") + "─" * (limit + 2)
        for place, (index, limit) in enumerate(zip(kept, limits, strict=True))
    )
    for row in zip(*columns, strict=True):
        yield line(row, "")
    if len(kept) < len(widths):
        yield f"({len(widths) - len(kept)} more columns)"
    if shown.num_rows < table.num_rows:
        yield f"({ELLIPSIS} {table.num_rows - shown.num_rows:,} more rows)"


def fit(widths: Sequence[int], width: int | None) -> list[int]:
    """The columns that can be shown at all: all of them, or as many first and last ones as fit.

    >>> fit([5, 5], 80), fit([20] * 10, 50)
    ([0, 1], [0, 1, 8, 9])
    """
    everything = list(range(len(widths)))
    if width is None:
        return everything
    smallest = [min(column, COLUMN_WIDTH_MIN) + 3 for column in widths]
    if sum(smallest) - 1 <= width:
        return everything
    left: list[int] = []
    right: list[int] = []
    room = width + 1 - 4  # the ellipsis takes a column of its own
    while everything:
        from_left = len(left) <= len(right)
        index = everything.pop(0 if from_left else -1)
        room -= smallest[index]
        if room < 0 and left:
            break
        (left if from_left else right).append(index)
    return left + right[::-1]


def _limits(widths: Sequence[int], width: int | None) -> list[int]:
    """Each column's width: as wide as it needs, the widest cut until the line fits."""
    room = None if width is None else width - 3 * len(widths) + 1
    if room is None or sum(widths) <= room:
        return list(widths)
    limit = max(widths)
    while limit > 1 and sum(min(column, limit) for column in widths) > room:
        limit -= 1
    return [min(column, limit) for column in widths]


def _printable(text: str) -> str:
    """Text without control characters, which could command the terminal."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _length(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _pad(text: str, limit: int, right: bool) -> str:
    length = _length(text)
    if length > limit:
        return set_cell_size(text, limit - 1) + ELLIPSIS
    blanks = " " * (limit - length)
    return blanks + text if right else text + blanks
