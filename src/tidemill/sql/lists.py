"""Long lists of constants: ``x IN (1, 2, …)`` with a hundred items or more, as one node of a tree.

A tree of a hundred thousand literals takes seconds to parse, and again to copy, to walk and to
write as often as that is done. None of these look at the literals one by one. So such a list is
made one literal, whose text is the list as it was written:

1. ``tokenize_lists`` finds lists in the text, puts a number and blanks in their place, and has the
   rest cut into tokens. A number that then does not stand between the brackets of an IN was none:
   the text in which it was found is a string or a comment. Offsets and lines stay as they are.
2. The stock parser makes one literal of it, and every SQL that is written has its text.
3. ``constants`` gives the values of its items, for the indices.
4. ``shorten_lists`` (planner, views): DuckDB itself takes a second for a hundred thousand items,
   and a twentieth of it for one text that is cast to a list. So where the type of ``x`` is known,
   and all items are values of it, the text becomes a query for the elements of such a list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tidemill.errors import TidemillError
from tidemill.sql import casting as kinds
from tidemill.sql.calls import Tables
from tidemill.sql.fold import NOT_CONSTANT, constant
from tidemill.sql.list_queries import list_query
from tidemill.sql.literals import LITERAL, read_cell
from tidemill.sql.params import Params
from tidemill.sql.scopes import Scope, base_table, is_named_by
from tidemill.sql.tokens import DIALECT, tokenize
from tidemill.types import SqlType

ITEMS_MIN = 100  # a shorter list stays a list of nodes
SHORTENED_MIN = 1_000  # DuckDB takes a shorter one as it is
_FLAGS = re.ASCII | re.IGNORECASE
_IN = re.compile(r'(?<![\w"$.])IN\s*+\(', re.IGNORECASE)
_LIST = re.compile(rf"\s*+({LITERAL}(?:\s*+,\s*+{LITERAL}){{{ITEMS_MIN - 1},}}+)\s*+(?=\))", _FLAGS)
_INTEGERS = re.compile(r"-?\d{1,100}+(?:\s*+,\s*+-?\d{1,100}+)*+", _FLAGS)
_PIVOT = re.compile(r"PIVOT", _FLAGS)  # names its columns after the items
_NOT_NEWLINE = re.compile(r"[^\n]")
_CONDITIONS = (exp.And, exp.Or, exp.Not, exp.Paren)


@dataclass(frozen=True, eq=False)
class Constants:
    """The items of a list, by the text that they were written as."""

    text: str

    @cached_property
    def values(self) -> tuple[object, ...]:
        """Their values as ``fold.constant`` gives them; NOT_CONSTANT where one is not sure."""
        if _INTEGERS.fullmatch(self.text):
            return tuple(map(int, self.text.split(",")))
        closed, at, is_last = f"{self.text})", 0, False
        found: list[object] = []
        while not is_last:
            read = read_cell(closed, at)
            if read is None:
                return self._by_nodes()
            (kind, value), at, is_last = read
            found.append(_folded(kind, value))
        return tuple(found)

    def _by_nodes(self) -> tuple[object, ...]:
        text = f"({self.text})"
        (tree,) = DIALECT.parser().parse(DIALECT.tokenize(text), text)
        assert isinstance(tree, exp.Tuple)
        return tuple(constant(item) for item in tree.expressions)


def _folded(kind: str, value: object) -> object:
    if kind == kinds.UUID and isinstance(value, str):
        return UUID(value)
    return NOT_CONSTANT if kind in (kinds.TIME, kinds.INTERVAL) else value


class _ListText(str):
    """How a list is written in SQL, and what is in it."""

    constants: Constants

    @classmethod
    def of(cls, text: str, constants: Constants) -> _ListText:
        made = cls(text)
        made.constants = constants
        return made


# From the text to the tree.


def tokenize_lists(text: str) -> list[Token] | None:
    """The tokens of a text with a number in place of each long list; None if it has none, or if it
    cannot be read so."""
    found = _find_lists(text) if len(text) > 2 * ITEMS_MIN and not _PIVOT.search(text) else []
    if not found:
        return None
    pieces, after = [], 0
    for start, end in found:
        hidden = text[start + 1 : end]
        blanks = _NOT_NEWLINE.sub(" ", hidden) if "\n" in hidden else " " * len(hidden)
        pieces += [text[after:start], "0", blanks]
        after = end
    try:
        tokens = tokenize("".join([*pieces, text[after:]]))
    except TidemillError:
        return None
    return _with_lists(text, tokens, dict(found))


def _find_lists(text: str) -> list[tuple[int, int]]:
    """Where long lists may stand, without their brackets."""
    found: list[tuple[int, int]] = []
    at = 0
    while opening := _IN.search(text, at):
        at = opening.end()
        if listed := _LIST.match(text, at):
            found.append(listed.span(1))
            at = listed.end()
    return found


def _with_lists(text: str, tokens: list[Token], ends: dict[int, int]) -> list[Token] | None:
    """The tokens with the lists in their places; None if one stands where no list can."""
    left = len(ends)
    for at, token in enumerate(tokens):
        end = ends.get(token.start)
        if end is None:
            continue
        around = [each.token_type for each in tokens[max(at - 2, 0) : at + 2]]
        if around != [TokenType.IN, TokenType.L_PAREN, TokenType.NUMBER, TokenType.R_PAREN]:
            return None
        written = text[token.start : end]
        tokens[at] = Token(
            TokenType.NUMBER,
            _ListText.of(written, Constants(written)),
            token.line,
            token.col,
            token.start,
            end - 1,
        )
        left -= 1
    return None if left else tokens


# In the tree.


def constants_of(node: exp.Expr) -> Constants | None:
    """The items of a long list, if a node is one."""
    text = node.this if isinstance(node, exp.Literal) else None
    return text.constants if isinstance(text, _ListText) else None


def constants(
    node: exp.Expression, params: Params = None, now_us: int | None = None
) -> tuple[object, ...]:
    """The values of an operand that is a constant, or a long list of them."""
    listed = constants_of(node)
    return (constant(node, params, now_us),) if listed is None else listed.values


def shorten_lists(tree: exp.Expression, tables: Tables) -> None:
    """Let DuckDB read the longest lists of conditions in WHERE as one text each."""
    for node in list(tree.find_all(exp.In)):
        items = node.expressions
        listed = constants_of(items[0]) if len(items) == 1 else None
        where = _where(node) if listed is not None else None
        if listed is None or where is None or len(listed.values) < SHORTENED_MIN:
            continue
        kind = _type_of(node.this, where, tables)
        query = None if kind is None else list_query(listed.values, kind)
        if query is not None:
            items[0].set("this", _ListText.of(query, listed))


def spell_out_lists(tree: exp.Expr) -> None:
    """Undo ``shorten_lists``, for readers that know lists of literals only."""
    for node in tree.find_all(exp.Literal):
        if (listed := constants_of(node)) is not None:
            node.set("this", _ListText.of(listed.text, listed))


def _where(node: exp.Expr) -> exp.Expr | None:
    """The statement in whose WHERE a condition stands, if nothing but AND, OR and NOT is around."""
    parent = node.parent
    while isinstance(parent, _CONDITIONS):
        parent = parent.parent
    return parent.parent if isinstance(parent, exp.Where) else None


def _type_of(node: exp.Expr, statement: exp.Expr, tables: Tables) -> SqlType | None:
    """The type of a column of a known table."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Column):
        return None
    source: exp.Expr | None = None
    if isinstance(statement, exp.Select):
        owner = Scope(statement, tables).resolve(node)
        source = owner.node if owner is not None and owner.columns is not None else None
    elif isinstance(statement, (exp.Delete, exp.Update)) and _is_alone(node, statement):
        source = statement.this
    table = base_table(source, tables) if isinstance(source, exp.Table) else None
    name = node.name.lower()
    columns = [] if table is None else [c for c in table.columns if c.name.lower() == name]
    return columns[0].type if columns else None


def _is_alone(column: exp.Column, statement: exp.Delete | exp.Update) -> bool:
    """Whether a column can be the changed table's only."""
    others = any(statement.args.get(key) for key in ("using", "from_", "with_", "tables"))
    return not others and is_named_by(column, statement.this.alias_or_name)
