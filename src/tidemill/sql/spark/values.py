"""Values: an expression as Spark SQL text whose kind is known, and how a translation gives up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from tidemill.sql.spark import oracle
from tidemill.sql.spark.kinds import NULL_KIND, Kind, kind_of
from tidemill.sql.spark.literals import literal_of


class NotVerified(Exception):
    """Something in the query is not on the list; never leaves this package."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Value:
    """Spark SQL whose type is exactly ``kind.spark``; a constant also has DuckDB's text."""

    sql: str
    kind: Kind
    constant: str | None = None

    @property
    def asked(self) -> str:
        """How DuckDB is asked about this value: constants as they are, others by their type."""
        if self.constant is not None:
            return f"({self.constant})"
        return f"CAST(NULL AS {self.kind.name})"


def refuse(reason: str) -> NoReturn:
    raise NotVerified(reason)


def kind_named(name: str | None, what: str) -> Kind:
    kind = kind_of(name) if name is not None else None
    if kind is None:
        refuse(f"type {name} of {what} is not verified for Spark SQL")
    return kind


def asked_kind(template: str, *values: Value) -> Kind:
    """The kind that DuckDB gives an expression over values of these kinds."""
    question = template.format(*(value.asked for value in values))
    name = oracle.type_of(question)
    if name is None:
        refuse(f"DuckDB does not accept {question}")
    return kind_named(name, question)


def common_kind(values: list[Value]) -> Kind:
    """The kind in which DuckDB compares or gathers values."""
    if len(values) == 1:
        return values[0].kind
    return asked_kind("coalesce(" + ", ".join(["{}"] * len(values)) + ")", *values)


def constant_value(text: str, kind: Kind | None = None) -> Value:
    """A constant, evaluated by DuckDB."""
    found = oracle.value_of(text, name=kind.name if kind else None)
    if found is None:
        refuse(f"DuckDB gives {text} no value")
    kind = kind or kind_named(found.type_name, text)
    sql = literal_of(kind, found.text)
    if sql is None:
        refuse(f"the value of {text} has no literal in Spark SQL")
    return Value(sql, kind, text)


def null_value() -> Value:
    return Value("NULL", NULL_KIND, "NULL")


def what(node: exp.Expr) -> str:
    """A node's name for a reason."""
    if isinstance(node, exp.Anonymous):
        return f"function {node.name.lower()}"
    if isinstance(node, exp.Func):
        return f"function {node.sql_name().lower()}"
    return f"{type(node).__name__.upper()}"
