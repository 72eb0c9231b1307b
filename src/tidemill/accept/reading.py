"""How a file is read: what the options of COPY, of a source and of ``tidemill load`` say.

``Reading`` is made once for a file. The readers ask it for names and spellings, and give every
batch to ``finish``, which turns the file's columns into the table's: renamed, without those left
out, times read by their format or unit, and with the file's name where it is wanted.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.accept.kinds import is_text
from tidemill.accept.kinds import plain as plain_array
from tidemill.catalog.model import Table
from tidemill.config import DUCKDB_CLOSED
from tidemill.errors import SettingError, UnknownNameError, did_you_mean
from tidemill.types import literal

OPTIONS = (
    "timestampformat",
    "dateformat",
    "timeunit",
    "null",
    "nullstr",
    "rename",
    "exclude",
    "filename",
)
TEXT_OPTIONS = ("encoding",)
UNITS = {
    "s": "s",
    "second": "s",
    "ms": "ms",
    "millisecond": "ms",
    "us": "us",
    "microsecond": "us",
    "ns": "ns",
    "nanosecond": "ns",
}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_WHOLE = r"^\s*-?([0-9]{1,18}|[1-8][0-9]{18})\s*$"


@dataclass(frozen=True)
class Reading:
    """The options of one file, checked. ``rename`` leads from the file's names, in lower case, to
    the table's."""

    table: Table
    path: Path
    timestamp_formats: tuple[str, ...] = ()
    date_formats: tuple[str, ...] = ()
    unit: str | None = None
    nulls: tuple[str, ...] | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    exclude: frozenset[str] = frozenset()
    filename: str | None = None
    encoding: str | None = None
    decimal_point: str = "."

    @classmethod
    def of(cls, path: Path, table: Table, options: Mapping[str, object]) -> Reading:
        """From options by their names in lower case; the readers' own are passed over."""
        null = options.get("null", options.get("nullstr"))
        return cls(
            table,
            path,
            _texts(options, "timestampformat"),
            _texts(options, "dateformat"),
            _unit(options.get("timeunit")),
            None if null is None else _texts({"null": null}, "null"),
            _renamed(table, options.get("rename")),
            frozenset(name.lower() for name in _texts(options, "exclude")),
            _filename(table, options.get("filename")),
            _encoding(options.get("encoding")),
            _point(options.get("decimal_separator")),
        )

    def target(self, name: str) -> str | None:
        """The table's column for a column of the file; None for one that is left out."""
        lower = name.strip().lower()
        if lower in self.exclude:
            return None
        return self.rename.get(lower, name.strip())

    def source(self, column: str) -> str:
        """The file's name for a column of the table."""
        lower = column.lower()
        return next((old for old, new in self.rename.items() if new.lower() == lower), column)

    def is_formatted(self, kind: pa.DataType) -> bool:
        """Whether columns of the type must be read as text or numbers first."""
        if pa.types.is_timestamp(kind):
            return bool(self.timestamp_formats) or self.unit is not None
        return bool(self.date_formats) and bool(pa.types.is_date(kind))

    @cached_property
    def is_plain(self) -> bool:
        """Whether batches are what the readers make of them."""
        has_times = self.timestamp_formats or self.date_formats or self.unit
        has_names = self.rename or self.exclude or self.filename
        is_comma = self.decimal_point != "."
        return not (has_times or has_names or is_comma or self.nulls is not None)

    def finish(self, rows: pa.Table, renames: bool = True) -> pa.Table:
        """A batch under the table's names and with its times; ``renames`` is false for readers
        that know the names already."""
        if self.is_plain or not rows.num_columns:
            return rows
        names, columns = [], []
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            target = self.target(name) if renames else name
            if target is not None:
                names.append(target)
                columns.append(self._column(target, column))
        if self.filename is not None:
            names.append(self.filename)
            columns.append(pa.chunked_array([pa.repeat(str(self.path), rows.num_rows)]))
        return pa.Table.from_arrays(columns, names=names)

    def _column(self, name: str, given: pa.ChunkedArray) -> pa.ChunkedArray:
        column = self.table.column(name)
        if column is None:
            return given
        kind = column.type.arrow
        array = plain_array(given.combine_chunks())
        if is_text(array.type):
            array = self._text(array, kind)
        if self.is_formatted(kind):
            array = self._times(array, kind)
        return pa.chunked_array([array])

    def _text(self, array: pa.Array, kind: pa.DataType) -> pa.Array:
        if self.nulls is not None:
            is_null = pc.is_in(array, pa.array(self.nulls, array.type))
            array = pc.if_else(is_null, pa.scalar(None, array.type), array)
        is_number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        if self.decimal_point != "." and is_number:
            array = pc.replace_substring(array, ".", "..")  # which is no number
            array = pc.replace_substring(array, self.decimal_point, ".")
        return array

    def _times(self, array: pa.Array, kind: pa.DataType) -> pa.Array:
        formats = self.date_formats if pa.types.is_date(kind) else self.timestamp_formats
        if is_text(array.type) and formats:
            array = _parsed(array, formats)
        if self.unit is not None and pa.types.is_timestamp(kind):
            array = _of_epoch(array, self.unit)
        return array


