"""Spelling: what the stock parser reads otherwise than DuckDB, changed in the tokens.

The text itself is never changed, so every token still knows its place in it.

- ``?`` gets its number (``$1``, ``$2`` …), because a tree does not remember the text's order;
- ``lambda x: …`` becomes ``x -> …``, which is written back as DuckDB wants it;
- ``TABLE t`` as an argument of a stream window (Flink's spelling) becomes ``t``;
- ``:name`` becomes ``$name`` where a value can stand, and ``a[:n]`` becomes ``a[1:n]``;
- ``row(…)``, ``apply(…)`` and ``session(…)`` become calls of functions;
- ``x'00ff'`` becomes ``unhex('00ff')``;
- ``INTERVAL '1.5 hours'`` becomes a cast, because ``INTERVAL '1.5' HOURS`` means one hour;
- ``PIVOT … ORDER BY …`` becomes ``FROM (PIVOT …) ORDER BY …``.
"""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from tidemill.errors import SqlSyntaxError
from tidemill.sql.tokens import RESERVED, depth_change, position_at, words

WINDOW_FUNCTIONS = frozenset({"TUMBLE", "HOP", "SESSION", "RECENT"})


def adapt(text: str, tokens: list[Token]) -> list[Token]:
    """The tokens in the spelling that the stock parser reads."""
    if not any(token.token_type in _ADAPTED or token.text in _ADAPTED_WORDS for token in tokens):
        return tokens
    adapted: list[Token] = []
    calls: list[str] = []  # the word before each bracket that is open
    index = count = 0
    numbered = any(token.token_type == TokenType.PARAMETER for token in tokens)
    while index < len(tokens):
        token = tokens[index]
        kind = token.token_type
        if (change := depth_change(token)) > 0:
            calls.append(tokens[index - 1].text.upper() if index else "")
        elif change < 0 and calls:
            calls.pop()
        if kind in (TokenType.PLACEHOLDER, TokenType.QDCOLON):
            count += 1
            if numbered:
                raise _mixed(text, token)
            adapted += [_like(token, TokenType.PARAMETER, "$"), _like(token, _NUMBER, str(count))]
            if kind == TokenType.QDCOLON:  # "?::", read as one sign
                adapted.append(_like(token, TokenType.DCOLON, "::"))
        elif kind == TokenType.COLON and _is_parameter(tokens, index):
            adapted.append(_like(token, TokenType.PARAMETER, "$"))
        elif (end := _lambda_end(tokens, index)) > 0:
            adapted += _arrow(tokens[index + 1 : end], tokens[end])
            index = end
        elif kind == TokenType.TABLE and calls and calls[-1] in WINDOW_FUNCTIONS:
            pass
        elif kind in _CALLABLE and _is_call(tokens, index):
            name = "list_apply" if kind == TokenType.APPLY else token.text
            adapted.append(_like(token, TokenType.VAR, name))
        elif kind == TokenType.L_BRACKET and _opens_slice(tokens, index):
            adapted += [token, _like(token, _NUMBER, "1")]
        elif kind == TokenType.INTERVAL and _is_fraction(tokens, index):
            adapted += [tokens[index + 1], _like(token, TokenType.DCOLON, "::"), token]
            index += 1
        elif _is_blob(tokens, index):
            adapted += _unhex(token, tokens[index + 1])
            index += 1
        else:
            adapted.append(token)
        index += 1
    return adapted


def _is_call(tokens: list[Token], index: int) -> bool:
    """``row(1, 2)``, ``apply(l, …)``, ``session(…)``: functions, unless ROW is a type here."""
    token = tokens[index]
    if token.token_type == TokenType.STRUCT and token.text.upper() != "ROW":
        return False
    before = tokens[index - 1].token_type if index else None
    return before not in _BEFORE_TYPES and _next_is(tokens, index, TokenType.L_PAREN)


_CALLABLE = frozenset({TokenType.SESSION, TokenType.STRUCT, TokenType.APPLY})
_BEFORE_TYPES = frozenset({TokenType.DCOLON, TokenType.ALIAS, TokenType.VAR, TokenType.IDENTIFIER})


def _mixed(text: str, token: Token) -> SqlSyntaxError:
    return SqlSyntaxError(
        "? and $ parameters are mixed",
        hint="use only ? or only $1, $2 … (or names)",
        position=position_at(text, token.start, token.end + 1),
    )


