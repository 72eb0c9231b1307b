"""Statements of the short path: compiled once for each kind of database, then run as text.

A commit of files is ten small statements, once a second for each table. SQLAlchemy takes longer to
build one and to look it up in its cache than the database takes to run it. What is prepared here
skips both; faults come out as from any other statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

Row = Mapping[str, Any]
InsertOf = Callable[[sa.Table], sqlite.Insert | postgresql.Insert]
"""The database's own INSERT, which knows ON CONFLICT; both speak it alike."""


@dataclass(frozen=True)
class _Text:
    sql: str
    order: Sequence[str] | None
    """The parameters' names in their order; None where the text names them."""
    given: Row

    def parameters(self, row: Row) -> Any:
        every = {**self.given, **row}
        return every if self.order is None else tuple(every[name] for name in self.order)


class Prepared:
    """One statement. Parameters are named as the columns, or as its bindparams."""

    def __init__(self, build: Callable[[InsertOf], sa.ClauseElement]) -> None:
        self._build = build
        self._texts: dict[str, _Text] = {}

    def run(self, connection: sa.Connection, rows: Row | Sequence[Row]) -> sa.CursorResult[Any]:
        """Run it with one row of parameters, or once for each of several."""
        text = self._texts.get(connection.dialect.name) or self._compile(connection)
        if isinstance(rows, Mapping):
            return connection.exec_driver_sql(text.sql, text.parameters(rows))
        many = [text.parameters(row) for row in rows]
        return connection.exec_driver_sql(text.sql, many)

    def _compile(self, connection: sa.Connection) -> _Text:
        dialect = connection.dialect
        insert = sqlite.insert if dialect.name == "sqlite" else postgresql.insert
        made = self._build(insert).compile(dialect=dialect)
        order = getattr(made, "positiontup", None)
        text = _Text(str(made), order, dict(made.params))
        self._texts[dialect.name] = text
        return text
