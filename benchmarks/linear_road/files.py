"""The files of Linear Road: the input, and the tolls of the past, as others write and read them.

The input is one line of 15 comma-separated integers a row, in time order, without a header; the
tolls are lines of vehicle, day, expressway, toll. A name that ends in ``.gz`` is compressed; tolls
may also be Parquet. Reading streams: a block of the file at a time becomes a record batch. A line
that does not fit is looked for, and named by its number, only once Arrow has stumbled over it.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.linear_road.fields import (
    BALANCE,
    DAILY_TOLLS,
    EXPENDITURE,
    INPUT,
    REPORT,
    TRAVEL_TIME,
)
from tidemill.errors import FileFormatError, Position

BLOCK_BYTES = 8 << 20
_TYPES = (REPORT, BALANCE, EXPENDITURE, TRAVEL_TIME)
_INT32 = range(-(2**31), 2**31)
_TIME = 1


def read_input(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file, as they stand there; types and time order are checked."""
    last = -1
    for batch in _read(path, INPUT):
        times = batch.column("time").to_numpy()
        kinds = batch.column("type").to_numpy()
        in_order = np.all(np.diff(times, prepend=last) >= 0)
        if not in_order or not np.isin(kinds, _TYPES).all():
            _find_bad_line(path, INPUT)
        last = int(times[-1])
        yield batch


def read_tolls(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a file of past tolls."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            if file.schema_arrow.names != DAILY_TOLLS.names:
                raise FileFormatError(
                    f"{path.name} has other columns than a file of tolls",
                    detail=f"it has {', '.join(file.schema_arrow.names)}",
                    hint=f"they must be {', '.join(DAILY_TOLLS.names)}",
                )
            for batch in file.iter_batches():
                yield batch.cast(DAILY_TOLLS)
        return
    yield from _read(path, DAILY_TOLLS)


def write_input(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows of the input; the number of rows."""
    return _write(path, INPUT, batches)


def write_tolls(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows of past tolls; the number of rows."""
    if path.suffix != ".parquet":
        return _write(path, DAILY_TOLLS, batches)
    rows = 0
    with pq.ParquetWriter(path, DAILY_TOLLS, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def seconds(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in time order, one batch for each second that has any."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        times = batch.column("time").to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), len(times)]
        for start, stop in pairwise(cuts):
            if held and stop > start and held[-1].column("time")[-1].as_py() != times[start]:
                yield _one(held)
                held = []
            if stop > start:
                held.append(batch.slice(start, stop - start))
    if held:
        yield _one(held)


def _one(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    return held[0] if len(held) == 1 else pa.concat_batches(held)


def _read(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reading = csv.ReadOptions(column_names=schema.names, block_size=BLOCK_BYTES)
    # No text stands for NULL: an empty field is a fault of the file.
    converting = csv.ConvertOptions(column_types=schema, null_values=[], strings_can_be_null=False)
    try:
        with (
            pa.input_stream(str(path), compression="detect") as stream,
            csv.open_csv(stream, read_options=reading, convert_options=converting) as lines,
        ):
            yield from (batch for batch in lines if batch.num_rows)
    except pa.ArrowInvalid as error:
        if _is_empty(path):
            return
        _find_bad_line(path, schema)
        raise FileFormatError(f"{path.name} cannot be read", detail=str(error)) from error
    except OSError as error:
        raise FileFormatError(f"{path.name} cannot be read", detail=str(error)) from error


def _write(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    writing = csv.WriteOptions(include_header=False)
    with (
        pa.output_stream(str(path), compression="detect") as stream,
        csv.CSVWriter(stream, schema, write_options=writing) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", errors="replace")
    return path.open(errors="replace")


def _is_empty(path: Path) -> bool:
    with _text(path) as lines:
        return not any(line.strip() for line in lines)


def _find_bad_line(path: Path, schema: pa.Schema) -> None:
    """Raise for the first line that does not fit, saying why."""
    last = -1
    with _text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            fault = _fault(line, schema, last)
            if fault is not None:
                raise FileFormatError(
                    f"line {number:,} of {path.name} {fault}",
                    detail=line.strip()[:200],
                    position=Position(number, 1),
                )
            if schema is INPUT:
                last = int(line.split(",")[_TIME])


def _fault(line: str, schema: pa.Schema, last: int) -> str | None:
    """What is wrong with a line, if anything; ``last`` is the time of the line before."""
    cells = line.strip().split(",")
    if len(cells) != len(schema):
        return f"has {len(cells)} fields, not {len(schema)}"
    for name, cell in zip(schema.names, cells, strict=True):
        try:
            fits = int(cell) in _INT32
        except ValueError:
            fits = False
        if not fits:
            return f'has "{cell.strip()}" for {name}, which is no 32-bit integer'
    if schema is INPUT:
        kind, time = int(cells[0]), int(cells[_TIME])
        if kind not in _TYPES:
            return f"is of type {kind}: a row's type is 0, 2, 3 or 4"
        if time < last:
            return f"is of second {time}, after one of second {last}"
    return None
