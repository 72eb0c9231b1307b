"""Where a catalog lives: the URL a user gives, as SQLAlchemy wants it and as errors show it."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from tidemill.errors import CatalogError

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql+psycopg://", "postgresql://", "postgres://")
_HINT = f"use {_SQLITE}<path> or {_POSTGRES[1]}<user>@<host>/<database>"


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite catalog in a file.

    >>> sqlite_url(Path("/warehouse/catalog.db"))
    'sqlite:////warehouse/catalog.db'
    """
    return f"{_SQLITE}{path}"


def parse_url(text: str) -> sa.URL:
    """The URL with the driver we ship; everything after ``sqlite:///`` is a path, verbatim.

    >>> parse_url("postgres://me:secret@db/tm")
    postgresql+psycopg://me:***@db/tm
    """
    if text.startswith(_SQLITE) and len(text) > len(_SQLITE):
        return sa.URL.create("sqlite", database=text[len(_SQLITE) :])
    for prefix in _POSTGRES:
        if text.startswith(prefix):
            return _postgres_url(_POSTGRES[0] + text[len(prefix) :])
    scheme = text.partition(":")[0][:40]
    raise CatalogError(f'catalog URL of kind "{scheme}" is not supported', hint=_HINT)


def shown(url: sa.URL) -> str:
    """The URL as an error or a status line may show it: in quotes, without a password."""
    if url.drivername == "sqlite":
        return f'"{url.database}"'
    plain = url.update_query_dict({"password": "***"}) if "password" in url.query else url
    return f'"{plain.render_as_string(hide_password=True)}"'


def _postgres_url(text: str) -> sa.URL:
    try:
        return sa.make_url(text)
    except (ArgumentError, ValueError):
        # the parser's message quotes parts of the text, which may be parts of a password
        raise CatalogError("catalog URL cannot be read", hint=_HINT) from None
