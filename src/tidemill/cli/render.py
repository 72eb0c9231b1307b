"""Results as text: tables that fit the terminal, records, csv, json, markdown.

The values come as texts, written by DuckDB where the warehouse is, so a value looks in the shell
as it looks in a query.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich.cells import cell_len, set_cell_size

from tidemill.cli.style import BOLD, DIM, paint
from tidemill.text_result import TextResult, Texts

FORMATS = ("table", "csv", "json", "markdown")
COLUMN_WIDTH_MIN = 8
NULL = "NULL"
ELLIPSIS = "…"

_NUMERIC = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|UINTEGER|DECIMAL.*|FLOAT|DOUBLE)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def form_of(style: str) -> str:
    """The form in which a style needs the rows."""
    return "json" if style == "json" else "text"


def render(result: TextResult, style: str) -> Iterator[str]:
    """The lines of a result in a format that has all of it, a piece of it at a time."""
    if style == "csv":
        return _csv(result)
    if style == "json":
        return _json(result)
    return _markdown(result)


def collect(result: TextResult) -> Texts:
    """The columns of all rows that came."""
    columns: Texts = [[] for _ in result.columns]
    for chunk in result.chunks:
        for column, texts in zip(columns, chunk, strict=True):
            column.extend(texts)
    return columns


def _csv(result: TextResult) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(result.columns)
    yield _drain(buffer)
    for chunk in result.chunks:
        writer.writerows(zip(*chunk, strict=True))
        yield _drain(buffer)


def _drain(buffer: io.StringIO) -> str:
    text = buffer.getvalue().removesuffix("\n")
    buffer.seek(0)
    buffer.truncate()
    return text


def _json(result: TextResult) -> Iterator[str]:
    yield "["
    left = result.rowcount
    for (rows,) in result.chunks:
        for row in rows:
            left -= 1
            yield str(row) + ("," if left else "")
    yield "]"


def _numeric(types: Sequence[str]) -> list[bool]:
    return [bool(_NUMERIC.fullmatch(name)) for name in types]


def _markdown(result: TextResult) -> Iterator[str]:
    def line(cells: Sequence[str | None]) -> str:
        texts = (_printable(NULL if cell is None else cell).replace("|", "\\|") for cell in cells)
        return "| " + " | ".join(texts) + " |"

    yield line(result.columns)
    yield "|" + "|".join("--:" if right else "---" for right in _numeric(result.types)) + "|"
    for chunk in result.chunks:
        for row in zip(*chunk, strict=True):
            yield line(row)


def records(result: TextResult, texts: Texts, color: bool = False) -> Iterator[str]:
    """Each row as lines of name and value, for rows that are wider than the screen."""
    names = [_printable(name) for name in result.columns]
    width = max(map(_length, names), default=0)
    for number, row in enumerate(zip(*texts, strict=True), 1):
        yield paint(f"─[ row {number} ]".ljust(width + 20, "─"), DIM, color)
        for name, text in zip(names, row, strict=True):
            value = paint(NULL, DIM, color) if text is None else _indented(text, width + 3)
            yield f"{paint(_pad(name, width, False), BOLD, color)} │ {value}".rstrip()
    yield from _left_out(result, texts)


def _indented(text: str, width: int) -> str:
    """Lines of a value one below the other."""
    lines = [_printable(line) for line in text.split("\n")]
    return ("\n" + " " * (width - 2) + "│ ").join(lines)


def _left_out(result: TextResult, texts: Texts) -> Iterator[str]:
    shown = len(texts[0]) if texts else 0
    if shown < result.rowcount:
        yield f"({ELLIPSIS} {result.rowcount - shown:,} more rows)"


def table(
    result: TextResult, texts: Texts, *, width: int | None = None, color: bool = False
) -> Iterator[str]:
    """A table of rows; ``width`` bounds its lines."""
    if not result.columns:
        return
    numeric = _numeric(result.types)
    columns = [[None if text is None else _printable(text) for text in c] for c in texts]
    names = [_printable(name) for name in result.columns]
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
    yield from _left_out(result, texts)


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
