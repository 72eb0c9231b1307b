"""Tables: CREATE [STREAMING] TABLE, DROP TABLE, ALTER TABLE … SET."""

from __future__ import annotations

from tidemill.catalog.model import REFERENCE, STREAMING, NewTable, Table
from tidemill.catalog.store import Catalog
from tidemill.config import TABLE_SETTINGS
from tidemill.errors import (
    DefinitionError,
    SettingError,
    TidemillError,
    UnsupportedError,
)
from tidemill.federation.references import References, physical_name
from tidemill.history.publishing import DELTA, Publishing
from tidemill.hot.keys import is_indexable
from tidemill.hot.tier import HotTier
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers, RunQuery
from tidemill.statements.definitions.making import Making, check_table
from tidemill.types import Column, SqlType
from tidemill.views.registry import Views


class TableDefinitions:
    def __init__(
        self,
        catalog: Catalog,
        making: Making,
        tier: HotTier,
        references: References,
        publishing: Publishing,
        views: Views,
        query: RunQuery,
    ) -> None:
        self._catalog = catalog
        self._making = making
        self._tier = tier
        self._references = references
        self._publishing = publishing
        self._views = views
        self._query = query

    @property
    def handlers(self) -> Handlers:
        return {
            st.CreateStreamingTable: self._create_streaming,
            st.CreateTable: self._create_reference,
            st.DropTable: self._drop,
            st.AlterTableSet: self._alter,
        }

    def _create_streaming(self, call: Call[st.CreateStreamingTable]) -> Result:
        statement = call.statement
        tag = "CREATE STREAMING TABLE"
        if self._making.exists(statement):
            return done(tag)
        new = NewTable(
            statement.name,
            STREAMING,
            statement.columns,
            statement.primary_key,
            statement.time_column,
            statement.watermark.delay_us if statement.watermark else None,
            statement.settings,
        )
        _check_keys(statement)
        self._check_defaults(statement.columns, statement)

        def prepare(table: Table) -> None:
            self._check_publish(table, statement)
            self._tier.create(table)

        self._making.create(new, statement.or_replace, prepare)
        return done(tag)

    def _create_reference(self, call: Call[st.CreateTable]) -> Result:
        statement = call.statement
        tag = "CREATE TABLE"
        if self._making.exists(statement):
            return done(tag)
        columns, rows = statement.columns, None
        if statement.query is not None:
            query = st.Query(statement.query, text=statement.text, position=statement.position)
            answer = self._query(call.of(query))
            columns = _columns_of(answer, statement)
            rows = answer.table
        self._check_defaults(columns, statement)
        new = NewTable(
            statement.name,
            REFERENCE,
            columns,
            statement.primary_key,
            constraints=statement.constraints,
        )

        def prepare(table: Table) -> None:
            self._references.create(table)
            if rows is not None:
                target = f"reference.{physical_name(table.table_id)}"
                self._references.write(f"INSERT INTO {target} FROM tm_rows", {}, {"tm_rows": rows})

        self._making.create(new, statement.or_replace, prepare)
        return done(tag if rows is None else f"{tag} {rows.num_rows}")

    def _check_defaults(self, columns: tuple[Column, ...], statement: st.Statement) -> None:
        """A default that cannot be evaluated is found now and not with the first row."""
        for column in columns:
            if column.default is None:
                continue
            try:
                self._references.write(f"SELECT CAST(({column.default}) AS {column.type})")
            except TidemillError as error:
                raise DefinitionError(
                    f'the DEFAULT of column "{column.name}" cannot be evaluated',
                    detail=error.message,
                    hint=f"{column.default} must give a {column.type} without reading any table",
                    position=statement.position,
                ) from error

    def _drop(self, call: Call[st.DropTable]) -> Result:
        statement = call.statement
        snapshot = self._catalog.snapshot()
        if snapshot.find(statement.name) is None and statement.if_exists:
            return done("DROP TABLE")
        table = snapshot.get(statement.name, statement.position)
        check_table(table, statement)
        self._making.drop(table)
        return done("DROP TABLE")

    def _alter(self, call: Call[st.AlterTableSet]) -> Result:
        statement = call.statement
        table = self._catalog.snapshot().get(statement.table, statement.position)
        check_table(table, statement)
        if not table.is_streaming:
            raise UnsupportedError(
                f'reference table "{table.name}" has no settings', position=statement.position
            )
        if statement.settings.get("on_conflict", "").lower() == "replace":
            self._views.check_unused(table, "given on_conflict = 'replace'")
        for name in statement.settings:
            if not TABLE_SETTINGS[name].alterable:
                raise SettingError(
                    f'setting "{name}" cannot be changed after the table was created',
                    position=statement.position,
                )
        if "on_conflict" in statement.settings and not table.primary_key:
            raise SettingError(
                f'table "{table.name}" has no primary key, so on_conflict means nothing',
                position=statement.position,
            )
        with self._catalog.transaction() as change:
            altered = change.alter_settings(table.table_id, statement.settings)
            self._check_publish(altered, statement)
        self._making.follow(table.table_id)
        if altered.settings["publish"] != table.settings["publish"]:
            self._publishing.withdraw(table)
            self._publishing.publish(altered)
        return done("ALTER TABLE")

    def _check_publish(self, table: Table, statement: st.Statement) -> None:
        if table.settings["publish"] == DELTA:
            try:
                self._publishing.check(table)
            except TidemillError as error:
                error.position = error.position or statement.position
                raise


def _check_keys(statement: st.CreateStreamingTable) -> None:
    for name in statement.primary_key:
        column = next(c for c in statement.columns if c.name == name)
        if not is_indexable(column.type.arrow):
            raise DefinitionError(
                f'column "{name}" of type {column.type} cannot be part of a primary key',
                hint="use numbers, texts, dates, times or UUIDs",
                position=statement.position,
            )


def _columns_of(answer: Result, statement: st.Statement) -> tuple[Column, ...]:
    names = [name.lower() for name in answer.columns]
    if len(set(names)) < len(names):
        raise DefinitionError(
            "the query gives two columns the same name",
            hint="name each column with AS",
            position=statement.position,
        )
    kinds = ["INTEGER" if kind == '"NULL"' else kind for kind in answer.types]
    pairs = zip(answer.columns, kinds, strict=True)
    return tuple(Column(name, SqlType.parse(kind)) for name, kind in pairs)
