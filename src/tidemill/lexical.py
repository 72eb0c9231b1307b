"""Where statements end in a text, without a parser: for a shell that starts at once.

It knows quotes, comments and dollar quotes, and nothing else of SQL; ``sql.tokens`` reads the same
text the same way, which a test holds against random texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<blank>\s+|--[^\n]*)"
    r"|(?P<comment>/\*)"
    r"|(?P<end>;)"
    r"|(?P<quoted>(?<!\w)[eE]'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+'|\"(?:[^\"]|\"\")*+\""
    r"|(?<![\w$])\$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$)"
    r"|(?P<open>['\"]|(?<!\w)[eE]'|(?<![\w$])\$(?:[A-Za-z_]\w*)?\$)"
    r"|(?P<word>\w+|.)",
    re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")


@dataclass(frozen=True)
class Cut:
    """A text's statements as (start, end), without the semicolons; ``is_ended`` if one ends the
    last of them, ``is_open`` if a quote or comment never ends."""

    statements: tuple[tuple[int, int], ...]
    is_ended: bool
    is_open: bool


def cut(text: str) -> Cut:
    """Cut a text into statements.

    >>> cut("SELECT 1; SELECT ';' -- ;").statements
    ((0, 8), (10, 20))
    """
    found: list[tuple[int, int]] = []
    start: int | None = None
    end = at = 0
    is_ended = False
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        kind, at = match.lastgroup, match.end()
        if kind == "tag":
            kind = "quoted"
        if kind == "comment":
            closed = _comment_end(text, at)
            if closed is None:
                return Cut(tuple(found), is_ended=False, is_open=True)
            at = closed
        elif kind == "open":
            return Cut(tuple(found), is_ended=False, is_open=True)
        elif kind == "end":
            if start is not None:
                found.append((start, end))
            start, is_ended = None, True
        elif kind != "blank":
            start = match.start() if start is None else start
            end, is_ended = at, False
    if start is not None:
        found.append((start, end))
    return Cut(tuple(found), is_ended, is_open=False)


def _comment_end(text: str, at: int) -> int | None:
    """Where a comment ends that may hold others; None where it never does."""
    depth = 1
    for match in _COMMENT.finditer(text, at):
        depth += 1 if match[0] == "/*" else -1
        if not depth:
            return match.end()
    return None
