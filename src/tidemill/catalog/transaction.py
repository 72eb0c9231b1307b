"""One catalog transaction: any number of changes, one new snapshot, all or nothing.

Each change is checked in memory against the snapshot that the transaction would give (``draft``),
then written: definitions by ``defining``, files by ``committing``. The objects it returns are those
that the new snapshot will hold. A change that fails its checks leaves the transaction as it was. A
change that fails in the database ends it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa

from tidemill.catalog import checks, committing, defining, filing, schema
from tidemill.catalog.commits import FileCommit
from tidemill.catalog.draft import Draft, Translated
from tidemill.catalog.expiry import forget
from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import History, Index, NewTable, Package, Snapshot, Source, Table
from tidemill.catalog.prepared import Prepared
from tidemill.catalog.reading import read_reservations
from tidemill.catalog.splicing import with_reservations, with_reserved
from tidemill.errors import CatalogError

META_KEY_CHARS_MAX = 200

_INSERT_SNAPSHOT = Prepared(lambda insert: insert(schema.snapshots))


class Transaction:
    """Changes under way; ``snapshot`` is what the catalog would look like if it ended now."""

    def __init__(
        self, connection: sa.Connection, base: Snapshot, now_us: int, translated: Translated
    ) -> None:
        self.base = base
        self._draft = Draft(connection, base, now_us, translated)

    @property
    def snapshot(self) -> Snapshot:
        return self._draft.snapshot

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot that this transaction makes."""
        return self._draft.snapshot_id

    @property
    def changed(self) -> bool:
        """Whether there is anything to make a snapshot for."""
        return self.snapshot.snapshot_id != self.base.snapshot_id

    # -- tables

    def create_table(self, new: NewTable) -> Table:
        new = checks.checked_table(new)
        checks.check_free(self.snapshot, new.name)
        checks.check_digested(self.snapshot, new)
        table = Table(
            table_id=self._draft.next_id(schema.catalog.c.next_table_id),
            name=new.name,
            kind=new.kind,
            columns=tuple(new.columns),
            primary_key=new.primary_key,
            time_column=new.time_column,
            watermark_delay_us=new.watermark_delay_us,
            given_settings=FrozenMap(new.settings),
            indexes=(),
            created_at_us=self._draft.now_us,
            constraints=tuple(new.constraints),
            definition=new.definition,
            source_id=new.source_id,
        )
        defining.insert_table(self._draft, table)
        self._draft.put_table(table)
        return table

    def drop_table(self, table_id: int) -> Table:
        """Drop a table with its indices, sources and files; gives what it was.

        What others made of it, such as digests of its rows, is the caller's to drop.
        """
        table = checks.live_table(self.snapshot, table_id)
        defining.end_table(self._draft, table_id)
        self._draft.drop_table(table)
        return table

    def replace_table(self, new: NewTable) -> Table:
        """Create a table in place of the one that has its name, if there is one."""
        new = checks.checked_table(new)
        checks.check_digested(self.snapshot, new)
        existing = self.snapshot.find(new.name)
        if existing is not None:
            self.drop_table(existing.table_id)
        return self.create_table(new)

    def rename_table(self, table_id: int, name: str) -> Table:
        """Give a table another name; older snapshots know it by the name that it had."""
        table = checks.live_table(self.snapshot, table_id)
        if name == table.name:
            return table
        checks.check_table_name(table.kind, name)
        if name.lower() != table.name.lower():
            checks.check_free(self.snapshot, name)
        return self._alter(table, replace(table, name=name))

    def alter_definition(self, table_id: int, definition: str | None) -> Table:
        """Define a table anew; older snapshots see the definition that it had."""
        table = checks.live_table(self.snapshot, table_id)
        if definition == table.definition:
            return table
        checks.check_definition(table.kind, table.name, definition)
        return self._alter(table, replace(table, definition=definition))

    def _alter(self, before: Table, after: Table) -> Table:
        defining.alter_table(self._draft, before, after)
        self._draft.put_table(after)
        return after

    # -- settings, indices, sources

    def alter_settings(self, table_id: int, changes: Mapping[str, str | None]) -> Table:
        """Change settings of a table; None takes one back to its default."""
        table = checks.live_table(self.snapshot, table_id)
        return self._set(table, changes, checks.altered_settings(table, changes))

    def fix_partition(self, table_id: int, text: str) -> Table:
        """Give a table without history the length of its partitions."""
        table = checks.live_table(self.snapshot, table_id)
        assert not self.snapshot.history(table_id).files, "partitions of a history stay as they are"
        after = dict(sorted({**table.given_settings, "partition": text}.items()))
        return self._set(table, {"partition": text}, after)

    def _set(
        self, table: Table, changes: Mapping[str, str | None], after: Mapping[str, str]
    ) -> Table:
        before = table.given_settings
        touched = [name for name in changes if before.get(name) != after.get(name)]
        if not touched:
            return table
        defining.replace_settings(self._draft, table.table_id, touched, after)
        altered = replace(table, given_settings=FrozenMap(dict(sorted(after.items()))))
        self._draft.put_table(altered)
        return altered

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
        index_id = self._draft.next_id(schema.catalog.c.next_index_id)
        index = Index(index_id, free, table_id, spelled, method, unique)
        defining.insert_index(self._draft, index)
        self._draft.put_table(replace(table, indexes=(*table.indexes, index)))
        return index

    def drop_index(self, index_id: int) -> Index:
        index = checks.live_index(self.snapshot, index_id)
        table = checks.live_table(self.snapshot, index.table_id)
        defining.end_index(self._draft, index_id)
        rest = tuple(each for each in table.indexes if each.index_id != index_id)
        self._draft.put_table(replace(table, indexes=rest))
        return index

    def create_source(
        self,
        name: str,
        table_id: int,
        pattern: str,
        format: str,
        options: Mapping[str, str] | None = None,
        every_us: int | None = None,
    ) -> Source:
        checks.live_table(self.snapshot, table_id)
        checks.check_source(self.snapshot, name, pattern, format, options or {})
        source_id = self._draft.next_id(schema.catalog.c.next_source_id)
        given, at_us = FrozenMap(options), self._draft.now_us
        source = Source(source_id, name, table_id, pattern, format, given, every_us, at_us)
        defining.insert_source(self._draft, source)
        self._draft.put_sources([*self.snapshot.sources.values(), source])
        return source

    def drop_source(self, source_id: int) -> Source:
        source = checks.live_source(self.snapshot, source_id)
        defining.end_source(self._draft, source_id)
        rest = (each for each in self.snapshot.sources.values() if each is not source)
        self._draft.put_sources(rest)
        return source

    # -- files

    def commit_files(self, table_id: int, commit: FileCommit) -> History:
        """Change a table's history. One transaction may do so for several tables: a stream and its
        digests."""
        return committing.commit_files(self._draft, table_id, commit)

    def reserve(self, table_id: int, first_seq: int, last_seq: int) -> History:
        """Set numbers apart for a load that may yet fail. They are never given out again."""
        assert first_seq <= last_seq, (first_seq, last_seq)
        before = checks.history_of(self.snapshot, table_id)
        after = with_reserved(before, last_seq)
        filing.put_reserved(self._draft.run, table_id, after.reserved_seq)
        self._draft.note_history(after)
        return after

    def add_packages(self, table_id: int, packages: Sequence[Package]) -> None:
        """Record packages without rows, such as those set aside. Not part of snapshots."""
        self.commit_files(table_id, FileCommit(packages=packages))

    def expire_snapshots(self, before_us: int, pinned: Collection[int] = ()) -> list[str]:
        """Forget snapshots superseded at ``before_us``, but none that is pinned or newer than one
        (see ``expiry``).

        Gives the paths of files that no snapshot sees any more; they are the caller's to delete.
        """
        paths = forget(self._draft.run, before_us, pinned)
        with self._draft.translated():
            kept = read_reservations(self._draft.connection, self.snapshot.snapshot_id)
        self._draft.note_history(
            *(
                with_reservations(history, kept.get(table_id, ()))
                for table_id, history in self.snapshot.histories.items()
                if history.reservations
            )
        )
        return paths

    # -- the rest

    def set_meta(self, key: str, value: str | None) -> None:
        """Keep a text of the database under a key; None removes it. Not part of snapshots."""
        checks.check_name("key", key, META_KEY_CHARS_MAX)
        checks.check_text("value", value or "")
        self._draft.run(sa.delete(schema.meta).where(schema.meta.c.key == key))
        if value is not None:
            self._draft.run(sa.insert(schema.meta).values(key=key, value=value))

    def finish(self, now_us: int, session: str) -> Snapshot:
        """Write the snapshot's row, if anything changed; the caller commits and publishes."""
        draft = self._draft
        if draft.has_failed:
            raise CatalogError(
                "the transaction failed earlier and cannot be committed",
                hint="start a new one",
            )
        if self.changed:
            at_us = max(now_us, draft.now_us)
            row = {"snapshot_id": self.snapshot_id, "committed_at_us": at_us, "session": session}
            draft.run(_INSERT_SNAPSHOT, row)
            if self.snapshot.definition_id == self.snapshot_id:
                draft.run(sa.insert(schema.definitions).values(snapshot_id=self.snapshot_id))
            draft.snapshot = replace(self.snapshot, committed_at_us=at_us)
        return self.snapshot
