"""SET, RESET and SHOW of session variables. Which names and values there are, the engine knows."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from tidemill.errors import Position, UnsupportedError
from tidemill.sql.statements import SetVariable, ShowVariable
from tidemill.sql.tokens import Cursor

_EXAMPLE = "SET route = 'local'"
_REFUSED = {
    "LOCAL": "every statement is a transaction of its own; write SET name = value",
    "GLOBAL": "open(path, name=…) tells the whole database a setting; SET is for one session",
    "VARIABLE": "pass values as parameters: ?, $1 or :name",
}


def read_set(cursor: Cursor, text: str, position: Position) -> SetVariable:
    """After ``SET``."""
    if not _is_assignment(cursor):
        if cursor.word() in _REFUSED:
            raise UnsupportedError(
                f"SET {cursor.word()} is not offered",
                hint=_REFUSED[cursor.word()],
                position=cursor.position(cursor.peek()),
            )
        cursor.accept("SESSION")
    name = cursor.name("variable's name").lower()
    if not (cursor.accept("=") or cursor.accept("TO")):
        cursor.fail_expected(["=", "TO"])
    value = _read_value(cursor, name)
    cursor.expect_end()
    return SetVariable(name, value, text=text, position=position)


def _is_assignment(cursor: Cursor) -> bool:
    """Whether the next word is a variable, however it is called: ``SET local = 1``."""
    return cursor.word(1) in ("=", "TO")


def _read_value(cursor: Cursor, name: str) -> str | None:
    """A string, a word or a number, as text; None for DEFAULT."""
    if cursor.accept("DEFAULT"):
        return None
    sign = "-" if cursor.accept("-") else ""
    token = cursor.peek()
    if token is None:
        cursor.fail(f'variable "{name}" is given no value', hint=_EXAMPLE)
    is_value = token.token_type in _VALUES or (not sign and token.text[:1].isalpha())
    if not is_value or (sign and token.token_type != TokenType.NUMBER):
        cursor.fail("expected a value", hint=f"a string, a word or a number: {_EXAMPLE}")
    cursor.at += 1
    return sign + token.text


_VALUES = frozenset(
    {TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.IDENTIFIER, TokenType.NUMBER}
)


def read_reset(cursor: Cursor, text: str, position: Position) -> SetVariable:
    """After ``RESET``."""
    cursor.accept("SESSION")
    name = None if cursor.accept("ALL") else cursor.name("variable's name").lower()
    cursor.expect_end()
    return SetVariable(name, None, text=text, position=position)


def read_show_variable(cursor: Cursor, text: str, position: Position) -> ShowVariable:
    """After ``SHOW``, when no other word that can stand there does."""
    name = None if cursor.accept("ALL") else cursor.name("variable's name").lower()
    cursor.expect_end()
    return ShowVariable(name, text=text, position=position)
