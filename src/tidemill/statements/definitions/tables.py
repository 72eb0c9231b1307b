"""Definitions: CREATE, DROP and ALTER, each one transaction of the catalog.

A new table's storage is prepared inside the transaction and an old one's removed after it, so a
crash leaves at most something to sweep up at the next start.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from tidemill.catalog.model import REFERENCE, STREAMING, NewTable, Table
from tidemill.catalog.store import Catalog
from tidemill.catalog.transaction import Transaction
from tidemill.config import TABLE_SETTINGS
from tidemill.errors import (
    DefinitionError,
    DuplicateNameError,
    SettingError,
    TidemillError,
    UnknownNameError,
    UnsupportedError,
    did_you_mean,
)
from tidemill.federation.references import References, physical_name
from tidemill.hot.keys import is_indexable
from tidemill.hot.tier import HotTier
from tidemill.keeping import Keeping
from tidemill.loads import COLUMNS_OPTION, Loads, option_texts
from tidemill.pipeline.packages import local_path
from tidemill.publishing import DELTA
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.sql.params import Params
from tidemill.statements.writing import check_writable
from tidemill.types import Column, SqlType, quote
from tidemill.views.continuous import KeptQueries
from tidemill.views.kept.definition import is_kept
from tidemill.views.registry import Views

RunQuery = Callable[[st.Query, Params], Result]
"""Runs a query for the session whose statement is carried out."""


class Definitions:
    def __init__(
        self,
        catalog: Catalog,
        tier: HotTier,
        references: References,
        keeping: Keeping,
        loads: Loads,
        views: Views,
        kept: KeptQueries,
    ) -> None:
        self._catalog = catalog
        self._kept = kept
        self._views = views
        self._keeping = keeping
        self._loads = loads
        self._tier = tier
        self._references = references
        self._turn = threading.RLock()

    def run(self, statement: st.Statement, params: Params, query: RunQuery) -> Result:
        with self._turn:
            match statement:
                case st.CreateStreamingTable():
                    return self._create_streaming(statement)
                case st.CreateTable():
                    return self._create_reference(statement, params, query)
                case st.DropTable():
                    return self._drop(statement)
                case st.CreateIndex():
                    return self._create_index(statement)
                case st.DropIndex():
                    return self._drop_index(statement)
                case st.CreateView():
                    return self._create_view(statement)
                case st.CreateKeptQuery():
                    return self._create_kept(statement)
                case st.DropView():
                    return self._drop_view(statement)
                case st.AlterTableSet():
                    return self._alter(statement)
                case st.CreateSource():
                    return self._create_source(statement)
                case st.DropSource():
                    return self._drop_source(statement)
        raise UnsupportedError("this statement is not supported", position=statement.position)

    # -- tables

    def _create_streaming(self, statement: st.CreateStreamingTable) -> Result:
        tag = "CREATE STREAMING TABLE"
        if self._exists(statement.name, statement.if_not_exists, statement.or_replace, statement):
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
        for name in statement.primary_key:
            column = next(c for c in statement.columns if c.name == name)
            if not is_indexable(column.type.arrow):
                raise DefinitionError(
                    f'column "{name}" of type {column.type} cannot be part of a primary key',
                    hint="use numbers, texts, dates, times or UUIDs",
                    position=statement.position,
                )
        self._check_defaults(statement.columns, statement)

        def prepare(table: Table) -> None:
            self._check_publish(table, statement)
            self._tier.create(table)

        self._create(new, statement.or_replace, prepare)
        return done(tag)

    def _create_reference(self, statement: st.CreateTable, params: Params, run: RunQuery) -> Result:
        tag = "CREATE TABLE"
        if self._exists(statement.name, statement.if_not_exists, statement.or_replace, statement):
            return done(tag)
        columns, rows = statement.columns, None
        if statement.query is not None:
            query = st.Query(statement.query, text=statement.text, position=statement.position)
            answer = run(query, params)
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

        self._create(new, statement.or_replace, prepare)
        return done(tag if rows is None else f"{tag} {rows.num_rows}")

    def _create(self, new: NewTable, or_replace: bool, prepare: Callable[[Table], None]) -> None:
        old = self._catalog.snapshot().find(new.name)
        if old is not None:
            self._check_table(old)
            self._views.check_unused(old, "replaced")
        made: Table | None = None
        try:
            with self._catalog.transaction() as change:
                if old is not None and or_replace:
                    self._drop_sources_of(change, old)
                made = change.replace_table(new) if or_replace else change.create_table(new)
                prepare(made)
        except BaseException:
            if made is not None:
                self._remove(made)
            raise
        if old is not None:
            self._remove(old)

    def _exists(
        self, name: str, if_not_exists: bool, or_replace: bool, statement: st.Statement
    ) -> bool:
        if self._catalog.snapshot().find(name) is None or or_replace:
            return False
        if if_not_exists:
            return True
        raise DuplicateNameError(
            f'table "{name}" already exists',
            hint="use CREATE OR REPLACE, or IF NOT EXISTS",
            position=statement.position,
        )

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

    def _drop(self, statement: st.DropTable) -> Result:
        table = self._catalog.snapshot().find(statement.name)
        if table is None and statement.if_exists:
            return done("DROP TABLE")
        table = self._catalog.snapshot().get(statement.name, statement.position)
        self._check_table(table, statement)
        self._views.check_unused(table, "dropped")
        with self._catalog.transaction() as change:
            self._drop_sources_of(change, table)
            change.drop_table(table.table_id)
        self._remove(table)
        return done("DROP TABLE")

    def _remove(self, table: Table) -> None:
        if is_kept(table):
            self._kept.follow()
        if table.is_streaming:
            self._loads.follow()
            self._keeping.publishing.withdraw(table)
            gone = UnknownNameError(f'table "{table.name}" was dropped')
            self._keeping.pipeline.cancel_table(table.table_id, gone)
            self._tier.drop(table.table_id)
        else:
            self._references.drop(table.table_id)

    def _check_table(self, table: Table, statement: st.Statement | None = None) -> None:
        """Views and digests are no tables to DROP TABLE, CREATE INDEX and the like."""
        if table.is_view or table.is_digest:
            raise UnsupportedError(
                f'"{table.name}" is a materialized view',
                hint=f'write DROP MATERIALIZED VIEW "{table.name}", or choose another name',
                position=statement.position if statement else None,
            )

    # -- views

    def _create_view(self, statement: st.CreateView) -> Result:
        tag = "CREATE MATERIALIZED VIEW"
        old = self._catalog.snapshot().find(statement.name)
        if old is not None and not old.is_view:
            raise DuplicateNameError(
                f'"{old.name}" is a table, not a view',
                hint="choose another name",
                position=statement.position,
            )
        if self._exists(statement.name, statement.if_not_exists, statement.or_replace, statement):
            return done(tag)
        self._views.create(statement, old)
        return done(tag)

    def _create_kept(self, statement: st.CreateKeptQuery) -> Result:
        tag = "CREATE STREAMING TABLE"
        if self._exists(statement.name, statement.if_not_exists, statement.or_replace, statement):
            return done(tag)
        self._create(self._kept.design(statement), statement.or_replace, self._tier.create)
        self._kept.follow()
        return done(tag)

    def _drop_view(self, statement: st.DropView) -> Result:
        tag = "DROP MATERIALIZED VIEW"
        view = self._catalog.snapshot().find(statement.name)
        if view is None and statement.if_exists:
            return done(tag)
        view = self._catalog.snapshot().get(statement.name, statement.position)
        if not view.is_view:
            raise UnsupportedError(
                f'"{view.name}" is not a view',
                hint=f'write DROP TABLE "{view.name}"',
                position=statement.position,
            )
        if statement.cascade:
            for user in self._views.dependents(view):
                if self._catalog.snapshot().table(user.table_id) is None:
                    continue
                if user.is_streaming:
                    self._drop(
                        st.DropTable(user.name, text=statement.text, position=statement.position)
                    )
                else:
                    self._drop_view(
                        st.DropView(
                            user.name,
                            cascade=True,
                            text=statement.text,
                            position=statement.position,
                        )
                    )
        self._views.check_unused(view, "dropped")
        self._views.drop(view)
        return done(tag)

    # -- indices and settings

    def _create_index(self, statement: st.CreateIndex) -> Result:
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
        self._check_table(table, statement)
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
        self._catalog.create_index(
            table.table_id, columns, name=statement.name, method=statement.method
        )
        self._follow(table.table_id)
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

    def _drop_index(self, statement: st.DropIndex) -> Result:
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
        self._catalog.drop_index(index.index_id)
        if table is not None and not table.is_streaming:
            self._references.write(f"DROP INDEX IF EXISTS reference.i{index.index_id}")
        self._follow(index.table_id)
        return done("DROP INDEX")

    def _alter(self, statement: st.AlterTableSet) -> Result:
        table = self._catalog.snapshot().get(statement.table, statement.position)
        self._check_table(table, statement)
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
        self._follow(table.table_id)
        if altered.settings["publish"] != table.settings["publish"]:
            self._keeping.publishing.withdraw(table)
            self._keeping.publishing.publish(altered)
        return done("ALTER TABLE")

    def _check_publish(self, table: Table, statement: st.Statement) -> None:
        if table.settings["publish"] == DELTA:
            try:
                self._keeping.publishing.check(table)
            except TidemillError as error:
                error.position = error.position or statement.position
                raise

    # -- sources

    def _create_source(self, statement: st.CreateSource) -> Result:
        snapshot = self._catalog.snapshot()
        existing = snapshot.find_source(statement.name)
        if existing is not None and statement.if_not_exists and not statement.or_replace:
            return done("CREATE SOURCE")
        if existing is not None and not statement.or_replace:
            raise DuplicateNameError(
                f'source "{statement.name}" already exists',
                hint="use CREATE OR REPLACE, or IF NOT EXISTS",
                position=statement.position,
            )
        table = snapshot.get(statement.table, statement.position)
        check_writable(table)
        if not table.is_streaming:
            raise UnsupportedError(
                f'a source loads into a streaming table, "{table.name}" is none',
                position=statement.position,
            )
        options = option_texts(statement.options)
        if statement.columns is not None:
            names = [table.get_column(name, statement.position).name for name in statement.columns]
            options[COLUMNS_OPTION] = json.dumps(names)
        pattern = local_path(statement.pattern) or statement.pattern
        with self._catalog.transaction() as change:
            if existing is not None:
                change.drop_source(existing.source_id)
            change.create_source(
                statement.name,
                table.table_id,
                pattern,
                statement.format,
                options=options,
                every_us=statement.every_us,
            )
        self._loads.follow()
        return done("CREATE SOURCE")

    def _drop_source(self, statement: st.DropSource) -> Result:
        snapshot = self._catalog.snapshot()
        source = snapshot.find_source(statement.name)
        if source is None:
            if statement.if_exists:
                return done("DROP SOURCE")
            known = [each.name for each in snapshot.sources.values()]
            raise UnknownNameError(
                f'source "{statement.name}" does not exist',
                hint=did_you_mean(statement.name, known) or "SHOW SOURCES lists the sources",
                position=statement.position,
            )
        with self._catalog.transaction() as change:
            change.drop_source(source.source_id)
        self._loads.follow()
        return done("DROP SOURCE")

    def _drop_sources_of(self, change: Transaction, table: Table) -> None:
        for source in self._catalog.snapshot().sources.values():
            if source.table_id == table.table_id:
                change.drop_source(source.source_id)

    def _follow(self, table_id: int) -> None:
        """Let the hot tier see the table as the catalog has it now."""
        table = self._catalog.snapshot().table(table_id)
        hot = self._tier.tables.get(table_id)
        if table is not None and hot is not None:
            hot.set_table(table)


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
