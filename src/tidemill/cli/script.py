"""Text from a prompt, a file or a pipe, cut into what the shell runs: statements and commands.

Lines are fed one by one. A line that starts with a backslash, outside of a statement, is a
command, and so are the lines ``help``, ``quit`` and ``exit``. Everything else is SQL and collected
until a semicolon ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemill.lexical import cut

WORDS = {"help": "\\?", "quit": "\\q", "exit": "\\q"}


@dataclass(frozen=True)
class Piece:
    """One statement or command, and the number of the line where it starts (from zero)."""

    text: str
    line: int

    @property
    def is_command(self) -> bool:
        return self.text.startswith("\\")


def command_of(line: str) -> str | None:
    """The backslash command that a line is, or says in a word."""
    stripped = line.strip()
    if stripped.startswith("\\"):
        return stripped
    return WORDS.get(stripped.rstrip("; ").lower())


def read_pieces(lines: Iterable[str]) -> Iterator[Piece]:
    """The pieces of a stream of lines, each as soon as it is complete."""
    collected: list[str] = []
    first = 0
    for number, line in enumerate(lines):
        if not collected:
            if not line.strip():
                continue
            if command := command_of(line):
                yield Piece(command, number)
                continue
            first = number
        collected.append(line)
        if ";" in line and is_complete("".join(collected)):
            yield from statements("".join(collected), first)
            collected = []
    yield from statements("".join(collected), first)


def statements(text: str, line: int = 0) -> Iterator[Piece]:
    """The statements of a text. A text that cannot be cut is one piece: its error will tell."""
    found = cut(text)
    if found.is_open:
        yield Piece(text, line)
        return
    for start, end in found.statements:
        line_start = text.rfind("\n", 0, start) + 1
        # Blanks keep the statement's column; only a statement before it on its line is left out.
        padding = " " * (start - line_start)
        yield Piece(padding + text[start:end], line + text.count("\n", 0, start))


def is_complete(text: str) -> bool:
    """Whether a text ends with a semicolon that ends a statement.

    >>> is_complete("SELECT 1;"), is_complete("SELECT ';"), is_complete("SELECT 1 -- ;")
    (True, False, False)
    """
    return cut(text).is_ended
