"""Views: CREATE, DROP and REFRESH of materialized views, and kept continuous queries.

The head is read here, the query by ``bodies``. A kept query ends with its slide (EVERY …, EMIT …),
which is found in the tokens before the stock parser sees them: outside all brackets, after
something that can end a query. A column, table or alias named ``every`` is none.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from tidemill.config import VIEW_SETTINGS
from tidemill.errors import Position, UnsupportedError
from tidemill.sql.bodies import parse_body
from tidemill.sql.every import read_every
from tidemill.sql.names import position_of
from tidemill.sql.options import read_settings
from tidemill.sql.statements import CreateKeptQuery, CreateView, DropView, RefreshView, Slide
from tidemill.sql.tokens import RESERVED, Cursor, depth_change
from tidemill.sql.travel import find_clause

VIEW_KINDS = ("MATERIALIZED", "CONTINUOUS")
_EXCLUDE = "OR REPLACE and IF NOT EXISTS exclude each other"
_SLIDES = "EVERY INTERVAL '1' MINUTE, EVERY ROW or EMIT ON WINDOW CLOSE"


def accept_view(cursor: Cursor) -> bool:
    """Step over ``MATERIALIZED VIEW`` or ``CONTINUOUS VIEW``, if one of them comes next."""
    return any(cursor.accept(kind, "VIEW") for kind in VIEW_KINDS)


def read_create_view(cursor: Cursor, text: str, position: Position, or_replace: bool) -> CreateView:
    """After ``CREATE [OR REPLACE] MATERIALIZED VIEW``."""
    token = cursor.peek()
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        cursor.fail(_EXCLUDE, token, hint="write one")
    name = cursor.new_table_name("view")
    columns = cursor.names("column name") if cursor.word() == "(" else None
    settings = read_settings(cursor, registry=VIEW_SETTINGS) if cursor.accept("WITH") else {}
    if not cursor.accept("AS"):
        cursor.fail_expected(["AS"] if settings else ["AS", "WITH", "("])
    start, end = cursor.at, len(cursor.tokens)
    slide = _slide_at(cursor)
    if slide < end:
        raise UnsupportedError(
            "a view has no slide: it is fresh whenever it is read",
            hint="leave it out, or keep the answers: CREATE STREAMING TABLE s AS … EVERY …",
            position=cursor.position(cursor.tokens[slide]),
        )
    query = _read_query(cursor, end, f"CREATE MATERIALIZED VIEW {name} AS SELECT …")
    return CreateView(
        name,
        query,
        settings,
        columns,
        or_replace,
        if_not_exists,
        cursor.slice(start, end),
        text=text,
        position=position,
    )


def read_kept_query(
    cursor: Cursor, name: str, text: str, position: Position, or_replace: bool, if_not_exists: bool
) -> CreateKeptQuery:
    """After ``CREATE [OR REPLACE] STREAMING TABLE [IF NOT EXISTS] name``, at WITH or AS."""
    settings = read_settings(cursor) if cursor.accept("WITH") else {}
    if or_replace and if_not_exists:
        cursor.fail(_EXCLUDE, cursor.tokens[0], hint="write one")
    if not cursor.accept("AS"):
        cursor.fail(
            "a streaming table has columns or a query",
            hint=f"CREATE STREAMING TABLE {name} (ts TIMESTAMP, …), or … AS SELECT … EVERY …",
        )
    start, end = cursor.at, _slide_at(cursor)
    if start == end:
        cursor.fail("the query is missing", hint="CREATE STREAMING TABLE s AS SELECT … EVERY ROW")
    if end == len(cursor.tokens):
        cursor.at = end
        cursor.fail("the query does not say when it answers", hint=f"end it with {_SLIDES}")
    query = _read_query(cursor, end, f"CREATE STREAMING TABLE {name} AS SELECT … EVERY ROW")
    slide = _read_slide(cursor)
    if not cursor.done:
        cursor.fail("the slide is the last part of the statement", hint="put it after the query")
    return CreateKeptQuery(
        name,
        query,
        slide,
        settings,
        or_replace,
        if_not_exists,
        cursor.slice(start, end),
        text=text,
        position=position,
    )


def _read_query(cursor: Cursor, end: int, example: str) -> exp.Expression:
    """The query up to ``end``, where the cursor stands afterwards."""
    token = cursor.peek()
    tree = parse_body(cursor, cursor.at, end)
    if not isinstance(tree, (exp.Query, exp.Values)):
        cursor.fail("expected a query after AS", token, hint=example)
    if tree.find(exp.Placeholder, exp.Parameter) is not None:
        signs = [t for t in cursor.tokens[cursor.at : end] if t.token_type in _PARAMETERS]
        raise UnsupportedError(
            "a query that is kept has no parameters",
            hint="write the values into it",
            position=cursor.position(signs[0] if signs else token),
        )
    if (clause := find_clause(tree)) is not None:
        raise UnsupportedError(
            "a query that is kept reads the present",
            hint="CREATE TABLE r AS SELECT … FOR SYSTEM_TIME AS OF … keeps rows of the past",
            position=position_of(clause) or cursor.position(token),
        )
    cursor.at = end
    return tree


_PARAMETERS = (TokenType.PLACEHOLDER, TokenType.PARAMETER, TokenType.QDCOLON, TokenType.COLON)

# The slide.


def _slide_at(cursor: Cursor) -> int:
    """The index at which the slide begins, or that after the last token."""
    depth, found = 0, len(cursor.tokens)
    for index in range(cursor.at, len(cursor.tokens)):
        depth += depth_change(cursor.tokens[index])
        if depth == 0 and _is_slide(cursor, index):
            found = index
    return found


def _is_slide(cursor: Cursor, index: int) -> bool:
    ahead = index - cursor.at
    word, after = cursor.word(ahead), cursor.word(ahead + 1)
    if word not in ("EVERY", "EMIT") or (ahead and not _ends_query(cursor, index - 1)):
        return False
    if word == "EMIT":  # "JOIN t emit ON …" is an alias, but no column is named WINDOW
        return after == "ON" and cursor.word(ahead + 2) == "WINDOW"
    follower = cursor.peek(ahead + 1)
    is_value = follower is not None and follower.token_type in (TokenType.STRING, TokenType.NUMBER)
    return is_value or after in ("INTERVAL", "ROW", "ROWS")


def _ends_query(cursor: Cursor, index: int) -> bool:
    """Whether a query can end with this token: with an operand or a closing bracket."""
    token = cursor.tokens[index]
    if token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER):
        return True
    word = token.text.lower()
    if word in (")", "]", "}", "*"):
        return True
    is_word = word[:1].isalnum() or word[:1] in ("_", "?")
    return is_word and (word not in RESERVED or word in _LAST_WORDS) and word not in _NO_LAST_WORDS


_LAST_WORDS = ("all", "asc", "desc", "end", "false", "null", "only", "true")
_NO_LAST_WORDS = ("by", "join", "between", "like", "ilike", "is", "interval")


def _read_slide(cursor: Cursor) -> Slide:
    if cursor.accept("EVERY", "ROW"):
        return Slide(every_row=True)
    if cursor.accept("EMIT"):
        for word in ("ON", "WINDOW", "CLOSE"):
            if not cursor.accept(word):
                cursor.fail(f'expected "{word}"', hint="EMIT ON WINDOW CLOSE")
        return Slide(on_close=True)
    cursor.expect("EVERY")
    if cursor.word() == "ROWS":
        cursor.fail('expected "ROW"', hint="EVERY ROW")
    return Slide(every_us=read_every(cursor, "a kept query answers"))


# The small statements.


def read_drop_view(cursor: Cursor, text: str, position: Position) -> DropView:
    """After ``DROP [MATERIALIZED | CONTINUOUS] VIEW``."""
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.table_name()
    cascade = cursor.accept("CASCADE")
    if not cascade:
        cursor.accept("RESTRICT")
    cursor.expect_end()
    return DropView(name, if_exists, cascade, text=text, position=position)


def read_refresh(cursor: Cursor, text: str, position: Position) -> RefreshView:
    """After ``REFRESH``."""
    if not accept_view(cursor) and not cursor.accept("VIEW"):
        cursor.fail_expected(["MATERIALIZED VIEW"])
    name = cursor.table_name()
    cursor.expect_end()
    return RefreshView(name, text=text, position=position)
