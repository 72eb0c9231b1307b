"""Tidemill: a stream warehouse. One SQL database over data that is still arriving, data that
arrived years ago, and the tables that explain both.

>>> import tidemill
>>> db = tidemill.open("warehouse/")  # doctest: +SKIP
>>> db.sql("SELECT 1").fetchall()  # doctest: +SKIP
[(1,)]

``open`` takes a warehouse into possession; ``connect`` reaches one that another process has open,
with the same methods. Both come with their first use: a program that connects loads no engine.
"""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill import errors, types
    from tidemill.engine import Database
    from tidemill.errors import TidemillError
    from tidemill.result import AppendResult, Result
    from tidemill.server.opening import open
    from tidemill.server.remote import RemoteDatabase, connect

__all__ = [
    "AppendResult",
    "Database",
    "RemoteDatabase",
    "Result",
    "TidemillError",
    "connect",
    "errors",
    "open",
    "types",
]
__version__ = "0.1.0"

_ROOMS = {
    "AppendResult": "tidemill.result",
    "Database": "tidemill.engine",
    "RemoteDatabase": "tidemill.server.remote",
    "Result": "tidemill.result",
    "TidemillError": "tidemill.errors",
    "connect": "tidemill.server.remote",
    "open": "tidemill.server.opening",
}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        value = globals()[name] = getattr(_load(_ROOMS[name]), name)
        return value
    if name in ("errors", "types"):  # what programs may name beside
        return import_module(f"tidemill.{name}")
    raise AttributeError(f"module 'tidemill' has no attribute {name!r}")


def _load(name: str) -> ModuleType:
    """Import a room. What modules make lives on, so that looking for garbage meanwhile is a waste:
    a fifth of the time it takes to load the engine."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if was_enabled:
            gc.enable()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
