"""Bodies: queries and expressions read by the stock sqlglot parser, with our errors and limits.

The stock parser is recursive and compiled: it can run out of C stack where Python would raise.
So what nests is counted in the tokens first, and refused beyond ``NESTING_MAX``.
What it reads otherwise than DuckDB is changed in the tokens, never in the text:

- ``?`` gets its number (``$1``, ``$2`` …), because a tree does not remember the text's order;
- ``lambda x: …`` becomes ``x -> …``, which is written back as DuckDB wants it;
- ``TABLE t`` as an argument of a stream window (Flink's spelling) becomes ``t``;
- ``:name`` becomes ``$name`` where a value can stand, and ``a[:n]`` becomes ``a[1:n]``;
- ``row(…)``, ``apply(…)`` and ``session(…)`` become calls of functions;
- ``x'00ff'`` becomes ``unhex('00ff')``;
- ``INTERVAL '1.5 hours'`` becomes a cast, because ``INTERVAL '1.5' HOURS`` means one hour.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from tidemill.errors import SqlSyntaxError, did_you_mean
from tidemill.sql.tokens import (
    DIALECT,
    DOCS_HINT,
    RESERVED,
    Cursor,
    depth_change,
    position_at,
    words,
)

NESTING_MAX = 100
DEPTH_MAX = 3_000
_SMALL_TOKENS = 400
WINDOW_FUNCTIONS = frozenset({"TUMBLE", "HOP", "SESSION", "RECENT"})

_CLAUSES = words(
    "SELECT FROM WHERE HAVING LIMIT OFFSET JOIN UNION INTERSECT EXCEPT DISTINCT QUALIFY WINDOW "
    "BETWEEN INTERVAL VALUES USING INNER OUTER LEFT RIGHT FULL CROSS LATERAL UPDATE DELETE INSERT "
    "PARTITION EXISTS CASE WHEN THEN ELSE RETURNING"
) | {"GROUP BY", "ORDER BY", "PARTITION BY"}
_NEAR_CUTOFF_LENGTH = 3


def parse_body(cursor: Cursor, start: int, end: int) -> exp.Expression:
    """The expression of a statement's tokens ``start`` up to, not including, ``end``."""
    tokens = list(cursor.tokens[start:end])
    if not tokens:
        cursor.fail("the statement ends too early")
    check_nesting(cursor.text, tokens)
    tree = _parse(cursor.text, adapt(cursor.text, tokens))
    if len(tokens) > _SMALL_TOKENS:
        _check_depth(tree, cursor, tokens[0])
    if isinstance(tree, exp.Command):
        raise SqlSyntaxError(
            "this cannot be read as SQL", hint=DOCS_HINT, position=cursor.position(tokens[0])
        )
    return tree


def pivot_in_brackets(cursor: Cursor) -> Cursor:
    """``PIVOT … ORDER BY … LIMIT …`` as ``FROM (PIVOT …) ORDER BY … LIMIT …``."""
    depth = 0
    for index in range(cursor.at, len(cursor.tokens)):
        token = cursor.tokens[index]
        depth += depth_change(token)
        if depth == 0 and token.token_type in (TokenType.ORDER_BY, TokenType.LIMIT):
            first, last = cursor.tokens[cursor.at], cursor.tokens[index - 1]
            opening = [_like(first, TokenType.FROM, "FROM"), _like(first, TokenType.L_PAREN, "(")]
            pivot = cursor.tokens[cursor.at : index]
            closing = _like(last, TokenType.R_PAREN, ")")
            return Cursor(cursor.text, [*opening, *pivot, closing, *cursor.tokens[index:]])
    return cursor


def _parse(text: str, tokens: list[Token]) -> exp.Expression:
    try:
        trees = DIALECT.parser().parse(tokens, text)
    except ParseError as error:
        raise _translate(error, text, tokens) from None
    except RecursionError:
        raise _too_deep(text, tokens[0]) from None
    except Exception as error:  # not ours: whatever it raises on hostile text is a syntax error
        raise SqlSyntaxError(
            "this cannot be read as SQL",
            detail=str(error)[:200] or None,
            hint=DOCS_HINT,
            position=position_at(text, tokens[0].start, tokens[0].end + 1),
        ) from error
    tree = trees[0] if trees else None
    if not isinstance(tree, exp.Expression):
        raise SqlSyntaxError("there is no statement", hint=DOCS_HINT)
    return tree


