"""``tidemill load --create``: a table from what DuckDB sees in a file.

A column of times makes a streaming table: the one that ``--time`` names, else the first of type
TIMESTAMP, else the first DATE. Without one it becomes a reference table. A streaming table gets
partitions that suit the span of the files' times.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from tidemill.accept.found import open_stream
from tidemill.accept.reading import Reading
from tidemill.catalog.model import REFERENCE, Table
from tidemill.config import DUCKDB_CLOSED, TABLE_SETTINGS, check
from tidemill.errors import DefinitionError, FileFormatError, UnknownNameError, did_you_mean
from tidemill.history.partitions import DAY_US, RANGE_US_MAX, suitable_for_spans
from tidemill.types import Column, SqlType, literal, quote

SPAN_BYTES_MAX = 1 << 30  # of files that are read once more to know their span
SAMPLE_BYTES = 4 << 20
_READERS = {
    "csv": "read_csv({}{})",
    "json": "read_json({}{})",
    "ndjson": "read_json({}, format = 'newline_delimited'{})",
    "parquet": "read_parquet({})",
}
_ALSO_TIMES = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
_UNIT_US = {"s": "1000000", "ms": "1000", "us": "1", "ns": "0.001"}
_INTEGER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?$")


@dataclass(frozen=True)
class Sniffed:
    """The columns of a file, under the table's names; ``sources`` are the file's own."""

    columns: tuple[tuple[str, str], ...]
    sources: Mapping[str, str]


def create_statement(
    name: str,
    paths: Sequence[Path],
    form: str,
    options: Mapping[str, object],
    time: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> str:
    """The CREATE for the files, of which the first says the columns."""
    for setting, value in (settings or {}).items():
        check(TABLE_SETTINGS, setting, value)
    sniffed = sniff(paths[0], form, options)
    at = _time_column(paths[0], sniffed, options, time)
    kinds = {column: _column_type(kind) for column, kind in sniffed.columns}
    if at is None:
        told = ", ".join(f"{quote(column)} {kind}" for column, kind in kinds.items())
        if settings:
            raise DefinitionError(
                f'"{paths[0]}" has no column of times, so it becomes a reference table, which has '
                "no settings",
                hint="--time names the column of times",
            )
        return f"CREATE TABLE {quote(name)} ({told})"
    kinds[at] = kinds[at] if kinds[at].is_time else SqlType("TIMESTAMP")
    told = ", ".join(f"{quote(column)} {kind}" for column, kind in kinds.items())
    given = {"clock": "event", **(settings or {})}
    if "partition" not in given:
        length = _partition(paths, form, options, sniffed.sources[at], dict(sniffed.columns)[at])
        given |= {"partition": length} if length else {}
    texts = ", ".join(f"{setting} = {literal(value)}" for setting, value in given.items())
    watermark = f"WATERMARK FOR {quote(at)} AS {quote(at)} - INTERVAL '5' SECOND"
    return f"CREATE STREAMING TABLE {quote(name)} ({told}, {watermark}) WITH ({texts})"


def sniff(path: Path, form: str, options: Mapping[str, object]) -> Sniffed:
    """The columns that DuckDB sees."""
    reading, reporting = _readable(path, form, options), _reporting(path)
    with reading as reader, reporting, duckdb.connect(config={**DUCKDB_CLOSED}) as connection:
        relation = connection.sql(f"SELECT * FROM {reader}")
        found = list(zip(relation.columns, map(str, relation.types), strict=True))
    how = _Names(options)
    pairs = [(how.target(name), name, kind) for name, kind in found]
    columns = [(new, kind) for new, _, kind in pairs if new is not None]
    sources = {new: old for new, old, _ in pairs if new is not None}
    if how.filename is not None:
        columns.append((how.filename, "VARCHAR"))
    return Sniffed(tuple(columns), sources)


class _Names:
    """The options that change names, where there is no table yet."""

    def __init__(self, options: Mapping[str, object]) -> None:
        given = options.get("rename") or {}
        assert isinstance(given, Mapping)
        wanted = {str(new): str(new) for new in given.values()}
        filename = options.get("filename")
        self.filename = None if filename is None else str(filename)
        names = [*wanted, *([self.filename] if self.filename else [])]
        columns = tuple(Column(name, SqlType("VARCHAR")) for name in dict.fromkeys(names))
        table = Table(0, "", REFERENCE, columns, (), None, None, {}, (), 0)
        self._reading = Reading.of(Path(), table, options)

    def target(self, name: str) -> str | None:
        return self._reading.target(name)


def _time_column(
    path: Path, sniffed: Sniffed, options: Mapping[str, object], time: str | None
) -> str | None:
    columns = dict(sniffed.columns)
    if time is None:
        kinds = list(columns.items())
        times = [c for c, k in kinds if _column_type(k).is_time]
        return next(iter([*times, *(c for c, k in kinds if k == "DATE")]), None)
    found = next((column for column in columns if column.lower() == time.lower()), None)
    if found is None:
        raise UnknownNameError(
            f'"{path}" has no column "{time}"',
            hint=did_you_mean(time, list(columns)) or f"its columns are {', '.join(columns)}",
        )
    kind = columns[found]
    is_number = bool(_INTEGER.match(kind)) or kind in ("DOUBLE", "FLOAT")
    if is_number and not options.get("timeunit"):
        raise DefinitionError(
            f'column "{found}" of "{path}" holds numbers ({kind})',
            hint="--time-unit s, ms, us or ns says what they count since 1970",
        )
    if kind == "VARCHAR" and not options.get("timestampformat"):
        raise DefinitionError(
            f'column "{found}" of "{path}" holds texts that are no times',
            hint="--time-format says how they are written, for example '%m/%d/%Y %H:%M'",
        )
    return found


def _column_type(kind: str) -> SqlType:
    """The type of our column for DuckDB's; what we do not hold is kept as text."""
    if kind in _ALSO_TIMES:
        return SqlType("TIMESTAMP")
    try:
        return SqlType.parse(kind)
    except DefinitionError:
        return SqlType("VARCHAR")


