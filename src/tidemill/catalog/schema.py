"""The catalog's tables as the code of today reads and writes them (SQLAlchemy Core).

The tables are *made* by ``migrations``, whose steps are frozen; a test compares the two. Every
versioned row carries the snapshot that created it and the one that dropped it, so an older
snapshot is a matter of the WHERE clause ``live_at``, and a reader never waits for a writer.
"""

from __future__ import annotations

import hashlib

import sqlalchemy as sa

metadata = sa.MetaData()


def _lifetime() -> tuple[sa.Column[int], sa.Column[int | None]]:
    return (
        sa.Column("created_snapshot", sa.BigInteger, nullable=False),
        sa.Column("dropped_snapshot", sa.BigInteger),
    )


catalog = sa.Table(
    "tidemill_catalog",
    metadata,
    sa.Column("singleton", sa.Integer, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("catalog_id", sa.Text, nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("next_table_id", sa.BigInteger, nullable=False),
    sa.Column("next_index_id", sa.BigInteger, nullable=False),
    sa.Column("next_file_id", sa.BigInteger, nullable=False),
    sa.Column("next_source_id", sa.BigInteger, nullable=False),
)

snapshots = sa.Table(
    "tidemill_snapshots",
    metadata,
    sa.Column("snapshot_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("committed_at_us", sa.BigInteger, nullable=False),
    sa.Column("session", sa.Text, nullable=False),
)

definitions = sa.Table(
    "tidemill_definitions",
    metadata,
    sa.Column("snapshot_id", sa.BigInteger, primary_key=True, autoincrement=False),
)
"""The snapshots that changed a definition; the others only changed files."""

tables = sa.Table(
    "tidemill_tables",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("name_hash", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("time_column", sa.Text),
    sa.Column("watermark_delay_us", sa.BigInteger),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("definition", sa.Text),
    sa.Column("source_id", sa.BigInteger),
    *_lifetime(),
)

former_tables = sa.Table(
    "tidemill_former_tables",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("definition", sa.Text),
    sa.Column("created_snapshot", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("dropped_snapshot", sa.BigInteger, nullable=False),
)
"""What tables were before they were renamed or defined anew; ``tables`` has what they are now."""

columns = sa.Table(
    "tidemill_columns",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("nullable", sa.Boolean, nullable=False),
    sa.Column("default_sql", sa.Text),
    sa.Column("key_ordinal", sa.Integer),
    *_lifetime(),
)

constraints = sa.Table(
    "tidemill_constraints",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("definition", sa.Text, nullable=False),
    *_lifetime(),
)

settings = sa.Table(
    "tidemill_table_settings",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("created_snapshot", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("dropped_snapshot", sa.BigInteger),
)

indexes = sa.Table(
    "tidemill_indexes",
    metadata,
    sa.Column("index_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("table_id", sa.BigInteger, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("name_hash", sa.Text, nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("is_unique", sa.Boolean, nullable=False),
    *_lifetime(),
)

index_columns = sa.Table(
    "tidemill_index_columns",
    metadata,
    sa.Column("index_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("column_name", sa.Text, nullable=False),
)

files = sa.Table(
    "tidemill_files",
    metadata,
    sa.Column("file_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("table_id", sa.BigInteger, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("lo_us", sa.BigInteger, nullable=False),
    sa.Column("hi_us", sa.BigInteger, nullable=False),
    sa.Column("row_count", sa.BigInteger, nullable=False),
    sa.Column("byte_count", sa.BigInteger, nullable=False),
    sa.Column("row_groups", sa.BigInteger, nullable=False),
    sa.Column("time_min_us", sa.BigInteger, nullable=False),
    sa.Column("time_max_us", sa.BigInteger, nullable=False),
    sa.Column("seq_min", sa.BigInteger, nullable=False),
    sa.Column("seq_max", sa.BigInteger, nullable=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("ranges", sa.Text),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("checksums", sa.Text),
    sa.Column("changed", sa.BigInteger, nullable=False),
    *_lifetime(),
)

partitions = sa.Table(
    "tidemill_partitions",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("lo_us", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("hi_us", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
)
"""The highest generation that a span of time ever had; not versioned, never goes back. Spans of
one table do not overlap, and every partition lies in one."""

moves = sa.Table(
    "tidemill_moves",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("created_snapshot", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("moved_seq", sa.BigInteger, nullable=False),
)
"""How far a table's rows were in files, from a snapshot on; both columns grow together."""

changes = sa.Table(
    "tidemill_changes",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("first_number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last_number", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    *_lifetime(),
)
"""Updates and deletes of a stream that are not, or were not, carried out in all of its rows."""

reservations = sa.Table(
    "tidemill_reservations",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("first_seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("created_snapshot", sa.BigInteger, nullable=False),
)

histories = sa.Table(
    "tidemill_histories",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("reserved_seq", sa.BigInteger, nullable=False),
    sa.Column("progress", sa.Text),
)
"""What is known of a table's history besides its versions: only the newest counts."""

marks = sa.Table(
    "tidemill_marks",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_us", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
)
"""Which sequence number was the last at a moment; both columns grow together."""

packages = sa.Table(
    "tidemill_packages",
    metadata,
    sa.Column("table_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name_hash", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("row_count", sa.BigInteger, nullable=False),
    sa.Column("rejected", sa.BigInteger, nullable=False),
    sa.Column("late", sa.BigInteger, nullable=False),
    sa.Column("loaded_at_us", sa.BigInteger, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("replaced", sa.BigInteger, nullable=False),
)

sources = sa.Table(
    "tidemill_sources",
    metadata,
    sa.Column("source_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("name_hash", sa.Text, nullable=False),
    sa.Column("table_id", sa.BigInteger, nullable=False),
    sa.Column("pattern", sa.Text, nullable=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("options", sa.Text, nullable=False),
    sa.Column("every_us", sa.BigInteger),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    *_lifetime(),
)

meta = sa.Table(
    "tidemill_meta",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

owners = sa.Table(
    "tidemill_owners",
    metadata,
    sa.Column("singleton", sa.Integer, primary_key=True),
    sa.Column("info", sa.Text, nullable=False),
)

sums = sa.Table(
    "tidemill_sums",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("row_count", sa.BigInteger, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
)
"""What the tables of a SQLite catalog hold (see ``sums``)."""

OF_A_TABLE = (tables, columns, constraints, settings, indexes, sources, files, changes)
"""Versioned rows that belong to one table and end with it."""

BESIDE_A_TABLE = (partitions, moves, reservations, histories, marks, packages)
"""Rows that belong to one table, go when nobody can see it any more, and have no end of life."""


def live_at(table: sa.Table, snapshot_id: int) -> sa.ColumnElement[bool]:
    """The rows of ``table`` that one snapshot sees."""
    dropped = table.c.dropped_snapshot
    return sa.and_(
        table.c.created_snapshot <= snapshot_id,
        sa.or_(dropped.is_(None), dropped > snapshot_id),
    )


def name_hash(name: str) -> str:
    """What is unique among live names: names have no case, and may be too long for an index."""
    return text_hash(name.lower())


def text_hash(text: str) -> str:
    """What stands for a text in a key: it may be too long for an index."""
    return hashlib.sha256(text.encode()).hexdigest()
