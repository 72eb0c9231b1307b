"""A draft: the snapshot that a transaction would give, and the connection that writes its rows.

``transaction`` and the modules that write for it (``defining``, ``committing``) share one. A fault
of the database ends the transaction: nothing that came before it may be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from tidemill.catalog import schema
from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import History, Snapshot, Source, Table
from tidemill.catalog.prepared import Prepared
from tidemill.catalog.reading import sources_by_name, tables_by_name

Translated = Callable[[], AbstractContextManager[None]]
"""Gives a context in which a driver's fault becomes a CatalogError."""


class Draft:
    """``snapshot`` is what the catalog would look like if the transaction ended now."""

    def __init__(
        self, connection: sa.Connection, base: Snapshot, now_us: int, translated: Translated
    ) -> None:
        self.connection = connection
        self.translated = translated
        self.now_us = max(now_us, base.committed_at_us)  # people set clocks back
        self.has_failed = False
        self.base = base
        self.snapshot = base

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot that the transaction makes."""
        return self.base.snapshot_id + 1

    # -- rows

    def run(self, statement: sa.Executable | Prepared, rows: Any = None) -> Any:
        """Run a statement, with rows if it has any."""
        try:
            with self.translated():
                if isinstance(statement, Prepared):
                    return statement.run(self.connection, rows or {})
                return self.connection.execute(statement, rows)
        except BaseException:
            self.has_failed = True
            raise

    def next_id(self, counter: sa.Column[int]) -> int:
        """A number that was never given out; counters only grow, also past dropped tables."""
        update = sa.update(schema.catalog).values({counter: counter + 1}).returning(counter)
        return int(self.run(update).scalar_one()) - 1

    def end_rows(self, table: sa.Table, which: sa.ColumnElement[bool]) -> None:
        """End the rows' lives with this snapshot; they stay for older ones."""
        live = sa.update(table).where(which, table.c.dropped_snapshot.is_(None))
        self.run(live.values(dropped_snapshot=self.snapshot_id))

    # -- the snapshot to be; what is not named stays the same object

    def put_table(self, table: Table) -> None:
        """A table is new, or was changed."""
        tables = [each for each in self.snapshot.tables.values() if each.table_id != table.table_id]
        histories = dict(self.snapshot.histories)
        histories.setdefault(table.table_id, History(table.table_id))
        self.snapshot = replace(
            self.snapshot,
            tables=tables_by_name([*tables, table]),
            histories=FrozenMap(histories),
        )
        self._define()

    def drop_table(self, table: Table) -> None:
        """A table is gone, with its history and its sources."""
        table_id, snapshot = table.table_id, self.snapshot
        tables = [each for each in snapshot.tables.values() if each.table_id != table_id]
        histories = {key: each for key, each in snapshot.histories.items() if key != table_id}
        sources = (each for each in snapshot.sources.values() if each.table_id != table_id)
        self.snapshot = replace(
            snapshot,
            tables=tables_by_name(tables),
            histories=FrozenMap(histories),
            sources=sources_by_name(sources),
        )
        self._define()

    def put_sources(self, sources: Iterable[Source]) -> None:
        """The sources are others."""
        self.snapshot = replace(self.snapshot, sources=sources_by_name(sources))
        self._define()

    def put_history(self, history: History) -> None:
        """The files of a table are others."""
        self.note_history(history)
        self._change()

    def note_history(self, *histories: History) -> None:
        """What is known of tables is other, which makes no snapshot."""
        if not histories:
            return
        noted = {each.table_id: each for each in histories}
        whole = FrozenMap({**self.snapshot.histories, **noted})
        self.snapshot = replace(self.snapshot, histories=whole)

    def _define(self) -> None:
        self._change()
        self.snapshot = replace(self.snapshot, definition_id=self.snapshot_id)

    def _change(self) -> None:
        self.snapshot = replace(
            self.snapshot, snapshot_id=self.snapshot_id, committed_at_us=self.now_us
        )
