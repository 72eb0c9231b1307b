"""One catalog transaction: any number of changes, one new snapshot, all or nothing.

Each change is checked in memory against the snapshot that the transaction would give, then
written; the objects it returns are those that the new snapshot will hold. A change that fails its
checks leaves the transaction as it was. A change that fails in the database ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from tidemill.catalog import checks, schema
from tidemill.catalog.model import Index, NewTable, Snapshot, Table
from tidemill.catalog.reading import make_snapshot
from tidemill.errors import CatalogError

META_KEY_CHARS_MAX = 200

Translated = Callable[[], AbstractContextManager[None]]
"""Gives a context in which a driver's fault becomes a CatalogError."""


class Transaction:
    """Changes under way; ``snapshot`` is what the catalog would look like if it ended now."""

    def __init__(
        self, connection: sa.Connection, base: Snapshot, now_us: int, translated: Translated
    ) -> None:
        self._connection = connection
        self._translated = translated
        self._now_us = max(now_us, base.committed_at_us)  # people set clocks back
        self._failed = False
        self.base = base
        self.snapshot = base

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot that this transaction makes."""
        return self.base.snapshot_id + 1

    @property
    def changed(self) -> bool:
        return self.snapshot is not self.base

    def create_table(self, new: NewTable) -> Table:
        new = checks.checked_table(new)
        checks.check_free(self.snapshot, new.name)
        table = Table(
            table_id=self._next_id(schema.catalog.c.next_table_id),
            name=new.name,
            kind=new.kind,
            columns=tuple(new.columns),
            primary_key=new.primary_key,
            time_column=new.time_column,
            watermark_delay_us=new.watermark_delay_us,
            given_settings=MappingProxyType(dict(new.settings)),
            indexes=(),
            created_at_us=self._now_us,
            constraints=tuple(new.constraints),
        )
        self._insert_table(table)
        self._put(table)
        return table

    def drop_table(self, table_id: int) -> Table:
        """Drop a table with its indices; gives what it was."""
        table = checks.live_table(self.snapshot, table_id)
        for each in schema.OF_A_TABLE:
            self._drop(each, each.c.table_id == table_id)
        self._put(table, gone=True)
        return table

    def replace_table(self, new: NewTable) -> Table:
        """Create a table in place of the one that has its name, if there is one."""
        new = checks.checked_table(new)
        existing = self.snapshot.find(new.name)
        if existing is not None:
            self.drop_table(existing.table_id)
        return self.create_table(new)

    def create_index(
        self,
        table_id: int,
        columns: Sequence[str],
        *,
        name: str | None = None,
        method: str = "ordered",
        unique: bool = False,
    ) -> Index:
        """Create an index; without a name it gets one from its table and columns."""
        table = checks.live_table(self.snapshot, table_id)
        checks.check_method(method)
        spelled = checks.checked_index_columns(table, columns)
        free = checks.index_name(self.snapshot, table, spelled, name)
        index_id = self._next_id(schema.catalog.c.next_index_id)
        index = Index(index_id, free, table_id, spelled, method, unique)
        self._insert_index(index)
        self._put(replace(table, indexes=(*table.indexes, index)))
        return index

    def drop_index(self, index_id: int) -> Index:
        index = checks.live_index(self.snapshot, index_id)
        table = checks.live_table(self.snapshot, index.table_id)
        self._drop(schema.indexes, schema.indexes.c.index_id == index_id)
        rest = tuple(each for each in table.indexes if each.index_id != index_id)
        self._put(replace(table, indexes=rest))
        return index

    def alter_settings(self, table_id: int, changes: Mapping[str, str | None]) -> Table:
        """Change settings of a table; None takes one back to its default."""
        table = checks.live_table(self.snapshot, table_id)
        after = checks.altered_settings(table, changes)
        before = table.given_settings
        touched = [name for name in changes if before.get(name) != after.get(name)]
        if not touched:
            return table
        settings = schema.settings
        mine = sa.and_(settings.c.table_id == table_id, settings.c.name.in_(touched))
        # what this very transaction set was never seen by anybody
        self._run(sa.delete(settings).where(mine, settings.c.created_snapshot == self.snapshot_id))
        self._drop(settings, mine)
        self._insert_settings(table_id, {name: after[name] for name in touched if name in after})
        altered = replace(table, given_settings=MappingProxyType(dict(sorted(after.items()))))
        self._put(altered)
        return altered

    def set_meta(self, key: str, value: str | None) -> None:
        """Keep a text of the database under a key; None removes it. Not part of snapshots."""
        checks.check_name("key", key, META_KEY_CHARS_MAX)
        checks.check_text("value", value or "")
        self._run(sa.delete(schema.meta).where(schema.meta.c.key == key))
        if value is not None:
            self._run(sa.insert(schema.meta).values(key=key, value=value))

    def finish(self, now_us: int, session: str) -> Snapshot:
        """Write the snapshot's row, if anything changed; the caller commits and publishes."""
        if self._failed:
            raise CatalogError(
                "the transaction failed earlier and cannot be committed",
                hint="start a new one",
            )
        if self.changed:
            at_us = max(now_us, self._now_us)
            row = {"snapshot_id": self.snapshot_id, "committed_at_us": at_us, "session": session}
            self._run(sa.insert(schema.snapshots).values(row))
            self.snapshot = replace(self.snapshot, committed_at_us=at_us)
        return self.snapshot

    def _put(self, table: Table, *, gone: bool = False) -> None:
        """Carry one table's change into the snapshot to be."""
        tables = [each for each in self.snapshot.tables.values() if each.table_id != table.table_id]
        if not gone:
            tables.append(table)
        tables.sort(key=lambda each: each.table_id)
        self.snapshot = make_snapshot(self.snapshot_id, self._now_us, tables)

    def _next_id(self, counter: sa.Column[int]) -> int:
        """A number that was never given out; counters only grow, also past dropped tables."""
        update = sa.update(schema.catalog).values({counter: counter + 1}).returning(counter)
        return int(self._run(update).scalar_one()) - 1

    def _insert_table(self, table: Table) -> None:
        lifetime = {"table_id": table.table_id, "created_snapshot": self.snapshot_id}
        row = {
            "name": table.name,
            "name_hash": schema.name_hash(table.name),
            "kind": table.kind,
            "time_column": table.time_column,
            "watermark_delay_us": table.watermark_delay_us,
            "created_at_us": table.created_at_us,
        }
        self._run(sa.insert(schema.tables).values({**lifetime, **row}))
        key = {name: ordinal for ordinal, name in enumerate(table.primary_key)}
        columns = [
            {
                **lifetime,
                "ordinal": ordinal,
                "name": column.name,
                "type": column.type.name,
                "nullable": column.nullable,
                "default_sql": column.default,
                "key_ordinal": key.get(column.name),
            }
            for ordinal, column in enumerate(table.columns)
        ]
        self._run(sa.insert(schema.columns), columns)
        constraints = [
            {**lifetime, "ordinal": ordinal, "definition": definition}
            for ordinal, definition in enumerate(table.constraints)
        ]
        if constraints:
            self._run(sa.insert(schema.constraints), constraints)
        self._insert_settings(table.table_id, table.given_settings)

    def _insert_settings(self, table_id: int, given: Mapping[str, str]) -> None:
        lifetime = {"table_id": table_id, "created_snapshot": self.snapshot_id}
        rows = [{**lifetime, "name": name, "value": value} for name, value in given.items()]
        if rows:
            self._run(sa.insert(schema.settings), rows)

    def _insert_index(self, index: Index) -> None:
        row = {
            "index_id": index.index_id,
            "table_id": index.table_id,
            "name": index.name,
            "name_hash": schema.name_hash(index.name),
            "method": index.method,
            "is_unique": index.unique,
            "created_snapshot": self.snapshot_id,
        }
        self._run(sa.insert(schema.indexes).values(row))
        parts = [
            {"index_id": index.index_id, "ordinal": ordinal, "column_name": name}
            for ordinal, name in enumerate(index.columns)
        ]
        self._run(sa.insert(schema.index_columns), parts)

    def _drop(self, table: sa.Table, which: sa.ColumnElement[bool]) -> None:
        """End the rows' lives with this snapshot; they stay for older ones."""
        live = sa.update(table).where(which, table.c.dropped_snapshot.is_(None))
        self._run(live.values(dropped_snapshot=self.snapshot_id))

    def _run(self, statement: sa.Executable, rows: list[dict[str, Any]] | None = None) -> Any:
        try:
            with self._translated():
                return self._connection.execute(statement, rows)
        except BaseException:
            self._failed = True
            raise
