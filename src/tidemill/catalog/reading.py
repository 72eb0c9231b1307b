"""Rows of the catalog into one snapshot: a dozen small queries, whatever the number of tables.

Files may be many. An older snapshot is made of the newest one's files: without those that came
later, and with those that left later, which alone are read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from tidemill.catalog import schema
from tidemill.catalog.filing import FILE_COLUMNS, file_of
from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import (
    DataFile,
    Generation,
    History,
    Index,
    Reservation,
    Snapshot,
    Source,
    Table,
)
from tidemill.catalog.prepared import Prepared
from tidemill.catalog.schema import live_at
from tidemill.catalog.splicing import (
    rewound,
    with_generations,
    with_reservations,
    with_reserved,
)
from tidemill.types import Column, SqlType

Rows = dict[int, list[sa.Row[Any]]]

_HEAD = Prepared(
    lambda _: sa.select(schema.snapshots).order_by(schema.snapshots.c.snapshot_id.desc()).limit(1)
)


def read_head(connection: sa.Connection) -> sa.Row[Any] | None:
    """The newest snapshot's row: snapshot_id, committed_at_us, session."""
    return _HEAD.run(connection, {}).one_or_none()


def find_snapshot(connection: sa.Connection, snapshot_id: int) -> sa.Row[Any] | None:
    snapshots = schema.snapshots
    wanted = sa.select(snapshots).where(snapshots.c.snapshot_id == snapshot_id)
    return connection.execute(wanted).one_or_none()


def find_snapshot_from(connection: sa.Connection, snapshot_id: int) -> sa.Row[Any] | None:
    """The first snapshot of that id or a higher one."""
    snapshots = schema.snapshots
    wanted = sa.select(snapshots).where(snapshots.c.snapshot_id >= snapshot_id)
    return connection.execute(wanted.order_by(snapshots.c.snapshot_id).limit(1)).one_or_none()


def find_snapshot_at(connection: sa.Connection, at_us: int) -> sa.Row[Any] | None:
    """The last snapshot committed at or before a moment."""
    snapshots = schema.snapshots
    wanted = (
        sa.select(snapshots)
        .where(snapshots.c.committed_at_us <= at_us)
        .order_by(snapshots.c.committed_at_us.desc(), snapshots.c.snapshot_id.desc())
        .limit(1)
    )
    return connection.execute(wanted).one_or_none()


def read_snapshot(
    connection: sa.Connection, head: sa.Row[Any], newer: Snapshot | None = None
) -> Snapshot:
    """Everything that lives in the snapshot whose row is ``head``.

    ``newer`` is a later snapshot, if one is at hand: it saves reading the files again.
    """
    at = head.snapshot_id
    columns = _by_table(connection, schema.columns, schema.columns.c.ordinal, at)
    constraints = _by_table(connection, schema.constraints, schema.constraints.c.ordinal, at)
    settings = _by_table(connection, schema.settings, schema.settings.c.name, at)
    indexes = _indexes(connection, at)
    tables = [
        _table(
            row,
            columns[row.table_id],
            {setting.name: setting.value for setting in settings[row.table_id]},
            indexes[row.table_id],
            tuple(constraint.definition for constraint in constraints[row.table_id]),
        )
        for row in connection.execute(_tables_at(at))
    ]
    definitions = schema.definitions.c.snapshot_id
    defined = connection.scalar(sa.select(sa.func.max(definitions)).where(definitions <= at))
    return Snapshot(
        at,
        head.committed_at_us,
        tables_by_name(tables),
        FrozenMap(_histories(connection, at, newer)),
        sources_by_name(_sources(connection, at)),
        defined or 0,
    )


def tables_by_name(tables: Iterable[Table]) -> FrozenMap[str, Table]:
    ordered = sorted(tables, key=lambda table: table.table_id)
    return FrozenMap({table.name.lower(): table for table in ordered})


def sources_by_name(sources: Iterable[Source]) -> FrozenMap[str, Source]:
    ordered = sorted(sources, key=lambda source: source.source_id)
    return FrozenMap({source.name.lower(): source for source in ordered})


def read_reservations(connection: sa.Connection, at: int) -> dict[int, tuple[Reservation, ...]]:
    """The numbers that belong to loads, of each table, as one snapshot sees them."""
    table = schema.reservations
    query = sa.select(table).where(table.c.created_snapshot <= at)
    found: dict[int, list[Reservation]] = defaultdict(list)
    for row in connection.execute(query.order_by(table.c.table_id, table.c.first_seq)):
        made = Reservation(row.first_seq, row.last_seq, row.created_snapshot)
        found[row.table_id].append(made)
    return {table_id: tuple(made) for table_id, made in found.items()}


def _histories(connection: sa.Connection, at: int, newer: Snapshot | None) -> dict[int, History]:
    """One for every table that lives, also for those without files."""
    reservations = read_reservations(connection, at)
    rest = sa.select(schema.histories.c.table_id, schema.histories.c.reserved_seq)
    reserved = {row.table_id: row.reserved_seq for row in connection.execute(rest)}
    if newer is None or newer.snapshot_id < at:
        files = _files(connection, live_at(schema.files, at))
        base = {table_id: History(table_id, files=_sorted(files[table_id])) for table_id in files}
        left: dict[int, list[DataFile]] = {}
        generations = _generations(connection)
    else:
        c = schema.files.c
        base = dict(newer.histories)
        left = _files(connection, sa.and_(c.dropped_snapshot > at, c.created_snapshot <= at))
        generations = {}  # they are of the newest snapshot alone
    found: dict[int, History] = {}
    for table_id, moved_seq in _moved(connection, at):
        history = base.get(table_id) or History(table_id)
        older = rewound(history, at, left.get(table_id, ()), moved_seq or 0)
        if table_id in generations:
            parts = with_generations(older.partitions, generations[table_id])
            older.__dict__["partitions"] = parts
        older = with_reservations(older, reservations.get(table_id, ()))
        found[table_id] = with_reserved(older, reserved.get(table_id, 0))
    return found


