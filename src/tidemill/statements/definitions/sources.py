"""Sources: CREATE SOURCE and DROP SOURCE. The catalog has them, ``Loads`` looks at them."""

from __future__ import annotations

from tidemill.catalog.store import Catalog
from tidemill.errors import (
    DuplicateNameError,
    UnknownNameError,
    UnsupportedError,
    did_you_mean,
)
from tidemill.history.guard import Guard
from tidemill.pipeline.loads.loads import Loads
from tidemill.pipeline.loads.options import SourceOptions, option_texts
from tidemill.pipeline.packages import local_path
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers
from tidemill.statements.naming import check_writable


class SourceDefinitions:
    def __init__(self, catalog: Catalog, loads: Loads, guard: Guard) -> None:
        self._catalog = catalog
        self._loads = loads
        self._guard = guard

    @property
    def handlers(self) -> Handlers:
        return {st.CreateSource: self._create, st.DropSource: self._drop}

    def _create(self, call: Call[st.CreateSource]) -> Result:
        statement = call.statement
        self._guard.check_read(statement.pattern)
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
        names: tuple[str, ...] | None = None
        if statement.columns is not None:
            found = (table.get_column(name, statement.position) for name in statement.columns)
            names = tuple(column.name for column in found)
        options = SourceOptions(option_texts(statement.options), names).kept
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

    def _drop(self, call: Call[st.DropSource]) -> Result:
        statement = call.statement
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
