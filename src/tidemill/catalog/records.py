"""Records: what the catalog knows besides snapshots. Each question is one short read.

Progress of digests, packages that were loaded, marks, the files of all snapshots, and texts of the
database itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import sqlalchemy as sa

from tidemill.catalog import schema
from tidemill.catalog.commits import ChangeSet
from tidemill.catalog.model import DataFile, Package
from tidemill.catalog.queries import (
    read_changes,
    read_dropped_files,
    read_known_files,
    read_known_paths,
    read_packages,
    read_progress,
    read_seq_at,
)

Reading = Callable[[], AbstractContextManager[sa.Connection]]
"""Gives a connection to read by; refuses when the catalog is closed."""


class Records:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def progress(self, table_id: int) -> str | None:
        """The text that the last commit of files with one left."""
        with self._reading() as connection:
            return read_progress(connection, table_id)

    def packages(self, table_id: int, names: Iterable[str] | None = None) -> list[Package]:
        """Packages of a table, all or those of some names, oldest first."""
        with self._reading() as connection:
            return read_packages(connection, table_id, names)

    def seq_at(self, table_id: int, at_us: int) -> int | None:
        """The last sequence number at a moment, as far as marks tell."""
        with self._reading() as connection:
            return read_seq_at(connection, table_id, at_us)

    def dropped_files(self, table_id: int, after_id: int, upto_id: int) -> list[DataFile]:
        """The files of a table that were named after one snapshot and were gone with another, and
        all files of replaced rows that were named since: what neither of the two can read."""
        with self._reading() as connection:
            return read_dropped_files(connection, table_id, after_id, upto_id)

    def changes(self, table_id: int, *, is_live: bool = True) -> list[ChangeSet]:
        """Sets of changes by their numbers: those that are needed, or all that are known."""
        with self._reading() as connection:
            return read_changes(connection, table_id, is_live)

    def known_paths(self) -> set[str]:
        """The paths of all files that some snapshot, also an older one, may see."""
        with self._reading() as connection:
            return read_known_paths(connection)

    def known_files(self) -> list[DataFile]:
        """All files that some snapshot, also an older one, may see."""
        with self._reading() as connection:
            return read_known_files(connection)

    def get_meta(self, key: str) -> str | None:
        """The text kept under a key of the database."""
        with self._reading() as connection:
            wanted = sa.select(schema.meta.c.value).where(schema.meta.c.key == key)
            value: str | None = connection.scalar(wanted)
        return value
