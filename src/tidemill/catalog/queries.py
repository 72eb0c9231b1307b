"""What is asked of the catalog besides snapshots: progress, packages, marks, moves, paths,
and files that came and went."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from tidemill.catalog import schema
from tidemill.catalog.commits import ChangeSet
from tidemill.catalog.filing import FILE_COLUMNS, IDS_MAX, file_of, package_of
from tidemill.catalog.model import FILE_REPLACED, DataFile, Package


def read_snapshots(connection: sa.Connection, count_max: int | None) -> list[tuple[int, int]]:
    """Ids and times of snapshots, newest first."""
    snapshots = schema.snapshots.c
    query = sa.select(snapshots.snapshot_id, snapshots.committed_at_us)
    newest = query.order_by(snapshots.snapshot_id.desc()).limit(count_max)
    return [(row.snapshot_id, row.committed_at_us) for row in connection.execute(newest)]


def find_move(connection: sa.Connection, table_id: int, seq: int) -> int | None:
    """The first snapshot with a table's rows up to a number in files."""
    moves = schema.moves.c
    reaching = sa.select(moves.created_snapshot).where(
        moves.table_id == table_id, moves.moved_seq >= seq
    )
    return connection.scalar(reaching.order_by(moves.moved_seq).limit(1))


def read_progress(connection: sa.Connection, table_id: int) -> str | None:
    histories = schema.histories.c
    wanted = sa.select(histories.progress).where(histories.table_id == table_id)
    return connection.scalar(wanted)


def read_seq_at(connection: sa.Connection, table_id: int, at_us: int) -> int | None:
    """Marks grow with time, so the last one at or before a moment is the largest."""
    marks = schema.marks.c
    before = sa.select(marks.seq).where(marks.table_id == table_id, marks.at_us <= at_us)
    return connection.scalar(before.order_by(marks.at_us.desc()).limit(1))


def read_known_paths(connection: sa.Connection) -> set[str]:
    return set(connection.scalars(sa.select(schema.files.c.path)))


def read_known_files(connection: sa.Connection) -> list[DataFile]:
    query = sa.select(*FILE_COLUMNS).order_by(schema.files.c.file_id)
    return [file_of(row) for row in connection.execute(query)]


def read_dropped_files(
    connection: sa.Connection, table_id: int, after_id: int, upto_id: int
) -> list[DataFile]:
    files = schema.files.c
    ended = files.dropped_snapshot > after_id  # an index finds them, however many files live
    is_asked = sa.or_(files.dropped_snapshot <= upto_id, files.kind == FILE_REPLACED)
    mine = sa.and_(files.table_id == table_id, files.created_snapshot > after_id)
    query = sa.select(*FILE_COLUMNS).where(ended, is_asked, mine).order_by(files.file_id)
    return [file_of(row) for row in connection.execute(query)]


def read_changes(connection: sa.Connection, table_id: int, is_live: bool) -> list[ChangeSet]:
    """Sets of changes of a table by their numbers; those that nothing needs any more as well,
    while a snapshot knows of them, unless it is the live ones that are wanted."""
    c = schema.changes.c
    mine = c.table_id == table_id
    which = sa.and_(mine, c.dropped_snapshot.is_(None)) if is_live else mine
    query = sa.select(c.first_number, c.last_number, c.body).where(which).order_by(c.first_number)
    return [ChangeSet(*row) for row in connection.execute(query)]


def read_packages(
    connection: sa.Connection, table_id: int, names: Iterable[str] | None
) -> list[Package]:
    """Packages in the order of loading; several may have one name, with other contents."""
    packages = schema.packages
    mine = sa.select(packages).where(packages.c.table_id == table_id)
    if names is None:
        queries = [mine]
    else:
        hashes = sorted({schema.text_hash(name) for name in names})
        parts = (hashes[at : at + IDS_MAX] for at in range(0, len(hashes), IDS_MAX))
        queries = [mine.where(packages.c.name_hash.in_(part)) for part in parts]
    found = [package_of(row) for query in queries for row in connection.execute(query)]
    return sorted(found, key=lambda each: (each.loaded_at_us, each.name, each.size, each.digest))