_NUMBER = TokenType.NUMBER
_ADAPTED = frozenset(
    {
        TokenType.PLACEHOLDER,
        TokenType.QDCOLON,
        TokenType.COLON,
        TokenType.TABLE,
        TokenType.SESSION,
        TokenType.STRUCT,
        TokenType.APPLY,
        TokenType.L_BRACKET,
        TokenType.INTERVAL,
    }
)
_ADAPTED_WORDS = frozenset({"lambda", "LAMBDA", "Lambda", "x", "X"})
_OPERANDS = frozenset(
    {
        TokenType.VAR,
        TokenType.IDENTIFIER,
        TokenType.STRING,
        TokenType.NUMBER,
        TokenType.R_PAREN,
        TokenType.R_BRACKET,
        TokenType.R_BRACE,
    }
)
_BEFORE_VALUES = RESERVED | words("between like ilike is interval values by set glob escape")


def _is_parameter(tokens: list[Token], index: int) -> bool:
    """Whether the colon starts ``:name``: a word sticks to it and an operand cannot end before it.

    Elsewhere a colon belongs to a slice, a struct or a prefix alias.
    """
    if index + 1 >= len(tokens) or index == 0:
        return False
    colon, name, before = tokens[index], tokens[index + 1], tokens[index - 1]
    if name.start != colon.end + 1 or not (name.text[:1].isalnum() or name.text[:1] == "_"):
        return False
    if name.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return False
    if before.token_type == TokenType.L_BRACKET:
        return not _opens_slice(tokens, index - 1)
    if before.text[:1].isalpha() and before.token_type not in _OPERANDS:
        return before.text.lower().split()[-1] in _BEFORE_VALUES
    return before.token_type not in _OPERANDS


def _opens_slice(tokens: list[Token], index: int) -> bool:
    """``a[:n]``: the bracket follows an operand and a colon follows the bracket."""
    after_operand = index > 0 and tokens[index - 1].token_type in _OPERANDS
    return after_operand and _next_is(tokens, index, TokenType.COLON)


def _is_blob(tokens: list[Token], index: int) -> bool:
    """``x'00ff'``."""
    token = tokens[index]
    return (
        token.text in ("x", "X")
        and token.token_type == TokenType.VAR
        and _next_is(tokens, index, TokenType.STRING)
        and tokens[index + 1].start == token.end + 1
    )


def _unhex(token: Token, text: Token) -> list[Token]:
    return [
        _like(token, TokenType.VAR, "unhex"),
        _like(token, TokenType.L_PAREN, "("),
        text,
        _like(token, TokenType.R_PAREN, ")"),
    ]


def _like(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _is_fraction(tokens: list[Token], index: int) -> bool:
    """``INTERVAL '1.5 hours'``: the stock parser would make it ``'1.5' HOURS``, which is one."""
    if not _next_is(tokens, index, TokenType.STRING):
        return False
    text = tokens[index + 1].text
    return "." in text and any(map(str.isalpha, text))


def _is_word(token: Token, word: str) -> bool:
    return token.text.upper() == word and token.token_type not in (
        TokenType.IDENTIFIER,
        TokenType.STRING,
    )


def _next_is(tokens: list[Token], index: int, kind: TokenType) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].token_type == kind


def _lambda_end(tokens: list[Token], index: int) -> int:
    """The index of the colon of ``lambda x, y:`` at ``index``, else 0."""
    if not _is_word(tokens[index], "LAMBDA"):
        return 0
    at = index + 1
    while at + 1 < len(tokens):
        if tokens[at + 1].token_type == TokenType.COLON:
            return at + 1
        if tokens[at + 1].token_type != TokenType.COMMA:
            return 0
        at += 2
    return 0


def _arrow(names: list[Token], colon: Token) -> list[Token]:
    opening = _like(colon, TokenType.L_PAREN, "(")
    closing = _like(colon, TokenType.R_PAREN, ")")
    return [opening, *names, closing, _like(colon, TokenType.ARROW, "->")]


def pivot_in_brackets(tokens: list[Token]) -> list[Token]:
    """``PIVOT … ORDER BY … LIMIT …`` as ``FROM (PIVOT …) ORDER BY … LIMIT …``: a query like others.
    What does not start with PIVOT or UNPIVOT stays."""
    if not tokens or tokens[0].text.upper() not in _PIVOT_WORDS:
        return tokens
    depth, end = 0, len(tokens)
    for index, token in enumerate(tokens):
        depth += depth_change(token)
        if depth == 0 and token.token_type in (TokenType.ORDER_BY, TokenType.LIMIT):
            end = index
            break
    first, last = tokens[0], tokens[end - 1]
    opening = [_like(first, TokenType.FROM, "FROM"), _like(first, TokenType.L_PAREN, "(")]
    closing = _like(last, TokenType.R_PAREN, ")")
    return [*opening, *tokens[:end], closing, *tokens[end:]]


_PIVOT_WORDS = words("PIVOT UNPIVOT PIVOT_WIDER PIVOT_LONGER")
