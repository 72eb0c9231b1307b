"""Where an error that names something stands in a statement.

DuckDB says what it could not bind; the place it gives is in the SQL that was rewritten for it. The
user's place is found again by looking for the named word in the user's own text.
"""

from __future__ import annotations

import re

from tidemill.errors import Position
from tidemill.sql.statements import Statement

_QUOTED = re.compile(r"\"([^\"]+)\"|'([^']+)'|\b([A-Za-z_][A-Za-z_0-9]*)\(")


def locate(message: str, statement: Statement) -> Position:
    """The place of the first word that a message quotes, or of the statement itself."""
    for match in _QUOTED.finditer(message):
        word = match[1] or match[2] or match[3]
        found = re.search(rf"(?<![\w$]){re.escape(word)}(?![\w$])", statement.text, re.IGNORECASE)
        if found:
            return _place(statement, found.start(), found[0])
    return statement.position


def _place(statement: Statement, offset: int, words: str) -> Position:
    before = statement.text[:offset]
    line = statement.position.line + before.count("\n")
    if "\n" in before:
        column = offset - before.rindex("\n")
    else:
        column = statement.position.column + offset
    return Position(line, column, words[:60])
