"""JSON files: one object a line, or one array of objects."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from math import isinf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json

from tidemill.accept.found import (
    BATCH_ROWS,
    BLOCK_BYTES,
    Found,
    after_rows,
    bytes_read,
    first_line,
    has_infinity,
    open_stream,
)
from tidemill.accept.reading import Reading
from tidemill.accept.rows import from_dicts
from tidemill.catalog.model import Table
from tidemill.errors import FileFormatError
from tidemill.rendering import row_as_json

_ARRAY_BYTES_MAX = 512 << 20


def read_json(how: Reading) -> Iterator[Found]:
    """Lines by Arrow where its types are ours; arrays, and everything else, line by line."""
    path = how.path
    fields = _json_fields(how.table) if how.is_plain and how.encoding is None else None
    if fields is None or _is_json_array(how) or _is_blank(path):
        yield from read_json_lines(how, strict=True)
        return
    with open_stream(path) as stream:
        reader = pa.json.open_json(
            stream,
            read_options=pa.json.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pa.json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior="infer"
            ),
        )
        seen = 0
        for batch in reader:
            given = pa.Table.from_batches([batch])
            if has_infinity(given):
                yield from after_rows(read_json_lines(how, strict=True), seen)
                return
            seen += given.num_rows
            kept = [n for n in given.column_names if given.column(n).null_count < len(given)]
            yield Found(given.select(kept or given.column_names[:1]), [], bytes_read(stream))


def _json_fields(table: Table) -> list[pa.Field] | None:
    fields = []
    for column in table.columns:
        kind = column.type.arrow
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            kind = pa.string()
        is_ours = (
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_string(kind)
        )
        if not is_ours:
            return None
        fields.append(pa.field(column.name, kind))
    return fields


def _is_json_array(how: Reading) -> bool:
    with open_stream(how.path, how.encoding) as stream:
        return bool(stream.read(1_024).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["))


def _is_blank(path: Path) -> bool:
    """Whether there is nothing in the file, which Arrow takes for a mistake."""
    with open_stream(path) as stream:
        while block := stream.read(BLOCK_BYTES):
            if block.lstrip(b"\xef\xbb\xbf \t\r\n"):
                return False
    return True


def read_json_lines(how: Reading, strict: bool = False) -> Iterator[Found]:
    path = how.path
    if _is_json_array(how):
        rows, rejects = _read_json_array(how)
        if strict and rejects:
            raise FileFormatError(
                f'"{path}" holds {len(rejects)} values that are no JSON objects',
                detail=f"for example {rejects[0][0][:80]}",
                hint="set rejected = 'divert' to keep the objects",
            )
        for start in range(0, max(len(rows), 1), BATCH_ROWS):
            yield Found(_rows(rows[start : start + BATCH_ROWS], how), rejects)
            rejects = []
        return
    with open_stream(path, how.encoding) as stream:
        lines = io.TextIOWrapper(
            stream, encoding="utf-8-sig", errors="strict" if strict else "surrogateescape"
        )
        rows, rejects = [], []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_float=_float)
                if not isinstance(row, dict):
                    raise ValueError("it is no object")
                rows.append(row)
            except (ValueError, RecursionError) as error:
                if strict:
                    raise FileFormatError(
                        f'line {number} of "{path}" is no JSON object',
                        detail=first_line(error),
                        hint="set rejected = 'divert' to keep the good lines",
                    ) from error
                rejects.append((row_as_json(line.rstrip("\n")), f"line {number}: {error}"))
            if len(rows) >= BATCH_ROWS:
                yield Found(_rows(rows, how), rejects)
                rows, rejects = [], []
        if rows or rejects:
            yield Found(_rows(rows, how), rejects)


def _rows(rows: list[dict[str, Any]], how: Reading) -> pa.Table:
    """Objects as columns of the table; times that need a format stay as they are until then."""
    if how.is_plain:
        return from_dicts(rows, how.table)
    named = []
    for row in rows:
        pairs = ((how.target(name), value) for name, value in row.items())
        named.append({name: value for name, value in pairs if name is not None})
    return how.finish(from_dicts(named, how.table), renames=False)


def _float(text: str) -> float | str:
    """A number, or its text where a DOUBLE would make it infinite."""
    number = float(text)
    return text if isinf(number) else number


def _read_json_array(how: Reading) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    path = how.path
    with open_stream(path, how.encoding) as stream:
        text = stream.read(_ARRAY_BYTES_MAX + 1)
    if len(text) > _ARRAY_BYTES_MAX:
        raise FileFormatError(
            f'"{path}" is one JSON array of more than {_ARRAY_BYTES_MAX >> 20} MiB',
            hint="write one object a line (ndjson), which is read in pieces",
        )
    try:
        items = json.loads(text, parse_float=_float)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f'"{path}" is not JSON', detail=first_line(error)) from error
    rows = [item for item in items if isinstance(item, dict)]
    rejects = [(row_as_json(i), "it is no object") for i in items if not isinstance(i, dict)]
    return rows, rejects
