"""Time travel: ``FROM t FOR SYSTEM_TIME AS OF moment``, in the tokens and in the tree.

1. ``alias_last`` (before the stock parser): the clause is checked, and ``t AS a FOR SYSTEM_TIME
   AS OF m`` becomes ``t FOR SYSTEM_TIME AS OF m AS a``, the only order that parser reads.
2. ``take_system_time`` (planner): the clauses leave the tree; DuckDB never sees them.
3. ``moment_us`` (when the plan runs): the moment, of parameters and of now.

DuckDB's own ``FROM t AT (TIMESTAMP => moment)`` means the same.
"""

from __future__ import annotations

from datetime import date, datetime

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tidemill.clock import to_us
from tidemill.errors import Position, QueryError, SqlSyntaxError, UnsupportedError
from tidemill.sql.fold import NOT_CONSTANT, constant, parse_timestamp
from tidemill.sql.names import position_of, table_name_of
from tidemill.sql.params import Params
from tidemill.sql.scopes import with_query
from tidemill.sql.spelling import WINDOW_FUNCTIONS
from tidemill.sql.tokens import RESERVED, depth_change, position_at, words

_CLAUSE = "FOR SYSTEM_TIME AS OF"
_EXAMPLE = f"FROM t {_CLAUSE} TIMESTAMP '2024-01-01 00:00:00'"
_MOMENT_HINT = f"a TIMESTAMP, a parameter or now() - INTERVAL '1' HOUR: {_EXAMPLE}"
_WINDOW_HINT = f"{_EXAMPLE} WHERE ts >= …"
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.HEREDOC_STRING)


# In the tokens.


def alias_last(text: str, tokens: list[Token]) -> list[Token]:
    """The tokens with every clause between its table and the table's alias."""
    if not any(token.token_type == TokenType.FOR for token in tokens):
        return tokens
    ordered: list[Token] = []
    calls: list[str] = []  # the word before each bracket that is open
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if _is_clause(tokens, index):
            _check_place(text, tokens, index, calls)
            end = _moment_end(tokens, index)
            alias = _take_alias(text, ordered, token)
            ordered += tokens[index:end]
            ordered += alias
            index = end
            continue
        if (change := depth_change(token)) > 0:
            calls.append(tokens[index - 1].text.upper() if index else "")
        elif change < 0 and calls:
            calls.pop()
        ordered.append(token)
        index += 1
    return ordered


def _word(tokens: list[Token], index: int) -> str:
    """The unquoted word or sign at an index, in upper case."""
    if not 0 <= index < len(tokens) or tokens[index].token_type in _QUOTED:
        return ""
    return tokens[index].text.upper()


def _is_clause(tokens: list[Token], index: int) -> bool:
    """A FOR that begins the clause: not the one of ``[x FOR system_time IN list]``."""
    if tokens[index].token_type != TokenType.FOR or index == 0:
        return False
    word, after = _word(tokens, index + 1), _word(tokens, index + 2)
    if word == "SYSTEM_TIME":
        return after not in ("IN", ",")
    return word in ("TIMESTAMP", "VERSION") and after == "AS" and _word(tokens, index + 3) == "OF"


def _check_place(text: str, tokens: list[Token], index: int, calls: list[str]) -> None:
    token = tokens[index]
    place = position_at(text, token.start, token.end + 1)
    if calls and calls[-1] in WINDOW_FUNCTIONS:
        raise UnsupportedError(
            f"{calls[-1]} reads the present only", hint=_WINDOW_HINT, position=place
        )
    after = tokens[min(index + 2, len(tokens) - 1)]
    place = position_at(text, after.start, after.end + 1)
    if _word(tokens, index + 2) in ("BETWEEN", "FROM", "CONTAINED", "ALL"):
        raise UnsupportedError(
            "a table is read as of one moment, not of several",
            hint=_EXAMPLE,
            position=place,
        )
    if (_word(tokens, index + 2), _word(tokens, index + 3)) != ("AS", "OF"):
        raise SqlSyntaxError(
            f'expected "AS OF" near "{place.words}"', hint=_EXAMPLE, position=place
        )
    if index + 4 >= len(tokens):
        raise SqlSyntaxError(
            "the moment is missing after AS OF",
            hint=_MOMENT_HINT,
            position=position_at(text, tokens[-1].start, tokens[-1].end + 1),
        )


def _moment_end(tokens: list[Token], index: int) -> int:
    """The index after the moment: a bracket that closes, a comma or a word that begins a clause."""
    depth = 0
    for at in range(index + 4, len(tokens)):
        depth += depth_change(tokens[at])
        word = _word(tokens, at)
        if depth < 0 or (depth == 0 and word == ","):
            return at
        is_call = word in ("LEFT", "RIGHT") and _word(tokens, at + 1) == "("
        if depth == 0 and word and word.split()[0] in _AFTER_TABLES and not is_call:
            return at
    return len(tokens)


_AFTER_TABLES = words(
    "AS JOIN INNER LEFT RIGHT FULL OUTER CROSS NATURAL ASOF POSITIONAL SEMI ANTI LATERAL ON USING "
    "WHERE GROUP HAVING QUALIFY WINDOW ORDER LIMIT OFFSET FETCH UNION EXCEPT INTERSECT SELECT "
    "PIVOT UNPIVOT TABLESAMPLE FOR SET RETURNING"
)


