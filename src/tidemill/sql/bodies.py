"""Bodies: queries and expressions read by the stock sqlglot parser, with our errors and limits.

The stock parser is recursive and compiled: it can run out of C stack where Python would raise.
So what nests is counted in the tokens first, and refused beyond ``NESTING_MAX``.
What it reads otherwise than DuckDB is respelled first (``sql/spelling.py``, ``sql/travel.py``);
what nobody may ask is refused (``sql/permitted.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from tidemill.errors import SqlSyntaxError, did_you_mean
from tidemill.sql.permitted import check_permitted
from tidemill.sql.spelling import adapt, pivot_in_brackets
from tidemill.sql.tokens import DIALECT, DOCS_HINT, Cursor, depth_change, position_at, words
from tidemill.sql.travel import alias_last

NESTING_MAX = 100
DEPTH_MAX = 3_000
_SMALL_TOKENS = 400

_CLAUSES = words(
    "SELECT FROM WHERE HAVING LIMIT OFFSET JOIN UNION INTERSECT EXCEPT DISTINCT QUALIFY WINDOW "
    "BETWEEN INTERVAL VALUES USING INNER OUTER LEFT RIGHT FULL CROSS LATERAL UPDATE DELETE INSERT "
    "PARTITION EXISTS CASE WHEN THEN ELSE RETURNING LIKE ILIKE AND NOT NULL DESC ASC WITH"
) | {"GROUP BY", "ORDER BY", "PARTITION BY"}
_NEAR_CUTOFF_LENGTH = 3


def parse_body(cursor: Cursor, start: int, end: int) -> exp.Expression:
    """The expression of a statement's tokens ``start`` up to, not including, ``end``."""
    tokens = list(cursor.tokens[start:end])
    if not tokens:
        cursor.fail("the statement ends too early")
    check_nesting(cursor.text, tokens)
    tokens = pivot_in_brackets(tokens)
    tree = _parse(cursor.text, adapt(cursor.text, alias_last(cursor.text, tokens)))
    if len(tokens) > _SMALL_TOKENS:
        _check_depth(tree, cursor, tokens[0])
    if isinstance(tree, exp.Command):
        raise SqlSyntaxError(
            "this cannot be read as SQL", hint=DOCS_HINT, position=cursor.position(tokens[0])
        )
    check_permitted(tree)
    return tree


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
    for node in tree.walk():
        if node._meta:
            node._meta = _Notes(node._meta)
    return tree


class _Notes(dict[str, Any]):
    """What is noted at a node: numbers and words, such as its place in the text. A tree is copied
    some times before it runs, and a general deep copy of these took most of the time of that."""

    def __deepcopy__(self, memo: object) -> _Notes:
        return _Notes(self)


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
    """A misspelt keyword at or just before the place: the word that is nearest to one."""
    found: list[tuple[float, str]] = []
    for index in (at, at - 1, at - 2, at + 1):
        if not 0 <= index < len(tokens):
            continue
        token = tokens[index]
        if token.token_type != TokenType.VAR or len(token.text) < _NEAR_CUTOFF_LENGTH:
            continue
        word = token.text.upper()
        if index + 1 < len(tokens) and tokens[index + 1].text.upper() == "BY":
            word += " BY"
        near = did_you_mean(word, _CLAUSES)
        if near and word not in _CLAUSES:
            likeness = max(SequenceMatcher(None, word, each).ratio() for each in _CLAUSES)
            found.append((likeness, near))
    return max(found, key=lambda each: each[0])[1] if found else None
