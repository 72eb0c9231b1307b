"""Tidemill: a stream warehouse. One SQL database over data that is still arriving, data that
arrived years ago, and the tables that explain both.

>>> import tidemill
>>> db = tidemill.open("warehouse/")  # doctest: +SKIP
>>> db.sql("SELECT 1").fetchall()  # doctest: +SKIP
[(1,)]

The names below come with their first use: a Spark worker imports a room or two, never the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.engine import Database, open
    from tidemill.errors import TidemillError
    from tidemill.hot.intake import AppendResult
    from tidemill.result import Result

__all__ = ["AppendResult", "Database", "Result", "TidemillError", "open"]
__version__ = "0.1.0"

_ROOMS = {
    "AppendResult": "tidemill.hot.intake",
    "Database": "tidemill.engine",
    "Result": "tidemill.result",
    "TidemillError": "tidemill.errors",
    "open": "tidemill.engine",
}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        value = globals()[name] = getattr(import_module(_ROOMS[name]), name)
        return value
    if name in ("errors", "types"):  # what programs may name beside
        return import_module(f"tidemill.{name}")
    raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