def _take_alias(text: str, before: list[Token], token: Token) -> list[Token]:
    """Take the alias off the end of what stands before the clause; empty if there is none."""
    end = len(before)
    name = end - 1
    if _word(before, name) == ")":
        name = _opening(before) - 1
        if not _is_name(before, name) or not _ends_table(before, name):
            raise _misplaced(position_at(text, token.start, token.end + 1))
    elif not _ends_table(before, name):
        return []
    start = name - 1 if _word(before, name - 1) == "AS" else name
    if start == 0 or _word(before, start - 1) == ")":
        raise _misplaced(position_at(text, token.start, token.end + 1))
    alias = before[name:]
    first = alias[0]
    as_ = Token(TokenType.ALIAS, "AS", first.line, first.col, first.start, first.end)
    del before[start:]
    return [as_, *alias]


def _ends_table(tokens: list[Token], name: int) -> bool:
    """Whether a table (or AS) ends before this name, so that the name is an alias."""
    before = _word(tokens, name - 1)
    return before in ("AS", ")") or _is_name(tokens, name - 1)


def _is_name(tokens: list[Token], index: int) -> bool:
    if not 0 <= index < len(tokens):
        return False
    if tokens[index].token_type in _QUOTED:
        return True
    word = tokens[index].text.lower()
    is_word = word[:1].isalpha() or word[:1] == "_"
    return is_word and word not in RESERVED and word not in ("join", "update")


def _opening(tokens: list[Token]) -> int:
    """The index of the bracket that the last token closes."""
    depth = 0
    for index in range(len(tokens) - 1, -1, -1):
        depth += depth_change(tokens[index])
        if depth == 0:
            return index
    return 0


def _misplaced(position: Position | None) -> UnsupportedError:
    return UnsupportedError(
        f"{_CLAUSE} belongs to the name of a table",
        detail="a query in brackets, a function or a stream window has no past of its own",
        hint=f"write it where the table is named: {_EXAMPLE}",
        position=position,
    )


# In the tree.


def find_clause(tree: exp.Expression) -> exp.Expression | None:
    """Any clause of a tree that asks for the past."""
    return tree.find(exp.Version, exp.HistoricalData)


def take_system_time(tree: exp.Expression) -> list[tuple[exp.Table, exp.Expression]]:
    """Take the clauses out of a tree, in place: each table that has one, and its moment.

    The moment keeps its parameters and its now(); ``moment_us`` reads it. To be called before
    stream windows are rewritten and before parameters get other names.
    """
    found: list[tuple[exp.Table, exp.Expression]] = []
    for clause in list(tree.find_all(exp.Version, exp.HistoricalData)):
        table = clause.parent
        position = (position_of(table) if table is not None else None) or position_of(clause)
        if not isinstance(table, exp.Table) or (name := table_name_of(table)) is None:
            raise _misplaced(position)
        _check_table(table, name, position)
        moment = _moment(clause, position)
        clause.pop()
        moment.pop()
        found.append((table, moment))
    return found


def _check_table(table: exp.Table, name: str, position: Position | None) -> None:
    if with_query(table) is not None:
        raise UnsupportedError(
            f'"{name}" is a WITH query, which has no past of its own',
            hint=f"write {_CLAUSE} inside it",
            position=position,
        )
    if name.startswith("tidemill."):
        raise UnsupportedError(
            f'system table "{name}" shows the present only',
            hint="tidemill.snapshots lists the snapshots that can be read",
            position=position,
        )
    if table.args.get("version") is not None and table.args.get("when") is not None:
        raise SqlSyntaxError("two moments are given for one table", hint="give one")


def _moment(clause: exp.Expression, position: Position | None) -> exp.Expression:
    moment = clause.args.get("expression")
    if isinstance(clause, exp.Version):
        is_moment = clause.name == "TIMESTAMP" and clause.args.get("kind") == "AS OF"
    else:
        is_moment = clause.name.upper() == "AT" and clause.args.get("kind") == "TIMESTAMP"
    if not is_moment or not isinstance(moment, exp.Expression):
        raise UnsupportedError("a table is read as of a moment", hint=_EXAMPLE, position=position)
    return moment


# When the plan runs.


def moment_us(moment: exp.Expression, params: Params = None, now_us: int | None = None) -> int:
    """The moment in microseconds; an error if it is no constant or no time."""
    value = constant(moment, params, now_us)
    if isinstance(value, str):
        value = parse_timestamp(value) or value
    if isinstance(value, datetime):
        return to_us(value)
    if isinstance(value, date):
        return to_us(datetime(value.year, value.month, value.day))
    if value is NOT_CONSTANT:
        raise QueryError(
            f"the moment of {_CLAUSE} must be a constant",
            detail=f"found {moment.sql('duckdb')[:200]}",
            hint=_MOMENT_HINT,
            position=position_of(moment),
        )
    raise QueryError(
        f"the moment of {_CLAUSE} is not a time",
        detail=f"found {str(value)[:200]!r}" if value is not None else "found NULL",
        hint=_MOMENT_HINT,
        position=position_of(moment),
    )