def _generations(connection: sa.Connection) -> dict[int, list[Generation]]:
    """The generations of each table's time, as they are now."""
    c = schema.partitions.c
    found: dict[int, list[Generation]] = defaultdict(list)
    for table_id, *span in connection.execute(
        sa.select(c.table_id, c.lo_us, c.hi_us, c.generation).order_by(c.table_id, c.lo_us)
    ):
        found[table_id].append(Generation(*span))
    return found


def _sorted(files: Iterable[DataFile]) -> tuple[DataFile, ...]:
    return tuple(sorted(files, key=lambda file: file.place))


def _moved(connection: sa.Connection, at: int) -> list[tuple[int, int | None]]:
    """How far the rows of each live table were in files: one look into an index a table."""
    tables, moves = schema.tables, schema.moves
    last = (
        sa.select(moves.c.moved_seq)
        .where(moves.c.table_id == tables.c.table_id, moves.c.created_snapshot <= at)
        .order_by(moves.c.created_snapshot.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(tables.c.table_id, last).where(live_at(tables, at))
    rows = connection.execute(query.order_by(tables.c.table_id))
    return [(table_id, moved_seq) for table_id, moved_seq in rows]


def _files(connection: sa.Connection, which: sa.ColumnElement[bool]) -> dict[int, list[DataFile]]:
    files: dict[int, list[DataFile]] = defaultdict(list)
    for row in connection.execute(sa.select(*FILE_COLUMNS).where(which)):
        file = file_of(row)
        files[file.table_id].append(file)
    return files


def _sources(connection: sa.Connection, at: int) -> list[Source]:
    query = sa.select(schema.sources).where(live_at(schema.sources, at))
    return [
        Source(
            row.source_id,
            row.name,
            row.table_id,
            row.pattern,
            row.format,
            FrozenMap(json.loads(row.options)),
            row.every_us,
            row.created_at_us,
        )
        for row in connection.execute(query)
    ]


def _tables_at(at: int) -> sa.Select[Any]:
    """The tables that live, by id, as they were then: one statement, so that no change of a name
    or a definition falls between two."""
    tables, formers = schema.tables, schema.former_tables
    then = sa.and_(formers.c.table_id == tables.c.table_id, live_at(formers, at))
    was_other = formers.c.table_id.is_not(None)
    changing = [
        sa.case((was_other, formers.c[name]), else_=tables.c[name]).label(name)
        for name in ("name", "definition")
    ]
    lasting = [each for each in tables.c if each.name not in ("name", "definition")]
    query = sa.select(*lasting, *changing).select_from(tables.outerjoin(formers, then))
    return query.where(live_at(tables, at)).order_by(tables.c.table_id)


def _by_table(
    connection: sa.Connection, table: sa.Table, order: sa.ColumnElement[Any], at: int
) -> Rows:
    query = sa.select(table).where(live_at(table, at)).order_by(table.c.table_id, order)
    rows: Rows = defaultdict(list)
    for row in connection.execute(query):
        rows[row.table_id].append(row)
    return rows


def _indexes(connection: sa.Connection, at: int) -> dict[int, list[Index]]:
    names: dict[int, list[str]] = defaultdict(list)
    parts, indexes = schema.index_columns, schema.indexes
    joined = sa.select(parts).join(indexes, indexes.c.index_id == parts.c.index_id)
    ordered = joined.where(live_at(indexes, at)).order_by(parts.c.index_id, parts.c.ordinal)
    for row in connection.execute(ordered):
        names[row.index_id].append(row.column_name)
    found: dict[int, list[Index]] = defaultdict(list)
    for table_id, rows in _by_table(connection, indexes, indexes.c.index_id, at).items():
        found[table_id] = [
            Index(
                row.index_id,
                row.name,
                table_id,
                tuple(names[row.index_id]),
                row.method,
                row.is_unique,
            )
            for row in rows
        ]
    return found


def _table(
    row: sa.Row[Any],
    columns: list[sa.Row[Any]],
    settings: Mapping[str, str],
    indexes: list[Index],
    constraints: tuple[str, ...],
) -> Table:
    key = sorted((c.key_ordinal, c.name) for c in columns if c.key_ordinal is not None)
    return Table(
        table_id=row.table_id,
        name=row.name,
        kind=row.kind,
        columns=tuple(
            Column(c.name, SqlType(c.type), nullable=c.nullable, default=c.default_sql)
            for c in columns
        ),
        primary_key=tuple(name for _, name in key),
        time_column=row.time_column,
        watermark_delay_us=row.watermark_delay_us,
        given_settings=FrozenMap(settings),
        indexes=tuple(indexes),
        created_at_us=row.created_at_us,
        constraints=constraints,
        definition=row.definition,
        source_id=row.source_id,
    )
