"""Sums of a SQLite catalog: what its tables hold, so that damage to the file is found.

SQLite has no checksums of its own outside its log, and its ``integrity_check`` looks at the
structure of a file and not at the values in it. So the catalog keeps, in ``tidemill_sums``:

1. for each table, how many rows it has and the sum of their hashes, which does not depend on their
   order. Triggers of the writer's connection keep both up to date inside each transaction; they are
   temporary and made from the columns that the tables have, so no version of the schema names them;
2. the hash of the schema itself;
3. how many transactions were committed. The same number goes to the file ``<catalog>.head`` after
   each commit: SQLite ignores its own log from a damaged place on, and then the catalog knows fewer
   transactions than the file. The file is never ahead of the catalog, so it needs no fsync.

All are compared when the catalog is opened and by VACUUM. A migration clears them in its own
transaction, and what is empty is made again: a catalog of an older version has none. PostgreSQL has
checksums of its own, so a catalog there has no sums.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

from tidemill.checksums import crc32
from tidemill.errors import CatalogError

VERSION_WITH_SUMS = 7
TABLE = "tidemill_sums"
COMMITS, SCHEMA = "commits", "schema"
_FUNCTION = "tidemill_sum"
_MASK = 2**64 - 1
_log = logging.getLogger("tidemill.catalog")


def clear(dbapi: sqlite3.Connection) -> None:
    """Forget the sums, since what follows changes the schema."""
    if TABLE in _table_names(dbapi):
        dbapi.execute(f"DELETE FROM {TABLE}")


def fill(dbapi: sqlite3.Connection) -> None:
    """Make the sums of all tables, if there are none; inside the caller's transaction."""
    if dbapi.execute(f"SELECT count(*) FROM {TABLE}").fetchone()[0]:
        return
    rows = [(name, *_sum_of(dbapi, name)) for name in _summed_tables(dbapi)]
    rows += [(SCHEMA, 1, _schema_hash(dbapi)), (COMMITS, 0, "0")]
    dbapi.executemany(f"INSERT INTO {TABLE} VALUES (?, ?, ?)", rows)


def watch(dbapi: sqlite3.Connection) -> None:
    """Have the writer's connection keep the sums up to date."""
    dbapi.create_function(_FUNCTION, -1, _added, deterministic=True)
    for name in _summed_tables(dbapi):
        columns = [row[1] for row in dbapi.execute(f'PRAGMA table_info("{name}")')]
        new, old = (", ".join(f'{row}."{each}"' for each in columns) for row in ("NEW", "OLD"))
        for event, change, value in (
            ("INSERT", 1, f"{_FUNCTION}(value, 1, {new})"),
            ("DELETE", -1, f"{_FUNCTION}(value, -1, {old})"),
            ("UPDATE", 0, f"{_FUNCTION}({_FUNCTION}(value, -1, {old}), 1, {new})"),
        ):
            dbapi.execute(
                f'CREATE TEMP TRIGGER IF NOT EXISTS "tm_{event}_{name}" AFTER {event} ON '
                f'main."{name}" BEGIN UPDATE {TABLE} SET row_count = row_count + {change}, '
                f"value = {value} WHERE name = '{name}'; END"
            )


def count_commit(dbapi: sqlite3.Connection) -> int:
    """Count the transaction that is about to be committed; answers the count."""
    row = dbapi.execute(
        f"UPDATE {TABLE} SET row_count = row_count + 1 WHERE name = ? RETURNING row_count",
        (COMMITS,),
    ).fetchone()
    return int(row[0]) if row else 0


def verify(dbapi: sqlite3.Connection, place: str, known: int | None, head: Head | None) -> None:
    """An error if the catalog is not what was committed. A fault of SQLite is the caller's, who
    has begun a transaction, and before that read from ``head`` how many commits are ``known``."""
    names = _table_names(dbapi)
    if "tidemill_catalog" not in names:
        return  # new, or not ours: the migrations say so
    found = [row[0] for row in dbapi.execute("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        raise _damaged(place, "; ".join(found))
    if TABLE not in names:
        version = dbapi.execute("SELECT max(version) FROM tidemill_catalog").fetchone()[0]
        if not isinstance(version, int) or version >= VERSION_WITH_SUMS:
            raise _damaged(place, f"table {TABLE} is missing")
        return
    sums = {name: (count, value) for name, count, value in dbapi.execute(f"SELECT * FROM {TABLE}")}
    if not sums:
        return  # a migration was the last to write
    commits = sums.pop(COMMITS, (None, ""))[0]
    if sums.pop(SCHEMA, None) != (1, _schema_hash(dbapi)):
        raise _damaged(place, "its schema is not what it was")
    if set(sums) != set(_summed_tables(dbapi)):
        raise _damaged(place, "tables are missing")
    for name, kept in sums.items():
        if _sum_of(dbapi, name) != kept:
            raise _damaged(place, f"the rows of {name} are not those that were written")
    if not isinstance(commits, int):
        raise _damaged(place, "the count of transactions is missing")
    if head is not None and known is not None and known > commits:
        raise _lost(place, commits, known, head)


class Head:
    """The file beside the catalog that says how many transactions it has."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> int | None:
        """The count; None if there is none, or if this file itself is damaged."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        number, _, check = content.partition(b" ")
        if check.strip() != b"%08x" % crc32(number) or not number.isdigit():
            _log.warning("%s is damaged and is made anew; the catalog is not concerned", self.path)
            return None
        return int(number)

    def write(self, commits: int) -> None:
        number = b"%020d" % commits
        with suppress(OSError):  # it is then behind, which is no error
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(handle, b"%s %08x\n" % (number, crc32(number)), 0)
            finally:
                os.close(handle)


def _lost(place: str, commits: int, known: int, head: Head) -> CatalogError:
    return CatalogError(
        f"catalog {place} has lost its last transactions",
        detail=f"it has {commits} of {known}; its log (-wal) was damaged or removed",
        hint="restore it from a copy with all its files; if it is an older copy on purpose, "
        f"remove {head.path}",
    )


def _damaged(place: str, reason: str) -> CatalogError:
    return CatalogError(
        f"catalog {place} is damaged",
        detail=reason,
        hint="restore it from a copy; the rows in the log are not touched. If it was changed by "
        f"hand on purpose, run DELETE FROM {TABLE}",
    )


def _table_names(dbapi: sqlite3.Connection) -> list[str]:
    rows = dbapi.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY name")
    return [name for (name,) in rows]


def _summed_tables(dbapi: sqlite3.Connection) -> list[str]:
    mine = (name for name in _table_names(dbapi) if name.startswith("tidemill_"))
    return [name for name in mine if name != TABLE]


def _schema_hash(dbapi: sqlite3.Connection) -> str:
    rows = dbapi.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_master ORDER BY name")
    return hashlib.blake2b(repr(rows.fetchall()).encode(), digest_size=16).hexdigest()


def _sum_of(dbapi: sqlite3.Connection, name: str) -> tuple[int, str]:
    total = count = 0
    for row in dbapi.execute(f'SELECT * FROM "{name}" NOT INDEXED'):
        total += _hash(row)
        count += 1
    return count, str(total & _MASK)


def _hash(row: tuple[Any, ...]) -> int:
    digest = hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _added(value: str, sign: int, *row: Any) -> str:
    """A sum with a row more or less; as text, since SQLite's integers are signed."""
    return str((int(value) + sign * _hash(row)) & _MASK)
