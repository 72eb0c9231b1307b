"""Python values on the wire: parameters and rows as a program gives them, in MessagePack.

Both sides see the same values, so the owner casts and refuses exactly what it would if the rows
came from its own process. Types that MessagePack lacks travel as extensions. Nothing here runs
code that came over the wire, and nesting is bounded by the decoder.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import ormsgpack

from tidemill.errors import ProtocolError, RowsRejectedError
from tidemill.rendering import from_numpy

_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_NON_STR_KEYS
)
_INTEGER, _DECIMAL, _DATE, _DATETIME, _TIME, _SPAN, _UUID = range(7)
_MISSING = ("NAType", "NaTType")  # pandas's own NULLs


def encode(value: object) -> bytes:
    """Values as bytes; an error that names the type of one that cannot be sent."""
    refused: list[RowsRejectedError] = []

    def extension(value: Any) -> Any:
        try:
            return _extension(value)
        except RowsRejectedError as error:  # the encoder would hide it
            refused.append(error)
            raise

    try:
        return bytes(ormsgpack.packb(value, default=extension, option=_OPTIONS))
    except ormsgpack.MsgpackEncodeError as error:
        if refused:
            raise refused[0] from None
        raise RowsRejectedError(
            "the values cannot be sent to the process that owns the warehouse", detail=str(error)
        ) from error


def decode(body: bytes | bytearray) -> Any:
    """What ``encode`` was given; tuples come as lists."""
    try:
        return ormsgpack.unpackb(bytes(body), ext_hook=_value, option=ormsgpack.OPT_NON_STR_KEYS)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise ProtocolError("the values of a frame cannot be read", detail=str(error)) from error


def _extension(value: Any) -> Any:
    """A value that MessagePack lacks: as an extension, or as a plain value that it has."""
    if type(value).__name__ in _MISSING:
        return None
    if getattr(value, "nanosecond", 0):  # of pandas; a text, for the owner to round or to refuse
        return str(value)
    for kind, tag, text in _KINDS:
        if isinstance(value, kind):
            return ormsgpack.Ext(tag, text(value).encode())
    if (plain := from_numpy(value)) is not value:
        return plain
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Sequence):
        return list(value)
    raise RowsRejectedError(
        f"a value of type {type(value).__name__} cannot be stored; nothing was stored",
        hint="give numbers, texts, bytes, dates and times, UUIDs, or lists and dicts of these",
    )


def _span(value: dt.timedelta) -> str:
    return f"{value.days} {value.seconds} {value.microseconds}"


def _to_span(text: str) -> dt.timedelta:
    days, seconds, microseconds = map(int, text.split())
    return dt.timedelta(days, seconds, microseconds)


# In the order of the tests: a datetime is a date too, and a bool never comes here.
_KINDS: tuple[tuple[type, int, Callable[[Any], str]], ...] = (
    (int, _INTEGER, lambda value: str(int(value))),
    (Decimal, _DECIMAL, str),
    (dt.datetime, _DATETIME, lambda value: value.isoformat()),
    (dt.date, _DATE, lambda value: value.isoformat()),
    (dt.time, _TIME, lambda value: value.isoformat()),
    (dt.timedelta, _SPAN, _span),
    (UUID, _UUID, str),
)
_READERS: dict[int, Callable[[str], Any]] = {
    _INTEGER: int,
    _DECIMAL: Decimal,
    _DATE: dt.date.fromisoformat,
    _DATETIME: dt.datetime.fromisoformat,
    _TIME: dt.time.fromisoformat,
    _SPAN: _to_span,
    _UUID: UUID,
}


def _value(tag: int, data: bytes) -> Any:
    read = _READERS.get(tag)
    if read is None:
        raise ValueError(f"extension {tag} is not known")
    return read(bytes(data).decode())
