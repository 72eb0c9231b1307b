"""Tokens: the text cut into words by sqlglot's tokenizer, and a cursor that reads heads from them.

First step of the parser. Every error of the front end gets its place here: tokens know where in
the whole input they stand, so a position is computed from offsets only when something is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

from tidemill.errors import (
    DefinitionError,
    Position,
    SqlSyntaxError,
    TidemillError,
    UnknownNameError,
    did_you_mean,
)

DIALECT = Dialect.get_or_raise("duckdb")
NAME_LENGTH_MAX = 255
WORDS_LENGTH_MAX = 60
DOCS_HINT = "docs/sql.md shows every statement with an example"


def words(text: str) -> frozenset[str]:
    """A set of words, written as a line of text."""
    return frozenset(text.split())


# Words that DuckDB keeps for itself: as names they need double quotes.
RESERVED = words(
    "all analyse analyze and any array as asc asymmetric both case cast check collate column "
    "constraint create default deferrable desc describe distinct do else end except false fetch "
    "for foreign from group having in initially intersect into lambda lateral leading limit not "
    "null offset on only or order pivot pivot_longer pivot_wider placing primary qualify "
    "references returning select show some summarize symmetric table then to trailing true union "
    "unique unpivot using variadic when where window with"
)
_STRINGS = (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.BYTE_STRING)
_NOT_WORDS = frozenset({TokenType.IDENTIFIER, TokenType.NUMBER, *_STRINGS})
_SWALLOWING = words("EXPLAIN VACUUM RESET")
_SWALLOWED_PASSES_MAX = 20

# Comments, strings, quoted names and dollar quotes: nothing inside them is a parameter.
_QUOTED = (
    r"--[^\n]*+|/\*.*?\*/|(?<!\w)[eE]'(?:[^'\\]|\\.|'')*+'|'(?:[^']|'')*+'"
    r'|"(?:[^"]|"")*+"|(?<![\w$])\$([A-Za-z_]\w*|)\$.*?\$\1\$'
)
_CLOSED = re.compile(_QUOTED + r"""|[^-/eE'"$]++|(?!/\*|'|"|(?<![\w$])\$\$|[eE]').""", re.DOTALL)
_PARAMETER = re.compile(_QUOTED + r"|(?<![\w$])\$(?=\w)", re.DOTALL)


def position_at(text: str, start: int, end: int) -> Position:
    """The place of ``text[start:end]``, counted from one."""
    line = text.count("\n", 0, start) + 1
    column = start - text.rfind("\n", 0, start)
    return Position(line, column, text[start : min(end, start + WORDS_LENGTH_MAX)])


def tokenize(text: str) -> list[Token]:
    """The tokens of a whole input, or an error that says which quote or comment never ends."""
    _check_characters(text)
    pieces, dollars = _hide_parameters(text) if "$" in text else (text, frozenset())
    tokens = _cut(pieces, text)
    starts: dict[int, str] = {}
    # The stock tokenizer swallows what follows these words; one it does not know stops that.
    for _ in range(_SWALLOWED_PASSES_MAX):
        if not (swallowing := _swallowing(tokens)):
            break
        for token in swallowing:
            starts[token.start] = token.text.upper()
            pieces = pieces[: token.end] + "_" + pieces[token.end + 1 :]
        tokens = _cut(pieces, text)
    if not starts and not dollars:
        return tokens
    return [
        _renamed(token, TokenType.VAR, starts[token.start])
        if token.start in starts
        else _renamed(token, TokenType.PARAMETER, "$")
        if token.start in dollars
        else token
        for token in tokens
    ]


def _hide_parameters(text: str) -> tuple[str, frozenset[int]]:
    """The text with the $ of parameters as ?: between two of them the stock tokenizer sees quotes.

    ``($1,$2)`` would be a string that starts with ``$1,$``. The offsets of the $ come along.
    """
    dollars: list[int] = []

    def hide(match: re.Match[str]) -> str:
        if match[0] != "$":
            return match[0]
        dollars.append(match.start())
        return "?"

    return _PARAMETER.sub(hide, text), frozenset(dollars)


