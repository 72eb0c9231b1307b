"""Casts that lose nothing.

A value is taken when the column can hold exactly it: 7 fits DECIMAL, '7' fits BIGINT, 1.0 fits
BIGINT, 1.5 does not, 300 does not fit TINYINT. The test is the way back: what was cast is cast back
and must be equal. The exception is what everybody means by a floating point column: a DOUBLE may
be rounded to the nearest REAL, a DECIMAL to the nearest DOUBLE or REAL.

``cast_column`` casts whole columns. Only when that fails, the bad rows are looked for: those that
surely fail are found in one pass (``failing``), the few that are left by halving. So good data pays
nothing for the possibility of bad data, and a column of nothing but bad data little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.accept.failing import (
    LOST,
    TOO_LARGE,
    Failing,
    failing_by_duckdb,
    failing_texts,
    failing_times,
    failing_values,
)
from tidemill.accept.kinds import INFINITE, TOO_FINE, is_number, is_text, plain
from tidemill.accept.nearest import any_infinite, nearest, nearest_within
from tidemill.rendering import shown
from tidemill.types import Column, quote

Rows = npt.NDArray[np.int64]
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


class _NeverFitsError(CastError):
    """No value of the given type fits the column, only NULL."""


_FAILURES = (CastError, pa.ArrowException, duckdb.Error, OverflowError, ValueError)


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
        try:
            return CastResult(self._cast(array, column), {})
        except _FAILURES as error:
            self._after(error)
            array = plain(array)
            reasons = self._certain_failures(array, column, error)
        good = np.setdiff1d(np.arange(len(array)), np.fromiter(reasons, np.int64, len(reasons)))
        found: dict[int, str] = {}
        cast = self._cast_some(array.take(pa.array(good)), column, 0, found)
        reasons.update((int(good[at]), reason) for at, reason in found.items())
        places = np.full(len(array), -1, np.int64)
        places[good] = np.arange(len(good))
        return CastResult(cast.take(pa.array(places, mask=places < 0)), reasons)

    def _after(self, error: Exception) -> None:
        if isinstance(error, FATAL):
            self._forget()  # DuckDB takes nothing more on this connection

    def _certain_failures(
        self, array: pa.Array, column: Column, error: Exception
    ) -> dict[int, str]:
        """The rows that surely fail, with their reasons."""
        reasons: dict[int, str] = {}
        if isinstance(error, _NeverFitsError | pa.ArrowNotImplementedError):
            rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
            return _reasons(array, column, rows, error)
        try:
            for mask, why in self._failing(array, column):
                rows = np.flatnonzero(mask)
                rows = rows[[row not in reasons for row in rows.tolist()]] if reasons else rows
                reasons |= _reasons(array, column, rows, CastError(why) if why else error)
        except _FAILURES as problem:  # then halving finds the others
            self._after(problem)
        return reasons

    def _failing(self, array: pa.Array, column: Column) -> Iterator[Failing]:
        target, source = column.type.arrow, array.type
        if is_text(source) and pa.types.is_temporal(target):
            yield failing_times(array)
        if _is_read_by_arrow(source, target):
            yield from failing_texts(array, target)
        elif _is_cast_by_duckdb(source, target) or is_text(source):
            given, is_nested = nearest_within(array, target), bool(pa.types.is_nested(target))
            sql = _duckdb_cast(given, column), self._test(given, column)
            yield from failing_by_duckdb(self._connect(), given, *sql, is_nested)
        else:
            yield from failing_values(array, column.type)

    def _cast_some(
        self, array: pa.Array, column: Column, start: int, failures: dict[int, str]
    ) -> pa.Array:
        if not array.null_count < len(array):
            return pa.nulls(len(array), column.type.arrow)
        try:
            return self._cast(array, column)
        except _FAILURES as error:
            self._after(error)
            if len(array) == 1:
                failures |= _reasons(array, column, np.zeros(1, np.int64), error, start)
                return pa.nulls(1, column.type.arrow)
        middle = len(array) // 2
        left = self._cast_some(array[:middle], column, start, failures)
        right = self._cast_some(array[middle:], column, start + middle, failures)
        return pa.concat_arrays([left, right])

    def _cast(self, array: pa.Array, column: Column) -> pa.Array:
        target = column.type.arrow
        if array.type.equals(target):
            return array
        array = plain(array)
        source = array.type
        if source.equals(target):
            return array
        if pa.types.is_null(source):
            return pa.nulls(len(array), target)
        if _is_cast_by_duckdb(source, target):
            return self._cast_by_duckdb(array, column)
        if pa.types.is_decimal(target) and not is_text(source):
            return _cast_to_decimal(array, target)
        if is_text(source):
            return self._cast_text(array, column)
        if is_number(source) and pa.types.is_temporal(target):
            raise _NeverFitsError("a number is no time; give a datetime or a text")
        if pa.types.is_temporal(source) and is_number(target):
            raise _NeverFitsError("a time is no number")
        if pa.types.is_decimal(source) and pa.types.is_integer(target):
            array = array.cast(pa.decimal256(76, 0), safe=True)  # raises where digits would go
            return array.cast(target, safe=True)
        if pa.types.is_decimal(source) and pa.types.is_floating(target):
            return _finite(nearest(array, target))
        cast = array.cast(target, safe=True)
        _check_way_back(array, cast)
        return cast

    def _cast_text(self, array: pa.Array, column: Column) -> pa.Array:
        target = column.type.arrow
        if is_text(target):
            return array.cast(target)
        if pa.types.is_binary(target):
            return self._cast_by_duckdb(array, column)  # '\\xFF' is one byte
        if not any(test(target) for test in _BY_DUCKDB_FROM_TEXT):
            cast = pc.utf8_trim_whitespace(array).cast(target, safe=True)
            if pa.types.is_floating(target):
                _check_finite(array, cast)
            return cast
        if pa.types.is_temporal(target) and _any(pc.match_substring_regex(array, TOO_FINE)):
            raise CastError("it is finer than a microsecond")
        return self._cast_by_arrow_or_duckdb(array, column)

    def _cast_by_arrow_or_duckdb(self, array: pa.Array, column: Column) -> pa.Array:
        try:
            return array.cast(column.type.arrow, safe=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return self._cast_by_duckdb(array, column)

    def _cast_by_duckdb(self, array: pa.Array, column: Column) -> pa.Array:
        """For JSON, UUID, HUGEINT, INTERVAL, and texts that Arrow cannot read."""
        if pa.types.is_nested(array.type):
            decimals, array = array, nearest_within(array, column.type.arrow)
            if array is not decimals:
                _finite(array)
        given = pa.table({"v": array})  # noqa: F841  (DuckDB finds it by name)
        connection = self._connect()
        sql = f"SELECT {_duckdb_cast(array, column)} AS v FROM given"
        cast = connection.sql(sql).to_arrow_table().column(0).combine_chunks()
        if not cast.type.equals(column.type.arrow):
            cast = _relabel(cast, column.type.arrow)
        test = self._test(array, column)
        if test and connection.sql(f"SELECT 1 FROM given WHERE {test} LIMIT 1").fetchall():
            raise CastError(LOST)
        return cast

    def _test(self, array: pa.Array, column: Column) -> str | None:
        given = pa.table({"v": array[:0]})  # noqa: F841  (DuckDB finds it by name)
        source_name = str(self._connect().sql("SELECT v FROM given").types[0])
        return _lossy_test(column.type.name, array.type, source_name)


def _duckdb_cast(array: pa.Array, column: Column) -> str:
    """The SQL that casts ``v``."""
    # As TIMESTAMP alone, DuckDB reads '10:00+02' as 10:00; the moment is 08:00 UTC.
    is_zoned = column.type.name == "TIMESTAMP" and is_text(array.type)
    moment = "CAST(v AS TIMESTAMP WITH TIME ZONE)" if is_zoned else "v"
    return f"CAST({moment} AS {column.type.name})"


def _is_cast_by_duckdb(source: pa.DataType, target: pa.DataType) -> bool:
    if isinstance(target, pa.BaseExtensionType) or isinstance(source, pa.BaseExtensionType):
        return True
    is_wide = pa.types.is_interval(target) or pa.types.is_nested(target)
    return is_wide and not is_text(source) and not pa.types.is_decimal(target)


def _is_read_by_arrow(source: pa.DataType, target: pa.DataType) -> bool:
    return is_text(source) and (is_number(target) or bool(pa.types.is_decimal(target)))


def _lossy_test(name: str, source: pa.DataType, source_name: str) -> str | None:
    """The SQL predicate that finds the values which a cast by DuckDB has changed.

    Text is compared with what it says when its whole numbers and decimals are read as DOUBLE;
    everything else is cast back. Where a DOUBLE becomes a REAL, it may be rounded."""
    if name == "JSON":
        return None
    if name == "DATE":
        return "TRY_CAST(v AS TIMESTAMP) <> CAST(v AS DATE)"
    if is_text(source):
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
    said = pc.match_substring_regex(array, INFINITE)
    if _any(pc.and_not(pc.is_inf(cast), said)):
        raise CastError(TOO_LARGE)


def _cast_to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(array.type):
        raise _NeverFitsError("a boolean is no number")
    if pa.types.is_integer(array.type):
        wide = array.cast(pa.decimal128(20, 0), safe=True)
        return wide.cast(pa.decimal256(76, target.scale)).cast(target, safe=True)
    cast = array.cast(target, safe=True)
    if pa.types.is_floating(array.type) and not nearest(cast, array.type).equals(array):
        raise CastError(LOST)
    return cast


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
        raise CastError(LOST)


def _finite(array: pa.Array) -> pa.Array:
    """Numbers that were decimals, none of them too large."""
    if any_infinite(array):
        raise CastError(TOO_LARGE)
    return array


def _reasons(
    array: pa.Array, column: Column, rows: Rows, error: Exception, start: int = 0
) -> dict[int, str]:
    why = f": {error}" if isinstance(error, CastError) else ""
    name = quote(column.name)
    return {
        row + start: f"{name} cannot hold {_shortened(value)} as {column.type}{why}"
        for row, value in zip(rows.tolist(), array.take(pa.array(rows)), strict=True)
    }


def _shortened(value: pa.Scalar) -> str:
    try:
        text = repr(shown(value))
    except (RecursionError, ValueError):  # too deep, or too many digits
        text = f"a {str(value.type)[:70]}"
    return text if len(text) <= 80 else text[:77] + "…"
