"""The rows that definitions write: tables, columns, constraints, settings, indices, sources.

``transaction`` checks a definition in memory and calls these. Rows are ended, never changed, so
that older snapshots see what was; a table's name and definition are kept aside when they change.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from tidemill.catalog import schema
from tidemill.catalog.draft import Draft
from tidemill.catalog.model import Index, Source, Table


def insert_table(draft: Draft, table: Table) -> None:
    lifetime = {"table_id": table.table_id, "created_snapshot": draft.snapshot_id}
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
    draft.run(sa.insert(schema.tables).values({**lifetime, **row}))
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
    draft.run(sa.insert(schema.columns), columns)
    constraints = [
        {**lifetime, "ordinal": ordinal, "definition": definition}
        for ordinal, definition in enumerate(table.constraints)
    ]
    if constraints:
        draft.run(sa.insert(schema.constraints), constraints)
    insert_settings(draft, table.table_id, table.given_settings)


def end_table(draft: Draft, table_id: int) -> None:
    """End a table with all that belongs to it."""
    for each in schema.OF_A_TABLE:
        draft.end_rows(each, each.c.table_id == table_id)


def alter_table(draft: Draft, before: Table, after: Table) -> None:
    """Change a table's name or definition; what it was is kept for older snapshots."""
    table_id, tables = after.table_id, schema.tables
    since = _defined_since(draft, table_id)
    if since < draft.snapshot_id:  # what this very transaction made was never seen by anybody
        row = {
            "table_id": table_id,
            "name": before.name,
            "definition": before.definition,
            "created_snapshot": since,
            "dropped_snapshot": draft.snapshot_id,
        }
        draft.run(sa.insert(schema.former_tables).values(row))
    changes = {
        "name": after.name,
        "name_hash": schema.name_hash(after.name),
        "definition": after.definition,
    }
    draft.run(sa.update(tables).where(tables.c.table_id == table_id).values(changes))


def _defined_since(draft: Draft, table_id: int) -> int:
    """The snapshot that gave a table its name and definition of now."""
    tables, formers = schema.tables, schema.former_tables
    last = sa.select(sa.func.max(formers.c.dropped_snapshot))
    changed = last.where(formers.c.table_id == table_id).scalar_subquery()
    since = sa.select(sa.func.coalesce(changed, tables.c.created_snapshot))
    return int(draft.run(since.where(tables.c.table_id == table_id)).scalar_one())


def insert_settings(draft: Draft, table_id: int, given: Mapping[str, str]) -> None:
    lifetime = {"table_id": table_id, "created_snapshot": draft.snapshot_id}
    rows = [{**lifetime, "name": name, "value": value} for name, value in given.items()]
    if rows:
        draft.run(sa.insert(schema.settings), rows)


def replace_settings(
    draft: Draft, table_id: int, touched: Collection[str], after: Mapping[str, str]
) -> None:
    """Give a table's touched settings the values that they have afterwards, if any."""
    settings = schema.settings
    mine = sa.and_(settings.c.table_id == table_id, settings.c.name.in_(touched))
    # what this very transaction set was never seen by anybody
    draft.run(sa.delete(settings).where(mine, settings.c.created_snapshot == draft.snapshot_id))
    draft.end_rows(settings, mine)
    insert_settings(draft, table_id, {name: after[name] for name in touched if name in after})


def insert_index(draft: Draft, index: Index) -> None:
    row = {
        "index_id": index.index_id,
        "table_id": index.table_id,
        "name": index.name,
        "name_hash": schema.name_hash(index.name),
        "method": index.method,
        "is_unique": index.unique,
        "created_snapshot": draft.snapshot_id,
    }
    draft.run(sa.insert(schema.indexes).values(row))
    parts = [
        {"index_id": index.index_id, "ordinal": ordinal, "column_name": name}
        for ordinal, name in enumerate(index.columns)
    ]
    draft.run(sa.insert(schema.index_columns), parts)


def end_index(draft: Draft, index_id: int) -> None:
    draft.end_rows(schema.indexes, schema.indexes.c.index_id == index_id)


def insert_source(draft: Draft, source: Source) -> None:
    row = {
        **{key: value for key, value in vars(source).items() if key != "options"},
        "options": json.dumps(dict(source.options)),
        "name_hash": schema.name_hash(source.name),
        "created_snapshot": draft.snapshot_id,
    }
    draft.run(sa.insert(schema.sources).values(row))


def end_source(draft: Draft, source_id: int) -> None:
    draft.end_rows(schema.sources, schema.sources.c.source_id == source_id)
