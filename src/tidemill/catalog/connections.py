"""The catalog's way to its database: one writer that lasts, readers that come and go.

All commits go through the writer's one connection. On PostgreSQL this connection also holds a
session-level advisory lock, so the right to the catalog and the ability to write to it are lost
together: a process whose connection broke cannot write until it has the lock again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from tidemill.catalog import schema, sums
from tidemill.catalog.faults import is_lost, password_of, translated
from tidemill.catalog.owner import owned_error
from tidemill.catalog.urls import shown
from tidemill.errors import MissingPackageError, OwnedError
from tidemill.permissions import make_file

READERS_MAX = 8
READER_WAIT_S = 30
CONNECT_WAIT_S = 10
BUSY_WAIT_S = 5
OWNER_WAIT_MS = 1_000
"""How long to wait for a PostgreSQL catalog whose owner died: the server may need a moment."""

_BEGIN = "tidemill_begin"


class Connections:
    """Connections to one database; ``place`` is its name in errors."""

    def __init__(self, url: sa.URL, owner: Mapping[str, object]) -> None:
        self.place = shown(url)
        self._secret = password_of(url)
        self._owner = owner
        self._is_sqlite = url.get_backend_name() == "sqlite"
        self._writer: sa.Connection | None = None
        self._is_summed = False
        is_file = self._is_sqlite and url.database and url.database != ":memory:"
        self._head = sums.Head(Path(f"{url.database}.head")) if is_file else None
        with self.translated():
            self._engine = _sqlite_engine(url) if self._is_sqlite else _postgres_engine(url)

    def translated(self) -> AbstractContextManager[None]:
        """A context in which a driver's fault becomes a CatalogError about this place."""
        return translated(self.place, self._secret)

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        with self.translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction of the writer; committed at the end, undone by an exception.

        The caller keeps writers apart, and translates faults of its own statements.
        """
        with self.translated():
            connection = self._begun()
        try:
            yield connection
        except BaseException:
            self._undo(connection)
            raise
        try:
            with self.translated():
                commits = sums.count_commit(_raw(connection)) if self._is_summed else None
                connection.commit()
        except BaseException:
            self._drop_writer()  # it may still be inside the transaction, and see it as done
            raise
        if commits is not None and self._head is not None:
            self._head.write(commits)

    def verify(self) -> None:
        """An error if a SQLite catalog is not what was committed (see ``sums``)."""
        if self._is_sqlite:
            known = None if self._head is None else self._head.read()  # first: commits go on
            with self.read() as connection, connection.begin():  # sums and rows of one moment
                sums.verify(_raw(connection), self.place, known, self._head)

    def keep_sums(self) -> None:
        """Make the sums of a SQLite catalog, if it has none, and keep them from now on."""
        if self._is_sqlite:
            with self.write() as connection, self.translated():
                sums.fill(_raw(connection))
            assert self._writer is not None
            with self.translated():
                sums.watch(_raw(self._writer))
            self._is_summed = True

    def claim(self) -> None:
        """Write our name into a shared catalog, for whoever is refused.

        A SQLite catalog needs none: it lies in the folder that ``owner.lock`` guards.
        """
        if self._is_sqlite:
            return
        with self.write() as connection, self.translated():
            connection.execute(sa.delete(schema.owners))
            row = {"singleton": 1, "info": json.dumps(dict(self._owner))}
            connection.execute(sa.insert(schema.owners).values(row))

    def close(self, *, owned: bool = True) -> None:
        """Let go of the catalog; a fault on the way out is not worth an error."""
        if self._writer is not None:
            with suppress(exc.SQLAlchemyError):
                if owned and not self._is_sqlite and not self._writer.invalidated:
                    self._writer.execute(sa.delete(schema.owners))
                    self._writer.commit()
            self._drop_writer()
        self._engine.dispose()

    def _begun(self) -> sa.Connection:
        """The writer, in a transaction; a connection that died while idle is replaced once."""
        try:
            return self._begin()
        except exc.DBAPIError as error:
            if not is_lost(error):
                raise
            self._drop_writer()
            return self._begin()

    def _begin(self) -> sa.Connection:
        writer = self._writer or self._connect()
        self._writer = writer
        try:
            writer.begin()
            writer.exec_driver_sql("SELECT 1")
        except BaseException:
            self._undo(writer)
            raise
        return writer

    def _connect(self) -> sa.Connection:
        writer = self._engine.connect()
        try:
            writer = writer.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
            if not self._is_sqlite:
                _lock(writer, self.place)
            elif self._is_summed:
                sums.watch(_raw(writer))
        except BaseException:
            writer.invalidate()
            writer.close()
            raise
        return writer

    def _undo(self, writer: sa.Connection) -> None:
        """Roll back, and drop a connection that cannot even do that: its lock may be gone."""
        with suppress(exc.SQLAlchemyError):
            writer.rollback()
            if not writer.invalidated:
                return
        self._drop_writer()

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(exc.SQLAlchemyError):
                writer.invalidate()  # a connection with our lock must not go back to the pool
                writer.close()


def _raw(connection: sa.Connection) -> sqlite3.Connection:
    """SQLite's own connection, in the transaction that is under way."""
    raw = connection.connection.dbapi_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    if url.database:
        with suppress(OSError):  # SQLite says what is wrong
            make_file(url.database)  # what SQLite makes beside it, it makes with the same mode
    engine = sa.create_engine(
        url,
        connect_args={"timeout": BUSY_WAIT_S, "check_same_thread": False},
        poolclass=sa.QueuePool,
        pool_size=2,
        max_overflow=READERS_MAX,
        pool_timeout=READER_WAIT_S,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(dbapi: Any, _record: Any) -> None:
    dbapi.isolation_level = None  # we say BEGIN ourselves: the driver would leave DDL outside
    try:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            dbapi.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        dbapi.close()
        raise


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))


def _postgres_engine(url: sa.URL) -> sa.Engine:
    try:
        return sa.create_engine(
            url,
            connect_args={"connect_timeout": CONNECT_WAIT_S, "application_name": "tidemill"},
            poolclass=sa.QueuePool,
            pool_size=2,
            max_overflow=READERS_MAX,
            pool_timeout=READER_WAIT_S,
            pool_pre_ping=True,
        )
    except ImportError as error:
        what = "a catalog in PostgreSQL"
        raise MissingPackageError.of(what, "psycopg", "postgres") from error


def _lock(writer: sa.Connection, place: str) -> None:
    """Take the catalog's advisory lock for this session, or say who has it."""
    name = writer.scalar(sa.text("SELECT current_schema()"))
    digest = hashlib.sha256(f"tidemill {name}".encode()).digest()
    key = int.from_bytes(digest[:8], "big", signed=True)
    try:
        writer.execute(sa.text(f"SET LOCAL lock_timeout = {OWNER_WAIT_MS}"))
        writer.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": key})
        writer.commit()
    except exc.OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != "55P03":
            raise
        writer.rollback()
        raise _owned(writer, place) from None


def _owned(connection: sa.Connection, place: str) -> OwnedError:
    info: object = None
    with suppress(exc.SQLAlchemyError, ValueError):
        info = json.loads(connection.scalar(sa.select(schema.owners.c.info)) or "null")
    return owned_error(f"catalog {place}", info if isinstance(info, dict) else {})
