"""Statements: what a text means, as frozen data. The engine dispatches on these classes.

Query bodies are sqlglot expressions (DuckDB dialect), untouched by the parser: table names,
window functions and parameters are resolved later, by ``federation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from tidemill.errors import Position
from tidemill.sql.literal_rows import LiteralRows
from tidemill.types import Column


@dataclass(frozen=True)
class Statement:
    """Any statement; ``text`` is its own part of the input, ``position`` where that starts."""

    text: str = field(kw_only=True)
    position: Position = field(kw_only=True)


@dataclass(frozen=True)
class Watermark:
    """``WATERMARK FOR column AS column - INTERVAL …``; the delay in microseconds."""

    column: str
    delay_us: int


@dataclass(frozen=True)
class CreateStreamingTable(Statement):
    name: str
    columns: tuple[Column, ...]
    time_column: str
    watermark: Watermark | None
    primary_key: tuple[str, ...]
    settings: Mapping[str, str]
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateTable(Statement):
    """A reference table; ``query`` is set for CREATE TABLE … AS SELECT (then columns are empty).

    ``checks`` holds table constraints other than the primary key (UNIQUE, CHECK) as SQL text.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    query: exp.Expression | None = None
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateIndex(Statement):
    """``method`` is 'ordered' (also written BTREE) or 'hash'; ``name`` None means: choose one."""

    name: str | None
    table: str
    columns: tuple[str, ...]
    method: str = "ordered"
    unique: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class DropIndex(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class AlterTableSet(Statement):
    table: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class CreateView(Statement):
    """CREATE MATERIALIZED VIEW, also written CONTINUOUS VIEW. ``columns`` None means: the names
    of the query's own columns; ``query_text`` is the query as the user wrote it."""

    name: str
    query: exp.Expression
    settings: Mapping[str, str]
    columns: tuple[str, ...] | None = None
    or_replace: bool = False
    if_not_exists: bool = False
    query_text: str = ""


@dataclass(frozen=True)
class DropView(Statement):
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class RefreshView(Statement):
    """Wait until the view is back-filled and has absorbed every row, then make its answer."""

    name: str


@dataclass(frozen=True)
class Slide:
    """When a kept query answers: each ``every_us`` (EVERY INTERVAL), for each row (EVERY ROW), or
    when a window closes (EMIT ON WINDOW CLOSE). Exactly one of them is set."""

    every_us: int | None = None
    every_row: bool = False
    on_close: bool = False


@dataclass(frozen=True)
class CreateKeptQuery(Statement):
    """CREATE STREAMING TABLE … AS query with a slide: each answer becomes rows of the table.
    ``query_text`` is the query as the user wrote it, without the slide."""

    name: str
    query: exp.Expression
    slide: Slide
    settings: Mapping[str, str]
    or_replace: bool = False
    if_not_exists: bool = False
    query_text: str = ""


@dataclass(frozen=True)
class CreateSource(Statement):
    """``pattern`` names the packages (a path or URL, wildcards allowed), ``format`` is csv, json,
    ndjson or parquet. ``every_us`` None means that nobody looks again by himself."""

    name: str
    pattern: str
    format: str
    options: Mapping[str, object]
    table: str
    columns: tuple[str, ...] | None
    every_us: int | None
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropSource(Statement):
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class Flush(Statement):
    """Move rows from memory to history at once; None means: of every table."""

    table: str | None = None


@dataclass(frozen=True)
class Vacuum(Statement):
    """Remove files that nobody needs and check the others; None means: of every table.
    ``drops_damaged``: files of the table that are damaged go, with their rows."""

    table: str | None = None
    drops_damaged: bool = False


@dataclass(frozen=True)
class SetVariable(Statement):
    """SET and RESET of a session variable, its name in lower case. A ``value`` of None is the
    default, a ``name`` of None every variable (RESET ALL)."""

    name: str | None
    value: str | None


@dataclass(frozen=True)
class ShowVariable(Statement):
    """SHOW name; None means: all of them."""

    name: str | None = None


@dataclass(frozen=True)
class ShowSources(Statement):
    pass


@dataclass(frozen=True)
class ShowJobs(Statement):
    pass


@dataclass(frozen=True)
class ShowPartitions(Statement):
    table: str | None = None


@dataclass(frozen=True)
class ShowTables(Statement):
    pass


@dataclass(frozen=True)
class ShowViews(Statement):
    pass


@dataclass(frozen=True)
class ShowIndexes(Statement):
    table: str | None = None


@dataclass(frozen=True)
class Describe(Statement):
    table: str


@dataclass(frozen=True)
class Insert(Statement):
    """``rows`` is set when every value is a plain literal or a parameter-free constant that the
    parser could read itself (the fast path); otherwise ``query`` is the VALUES or SELECT body.
    ``tail`` is anything after the body (ON CONFLICT; RETURNING, for reference tables only).
    ``template`` is set beside ``query`` when every value is a literal or a parameter: rows with
    ``params.Param`` in them, for ``params.bind_rows``; ``in_order`` if they are one row of nothing
    but the parameters, in their order. DEFAULT VALUES is one row of no columns.
    ``literals`` is set in place of both where casts or intervals are among the literals."""

    table: str
    columns: tuple[str, ...] | None
    rows: tuple[tuple[object, ...], ...] | None
    query: exp.Expression | None
    tail: str = ""
    by_name: bool = False
    template: tuple[tuple[object, ...], ...] | None = None
    literals: LiteralRows | None = None
    in_order: bool = False


@dataclass(frozen=True)
class Change(Statement):
    """UPDATE, DELETE or MERGE; ``body`` is the whole sqlglot expression."""

    kind: str
    table: str
    body: exp.Expression


@dataclass(frozen=True)
class CopyFrom(Statement):
    """``format`` is csv, json, ndjson or parquet, from the option or the file's name."""

    table: str
    columns: tuple[str, ...] | None
    path: str
    format: str
    options: Mapping[str, object]


@dataclass(frozen=True)
class CopyTo(Statement):
    query: exp.Expression
    path: str
    format: str
    options: Mapping[str, object]


@dataclass(frozen=True)
class Query(Statement):
    """SELECT, VALUES, FROM-first, WITH … SELECT, set operations."""

    body: exp.Expression


@dataclass(frozen=True)
class Explain(Statement):
    statement: Statement
    analyze: bool = False


@dataclass(frozen=True)
class ExplainView(Statement):
    """EXPLAIN MATERIALIZED VIEW v: how its query was split."""

    name: str
