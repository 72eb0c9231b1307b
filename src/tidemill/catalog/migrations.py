"""The catalog's schema, step by step: migration *n* takes a database from version n - 1 to n.

A step is one function and one transaction, and is never edited once released: it is written in
the SQL that SQLite and PostgreSQL share, apart from ``schema``, which follows the newest version.
A crash between two steps leaves a database of an older version, which the next start takes on.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager

import sqlalchemy as sa

from tidemill.errors import CatalogError

Migration = Callable[[sa.Connection, int], None]

_LIFETIME = "created_snapshot BIGINT NOT NULL, dropped_snapshot BIGINT"


def base(connection: sa.Connection, now_us: int) -> None:
    """Version 1: snapshots, tables, columns, constraints, settings, indices."""
    _execute(
        connection,
        """CREATE TABLE tidemill_catalog (
            singleton INTEGER NOT NULL PRIMARY KEY CHECK (singleton = 1),
            version INTEGER NOT NULL, catalog_id TEXT NOT NULL, created_at_us BIGINT NOT NULL,
            next_table_id BIGINT NOT NULL, next_index_id BIGINT NOT NULL)""",
        """CREATE TABLE tidemill_snapshots (
            snapshot_id BIGINT NOT NULL PRIMARY KEY,
            committed_at_us BIGINT NOT NULL, session TEXT NOT NULL)""",
        "CREATE INDEX tidemill_snapshots_time ON tidemill_snapshots (committed_at_us)",
        f"""CREATE TABLE tidemill_tables (
            table_id BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, name_hash TEXT NOT NULL,
            kind TEXT NOT NULL, time_column TEXT, watermark_delay_us BIGINT,
            created_at_us BIGINT NOT NULL, {_LIFETIME})""",
        """CREATE UNIQUE INDEX tidemill_tables_live ON tidemill_tables (name_hash)
            WHERE dropped_snapshot IS NULL""",
        f"""CREATE TABLE tidemill_columns (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables, ordinal INTEGER NOT NULL,
            name TEXT NOT NULL, type TEXT NOT NULL, nullable BOOLEAN NOT NULL, default_sql TEXT,
            key_ordinal INTEGER, {_LIFETIME}, PRIMARY KEY (table_id, ordinal))""",
        f"""CREATE TABLE tidemill_constraints (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables, ordinal INTEGER NOT NULL,
            definition TEXT NOT NULL, {_LIFETIME}, PRIMARY KEY (table_id, ordinal))""",
        f"""CREATE TABLE tidemill_table_settings (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables, name TEXT NOT NULL,
            value TEXT NOT NULL, {_LIFETIME},
            PRIMARY KEY (table_id, name, created_snapshot))""",
        f"""CREATE TABLE tidemill_indexes (
            index_id BIGINT NOT NULL PRIMARY KEY,
            table_id BIGINT NOT NULL REFERENCES tidemill_tables,
            name TEXT NOT NULL, name_hash TEXT NOT NULL, method TEXT NOT NULL, {_LIFETIME})""",
        """CREATE UNIQUE INDEX tidemill_indexes_live ON tidemill_indexes (name_hash)
            WHERE dropped_snapshot IS NULL""",
        """CREATE TABLE tidemill_index_columns (
            index_id BIGINT NOT NULL REFERENCES tidemill_indexes, ordinal INTEGER NOT NULL,
            column_name TEXT NOT NULL, PRIMARY KEY (index_id, ordinal))""",
    )
    connection.execute(
        sa.text("INSERT INTO tidemill_catalog VALUES (1, 0, :catalog_id, :now_us, 1, 1)"),
        {"catalog_id": uuid.uuid4().hex, "now_us": now_us},
    )
    connection.execute(
        sa.text("INSERT INTO tidemill_snapshots VALUES (0, :now_us, 'created')"),
        {"now_us": now_us},
    )


def owners_and_meta(connection: sa.Connection, now_us: int) -> None:
    """Version 2: who owns the catalog, settings of the database, unique indices."""
    _execute(
        connection,
        """CREATE TABLE tidemill_owners (
            singleton INTEGER NOT NULL PRIMARY KEY CHECK (singleton = 1), info TEXT NOT NULL)""",
        "CREATE TABLE tidemill_meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
        "ALTER TABLE tidemill_indexes ADD COLUMN is_unique BOOLEAN NOT NULL DEFAULT FALSE",
    )


def history(connection: sa.Connection, now_us: int) -> None:
    """Version 3: files of history, how far rows were moved, loads, packages, sources."""
    _execute(
        connection,
        "ALTER TABLE tidemill_catalog ADD COLUMN next_file_id BIGINT NOT NULL DEFAULT 1",
        "ALTER TABLE tidemill_catalog ADD COLUMN next_source_id BIGINT NOT NULL DEFAULT 1",
        "CREATE TABLE tidemill_definitions (snapshot_id BIGINT NOT NULL PRIMARY KEY)",
        # until now, whatever made a snapshot was a definition
        "INSERT INTO tidemill_definitions SELECT snapshot_id FROM tidemill_snapshots",
        f"""CREATE TABLE tidemill_files (
            file_id BIGINT NOT NULL PRIMARY KEY,
            table_id BIGINT NOT NULL REFERENCES tidemill_tables, path TEXT NOT NULL,
            kind TEXT NOT NULL, lo_us BIGINT NOT NULL, hi_us BIGINT NOT NULL,
            row_count BIGINT NOT NULL, byte_count BIGINT NOT NULL, row_groups BIGINT NOT NULL,
            time_min_us BIGINT NOT NULL, time_max_us BIGINT NOT NULL,
            seq_min BIGINT NOT NULL, seq_max BIGINT NOT NULL, origin TEXT NOT NULL, ranges TEXT,
            generation BIGINT NOT NULL, is_anchor BOOLEAN NOT NULL, {_LIFETIME})""",
        "CREATE UNIQUE INDEX tidemill_files_path ON tidemill_files (path)",
        "CREATE INDEX tidemill_files_table ON tidemill_files (table_id)",
        """CREATE INDEX tidemill_files_dropped ON tidemill_files (dropped_snapshot)
            WHERE dropped_snapshot IS NOT NULL""",
        """CREATE TABLE tidemill_partitions (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables,
            lo_us BIGINT NOT NULL, hi_us BIGINT NOT NULL, generation BIGINT NOT NULL,
            PRIMARY KEY (table_id, lo_us, hi_us))""",
        """CREATE TABLE tidemill_moves (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables,
            created_snapshot BIGINT NOT NULL, moved_seq BIGINT NOT NULL,
            PRIMARY KEY (table_id, created_snapshot))""",
        "CREATE INDEX tidemill_moves_seq ON tidemill_moves (table_id, moved_seq)",
        """CREATE TABLE tidemill_reservations (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables,
            first_seq BIGINT NOT NULL, last_seq BIGINT NOT NULL,
            created_snapshot BIGINT NOT NULL, PRIMARY KEY (table_id, first_seq))""",
        """CREATE TABLE tidemill_histories (
            table_id BIGINT NOT NULL PRIMARY KEY REFERENCES tidemill_tables,
            reserved_seq BIGINT NOT NULL, progress TEXT)""",
        """CREATE TABLE tidemill_marks (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables,
            at_us BIGINT NOT NULL, seq BIGINT NOT NULL, PRIMARY KEY (table_id, at_us))""",
        """CREATE TABLE tidemill_packages (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables, name_hash TEXT NOT NULL,
            size BIGINT NOT NULL, digest TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL,
            reason TEXT, row_count BIGINT NOT NULL, rejected BIGINT NOT NULL,
            late BIGINT NOT NULL, loaded_at_us BIGINT NOT NULL, source TEXT NOT NULL,
            job_id TEXT NOT NULL, PRIMARY KEY (table_id, name_hash, size, digest))""",
        f"""CREATE TABLE tidemill_sources (
            source_id BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, name_hash TEXT NOT NULL,
            table_id BIGINT NOT NULL REFERENCES tidemill_tables, pattern TEXT NOT NULL,
            format TEXT NOT NULL, options TEXT NOT NULL, every_us BIGINT,
            created_at_us BIGINT NOT NULL, {_LIFETIME})""",
        """CREATE UNIQUE INDEX tidemill_sources_live ON tidemill_sources (name_hash)
            WHERE dropped_snapshot IS NULL""",
    )


def views(connection: sa.Connection, now_us: int) -> None:
    """Version 4: definitions of views and digests, and what tables were before a change."""
    _execute(
        connection,
        "ALTER TABLE tidemill_tables ADD COLUMN definition TEXT",
        "ALTER TABLE tidemill_tables ADD COLUMN source_id BIGINT",
        """CREATE TABLE tidemill_former_tables (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables, name TEXT NOT NULL,
            definition TEXT, created_snapshot BIGINT NOT NULL, dropped_snapshot BIGINT NOT NULL,
            PRIMARY KEY (table_id, created_snapshot))""",
    )


def replaced(connection: sa.Connection, now_us: int) -> None:
    """Version 5: how many rows gave way to those of a package; of older ones nobody knows."""
    _execute(
        connection,
        "ALTER TABLE tidemill_packages ADD COLUMN replaced BIGINT NOT NULL DEFAULT 0",
    )


def generations(connection: sa.Connection, now_us: int) -> None:
    """Version 6: spans of time with generations do not overlap; anchors are found, not stored.

    Until now there was one generation for each pair of bounds that files ever had, so that a range
    merged of others began again with 1, and so did late rows behind it. What overlaps becomes one
    span and keeps the highest. Ranges of rows set aside are of arrival, those of deletes may reach
    over any number of partitions: neither have generations of their own any more.
    """
    kinds: dict[tuple[int, int, int], set[str]] = {}
    for *place, kind in connection.execute(
        sa.text("SELECT DISTINCT table_id, lo_us, hi_us, kind FROM tidemill_files")
    ):
        kinds.setdefault((place[0], place[1], place[2]), set()).add(kind)
    spans: list[list[int]] = []
    for *found, generation in connection.execute(
        sa.text(
            "SELECT table_id, lo_us, hi_us, generation FROM tidemill_partitions "
            "ORDER BY table_id, lo_us"
        )
    ):
        table_id, lo_us, hi_us = found
        if not kinds.get((table_id, lo_us, hi_us), {"rows"}) & {"rows", "digest"}:
            continue
        last = spans[-1] if spans else [0, 0, 0, 0]
        if last[0] == table_id and lo_us < last[2]:
            last[2], last[3] = max(last[2], hi_us), max(last[3], generation)
        else:
            spans.append([table_id, lo_us, hi_us, generation])
    _execute(
        connection,
        "DELETE FROM tidemill_partitions",
        "ALTER TABLE tidemill_files DROP COLUMN is_anchor",
    )
    for table_id, lo_us, hi_us, generation in spans:
        connection.execute(
            sa.text("INSERT INTO tidemill_partitions VALUES (:t, :lo, :hi, :g)"),
            {"t": table_id, "lo": lo_us, "hi": hi_us, "g": generation},
        )


def checksums(connection: sa.Connection, now_us: int) -> None:
    """Version 7: checksums of files, and sums of the catalog itself; older files have none."""
    _execute(
        connection,
        "ALTER TABLE tidemill_files ADD COLUMN checksums TEXT",
        """CREATE TABLE tidemill_sums (
            name TEXT NOT NULL PRIMARY KEY, row_count BIGINT NOT NULL, value TEXT NOT NULL)""",
    )


def changes(connection: sa.Connection, now_us: int) -> None:
    """Version 8: updates and deletes of streams, and up to which files have them."""
    _execute(
        connection,
        "ALTER TABLE tidemill_files ADD COLUMN changed BIGINT NOT NULL DEFAULT 0",
        f"""CREATE TABLE tidemill_changes (
            table_id BIGINT NOT NULL REFERENCES tidemill_tables, first_number BIGINT NOT NULL,
            last_number BIGINT NOT NULL, body TEXT NOT NULL, {_LIFETIME},
            PRIMARY KEY (table_id, first_number))""",
    )


MIGRATIONS: tuple[Migration, ...] = (
    base,
    owners_and_meta,
    history,
    views,
    replaced,
    generations,
    checksums,
    changes,
)
VERSION = len(MIGRATIONS)


def migrate(
    begin: Callable[[], AbstractContextManager[sa.Connection]],
    place: str,
    now_us: int,
    steps: tuple[Migration, ...] = MIGRATIONS,
) -> None:
    """Bring the database at ``begin`` to the newest version; ``place`` names it in errors."""
    with begin() as connection:
        version = _version(connection, place)
    for number in range(version + 1, len(steps) + 1):
        with begin() as connection:
            if sa.inspect(connection).has_table("tidemill_sums"):
                _execute(connection, "DELETE FROM tidemill_sums")
            steps[number - 1](connection, now_us)
            connection.execute(
                sa.text("UPDATE tidemill_catalog SET version = :number"), {"number": number}
            )


def _version(connection: sa.Connection, place: str) -> int:
    """The database's version, 0 for an empty one; an error for one that is not ours to use."""
    names = set(sa.inspect(connection).get_table_names())
    if "tidemill_catalog" not in names:
        if names:
            raise _not_ours(place, names)
        return 0
    version = connection.scalar(sa.text("SELECT version FROM tidemill_catalog"))
    if not version:
        raise CatalogError(
            f"catalog {place} is incomplete",
            detail="its version is missing",
            hint="restore it from a copy, or point the warehouse at an empty database",
        )
    if version > VERSION:
        raise CatalogError(
            f"catalog {place} has version {version}, which is newer than this Tidemill knows",
            detail=f"this Tidemill reads versions up to {VERSION}",
            hint="upgrade Tidemill, or open the warehouse with the release that wrote it",
        )
    return int(version)


def _not_ours(place: str, names: set[str]) -> CatalogError:
    half_made = any(name.startswith("tidemill_") for name in names)
    shown = ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")
    return CatalogError(
        f"catalog {place} is incomplete" if half_made else f"{place} is not a Tidemill catalog",
        detail=f"it holds {shown} and no tidemill_catalog",
        hint="restore it from a copy, or point the warehouse at an empty database or schema",
    )


def _execute(connection: sa.Connection, *statements: str) -> None:
    for statement in statements:
        connection.execute(sa.text(statement))
