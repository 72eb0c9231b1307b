"""Casts that lose nothing.

A value is taken when the column can hold exactly it: 7 fits DECIMAL, '7' fits BIGINT, 1.0 fits
BIGINT, 1.5 does not, 300 does not fit TINYINT. The test is the way back: what was cast is cast back
and must be equal. The exception is what everybody means by a floating point column: a DOUBLE may
be rounded to the nearest REAL, a DECIMAL to the nearest DOUBLE or REAL.

``cast_column`` casts whole columns; only when that fails, the bad rows are found by halving, so
good data pays nothing for the possibility of bad data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.rendering import shown
from tidemill.types import Column, quote

FATAL = (duckdb.FatalException, duckdb.InternalException)
_BY_DUCKDB_FROM_TEXT = (
    pa.types.is_boolean,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_interval,
    pa.types.is_nested,
)


class CastError(Exception):
    """A value that the column cannot hold; the message is the reason a user reads."""


@dataclass(frozen=True)
class CastResult:
    """The column as cast, with NULL in the rows that failed, and their reasons."""

    array: pa.Array
    failures: dict[int, str]


class Caster:
    """Casts columns; keeps a DuckDB connection for the casts that Arrow does not have."""

    def __init__(
        self,
        connect: Callable[[], duckdb.DuckDBPyConnection],
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        """``connect`` answers a connection of the calling thread until ``forget`` is called."""
        self._connect = connect
        self._forget = forget

    def cast_column(self, array: pa.Array, column: Column) -> CastResult:
        failures: dict[int, str] = {}
        cast = self._cast_some(array, column, 0, failures)
        return CastResult(cast, failures)

    def _cast_some(
        self, array: pa.Array, column: Column, start: int, failures: dict[int, str]
    ) -> pa.Array:
        try:
            return self._cast(array, column)
        except (CastError, pa.ArrowException, duckdb.Error, OverflowError, ValueError) as error:
            if isinstance(error, FATAL):
                self._forget()  # DuckDB takes nothing more on this connection
            if len(array) == 1:
                failures[start] = _reason(array[0], column, error)
                return pa.nulls(1, column.type.arrow)
        middle = len(array) // 2
        left = self._cast_some(array[:middle], column, start, failures)
        right = self._cast_some(array[middle:], column, start + middle, failures)
        return pa.concat_arrays([left, right])

    def _cast(self, array: pa.Array, column: Column) -> pa.Array:
        target, source = column.type.arrow, array.type
        if source.equals(target):
            return array
        if pa.types.is_null(source):
            return pa.nulls(len(array), target)
        if pa.types.is_dictionary(source):
            return self._cast(array.dictionary_decode(), column)
        if pa.types.is_string_view(source):
            return self._cast(array.cast(pa.string()), column)
        if isinstance(target, pa.BaseExtensionType) or isinstance(source, pa.BaseExtensionType):
            return self._cast_by_duckdb(array, column)
        if pa.types.is_decimal(target) and not _is_text(source):
            return _cast_to_decimal(array, target)
        if _is_text(source):
            return self._cast_text(array, column)
        if pa.types.is_interval(target) or pa.types.is_nested(target):
            return self._cast_by_duckdb(array, column)
        if _is_number(source) and pa.types.is_temporal(target):
            raise CastError("a number is no time; give a datetime or a text")
        if pa.types.is_temporal(source) and _is_number(target):
            raise CastError("a time is no number")
        if pa.types.is_decimal(source) and pa.types.is_integer(target):
            array = array.cast(pa.decimal256(76, 0), safe=True)  # raises where digits would go
            return array.cast(target, safe=True)
        cast = array.cast(target, safe=True)
        if not (pa.types.is_decimal(source) and pa.types.is_floating(target)):
            _check_way_back(array, cast)
        elif _any(pc.is_inf(cast)):
            raise CastError("it is too large")
        return cast

    def _cast_text(self, array: pa.Array, column: Column) -> pa.Array:
        target = column.type.arrow
        if _is_text(target):
            return array.cast(target)
        if pa.types.is_binary(target):
            return self._cast_by_duckdb(array, column)  # '\\xFF' is one byte
        if not any(test(target) for test in _BY_DUCKDB_FROM_TEXT):
            cast = pc.utf8_trim_whitespace(array).cast(target, safe=True)
            if pa.types.is_floating(target):
                _check_finite(array, cast)
            return cast
        if pa.types.is_temporal(target) and _any(pc.match_substring_regex(array, _TOO_FINE)):
            raise CastError("it is finer than a microsecond")
        return self._cast_by_arrow_or_duckdb(array, column)

    def _cast_by_arrow_or_duckdb(self, array: pa.Array, column: Column) -> pa.Array:
        try:
            return array.cast(column.type.arrow, safe=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return self._cast_by_duckdb(array, column)

    def _cast_by_duckdb(self, array: pa.Array, column: Column) -> pa.Array:
        """For JSON, UUID, HUGEINT, INTERVAL, and texts that Arrow cannot read."""
        given = pa.table({"v": array})  # noqa: F841  (DuckDB finds it by name)
        name = column.type.name
        connection = self._connect()
        # As TIMESTAMP alone, DuckDB reads '10:00+02' as 10:00; the moment is 08:00 UTC.
        is_zoned = name == "TIMESTAMP" and _is_text(array.type)
        moment = "CAST(v AS TIMESTAMP WITH TIME ZONE)" if is_zoned else "v"
        table = connection.sql(f"SELECT CAST({moment} AS {name}) AS v FROM given").to_arrow_table()
        cast = table.column(0).combine_chunks()
        if not cast.type.equals(column.type.arrow):
            cast = _relabel(cast, column.type.arrow)
        test = _lossy_test(name, array.type, str(connection.sql("SELECT v FROM given").types[0]))
        if test and connection.sql(f"SELECT 1 FROM given WHERE {test} LIMIT 1").fetchall():
            raise CastError("part of it would be lost")
        return cast


def _lossy_test(name: str, source: pa.DataType, source_name: str) -> str | None:
    """The SQL predicate that finds the values which a cast by DuckDB has changed.

    Text is compared with what it says when its whole numbers and decimals are read as DOUBLE;
    everything else is cast back. Where a DOUBLE becomes a REAL, it may be rounded."""
    if name == "JSON":
        return None
    if name == "DATE":
        return "TRY_CAST(v AS TIMESTAMP) <> CAST(v AS DATE)"
    if _is_text(source):
        wide = _EXACT_NAMES.sub(lambda match: match[1] or "DOUBLE", name)
        if wide == name:
            return None
        return f"CAST(CAST(v AS {name}) AS {wide}) IS DISTINCT FROM CAST(v AS {wide})"
    if "FLOAT" in name:
        source_name = source_name.replace("DOUBLE", "FLOAT")
    back = f"CAST(CAST(v AS {name}) AS {source_name})"
    return f"{back} IS DISTINCT FROM CAST(v AS {source_name})"


_EXACT_NAMES = re.compile(
    r'("[^"]*")|\b(?:U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DECIMAL\(\d+,\d+\))(?=[],)[]|$)'
)
_TOO_FINE = r"\.\d{6}0*[1-9]"
_INFINITE = r"(?i)^\s*[+-]?inf(inity)?\s*$"


def _relabel(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The same values under our Arrow type, where DuckDB names it a little differently."""
    if pa.types.is_boolean(target) and isinstance(array, pa.ExtensionArray):
        return array.storage.cast(target)  # DuckDB writes booleans as bytes
    if isinstance(target, pa.BaseExtensionType):
        stored = array.storage if isinstance(array, pa.ExtensionArray) else array
        return pa.ExtensionArray.from_storage(target, stored.cast(target.storage_type))
    return array.cast(target)


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())


