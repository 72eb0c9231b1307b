"""Options in brackets: ``WITH (partition = '1 hour')``, ``SET (…)`` and COPY's ``(FORMAT csv)``."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from tidemill.config import TABLE_SETTINGS, Setting, check
from tidemill.errors import SettingError, TidemillError
from tidemill.sql.intervals import unit_interval
from tidemill.sql.tokens import Cursor

OPTION_NESTING_MAX = 10


def read_settings(
    cursor: Cursor, *, alter: bool = False, registry: dict[str, Setting] = TABLE_SETTINGS
) -> dict[str, str]:
    """``(name = value, …)`` checked against a registry of settings; values as text."""
    cursor.expect("(")
    settings: dict[str, str] = {}
    while True:
        token = cursor.peek()
        name = _setting_name(cursor, registry)
        if name in settings:
            raise SettingError(
                f'setting "{name}" is given twice',
                hint="give it once",
                position=cursor.position(token),
            )
        if not cursor.accept("="):
            cursor.fail_expected(["="])
        value_token = cursor.peek()
        value = _setting_value(cursor, name)
        settings[name] = _check(cursor, registry, name, value, token, value_token)
        if alter and not registry[name].alterable:
            raise SettingError(
                f'setting "{name}" cannot be changed after the table is created',
                hint="create a new table with the value you want and copy the rows",
                position=cursor.position(token),
            )
        if not cursor.accept(","):
            break
    if not cursor.accept(")"):
        cursor.fail_expected([",", ")"])
    return settings


def _check(
    cursor: Cursor,
    registry: dict[str, Setting],
    name: str,
    value: str,
    name_token: Token | None,
    value_token: Token | None,
) -> str:
    try:
        return check(registry, name, value)
    except TidemillError as error:
        raise cursor.place(error, value_token if name in registry else name_token) from error


def _setting_name(cursor: Cursor, registry: dict[str, Setting]) -> str:
    token = cursor.peek()
    if token is None or not (token.text[:1].isalpha() or token.text[:1] == "_"):
        cursor.fail("expected a setting's name", hint=f"settings: {', '.join(registry)}")
    cursor.at += 1
    return token.text.lower()


def _setting_value(cursor: Cursor, name: str) -> str:
    """A string, a number, a word, or an interval, as the text a user would quote."""
    if cursor.accept("INTERVAL"):
        amount = cursor.take().text
        unit = cursor.word()
        if unit_interval(1, unit) is not None:
            cursor.at += 1
            return f"{amount} {unit.lower()}"
        return amount
    sign = "-" if cursor.accept("-") else ""
    token = cursor.peek()
    if token is None or cursor.word() in (",", ")", "(", "="):
        cursor.fail(f'setting "{name}" has no value', hint=f"{name} = '…'")
    cursor.at += 1
    return sign + token.text


def read_options(cursor: Cursor) -> dict[str, object]:
    """COPY's options: ``(FORMAT csv, HEADER, DELIMITER '|', COLUMNS {'a': 'INT'})``."""
    cursor.expect("(")
    options: dict[str, object] = {}
    while True:
        token = cursor.peek()
        if token is None or not token.text[:1].isalpha():
            cursor.fail("expected an option's name", hint="(FORMAT csv, HEADER true)")
        cursor.at += 1
        name = token.text.lower()
        if name in options:
            cursor.fail(f'option "{name}" is given twice', token, hint="give it once")
        cursor.accept("=")
        bare = cursor.word() in (",", ")")
        if name == "rename" and cursor.word() == "(":
            options[name] = _read_renames(cursor)
        else:
            options[name] = True if bare else _option_value(cursor, 0)
        if not cursor.accept(","):
            break
    if not cursor.accept(")"):
        cursor.fail_expected([",", ")"])
    return options


def _read_renames(cursor: Cursor) -> dict[str, object]:
    """``(old AS new, …)``: the file's names and the table's."""
    cursor.expect("(")
    renames: dict[str, object] = {}
    while True:
        old = _column_name(cursor)
        if not cursor.accept("AS"):
            cursor.fail_expected(["AS"])
        renames[old] = _column_name(cursor)
        if not cursor.accept(","):
            break
    if not cursor.accept(")"):
        cursor.fail_expected([",", ")"])
    return renames


def _column_name(cursor: Cursor) -> str:
    """A name, or a text: files have names that SQL would not take."""
    token = cursor.peek()
    if token is not None and token.token_type == TokenType.STRING:
        return cursor.string("a column name")
    return cursor.name("column name")


def _option_value(cursor: Cursor, depth: int) -> object:
    if depth > OPTION_NESTING_MAX:
        cursor.fail("the options are nested too deeply", hint="simplify them")
    if cursor.word() in ("(", "["):
        return _option_list(cursor, depth)
    if cursor.accept("{"):
        return _option_struct(cursor, depth)
    negative = cursor.accept("-")
    token = cursor.take()
    if token.token_type == TokenType.NUMBER:
        return _number(cursor, token, negative)
    if negative:
        cursor.fail("expected a number", token)
    if token.token_type in (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.IDENTIFIER):
        return token.text
    word = token.text.upper()
    if word in ("TRUE", "FALSE", "NULL"):
        return {"TRUE": True, "FALSE": False, "NULL": None}[word]
    if not (token.text[:1].isalpha() or token.text == "*"):
        cursor.fail("expected an option's value", token)
    return token.text


def _number(cursor: Cursor, token: Token, negative: bool) -> int | float:
    try:
        number = int(token.text) if token.text.isdigit() else float(token.text)
    except ValueError:
        cursor.fail(f'"{token.text}" is not a number', token)
    return -number if negative else number


def _option_list(cursor: Cursor, depth: int) -> tuple[object, ...]:
    closing = ")" if cursor.take().text == "(" else "]"
    values: list[object] = []
    while not cursor.accept(closing):
        values.append(_option_value(cursor, depth + 1))
        if not cursor.accept(",") and cursor.word() != closing:
            cursor.fail_expected([",", closing])
    return tuple(values)


def _option_struct(cursor: Cursor, depth: int) -> dict[str, object]:
    values: dict[str, object] = {}
    while not cursor.accept("}"):
        key = cursor.take().text
        cursor.expect(":")
        values[key] = _option_value(cursor, depth + 1)
        if not cursor.accept(",") and cursor.word() != "}":
            cursor.fail_expected([",", "}"])
    return values
