"""The catalog: what exists, in SQLite or PostgreSQL, one snapshot per commit.

1. The newest snapshot is a frozen object in memory; reading it costs nothing and never waits.
2. A transaction (``transaction``) writes rows and makes the next snapshot beside the old one;
   when the database has committed, the new object takes the old one's place. Writers take turns.
3. Rows are never changed, only ended, so an older snapshot can be read back until it expires.
   What is known besides snapshots is asked of ``records``.
4. A commit of unknown outcome (the connection broke while it was under way) is looked up. If even
   that fails, or if somebody else wrote, the catalog refuses to go on: it must be opened again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from tidemill.catalog import schema
from tidemill.catalog.connections import Connections
from tidemill.catalog.migrations import migrate
from tidemill.catalog.model import Snapshot
from tidemill.catalog.owner import describe_process
from tidemill.catalog.queries import find_move, read_snapshots
from tidemill.catalog.reading import (
    find_snapshot,
    find_snapshot_at,
    find_snapshot_from,
    read_head,
    read_snapshot,
)
from tidemill.catalog.records import Records
from tidemill.catalog.transaction import Transaction
from tidemill.catalog.urls import parse_url
from tidemill.clock import Clock, from_us
from tidemill.errors import CatalogError, ClosedError, UnknownNameError


class Catalog:
    """The one transactional store of a warehouse. Safe to use from many threads."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock
        self._session = uuid.uuid4().hex
        self._turn = threading.Lock()
        self._writing_thread: int | None = None
        self._refusal: CatalogError | None = None
        self._closed = False
        self.records = Records(self._reading)
        with connections.write() as connection, connections.translated():
            head = read_head(connection)
            if head is None:
                raise CatalogError(
                    f"catalog {connections.place} is incomplete",
                    detail="it has no snapshot",
                    hint="restore it from a copy",
                )
            # where nothing may be written, fail now and not at the first CREATE
            connection.execute(sa.update(schema.catalog).where(sa.false()).values(version=0))
            self._current = read_snapshot(connection, head)
            self.catalog_id = str(connection.scalar(sa.select(schema.catalog.c.catalog_id)))

    @classmethod
    def open(cls, url: str, clock: Clock) -> Catalog:
        """Open the catalog at a URL (see ``urls``), making or migrating it as needed."""
        connections = Connections(parse_url(url), describe_process(clock))
        try:
            connections.verify()
            with connections.translated():
                migrate(connections.write, connections.place, clock.now_us())
            connections.keep_sums()
            catalog = cls(connections, clock)
            connections.claim()
        except BaseException:
            connections.close(owned=False)
            raise
        return catalog

    @property
    def place(self) -> str:
        """Where the catalog lives, without passwords."""
        return self._connections.place

    def verify(self) -> None:
        """An error if what the database holds is not what was committed."""
        self._require_open()
        self._connections.verify()

    def close(self) -> None:
        """Let go of the database; closing twice is no error. Waits for a transaction under way."""
        with self._turn:
            if not self._closed:
                self._closed = True
                self._connections.close()

    def snapshot(self, snapshot_id: int | None = None) -> Snapshot:
        """The newest snapshot, or the one of that id."""
        self._require_open()
        current = self._current
        if snapshot_id is None or snapshot_id == current.snapshot_id:
            return current
        with self._connections.read() as connection:
            head = find_snapshot(connection, snapshot_id)
            found = self._read(connection, head)
            oldest = found or find_snapshot_from(connection, 0)
        if found is None:
            raise UnknownNameError(
                f"snapshot {snapshot_id} does not exist",
                hint=f"the snapshots are {oldest and oldest.snapshot_id} to {current.snapshot_id}",
            )
        return found

    def snapshot_at(self, at_us: int) -> Snapshot:
        """The snapshot that was the newest at a moment, in microseconds since 1970 UTC."""
        self._require_open()
        current = self._current
        if at_us >= current.committed_at_us:
            return current
        with self._connections.read() as connection:
            found = self._read(connection, find_snapshot_at(connection, at_us))
            oldest = found or find_snapshot_from(connection, 0)
        if found is None:
            since = f" is from {from_us(oldest.committed_at_us)}" if oldest else " is newer"
            raise UnknownNameError(
                f"there is no snapshot of {from_us(at_us)}",
                hint=f"the oldest that is kept{since}",
            )
        return found

    def snapshot_holding(self, table_id: int, seq: int, since_snapshot_id: int) -> Snapshot | None:
        """The first snapshot, of that id or later, with rows up to a number in files.

        None if rows are not moved that far yet, or if the table did not live by then.
        """
        self._require_open()
        with self._connections.read() as connection:
            first = find_move(connection, table_id, seq) if seq > 0 else since_snapshot_id
            if first is None:
                return None
            head = find_snapshot_from(connection, max(first, since_snapshot_id))
            found = self._read(connection, head)
        return found if found and found.table(table_id) else None

    def snapshots(self, count_max: int | None = None) -> list[tuple[int, int]]:
        """The snapshots that are kept, newest first: id and when it was committed (µs, UTC)."""
        self._require_open()
        with self._connections.read() as connection:
            return read_snapshots(connection, count_max)

    def _read(self, connection: sa.Connection, head: sa.Row[Any] | None) -> Snapshot | None:
        """The snapshot of a row; None if it was forgotten before it was read to the end."""
        if head is None:
            return None
        current = self._current
        if head.snapshot_id == current.snapshot_id:
            return current
        found = read_snapshot(connection, head, current)
        return found if find_snapshot(connection, head.snapshot_id) is not None else None

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """All changes made inside become one snapshot at the end, or, by an exception, none."""
        assert self._writing_thread != threading.get_ident(), "transactions do not nest"
        with self._turn:
            self._require_open()
            self._writing_thread = threading.get_ident()
            try:
                yield from self._transaction()
            finally:
                self._writing_thread = None

    def _transaction(self) -> Iterator[Transaction]:
        if self._refusal is not None:
            raise self._refusal
        made: Snapshot | None = None
        try:
            with self._connections.write() as connection:
                self._check_head(connection)
                translated = self._connections.translated
                change = Transaction(connection, self._current, self._clock.now_us(), translated)
                yield change
                made = change.finish(self._clock.now_us(), self._session)
        except BaseException as error:  # also Ctrl-C in the middle of a commit
            if made is None or not self._was_stored(made):
                raise
            self._current = made
            if not isinstance(error, CatalogError):
                raise
        else:
            self._current = made

    def _check_head(self, connection: sa.Connection) -> None:
        with self._connections.translated():
            head = read_head(connection)
        if head is None or head.snapshot_id != self._current.snapshot_id:
            self._refusal = CatalogError(
                f"catalog {self.place} was changed by another process",
                detail=f"the newest snapshot is {head and head.snapshot_id} and should be "
                f"{self._current.snapshot_id}",
                hint="close the warehouse and open it again",
            )
            raise self._refusal

    def _was_stored(self, made: Snapshot) -> bool:
        """Whether a commit that reported a fault took place all the same."""
        try:
            with self._connections.write() as connection, self._connections.translated():
                head = read_head(connection)
        except CatalogError as error:
            self._refusal = CatalogError(
                f"catalog {self.place} may or may not hold the last change",
                detail=error.detail,
                hint="close the warehouse and open it again",
            )
            return False
        return (
            head is not None
            and head.snapshot_id == made.snapshot_id
            and head.session == self._session
            and made.snapshot_id != self._current.snapshot_id
        )

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        self._require_open()
        with self._connections.read() as connection:
            yield connection

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the catalog is closed", hint="open the warehouse again")