def _check_finite(array: pa.Array, cast: pa.Array) -> None:
    """Digits too many for a floating point number become infinite without a word."""
    said = pc.match_substring_regex(array, _INFINITE)
    if _any(pc.and_not(pc.is_inf(cast), said)):
        raise CastError("it is too large")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _cast_to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(array.type):
        raise CastError("a boolean is no number")
    if pa.types.is_integer(array.type):
        wide = array.cast(pa.decimal128(20, 0), safe=True)
        return wide.cast(pa.decimal256(76, target.scale)).cast(target, safe=True)
    cast = array.cast(target, safe=True)
    if pa.types.is_floating(array.type):
        given = pc.drop_null(array).to_numpy()
        if not np.array_equal(_nearest(pc.drop_null(cast)).astype(given.dtype), given):
            raise CastError("part of it would be lost")
    return cast


def _nearest(decimals: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The DOUBLE nearest to each decimal, which Arrow's own cast may miss by a little.

    A whole number below 2**53 divided by a power of ten up to 10**22 is rounded once, so rightly.
    """
    low, high = np.frombuffer(decimals.buffers()[1] or b"", "<i8").reshape(-1, 2).T
    low, high = (half[decimals.offset : decimals.offset + len(decimals)] for half in (low, high))
    is_small = (high == low >> 63) & (np.abs(low) < 2**53)
    if decimals.type.scale <= 22 and is_small.all():
        return np.asarray(low / 10.0**decimals.type.scale)
    return np.array([float(value) for value in decimals.to_pylist()], np.float64)


def _check_way_back(array: pa.Array, cast: pa.Array) -> None:
    source, target = array.type, cast.type
    if pa.types.is_float64(source) and pa.types.is_float32(target):
        before, after = pc.is_inf(array), pc.is_inf(cast)
        if not before.equals(after):
            raise CastError("it is too large for a REAL")
        return
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return  # a safe cast between units, or a change of zone at the same moment
    back = cast.cast(source, safe=False)
    same = pc.equal(back, array)
    if pa.types.is_floating(source):
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(array)))
    if pc.any(pc.invert(same)).as_py():
        raise CastError("part of it would be lost")


def _reason(value: pa.Scalar, column: Column, error: Exception) -> str:
    text = repr(shown(value))
    text = text if len(text) <= 80 else text[:77] + "…"
    why = f": {error}" if isinstance(error, CastError) else ""
    return f"{quote(column.name)} cannot hold {text} as {column.type}{why}"
