"""What the databases' drivers raise, said in our words: nothing of SQLAlchemy leaves the catalog.

A fault is classified by the driver's own code (SQLite's result code, PostgreSQL's SQLSTATE), never
by the wording of its message.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import exc

from tidemill.errors import CatalogError

_DISK_FULL = ("has no space left", "free some space; work goes on when space returns")
_DENIED = ("may not be read or written", "check the permissions and the owner of the place")
_DAMAGED = ("is damaged", "restore it from a copy; the rows in the log are not touched")
_INCOMPLETE = ("is incomplete", "restore it from a copy; it was changed by something else")
_BUSY = ("is locked by another program", "close the program that has it open, and try again")
_LOST = ("lost its connection", "check that the server runs; the next statement connects again")
_CREDENTIALS = ("refused the login", "check user, password and database in the catalog's URL")
_ABSENT = ("cannot be reached", "check the place, that it exists and that its server runs")
_OCCUPIED = ("has no connection left", "raise the server's limit, or close other clients")
_CHANGED = ("was changed by another process", "close the warehouse and open it again")
_FAILED = ("failed", "the detail is the database's own message")

_Sentence = tuple[str, str]

_BY_SQLITE_CODE: dict[int, _Sentence] = {
    sqlite3.SQLITE_FULL: _DISK_FULL,
    sqlite3.SQLITE_READONLY: _DENIED,
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_AUTH: _DENIED,
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check that the folder exists and is writable"),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: ("is not a SQLite database", "restore it from a copy"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "check the disk"),
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_ERROR: _INCOMPLETE,
    sqlite3.SQLITE_CONSTRAINT: _CHANGED,
}

_BY_SQLSTATE: dict[str, _Sentence] = {
    "53100": _DISK_FULL,
    "53300": _OCCUPIED,
    "42501": _DENIED,
    "25006": _DENIED,
    "3D000": _ABSENT,
    "3F000": ("has no schema to live in", "create the schema that the URL's search_path names"),
    "42P01": _INCOMPLETE,
    "42703": _INCOMPLETE,
    "23505": _CHANGED,
    "55P03": _BUSY,
}
_BY_SQLSTATE_CLASS: dict[str, _Sentence] = {
    "08": _LOST,
    "57": _LOST,
    "28": _CREDENTIALS,
    "53": ("has no resources left", "look into the server's log"),
    "XX": _DAMAGED,
}


@contextmanager
def translated(place: str, secret: str | None = None) -> Iterator[None]:
    """Inside, a driver's fault becomes a CatalogError that names ``place``."""
    try:
        yield
    except (exc.SQLAlchemyError, sqlite3.Error) as error:
        raise fault(place, error, secret) from error


def fault(place: str, error: Exception, secret: str | None = None) -> CatalogError:
    """The error to show for a driver's fault; ``secret`` is struck out wherever it appears."""
    what, hint = _sentence(error)
    cause = getattr(error, "orig", None) or error
    detail = " ".join(str(cause).split())
    if secret:
        detail = detail.replace(secret, "***")
    return CatalogError(f"catalog {place} {what}", detail=detail, hint=hint)


def is_lost(error: Exception) -> bool:
    """Whether the fault is a connection that is gone, so that a new one may do better."""
    return isinstance(error, exc.DBAPIError) and error.connection_invalidated


def _sentence(error: Exception) -> _Sentence:
    if isinstance(error, exc.TimeoutError):
        return _OCCUPIED
    cause = getattr(error, "orig", None) or error
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", None)
        return _FAILED if code is None else _BY_SQLITE_CODE.get(code & 0xFF, _FAILED)
    state = getattr(cause, "sqlstate", None)
    if state:
        return _BY_SQLSTATE.get(state) or _BY_SQLSTATE_CLASS.get(state[:2], _FAILED)
    attempt = getattr(cause, "pgconn", None)  # a failed login has no SQLSTATE
    if attempt is not None and (attempt.needs_password or attempt.used_password):
        return _CREDENTIALS
    if is_lost(error):
        return _LOST
    return _ABSENT if isinstance(error, exc.OperationalError) else _FAILED


def password_of(url: sa.URL) -> str | None:
    """The password in a URL, wherever it stands."""
    given = url.password or url.query.get("password")
    return given if isinstance(given, str) else None