def _renamed(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _swallowing(tokens: list[Token]) -> list[Token]:
    return [
        token
        for index, token in enumerate(tokens)
        if token.token_type == TokenType.COMMAND
        and token.text.upper() in _SWALLOWING
        and (index == 0 or tokens[index - 1].token_type == TokenType.SEMICOLON)
    ]


def _cut(text: str, original: str) -> list[Token]:
    try:
        return DIALECT.tokenize(text)
    except Exception as error:  # not ours: whatever it raises on hostile text is a syntax error
        raise _unclosed(original) from error


def _check_characters(text: str) -> None:
    if (at := text.find("\0")) >= 0:
        raise SqlSyntaxError(
            "the text contains a NUL character",
            hint="remove it; SQL text cannot hold one",
            position=position_at(text, at, at),
        )
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SqlSyntaxError(
            "the text is not valid Unicode",
            detail=f"character {error.start + 1} is half of a surrogate pair",
            hint="send the text as UTF-8",
            position=Position(*_line_column(text, error.start)),
        ) from error


def _line_column(text: str, at: int) -> tuple[int, int]:
    place = position_at(text, at, at)
    return place.line, place.column


def _unclosed(text: str) -> SqlSyntaxError:
    at = 0
    while match := _CLOSED.match(text, at):
        at = match.end()
        if at >= len(text):
            break
    rest = text[at : at + 2]
    what = {"'": "string", '"': "quoted name", "/": "comment", "$": "dollar-quoted string"}
    kind = what.get(rest[:1], "string" if rest[:1] in ("e", "E") else None)
    if kind is None:
        return SqlSyntaxError(
            "the text cannot be read as SQL", hint=DOCS_HINT, position=position_at(text, at, at + 1)
        )
    end = {"string": "'", "quoted name": '"', "comment": "*/"}.get(kind, "the same dollar quote")
    return SqlSyntaxError(
        f"{kind} is not closed",
        hint=f"end it with {end}",
        position=position_at(text, at, len(text)),
    )


def split(tokens: list[Token]) -> list[list[Token]]:
    """The statements' tokens: cut at semicolons, empty ones left out."""
    chunks: list[list[Token]] = []
    start = 0
    for index, token in enumerate(tokens):
        if token.token_type == TokenType.SEMICOLON:
            chunks.append(tokens[start:index])
            start = index + 1
    chunks.append(tokens[start:])
    return [chunk for chunk in chunks if chunk]


class Cursor:
    """Reads one statement's tokens from left to right.

    ``word`` and ``accept`` see unquoted words and signs, in upper case; a quoted name or a string
    is never mistaken for a keyword.
    """

    def __init__(self, text: str, tokens: Sequence[Token], at: int = 0) -> None:
        self.text = text
        self.tokens = tokens
        self.at = at

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    def peek(self, ahead: int = 0) -> Token | None:
        index = self.at + ahead
        return self.tokens[index] if index < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        index = self.at + ahead
        if index >= len(self.tokens):
            return ""
        token = self.tokens[index]
        return "" if token.token_type in _NOT_WORDS else token.text.upper()

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            self.fail("the statement ends too early")
        self.at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Step over these words if all of them come next."""
        for ahead, word in enumerate(words):
            if self.word(ahead) != word:
                return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if not self.accept(word):
                self.fail_expected([word])

    def name(self, what: str = "name") -> str:
        """An identifier, quoted or not."""
        token = self.peek()
        if token is None:
            self.fail(f"expected a {what}, and the statement ends")
        if token.token_type == TokenType.IDENTIFIER:
            name = token.text
        elif token.token_type in _NOT_WORDS or not (
            token.text[:1].isalpha() or token.text[0] == "_"
        ):
            self.fail(
                f"expected a {what}", hint=f"a {what} is a word, or anything in double quotes"
            )
        else:
            name = token.text
            if name.lower() in RESERVED or " " in name:
                self.fail(
                    f'"{name}" is a reserved word', hint=f'as a {what} it needs quotes: "{name}"'
                )
        if not name or len(name) > NAME_LENGTH_MAX:
            self.fail(f"a {what} must have 1 to {NAME_LENGTH_MAX} characters", hint="shorten it")
        self.at += 1
        return name

    def table_name(self) -> str:
        """A table's name: ``main.t`` is ``t``, ``tidemill.t`` stays, other schemas do not exist."""
        start = self.at
        parts = [self.name("table name")]
        while self.accept("."):
            parts.append(self.name("table name"))
        return self.resolve(parts, start)

    def new_table_name(self, what: str = "table") -> str:
        """The name of a table or view that is to be made."""
        token = self.peek()
        name = self.table_name()
        if "$" in name:
            raise DefinitionError(
                f'{what} name "{name}" contains $',
                hint="$ is kept for <table>$late and <table>$rejected",
                position=self.position(token),
            )
        if name.startswith("tidemill."):
            raise DefinitionError(
                f"{what}s cannot be created in the schema tidemill",
                hint="it holds the system tables; leave the schema out",
                position=self.position(token),
            )
        return name

    def resolve(self, parts: list[str], start: int) -> str:
        schema = [part.lower() for part in parts[:-1]]
        if not schema or schema == ["main"]:
            return parts[-1]
        if schema == ["tidemill"]:
            return f"tidemill.{parts[-1].lower()}"
        dotted = ".".join(parts[:-1])
        raise UnknownNameError(
            f'schema "{dotted}" does not exist',
            hint=did_you_mean(dotted, ["main", "tidemill"])
            or "tables have no schema (or main), system tables are in tidemill",
            position=self.position(self.tokens[start]),
        )

    def names(self, what: str) -> tuple[str, ...]:
        """``(a, b, …)``: at least one name, none twice."""
        self.expect("(")
        found: dict[str, str] = {}
        while True:
            token = self.peek()
            name = self.name(what)
            if name.lower() in found:
                self.fail(f'{what} "{name}" is named twice', token, hint="name it once")
            found[name.lower()] = name
            if not self.accept(","):
                break
        if not self.accept(")"):
            self.fail_expected([",", ")"])
        return tuple(found.values())

    def string(self, what: str) -> str:
        token = self.peek()
        if token is None or token.token_type not in (TokenType.STRING, TokenType.HEREDOC_STRING):
            self.fail(f"expected {what} in single quotes", hint=f"write {what} as '…'")
        self.at += 1
        return token.text

    def skip_group(self) -> None:
        """Step over a parenthesised group; the cursor stands on its opening bracket."""
        depth = 0
        opening = self.peek()
        while (token := self.peek()) is not None:
            self.at += 1
            depth += depth_change(token)
            if depth <= 0:
                return
        self.fail("a bracket is not closed", opening, hint="close it")

    def slice(self, start: int, end: int) -> str:
        """The text of the tokens from ``start`` up to, not including, ``end``."""
        if start >= end:
            return ""
        return self.text[self.tokens[start].start : self.tokens[end - 1].end + 1]

    def position(self, token: Token | None) -> Position:
        """A token's place; without a token, the place just after the last one."""
        if token is not None:
            return position_at(self.text, token.start, token.end + 1)
        end = self.tokens[-1].end + 1 if self.tokens else len(self.text)
        return position_at(self.text, end, end)

    def expect_end(self) -> None:
        if not self.done:
            token = self.take()
            self.fail(
                f'unexpected "{self.position(token).words}" after the end of the statement',
                token,
                hint="statements are separated by ;",
            )

    def fail(self, message: str, token: Token | None = None, hint: str | None = None) -> NoReturn:
        raise SqlSyntaxError(
            message, hint=hint or DOCS_HINT, position=self.position(token or self.peek())
        )

    def fail_expected(self, words: Iterable[str]) -> NoReturn:
        """An error that lists what could stand here, and the nearest of it."""
        listed = list(words)
        names = [f'"{word}"' for word in listed]
        text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
        token = self.peek()
        found = self.position(token).words if token is not None else ""
        message = f'expected {text}, found "{found}"' if token else f"expected {text} at the end"
        near = did_you_mean(found, [word for word in listed if word.isalpha()]) if found else None
        self.fail(message, hint=near or DOCS_HINT)

    def place(self, error: TidemillError, token: Token | None) -> TidemillError:
        """The same error with a position, if it has none yet."""
        if error.position is None:
            error.position = self.position(token)
        return error


_DEPTH = {
    TokenType.L_PAREN: 1,
    TokenType.L_BRACKET: 1,
    TokenType.L_BRACE: 1,
    TokenType.R_PAREN: -1,
    TokenType.R_BRACKET: -1,
    TokenType.R_BRACE: -1,
}


def depth_change(token: Token) -> int:
    """1 for an opening bracket, -1 for a closing one, else 0."""
    return _DEPTH.get(token.token_type, 0)
