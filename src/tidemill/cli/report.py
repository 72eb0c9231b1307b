"""Errors for people: what happened, the line where it did with a caret, details and a hint."""

from __future__ import annotations

import sys
from typing import TextIO

from tidemill.cli.style import BOLD, DIM, RED, paint, wants_color
from tidemill.errors import Position, TidemillError

LINE_WIDTH_MAX = 120


def print_error(
    error: TidemillError,
    text: str | None = None,
    *,
    place: str | None = None,
    line_offset: int = 0,
    stream: TextIO | None = None,
) -> None:
    """Writes an error to stderr; ``text`` is the SQL that its position counts in."""
    stream = sys.stderr if stream is None else stream
    color = wants_color(stream)
    for line in error_lines(error, text, place=place, line_offset=line_offset, color=color):
        print(line, file=stream)
    stream.flush()


def error_lines(
    error: TidemillError,
    text: str | None = None,
    *,
    place: str | None = None,
    line_offset: int = 0,
    color: bool = False,
) -> list[str]:
    """An error as lines: the message, the offending line with a caret, detail, hint."""
    where = f"{place}: " if place else ""
    lines = [f"{where}{paint('error:', RED + BOLD, color)} {error.message}"]
    if error.position is not None:
        lines += pointer_lines(error.position, text, line_offset, color)
    if error.detail:
        lines += _labelled("detail", error.detail, color)
    if error.hint:
        lines += _labelled("hint", error.hint, color)
    return lines


def pointer_lines(position: Position, text: str | None, line_offset: int, color: bool) -> list[str]:
    """The line that a position names, cut to a readable width, and a caret under the words.

    >>> pointer_lines(Position(1, 8, "spdd"), "SELECT spdd FROM t", 0, False)
    ['  line 1: SELECT spdd FROM t', '                 ^^^^']
    """
    label = f"  line {position.line + line_offset}: "
    source = (text or "").splitlines()
    if not 1 <= position.line <= len(source):
        return [f"{label.rstrip(': ')}, column {position.column}"]
    line = source[position.line - 1].replace("\t", " ")
    start = max(0, min(position.column - 1, len(line)))
    words = position.words.splitlines()[0] if position.words else ""
    cut = max(0, start - LINE_WIDTH_MAX // 2)
    shown = line[cut : cut + LINE_WIDTH_MAX]
    marks = max(1, min(len(words), len(shown) - (start - cut)))
    caret = " " * (len(label) + start - cut) + paint("^" * marks, RED, color)
    return [label + shown, caret]


def _labelled(label: str, text: str, color: bool) -> list[str]:
    first, *rest = text.splitlines() or [""]
    indent = " " * (len(label) + 2)
    return [f"{paint(label + ':', DIM, color)} {first}", *(indent + line for line in rest)]
