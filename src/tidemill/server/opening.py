"""Opening a warehouse: the database, and the local socket by which others reach it.

This is ``tidemill.open``. The engine knows nothing of servers, so the two are put together here.
"""

from __future__ import annotations

import logging
from pathlib import Path

from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.server.local import LocalServer

_log = logging.getLogger("tidemill")


def open(path: str | Path, *, create: bool = True, **settings: object) -> Database:
    """Open a warehouse folder. One process owns it until ``close``.

    With ``create``, a folder that is absent or empty becomes a warehouse. One that holds anything
    else is refused.

    Other processes of the user can connect to it meanwhile (``tidemill.connect``), unless
    ``serve_local = 'off'`` says otherwise."""
    database = Database(Path(path), Settings(DATABASE_SETTINGS, settings), create=create)
    try:
        serve(database)
    except BaseException:
        database.close()
        raise
    return database


def serve(database: Database) -> LocalServer | None:
    """Serve a database until it is closed, if its settings say so."""
    if database.settings["serve_local"] == "off":
        database.owner.update(serves=False)
        return None
    try:
        server = LocalServer(database)
    except OSError as error:  # no sockets here at all; the warehouse itself works without
        _log.warning("%s takes no connections: %s", database.path, error)
        database.owner.update(serves=False)
        return None
    database.close_first(server.close)
    return server
