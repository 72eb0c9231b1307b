"""The short way of one row: dict or tuple to plain values, without building Arrow.

It takes only what surely fits (an int for an integer column, a datetime for a timestamp) and
answers None for everything else, which then goes the way of ``rows``. So it can be strict and fast,
and never disagrees with the long way.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa

from tidemill.accept.defaults import Defaults
from tidemill.catalog.model import Table
from tidemill.clock import DATETIME_US_MAX, DATETIME_US_MIN, to_us

Row = tuple[Any, ...]
_Convert = Callable[[Any], Any]


class _Unsure(Exception):
    """Not surely fitting; the long way decides."""


class RowReader:
    """Reads single rows of one table."""

    def __init__(self, table: Table, defaults: Defaults) -> None:
        self._width = len(table.columns)
        self._columns: list[tuple[str, _Convert, Any]] = []
        self.is_usable = True
        for column in table.columns:
            convert = _converter(column.type.arrow, column.nullable)
            if convert is None:
                self.is_usable = False
                return
            missing: Any = None
            if column.default is not None:
                constant = defaults.constant(column)
                missing = _UNSURE if constant is None else constant.as_py()
            self._columns.append((column.name, convert, missing))

    def read_dict(self, row: Mapping[str, Any]) -> Row | None:
        """The row's values in the table's order, or None to go the long way."""
        used = 0
        values = []
        try:
            for name, convert, missing in self._columns:
                if name in row:
                    used += 1
                    values.append(convert(row[name]))
                else:
                    values.append(convert(missing))
        except _Unsure:
            return None
        return tuple(values) if used == len(row) else None

    def read_tuple(self, row: Row) -> Row | None:
        if len(row) != self._width:
            return None
        try:
            return tuple(
                [convert(value) for (_, convert, _), value in zip(self._columns, row, strict=True)]
            )
        except _Unsure:
            return None


_UNSURE = object()


def _converter(kind: pa.DataType, nullable: bool) -> _Convert | None:
    convert = _value_converter(kind)
    if convert is None:
        return None

    def convert_nullable(value: Any) -> Any:
        return None if value is None else convert(value)

    def convert_required(value: Any) -> Any:
        if value is None:
            raise _Unsure
        return convert(value)

    return convert_nullable if nullable else convert_required


def converter_of(kind: pa.DataType) -> _Convert | None:
    """Gives the plain value of what surely fits a type, and None for everything else; None for
    types that have no plain values."""
    convert = _value_converter(kind)
    if convert is None:
        return None

    def surely(value: Any) -> Any:
        try:
            return convert(value)
        except _Unsure:
            return None

    return surely


def _value_converter(kind: pa.DataType) -> _Convert | None:
    if pa.types.is_integer(kind):
        low = 0 if pa.types.is_unsigned_integer(kind) else -(1 << (kind.bit_width - 1))
        bits = kind.bit_width if low == 0 else kind.bit_width - 1
        return _integer(low, (1 << bits) - 1)
    if pa.types.is_float64(kind):
        return _double
    if pa.types.is_boolean(kind):
        return _exactly(bool)
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_binary(kind):
        return _exactly(bytes)
    if pa.types.is_timestamp(kind):
        return _timestamp(is_zoned=kind.tz is not None)
    return None


def _integer(low: int, high: int) -> _Convert:
    def convert(value: Any) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        raise _Unsure

    return convert


def _double(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is Decimal and value.is_finite() and isfinite(number := float(value)):
        return number
    raise _Unsure


def _exactly(kind: type) -> _Convert:
    def convert(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise _Unsure

    return convert


def _text(value: Any) -> Any:
    if type(value) is str and (value.isascii() or _is_encodable(value)):
        return value
    raise _Unsure


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _timestamp(is_zoned: bool) -> _Convert:
    def convert(value: Any) -> Any:
        if type(value) is dt.datetime and (value.tzinfo is not None) == is_zoned:
            time_us = to_us(value)  # a zone can carry it past the last year
            if DATETIME_US_MIN <= time_us <= DATETIME_US_MAX:
                return time_us
        raise _Unsure

    return convert
