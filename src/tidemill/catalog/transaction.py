"""One catalog transaction: any number of changes, one new snapshot, all or nothing.

Each change is checked in memory against the snapshot that the transaction would give, then
written; the objects it returns are those that the new snapshot will hold. A change that fails its
checks leaves the transaction as it was. A change that fails in the database ends it.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from tidemill.catalog import checks, filing, schema
from tidemill.catalog.expiry import forget
from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import (
    FILE_DELETES,
    FILE_REPLACED,
    DataFile,
    Generation,
    History,
    Index,
    NewFile,
    NewTable,
    Package,
    Ranged,
    Reservation,
    Snapshot,
    Source,
    Table,
)
from tidemill.catalog.prepared import Prepared
from tidemill.catalog.reading import read_reservations, sources_by_name, tables_by_name
from tidemill.catalog.splicing import (
    concerned,
    find_file,
    reaching,
    with_files,
    with_reservations,
    with_reserved,
)
from tidemill.errors import CatalogError, ConflictError

META_KEY_CHARS_MAX = 200

_INSERT_SNAPSHOT = Prepared(lambda insert: insert(schema.snapshots))

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
        """Whether there is anything to make a snapshot for."""
        return self.snapshot.snapshot_id != self.base.snapshot_id

    def create_table(self, new: NewTable) -> Table:
        new = checks.checked_table(new)
        checks.check_free(self.snapshot, new.name)
        checks.check_digested(self.snapshot, new)
        table = Table(
            table_id=self._next_id(schema.catalog.c.next_table_id),
            name=new.name,
            kind=new.kind,
            columns=tuple(new.columns),
            primary_key=new.primary_key,
            time_column=new.time_column,
            watermark_delay_us=new.watermark_delay_us,
            given_settings=FrozenMap(new.settings),
            indexes=(),
            created_at_us=self._now_us,
            constraints=tuple(new.constraints),
            definition=new.definition,
            source_id=new.source_id,
        )
        self._insert_table(table)
        self._put(table)
        return table

    def drop_table(self, table_id: int) -> Table:
        """Drop a table with its indices, sources and files; gives what it was.

        What others made of it, such as digests of its rows, is the caller's to drop.
        """
        table = checks.live_table(self.snapshot, table_id)
        for each in schema.OF_A_TABLE:
            self._drop(each, each.c.table_id == table_id)
        self._put(table, gone=True)
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
        return self._alter(replace(table, name=name), name_hash=schema.name_hash(name))

    def alter_definition(self, table_id: int, definition: str | None) -> Table:
        """Define a table anew; older snapshots see the definition that it had."""
        table = checks.live_table(self.snapshot, table_id)
        if definition == table.definition:
            return table
        checks.check_definition(table.kind, table.name, definition)
        return self._alter(replace(table, definition=definition))

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
        table_id = table.table_id
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
        altered = replace(table, given_settings=FrozenMap(dict(sorted(after.items()))))
        self._put(altered)
        return altered

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
        source_id = self._next_id(schema.catalog.c.next_source_id)
        given = FrozenMap(options)
        source = Source(source_id, name, table_id, pattern, format, given, every_us, self._now_us)
        row = {
            **{key: value for key, value in vars(source).items() if key != "options"},
            "options": json.dumps(dict(given)),
            "name_hash": schema.name_hash(name),
            "created_snapshot": self.snapshot_id,
        }
        self._run(sa.insert(schema.sources).values(row))
        sources = [*self.snapshot.sources.values(), source]
        self._define(sources=sources_by_name(sources))
        return source

    def drop_source(self, source_id: int) -> Source:
        source = checks.live_source(self.snapshot, source_id)
        self._drop(schema.sources, schema.sources.c.source_id == source_id)
        rest = (each for each in self.snapshot.sources.values() if each is not source)
        self._define(sources=sources_by_name(rest))
        return source

    def commit_files(
        self,
        table_id: int,
        add: Sequence[NewFile] = (),
        drop: Sequence[int] = (),
        *,
        moved_seq: int | None = None,
        progress: str | None = None,
        reserved: Sequence[tuple[int, int]] = (),
        packages: Sequence[Package] = (),
        marks: Sequence[tuple[int, int]] = (),
        replaced: Sequence[NewFile] = (),
    ) -> History:
        """Put files into a table's history and take others, by their ids, out of it.

        ``moved_seq``: rows of the hot tier up to it are in files now. ``progress``: a text to be
        read back by whoever goes on. ``reserved``: the numbers, first and last, of rows that a
        load brings. ``packages``: what it loaded or set aside. ``marks``: moments and the last
        number each, as (at_us, seq). ``replaced``: files of rows that gave way to others before
        they were moved; they end with the snapshot that names them, so that none has them, and
        ``Catalog.dropped_files`` finds them. Files, moves and reservations make a snapshot, the
        others alone do not. One transaction may do so for several tables: a stream and its digests.
        """
        before = checks.history_of(self.snapshot, table_id)
        moved = checks.check_moved(before, moved_seq)
        checks.check_reserved(before, reserved)
        checks.check_files(checks.live_table(self.snapshot, table_id), add)
        checks.check_files(checks.live_table(self.snapshot, table_id), replaced, (FILE_REPLACED,))
        checks.check_packages(packages)
        checks.check_text("progress", progress or "")
        dropped = self._find_files(before, drop)
        ranges = [Reservation(first, last, self.snapshot_id) for first, last in reserved]
        raised = self._raise_generations(before, add, dropped)
        added = self._write_files(before, add, dropped, raised)
        self._write_replaced(table_id, replaced)
        after = with_files(
            before, added, dropped, moved_seq=moved, reservations=ranges, generations=raised
        )
        if moved > before.moved_seq:
            filing.put_move(self._run, table_id, self.snapshot_id, moved)
        if ranges:
            filing.add_reservations(self._run, table_id, ranges)
            filing.put_reserved(self._run, table_id, after.reserved_seq)
        if progress is not None:
            filing.put_progress(self._run, table_id, progress)
        if packages:
            filing.put_packages(self._run, table_id, packages)
        if marks:
            filing.put_marks(self._run, table_id, marks)
        if added or dropped or replaced or ranges or moved > before.moved_seq:
            histories = FrozenMap({**self.snapshot.histories, table_id: after})
            self._change(histories=histories)
            return after
        return before

    def reserve(self, table_id: int, first_seq: int, last_seq: int) -> History:
        """Set numbers apart for a load that may yet fail. They are never given out again."""
        assert first_seq <= last_seq, (first_seq, last_seq)
        before = checks.history_of(self.snapshot, table_id)
        after = with_reserved(before, last_seq)
        filing.put_reserved(self._run, table_id, after.reserved_seq)
        histories = FrozenMap({**self.snapshot.histories, table_id: after})
        self.snapshot = replace(self.snapshot, histories=histories)
        return after

    def add_packages(self, table_id: int, packages: Sequence[Package]) -> None:
        """Record packages without rows, such as those set aside. Not part of snapshots."""
        self.commit_files(table_id, packages=packages)

    def expire_snapshots(self, before_us: int, pinned: Collection[int] = ()) -> list[str]:
        """Forget older snapshots (see ``expiry``); the paths of files that nobody sees now."""
        paths = forget(self._run, before_us, pinned)
        with self._translated():
            reservations = read_reservations(self._connection, self.snapshot.snapshot_id)
        kept = {
            table_id: with_reservations(history, reservations.get(table_id, ()))
            for table_id, history in self.snapshot.histories.items()
            if history.reservations
        }
        if kept:
            histories = FrozenMap({**self.snapshot.histories, **kept})
            self.snapshot = replace(self.snapshot, histories=histories)
        return paths

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
            self._run(_INSERT_SNAPSHOT, row)
            if self.snapshot.definition_id == self.snapshot_id:
                self._run(sa.insert(schema.definitions).values(snapshot_id=self.snapshot_id))
            self.snapshot = replace(self.snapshot, committed_at_us=at_us)
        return self.snapshot

    def _put(self, table: Table, *, gone: bool = False) -> None:
        """Carry one table's change into the snapshot to be."""
        tables = [each for each in self.snapshot.tables.values() if each.table_id != table.table_id]
        histories = dict(self.snapshot.histories)
        sources = self.snapshot.sources
        if gone:
            histories.pop(table.table_id, None)
            rest = (each for each in sources.values() if each.table_id != table.table_id)
            sources = sources_by_name(rest)
        else:
            tables.append(table)
            histories.setdefault(table.table_id, History(table.table_id))
        self._define(tables=tables_by_name(tables), histories=FrozenMap(histories), sources=sources)

    def _define(self, **changes: Any) -> None:
        self._change(definition_id=self.snapshot_id, **changes)

    def _change(self, **changes: Any) -> None:
        """Change the snapshot to be; what is not named stays the same object."""
        changes.update(snapshot_id=self.snapshot_id, committed_at_us=self._now_us)
        self.snapshot = replace(self.snapshot, **changes)

    def _find_files(self, history: History, file_ids: Sequence[int]) -> list[DataFile]:
        """The live files of those ids; a conflict if one is not live."""
        if not file_ids:
            return []
        wanted = dict.fromkeys(file_ids)
        places = filing.find_whereabouts(self._run, list(wanted))
        found = {file_id: find_file(history, file_id, *place) for file_id, place in places.items()}
        gone = [file_id for file_id in wanted if found.get(file_id) is None]
        if gone:
            raise ConflictError(
                f"file {gone[0]} of the table with id {history.table_id} is not live",
                detail=f"{len(gone)} of {len(wanted)} files to be dropped are not",
                hint="another job replaced it first; plan the job again",
            )
        return [file for file in found.values() if file is not None]

    def _raise_generations(
        self, history: History, add: Sequence[NewFile], drop: Sequence[DataFile]
    ) -> list[Generation]:
        """The next generations of times whose files change, or that lose rows by deletes."""
        places: list[Ranged] = [file for file in (*add, *drop) if file.is_rows]
        for file in add:
            if file.kind == FILE_DELETES:
                places.extend(concerned(history, file))
        return filing.raise_generations(self._run, history.table_id, places)

    def _write_files(
        self,
        history: History,
        add: Sequence[NewFile],
        drop: Sequence[DataFile],
        raised: Sequence[Generation],
    ) -> list[DataFile]:
        """Write what comes and goes; the files as they will be known."""
        table_id = history.table_id
        filing.drop_files(self._run, sorted(file.file_id for file in drop), self.snapshot_id)
        if not add:
            return []
        first_id = filing.next_file_id(self._run, len(add))
        added = [
            filing.named(
                new,
                first_id + number,
                table_id,
                _generation(history, new, raised),
                self.snapshot_id,
            )
            for number, new in enumerate(add)
        ]
        self._insert_files(added)
        return added

    def _write_replaced(self, table_id: int, files: Sequence[NewFile]) -> None:
        """Name files that end as they begin: they are of no generation, and of no snapshot."""
        if not files:
            return
        first_id = filing.next_file_id(self._run, len(files))
        named = [
            filing.named(file, first_id + number, table_id, 0, self.snapshot_id)
            for number, file in enumerate(files)
        ]
        self._insert_files(named)
        filing.drop_files(self._run, [file.file_id for file in named], self.snapshot_id)

    def _insert_files(self, files: Sequence[DataFile]) -> None:
        try:
            filing.insert_files(self._run, files)
        except CatalogError as error:
            if isinstance(error.__cause__, sa.exc.IntegrityError):
                raise ConflictError(
                    f'file "{files[0].path}" or one added with it is named already',
                    hint="the job was committed before; plan it again",
                ) from error
            raise

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
            "definition": table.definition,
            "source_id": table.source_id,
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

    def _alter(self, table: Table, **changes: object) -> Table:
        """Change a table's name or definition; what it was is kept for older snapshots."""
        table_id, tables = table.table_id, schema.tables
        before = checks.live_table(self.snapshot, table_id)
        since = self._defined_since(table_id)
        if since < self.snapshot_id:  # what this very transaction made was never seen by anybody
            row = {
                "table_id": table_id,
                "name": before.name,
                "definition": before.definition,
                "created_snapshot": since,
                "dropped_snapshot": self.snapshot_id,
            }
            self._run(sa.insert(schema.former_tables).values(row))
        changes.update(name=table.name, definition=table.definition)
        self._run(sa.update(tables).where(tables.c.table_id == table_id).values(changes))
        self._put(table)
        return table

    def _defined_since(self, table_id: int) -> int:
        """The snapshot that gave a table its name and definition of now."""
        tables, formers = schema.tables, schema.former_tables
        last = sa.select(sa.func.max(formers.c.dropped_snapshot))
        changed = last.where(formers.c.table_id == table_id).scalar_subquery()
        since = sa.select(sa.func.coalesce(changed, tables.c.created_snapshot))
        return int(self._run(since.where(tables.c.table_id == table_id)).scalar_one())

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

    def _run(self, statement: sa.Executable | Prepared, rows: Any = None) -> Any:
        try:
            with self._translated():
                if isinstance(statement, Prepared):
                    return statement.run(self._connection, rows or {})
                return self._connection.execute(statement, rows)
        except BaseException:
            self._failed = True
            raise


_BEGIN = attrgetter("lo_us")


def _generation(history: History, new: NewFile, raised: Sequence[Generation]) -> int:
    """The generation that a file's commit begins; rows set aside have their own, by arrival."""
    if new.is_rows or new.kind == FILE_DELETES:
        start = max(bisect_right(raised, new.lo_us, key=_BEGIN) - 1, 0)
        end = bisect_left(raised, new.hi_us, start, key=_BEGIN)
        return max((g.number for g in raised[start:end] if g.hi_us > new.lo_us), default=1)
    beside = reaching(history.sides, new.lo_us, new.hi_us)
    return 1 + max((each.generation for each in beside), default=0)