def check_nesting(text: str, tokens: Sequence[Token]) -> None:
    """Refuse text that would take the recursive parser too deep, or forever.

    Counted are open brackets, subscripts of subscripts (``a[1][1]…``), repetitions of one word,
    and JOINs that wait for their ON: the stock parser tries each of those in two ways.
    """
    depth = chain = run = waiting = 0
    before: Token | None = None
    for token in tokens:
        kind = token.token_type
        last = before.token_type if before else None
        depth += depth_change(token)
        run = run + 1 if kind == last else 0
        if kind == TokenType.L_BRACKET:
            chain = chain + 1 if last == TokenType.R_BRACKET else chain
        elif kind in _CHAIN_ENDS:
            chain = 0
        elif kind == TokenType.JOIN:
            waiting += before is None or before.text.upper() not in _JOINS_WITHOUT_ON
            if waiting > JOINS_WAITING_MAX:
                raise _no_on(text, token)
        elif kind in (TokenType.ON, TokenType.USING):
            waiting = max(waiting - 1, 0)
        if depth > NESTING_MAX or chain > NESTING_MAX or run > NESTING_MAX:
            raise _too_deep(text, token)
        before = token


JOINS_WAITING_MAX = 10
_JOINS_WITHOUT_ON = ("CROSS", "NATURAL", "POSITIONAL", "LATERAL")
_CHAIN_ENDS = frozenset({TokenType.COMMA, TokenType.SELECT, TokenType.FROM})


def _no_on(text: str, token: Token) -> SqlSyntaxError:
    return SqlSyntaxError(
        "a JOIN has neither ON nor USING",
        hint="write JOIN … ON condition, JOIN … USING (columns) or CROSS JOIN",
        position=position_at(text, token.start, token.end + 1),
    )


def _check_depth(tree: exp.Expression, cursor: Cursor, token: Token) -> None:
    level: list[exp.Expression] = [tree]
    for _ in range(DEPTH_MAX):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise _too_deep(cursor.text, token)


def _too_deep(text: str, token: Token) -> SqlSyntaxError:
    return SqlSyntaxError(
        "the statement is nested too deeply",
        hint=f"at most {NESTING_MAX} levels; use WITH to give parts of it a name",
        position=position_at(text, token.start, token.end + 1),
    )


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
        if kind == TokenType.PLACEHOLDER:
            count += 1
            if numbered:
                raise _mixed(text, token)
            adapted += [_like(token, TokenType.PARAMETER, "$"), _like(token, _NUMBER, str(count))]
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


_ANGLES = re.compile(r"\s*(for|but got)?\s*<.*", re.DOTALL)


def _translate(error: ParseError, text: str, tokens: list[Token]) -> SqlSyntaxError:
    """The stock parser's error in our shape: factual message, whole-text position, a hint."""
    first = error.errors[0] if error.errors else {}
    at = _blamed(first, tokens)
    if at is None:
        end = tokens[-1].end + 1
        position = position_at(text, end, end)
    else:
        position = position_at(text, tokens[at].start, tokens[at].end + 1)
    return SqlSyntaxError(
        _message(str(first.get("description") or ""), position.words),
        hint=_hint(tokens, len(tokens) if at is None else at) or DOCS_HINT,
        position=position,
    )


def _blamed(first: dict[str, object], tokens: list[Token]) -> int | None:
    if not first.get("highlight"):
        return None
    line, column = first.get("line"), first.get("col")
    for index, token in enumerate(tokens):
        if token.line == line and token.col == column:
            return index
    return None


def _message(description: str, words: str) -> str:
    near = f' near "{words}"' if words else " at the end"
    if "Unexpected token" in description:
        return f'unexpected "{words}"' if words else "the statement ends too early"
    if description.startswith(("Expecting ", "Expected ")):
        what = _ANGLES.sub("", description.split(" ", 1)[1]).strip()
        return f'expected "{what}"{near}' if len(what) <= 2 else f"expected {what}{near}"
    if description.startswith("Required keyword"):
        return f"something is missing{near}"
    return f"the statement cannot be read{near}"


def _hint(tokens: list[Token], at: int) -> str | None:
    """A misspelt keyword at or just before the place."""
    for index in (at, at - 1, at - 2, at + 1):
        if not 0 <= index < len(tokens):
            continue
        token = tokens[index]
        if token.token_type != TokenType.VAR or len(token.text) < _NEAR_CUTOFF_LENGTH:
            continue
        word = token.text.upper()
        near = did_you_mean(word, _CLAUSES)
        if near and word not in _CLAUSES:
            return near
    return None
