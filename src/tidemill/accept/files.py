"""Files as rows: CSV, JSON and Parquet, read in bounded batches.

The readers are strict: a value that is not of the column's type fails, it is never rounded or
guessed. A file that reads well takes the fast way (whole columns, several threads). Only when it
does not, and the table diverts bad rows, it is read again as text, and each bad line or value is
set aside with its reason.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from tidemill.accept import csv_files, reading
from tidemill.accept.csv_files import read_csv
from tidemill.accept.found import BATCH_ROWS, Found, first_line
from tidemill.accept.json_files import read_json, read_json_lines
from tidemill.accept.reading import Reading
from tidemill.catalog.model import Table
from tidemill.errors import FileFormatError, SettingError, UnknownNameError, did_you_mean

_TEXT = (*reading.OPTIONS, *reading.TEXT_OPTIONS)
OPTIONS: dict[str, tuple[str, ...]] = {
    "csv": (*csv_files.OPTIONS, *_TEXT),
    "json": _TEXT,
    "ndjson": _TEXT,
    "parquet": reading.OPTIONS,
}


def read_file(
    path: Path,
    form: str,
    table: Table,
    columns: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    *,
    as_text: bool = False,
) -> Iterator[Found]:
    """The rows of a file. ``as_text`` reads leniently: values as text, bad lines set aside."""
    given = {name.lower(): value for name, value in (options or {}).items()}
    given.pop("format", None)
    for name in given:
        if name not in OPTIONS[form]:
            raise SettingError(
                f'option "{name}" does not exist for {form} files',
                hint=did_you_mean(name, OPTIONS[form])
                or f"the options are {', '.join(OPTIONS[form]) or 'none'}",
            )
    try:
        _check_exists(path)
        how = Reading.of(path, table, given)
        if form == "csv":
            yield from read_csv(how, columns, given, as_text)
        elif form == "parquet":
            yield from _read_parquet(how, columns)
        elif as_text:
            yield from read_json_lines(how)
        else:
            yield from read_json(how)
    except (pa.ArrowException, OSError, UnicodeError, EOFError) as error:
        raise FileFormatError(
            f'cannot read "{path}" as {form}',
            detail=first_line(error),
            hint="check the file, its FORMAT and its options"
            if form != "csv"
            else "check HEADER, DELIMITER, QUOTE and NULL, or set rejected = 'divert' to keep "
            "the good rows",
        ) from error


def _check_exists(path: Path) -> None:
    if not path.exists():
        near = did_you_mean(path.name, [p.name for p in path.parent.glob("*")][:1_000])
        raise FileFormatError(f'file "{path}" does not exist', hint=near)
    if path.is_dir():
        raise FileFormatError(f'"{path}" is a folder, not a file', hint="name one file")


def _read_parquet(how: Reading, columns: Sequence[str] | None) -> Iterator[Found]:
    path = how.path
    columns = None if columns is None else [how.source(n) for n in columns if n != how.filename]
    with pa.parquet.ParquetFile(path) as file:
        names = {name.lower(): name for name in file.schema_arrow.names}
        if columns is not None:
            columns = [names.get(name.lower(), name) for name in columns]
        for name in columns or ():
            if name not in file.schema_arrow.names:
                raise UnknownNameError(
                    f'"{path}" has no column "{name}"',
                    hint=did_you_mean(name, file.schema_arrow.names)
                    or f"its columns are {', '.join(file.schema_arrow.names)}",
                )
        total = max(file.metadata.num_rows, 1)
        size, seen = path.stat().st_size, 0
        leaves = [file.schema.column(at) for at in range(len(file.schema))]
        intervals = {leaf.path for leaf in leaves if leaf.converted_type == "INTERVAL"}
        for batch in file.iter_batches(BATCH_ROWS, columns=list(columns) if columns else None):
            seen += batch.num_rows
            given = pa.Table.from_batches([batch])
            for name in intervals.intersection(given.column_names):
                at = given.schema.get_field_index(name)
                given = given.set_column(at, name, _intervals(given.column(at)))
            yield Found(how.finish(given), [], size * seen // total)


def _intervals(column: pa.ChunkedArray) -> pa.Array:
    """Parquet's intervals, which Arrow leaves as bytes: months, days and milliseconds."""
    values = [
        None if value is None else struct.unpack("<III", value) for value in column.to_pylist()
    ]
    nanos = [None if value is None else (*value[:2], value[2] * 1_000_000) for value in values]
    return pa.array(nanos, pa.month_day_nano_interval())