def _parsed(texts: pa.Array, formats: tuple[str, ...]) -> pa.Array:
    """Texts as ISO texts, where one of the formats fits; others as they are."""
    given = pa.table({"v": texts})  # noqa: F841  (DuckDB finds it by name)
    wanted = ", ".join(literal(each) for each in formats)
    with duckdb.connect(":memory:", config={**DUCKDB_CLOSED, "threads": "1"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        parsed = f"CAST(try_strptime(trim(v), [{wanted}]) AS VARCHAR)"
        try:
            found = connection.sql(f"SELECT coalesce({parsed}, v) FROM given").to_arrow_table()
        except duckdb.Error as error:
            raise SettingError(
                f"the format {wanted} of times cannot be used",
                detail=str(error).splitlines()[0],
                hint="for example TIMESTAMPFORMAT '%m/%d/%Y %H:%M:%S'",
            ) from error
    return found.column(0).combine_chunks()


def _of_epoch(array: pa.Array, unit: str) -> pa.Array:
    """Numbers since 1970 as times; texts that are no numbers stay."""
    if pa.types.is_integer(array.type):
        return array.cast(pa.int64()).cast(pa.timestamp(unit))
    if pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        micros = pc.round(pc.multiply(array.cast(pa.float64()), 1e6 / _PER_SECOND[unit]))
        return micros.cast(pa.int64()).cast(pa.timestamp("us"))
    if not is_text(array.type):
        return array
    is_whole = pc.match_substring_regex(array, _WHOLE)
    digits = pc.utf8_trim_whitespace(pc.if_else(is_whole, array, pa.scalar(None, array.type)))
    times = digits.cast(pa.int64()).cast(pa.timestamp(unit))
    if times.null_count == array.null_count:
        return times
    return pc.coalesce(times.cast(pa.string()), array.cast(pa.string()))


def _texts(options: Mapping[str, object], name: str) -> tuple[str, ...]:
    """An option of one text or several; the catalog keeps several as JSON."""
    value = options.get(name)
    if value is None:
        return ()
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return (str(value),)
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(str(each) for each in values)


def _unit(value: object) -> str | None:
    if value is None:
        return None
    unit = UNITS.get(str(value).strip().lower()) or UNITS.get(str(value).lower().removesuffix("s"))
    if unit is None:
        raise SettingError(
            f'option "timeunit" cannot be {str(value)!r}', hint="it is 's', 'ms', 'us' or 'ns'"
        )
    return unit


def _renamed(table: Table, value: object) -> dict[str, str]:
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SettingError(
            'option "rename" must name pairs of columns', hint="RENAME (old AS new, …)"
        )
    found = {}
    for old, new in value.items():
        found[str(old).lower()] = table.get_column(str(new)).name
    return found


def _filename(table: Table, value: object) -> str | None:
    if value is None or str(value).lower() in ("false", "0", "off"):
        return None
    name = "filename" if str(value).lower() in ("true", "1", "on") else str(value)
    column = table.column(name)
    if column is None:
        raise UnknownNameError(
            f'table "{table.name}" has no column "{name}" for the file\'s name',
            hint=did_you_mean(name, [each.name for each in table.columns])
            or "FILENAME 'column' names one",
        )
    return column.name


def _encoding(value: object) -> str | None:
    if value is None:
        return None
    try:
        name = codecs.lookup(str(value)).name
    except LookupError as error:
        raise SettingError(
            f'encoding "{value}" is not known', hint="for example 'latin-1', 'utf-16', 'cp1252'"
        ) from error
    return None if name == "utf-8" else name


def _point(value: object) -> str:
    if value is None or str(value) in (".", ","):
        return str(value or ".")
    raise SettingError("option \"decimal_separator\" must be ',' or '.'")
