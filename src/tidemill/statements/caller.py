"""The caller's variables: data frames that a query may name as if they were tables.

``SELECT … FROM df`` reads a local or global variable of the caller of ``db.sql``, as in DuckDB,
if the catalog has no table of that name. Variables are looked at only when a name is not known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType

import pyarrow as pa

from tidemill.errors import TidemillError, UnknownNameError
from tidemill.frames import as_table, is_frame

Find = Callable[[str], object]
"""The value of a variable; None if there is none of that name."""


def variables_of(depth: int) -> Find:
    """The variables of a caller, ``depth`` calls above the one that asks."""
    frame: FrameType = sys._getframe(depth + 1)

    def find(name: str) -> object:
        value = frame.f_locals.get(name)
        return frame.f_globals.get(name) if value is None else value

    return find


def frames_of(
    names: Iterable[str], find: Find | None, unknown: UnknownNameError
) -> Mapping[str, pa.Table]:
    """The caller's frames of these names; ``unknown`` is what to raise if there are none.

    A variable that is no frame makes the error say so."""
    if find is None:
        raise unknown
    frames = {}
    for name in names:
        value = find(name)
        if is_frame(value):
            frames[name] = _table(name, value)
        elif value is not None and f'"{name}"' in unknown.message:
            unknown.detail = f"the variable {name} is a {type(value).__name__}"
            unknown.hint = "queries read pandas and Polars data frames and Arrow tables by name"
    if not frames:
        raise unknown
    return frames


def _table(name: str, value: object) -> pa.Table:
    try:
        table = as_table(value)
    except TidemillError as error:
        message = f"the variable {name} cannot be read as a table"
        raise UnknownNameError(message, detail=error.detail, hint=error.hint) from error
    assert table is not None
    return table.replace_schema_metadata(None)
