"""The columns that a SELECT for Spark sees, and what each of them is in Spark's SQL.

Every table in the Spark query has an alias of its own (``t0``, ``t1`` …), every column of a
subquery too (``c0``, ``c1`` …), so nothing depends on how the engines treat case, quotes, repeated
names or names that hide each other: which source a name belongs to is decided by ``sql.scopes``,
by DuckDB's rules, and what is in doubt is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sqlglot import exp

from tidemill.sql.scopes import candidates
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
class SparkFromItem:
    """An item of FROM."""

    alias: str
    fields: list[Field]

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(each.name.lower() for each in self.fields if each.name is not None)

    def find(self, name: str) -> Field | None:
        found = [column for column in self.fields if column.is_named(name)]
        if len(found) > 1:
            refuse(f'column "{name}" stands twice in "{self.alias}"')
        return found[0] if found else None


@dataclass(eq=False)
class SparkScope:
    """The sources of one SELECT, and of the SELECT around it where that may be seen."""

    sources: list[SparkFromItem] = field(default_factory=list)
    merged: dict[str, Field] = field(default_factory=dict)
    outer: SparkScope | None = None
    outer_allowed: bool = False
    outer_used: bool = False
    outer_unequal: bool = False

    def find(self, column: exp.Column) -> Field | None:
        """The field of this scope that a column names."""
        if column.args.get("db") is not None:
            refuse("a column with a schema is not verified for Spark SQL")
        if not column.table and column.name.lower() in self.merged:
            return self.merged[column.name.lower()]
        found = candidates(column, self.sources)
        if len(found) > 1:
            refuse(f'column "{column.sql("duckdb")}" is ambiguous')
        return found[0].find(column.name) if found else None

    def find_outer(self, column: exp.Column) -> Field | None:
        """The field of the SELECT around this one: one level up, and only from WHERE."""
        found = self.outer.find(column) if self.outer is not None else None
        if found is None:
            return None
        if not self.outer_allowed:
            refuse(f'column "{column.name}" of the query around, outside of WHERE, is not verified')
        self.outer_used = True
        return found

    def star(self, source: SparkFromItem | None = None) -> Iterator[Field]:
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

    scope: SparkScope
    aliases: Mapping[str, Value] = field(default_factory=dict)
    alias_entry: str = "clause alias in select"
    strict: bool = False
    windows: Mapping[str, exp.Window] = field(default_factory=dict)
    predicates: bool = False
    queries: bool = True
