"""Scopes: the columns that a SELECT sees, and what a name in it means.

Every table in the Spark query has an alias of its own (``t0``, ``t1`` …), every column of a
subquery too (``c0``, ``c1`` …), so nothing depends on how the engines treat case, quotes, repeated
names or names that hide each other: a name is looked up here, by DuckDB's rules, and only here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from tidemill.sql.spark.kinds import Kind
from tidemill.sql.spark.values import Value, refuse


@dataclass(frozen=True)
class Field:
    """A column: its name in DuckDB (None if DuckDB makes one up), its SQL, its kind if known."""

    name: str | None
    sql: str
    kind: Kind | None
    type_name: str = ""
    origins: tuple[tuple[str, str], ...] = ()

    def value(self) -> Value:
        if self.kind is None:
            refuse(f'column "{self.name}" has type {self.type_name}, not verified for Spark SQL')
        return Value(self.sql, self.kind)

    def is_named(self, name: str) -> bool:
        return self.name is not None and self.name.lower() == name.lower()


@dataclass(eq=False)
class Source:
    """An item of FROM."""

    alias: str
    fields: list[Field]

    def find(self, name: str) -> Field | None:
        found = [column for column in self.fields if column.is_named(name)]
        if len(found) > 1:
            refuse(f'column "{name}" stands twice in "{self.alias}"')
        return found[0] if found else None


@dataclass(eq=False)
class Scope:
    """The sources of one SELECT, and of the SELECT around it where that may be seen."""

    sources: list[Source] = field(default_factory=list)
    merged: dict[str, Field] = field(default_factory=dict)
    outer: Scope | None = None
    outer_allowed: bool = False
    outer_used: bool = False
    outer_unequal: bool = False

    def find(self, column: exp.Column) -> Field | None:
        """The field of this scope that a column names."""
        if column.args.get("db") is not None:
            refuse("a column with a schema is not verified for Spark SQL")
        qualifier = column.table.lower()
        if qualifier:
            sources = [source for source in self.sources if source.alias.lower() == qualifier]
            if len(sources) > 1:
                refuse(f'table "{qualifier}" stands twice in FROM')
            return sources[0].find(column.name) if sources else None
        if column.name.lower() in self.merged:
            return self.merged[column.name.lower()]
        found = [f for source in self.sources if (f := source.find(column.name)) is not None]
        if len(found) > 1:
            refuse(f'column "{column.name}" is ambiguous')
        return found[0] if found else None

    def find_outer(self, column: exp.Column) -> Field | None:
        """The field of the SELECT around this one: one level up, and only from WHERE."""
        found = self.outer.find(column) if self.outer is not None else None
        if found is None:
            return None
        if not self.outer_allowed:
            refuse(f'column "{column.name}" of the query around, outside of WHERE, is not verified')
        self.outer_used = True
        return found

    def star(self, source: Source | None = None) -> Iterator[Field]:
        """The columns of ``*`` or ``t.*``, those joined by USING once and first."""
        if source is not None:
            yield from source.fields
            return
        shown: set[str] = set()
        for each in self.sources:
            for column in each.fields:
                name = (column.name or "").lower()
                if name not in self.merged:
                    yield column
                elif name not in shown:
                    shown.add(name)
                    yield self.merged[name]


@dataclass(frozen=True, eq=False)
class Place:
    """Where an expression stands: what it sees, and what is allowed there.

    ``aliases`` are the SELECT list's names, which are meant where no column has that name
    (``strict``: a name that is both is refused); ``windows`` the named ones; ``predicates`` says
    whether EXISTS and IN (SELECT …) may stand here, which is in WHERE only.
    """

    scope: Scope
    aliases: Mapping[str, Value] = field(default_factory=dict)
    alias_entry: str = "clause alias in select"
    strict: bool = False
    windows: Mapping[str, exp.Window] = field(default_factory=dict)
    predicates: bool = False
    queries: bool = True