def _partition(
    paths: Sequence[Path], form: str, options: Mapping[str, object], column: str, kind: str
) -> str | None:
    """How long partitions should be; None for the default, and where the files are too large to
    be read for it: then the first move or load decides."""
    if form != "parquet" and sum(path.stat().st_size for path in paths) > SPAN_BYTES_MAX:
        return None
    name = quote(column)
    moment = f"epoch_us(CAST({name} AS TIMESTAMP))"
    if _INTEGER.match(kind) or kind in ("DOUBLE", "FLOAT"):
        moment = f"CAST({name} * {_UNIT_US[str(options['timeunit'])]} AS BIGINT)"
    spans, rows = [], 0
    try:
        with duckdb.connect(config={**DUCKDB_CLOSED}) as connection:
            for path in paths:
                with _readable(path, form, options, whole=True) as reader:
                    sql = f"SELECT min({moment}), max({moment}), count(*) FROM {reader}"
                    low, high, count = connection.sql(sql).fetchall()[0]
                rows += count
                spans += [(low, high)] if low is not None else []
    except (duckdb.Error, KeyError):
        return None  # loading tells what is wrong with the files
    default_us = TABLE_SETTINGS["partition"].parse(TABLE_SETTINGS["partition"].default)
    days = suitable_for_spans(spans, rows, default_us, RANGE_US_MAX) // DAY_US
    return f"{days} day{'s' if days > 1 else ''}" if days else None


@contextmanager
def _readable(
    path: Path, form: str, options: Mapping[str, object], whole: bool = False
) -> Iterator[str]:
    """The SQL that reads a file, or a sample of it in UTF-8 where it is in another encoding."""
    encoding = options.get("encoding")
    if encoding is None or form == "parquet":
        yield _reader(path, form, options)
        return
    with tempfile.NamedTemporaryFile(suffix=".txt") as sample:
        with open_stream(path, str(encoding)) as stream:
            size = 0
            while (block := stream.read(SAMPLE_BYTES)) and (whole or size < SAMPLE_BYTES):
                size += sample.write(block)
        sample.flush()
        yield _reader(Path(sample.name), form, options)


def _reader(path: Path, form: str, options: Mapping[str, object]) -> str:
    told = ""
    for ours, theirs in _CSV_OPTIONS if form == "csv" else ():
        value = options.get(ours)
        if value is not None:
            texts = [str(each) for each in (value if isinstance(value, tuple | list) else [value])]
            is_list = ours == "null"
            shown = f"[{', '.join(map(literal, texts))}]" if is_list else literal(texts[0])
            told += f", {theirs} = {shown}"
    return _READERS[form].format(literal(str(path)), told)


_CSV_OPTIONS = (
    ("delimiter", "delim"),
    ("null", "nullstr"),
    ("decimal_separator", "decimal_separator"),
    ("timestampformat", "timestampformat"),
    ("dateformat", "dateformat"),
    ("header", "header"),
)


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise FileFormatError(
            f'"{path}" does not tell its columns', detail=str(error).splitlines()[0]
        ) from error
