"""Indices: CREATE INDEX and DROP INDEX, of streams and of reference tables."""

from __future__ import annotations

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.errors import (
    DuplicateNameError,
    UnknownNameError,
    UnsupportedError,
    did_you_mean,
)
from tidemill.federation.references import References, physical_name
from tidemill.hot.keys import is_indexable
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers
from tidemill.statements.definitions.making import Making, check_table
from tidemill.types import quote


class IndexDefinitions:
    def __init__(self, catalog: Catalog, making: Making, references: References) -> None:
        self._catalog = catalog
        self._making = making
        self._references = references

    @property
    def handlers(self) -> Handlers:
        return {st.CreateIndex: self._create, st.DropIndex: self._drop}

    def _create(self, call: Call[st.CreateIndex]) -> Result:
        statement = call.statement
        snapshot = self._catalog.snapshot()
        if statement.name is not None and snapshot.find_index(statement.name) is not None:
            if statement.if_not_exists:
                return done("CREATE INDEX")
            raise DuplicateNameError(
                f'index "{statement.name}" already exists',
                hint="choose another name, use IF NOT EXISTS, or drop it first: DROP INDEX",
                position=statement.position,
            )
        table = snapshot.get(statement.table, statement.position)
        check_table(table, statement)
        if not table.is_streaming:
            return self._create_reference_index(statement, table)
        if statement.unique:
            raise UnsupportedError(
                "a streaming table has no unique indices",
                hint="declare a PRIMARY KEY that includes the time column",
                position=statement.position,
            )
        columns = []
        for name in statement.columns:
            column = table.get_column(name, statement.position)
            if not is_indexable(column.type.arrow):
                raise UnsupportedError(
                    f'column "{column.name}" of type {column.type} cannot be indexed',
                    hint="numbers, texts, dates, times and UUIDs can",
                    position=statement.position,
                )
            columns.append(column.name)
        with self._catalog.transaction() as change:
            change.create_index(
                table.table_id, columns, name=statement.name, method=statement.method
            )
        self._making.follow(table.table_id)
        return done("CREATE INDEX")

    def _create_reference_index(self, statement: st.CreateIndex, table: Table) -> Result:
        """Reference tables keep DuckDB's own indices."""
        with self._catalog.transaction() as change:
            index = change.create_index(
                table.table_id,
                statement.columns,
                name=statement.name,
                method=statement.method,
                unique=statement.unique,
            )
            unique = "UNIQUE " if statement.unique else ""
            columns = ", ".join(quote(name) for name in index.columns)
            target = f"reference.{physical_name(table.table_id)}"
            self._references.write(
                f"CREATE {unique}INDEX i{index.index_id} ON {target} ({columns})"
            )
        return done("CREATE INDEX")

    def _drop(self, call: Call[st.DropIndex]) -> Result:
        statement = call.statement
        snapshot = self._catalog.snapshot()
        index = snapshot.find_index(statement.name)
        if index is None:
            if statement.if_exists:
                return done("DROP INDEX")
            known = [i.name for table in snapshot.tables.values() for i in table.indexes]
            raise UnknownNameError(
                f'index "{statement.name}" does not exist',
                hint=did_you_mean(statement.name, known) or "SHOW INDEXES lists the indices",
                position=statement.position,
            )
        table = snapshot.table(index.table_id)
        with self._catalog.transaction() as change:
            change.drop_index(index.index_id)
        if table is not None and not table.is_streaming:
            self._references.write(f"DROP INDEX IF EXISTS reference.i{index.index_id}")
        self._making.follow(index.table_id)
        return done("DROP INDEX")
