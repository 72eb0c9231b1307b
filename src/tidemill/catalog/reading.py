"""Rows of the catalog into one snapshot: five small queries, whatever the number of tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from tidemill.catalog import schema
from tidemill.catalog.model import Index, Snapshot, Table
from tidemill.catalog.schema import live_at
from tidemill.types import Column, SqlType

Rows = dict[int, list[sa.Row[Any]]]


def read_head(connection: sa.Connection) -> sa.Row[Any] | None:
    """The newest snapshot's row: snapshot_id, committed_at_us, session."""
    newest = sa.select(schema.snapshots).order_by(schema.snapshots.c.snapshot_id.desc()).limit(1)
    return connection.execute(newest).one_or_none()


def find_snapshot(connection: sa.Connection, snapshot_id: int) -> sa.Row[Any] | None:
    snapshots = schema.snapshots
    wanted = sa.select(snapshots).where(snapshots.c.snapshot_id == snapshot_id)
    return connection.execute(wanted).one_or_none()


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


def read_snapshot(connection: sa.Connection, head: sa.Row[Any]) -> Snapshot:
    """Everything that lives in the snapshot whose row is ``head``."""
    at = head.snapshot_id
    columns = _by_table(connection, schema.columns, schema.columns.c.ordinal, at)
    constraints = _by_table(connection, schema.constraints, schema.constraints.c.ordinal, at)
    settings = _by_table(connection, schema.settings, schema.settings.c.name, at)
    indexes = _indexes(connection, at)
    query = sa.select(schema.tables).where(live_at(schema.tables, at))
    tables = [
        _table(
            row,
            columns[row.table_id],
            {setting.name: setting.value for setting in settings[row.table_id]},
            indexes[row.table_id],
            tuple(constraint.definition for constraint in constraints[row.table_id]),
        )
        for row in connection.execute(query.order_by(schema.tables.c.table_id))
    ]
    return make_snapshot(at, head.committed_at_us, tables)


def make_snapshot(snapshot_id: int, committed_at_us: int, tables: Iterable[Table]) -> Snapshot:
    by_name = {table.name.lower(): table for table in tables}
    return Snapshot(snapshot_id, committed_at_us, MappingProxyType(by_name))


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
        given_settings=MappingProxyType(dict(settings)),
        indexes=tuple(indexes),
        created_at_us=row.created_at_us,
        constraints=constraints,
    )
