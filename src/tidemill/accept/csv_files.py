"""CSV files: delimiter, header and strict types."""

from __future__ import annotations

import codecs
import collections
import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from tidemill.accept.found import (
    BLOCK_BYTES,
    Found,
    after_rows,
    bytes_read,
    has_infinity,
    open_stream,
)
from tidemill.accept.reading import Reading
from tidemill.errors import FileFormatError, SettingError, UnknownNameError, did_you_mean
from tidemill.rendering import row_as_json

OPTIONS = ("header", "delimiter", "delim", "sep", "quote", "escape", "skip", "decimal_separator")
HEAD_BYTES = 1 << 16
_OPEN_QUOTE = "a quote is opened and not closed before the end of the file"
_DELIMITERS = (",", ";", "\t", "|")
_LEFT_OUT = "\0"  # stands in no name of a column


def read_csv(
    how: Reading,
    columns: Sequence[str] | None,
    options: Mapping[str, object],
    as_text: bool,
) -> Iterator[Found]:
    path, finish = how.path, replace(how, nulls=None).finish  # Arrow knows what was in quotes
    shape = _csv_shape(how, columns, options)
    if shape is None:
        return
    rejects: list[tuple[str, str]] = []

    def on_bad_row(row: Any) -> str:
        if not as_text:
            return "error"
        reason = f"the line has {row.actual_columns} values, not {row.expected_columns}"
        rejects.append((row_as_json(row.text), reason))
        return "skip"

    kinds = {name: _csv_kind(how, name, as_text) for name in shape.names}
    nulls = [""] if how.nulls is None else list(how.nulls)
    with open_stream(path, how.encoding) as stream:
        reader = pa.csv.open_csv(
            stream,
            read_options=pa.csv.ReadOptions(
                block_size=BLOCK_BYTES, column_names=shape.names, skip_rows=shape.skip
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=shape.delimiter,
                quote_char=shape.quote,
                double_quote=True,
                escape_char=shape.escape,
                newlines_in_values=True,
                invalid_row_handler=on_bad_row,
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=kinds,
                null_values=nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null="" not in nulls,
                true_values=["true", "TRUE", "True", "t", "1"],
                false_values=["false", "FALSE", "False", "f", "0"],
                decimal_point=how.decimal_point,
                include_columns=[name for name in shape.names if name not in shape.left_out],
            ),
        )
        seen, last = 0, pa.table({})
        for batch in reader:
            if last.num_rows:
                # Arrow reads ahead: what comes while the caller has this batch goes with the next.
                so_far, rejects = rejects, []
                yield Found(last, so_far, bytes_read(stream))
                seen += last.num_rows
            last = finish(pa.Table.from_batches([batch]), renames=False)
            if has_infinity(last):
                again = read_csv(how, columns, options, as_text=True)
                yield from after_rows(again, seen)
                return
        if last.num_rows and _ends_in_quotes(how, last, shape):
            if not as_text:
                raise pa.ArrowInvalid(_OPEN_QUOTE)
            last, row = last[:-1], last[-1:]
            rejects.append((row_as_json(row.to_pylist()[0]), _OPEN_QUOTE))
        if last.num_rows or rejects:
            yield Found(last if last.num_rows else pa.table({}), rejects, bytes_read(stream))


@dataclass(frozen=True)
class _CsvShape:
    """``names`` are the table's; columns that are left out have names of their own."""

    names: list[str]
    skip: int
    delimiter: str
    quote: str | bool
    escape: str | bool
    left_out: frozenset[str] = frozenset()


def _csv_shape(
    how: Reading, columns: Sequence[str] | None, options: Mapping[str, object]
) -> _CsvShape | None:
    """Delimiter, header and column names; None for an empty file."""
    path, table = how.path, how.table
    quote = _one_char(options, "quote", '"')
    escape = _one_char(options, "escape", None)
    skip = _count(options.get("skip", 0))
    head = _head(path, how.encoding)
    is_whole = len(head) < HEAD_BYTES
    if head.startswith(codecs.BOM_UTF8):
        head = head[len(codecs.BOM_UTF8) :]
    text = head.decode("utf-8", "replace")
    lines = text.splitlines()[skip:]
    while lines and not lines[0].strip():  # Arrow passes over empty lines, but counts them
        lines, skip = lines[1:], skip + 1
    if not lines:
        return None
    delimiter = _one_char(options, "delimiter", None) or _one_char(options, "delim", None)
    delimiter = delimiter or _one_char(options, "sep", None) or _guess_delimiter(lines[0], how)
    first = next(csv.reader([lines[0]], delimiter=delimiter, quotechar=quote or '"'))
    has_header = _flag(options.get("header"))
    if has_header is None:
        has_header = any(_is_known(how, name) for name in first)
    if not has_header:
        names = list(columns) if columns else [column.name for column in table.columns]
        names = [name for name in names if name != how.filename]
        if len(first) != len(names):
            raise FileFormatError(
                f'the first line of "{path}" has {len(first)} values, table "{table.name}" '
                f"has {len(names)} columns",
                hint="name the columns: COPY t (a, b) FROM …, or add a header line",
            )
        return _CsvShape(names, skip, delimiter, quote or False, escape or False)
    names = []
    for at, header in enumerate(first):
        name = how.target(header)
        names.append(f"{header}{_LEFT_OUT}{at}" if name is None else name)
        if name is not None and table.column(name) is None:
            raise UnknownNameError(
                f'table "{table.name}" has no column "{name}", which the header of "{path}" names',
                hint=did_you_mean(name, [column.name for column in table.columns])
                or "EXCLUDE leaves columns out, RENAME gives them other names, HEADER false says "
                "that the first line is data",
            )
    if len(lines) == 1 and is_whole:
        return None  # a header alone
    left_out = frozenset(name for name in names if _LEFT_OUT in name)
    return _CsvShape(names, skip + 1, delimiter, quote or False, escape or False, left_out)


def _head(path: Path, encoding: str | None) -> bytes:
    """The first bytes; a stream that changes the encoding gives fewer at a time."""
    head = b""
    with open_stream(path, encoding) as stream:
        while len(head) < HEAD_BYTES and (more := stream.read(HEAD_BYTES - len(head))):
            head += more
    return head


def _is_known(how: Reading, header: str) -> bool:
    name = how.target(header)
    return name is None or how.table.column(name) is not None


def _ends_in_quotes(how: Reading, last: pa.Table, shape: _CsvShape) -> bool:
    """Whether a quote is open at the end, which Arrow lets pass with all it swallowed.

    The last value then ends as the file does, so most files need no second look."""
    if not shape.quote:
        return False
    with open_stream(how.path, how.encoding) as stream:
        if stream.seekable() and not (how.exclude or how.filename):
            stream.seek(stream.size() - 1)
            value = last.column(last.num_columns - 1)[-1].as_py()
            if stream.read(1) in b"\r\n" and not str(value).endswith(("\r", "\n")):
                return False
    with open_stream(how.path, how.encoding) as stream:
        blocks = iter(lambda: stream.read(BLOCK_BYTES), b"")
        quotes = sum(block.count(str(shape.quote).encode()) for block in blocks)
    if quotes % 2 == 0 and not shape.escape:
        return False
    with open_stream(how.path, how.encoding) as stream:
        lines = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        reader = csv.reader(
            itertools.islice(lines, shape.skip, None),
            delimiter=shape.delimiter,
            quotechar=str(shape.quote),
            escapechar=str(shape.escape) if shape.escape else None,
            strict=True,
        )
        try:
            collections.deque(reader, maxlen=0)
        except csv.Error as error:
            return "end of data" in str(error) or "field limit" in str(error)
    return False


def _guess_delimiter(line: str, how: Reading) -> str:
    """The delimiter under which the line looks most like the table's columns."""
    choice = [each for each in _DELIMITERS if each != how.decimal_point]

    def score(delimiter: str) -> tuple[int, int]:
        fields = next(csv.reader([line], delimiter=delimiter))
        names = sum(_is_known(how, name) for name in fields)
        return names, len(fields) == len(how.table.columns)

    return max(choice, key=score)


def _csv_kind(how: Reading, name: str, as_text: bool) -> pa.DataType:
    """The Arrow type to parse to; what Arrow does not parse strictly is cast from text later."""
    column = how.table.column(name)
    kind = column.type.arrow if column is not None else pa.string()
    is_parsed = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or kind == pa.timestamp("us")
        or pa.types.is_date(kind)
    )
    is_parsed = is_parsed and not how.is_formatted(kind)
    return kind if is_parsed and not as_text else pa.string()


def _count(value: object) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = -1
    if count < 0:
        raise SettingError(f'option "skip" must be a number of lines, not {value!r}')
    return count


def _flag(value: object) -> bool | None:
    if value is None:
        return None
    text = str(value).strip().lower()
    if text in ("true", "1", "on", "yes", ""):
        return True
    if text in ("false", "0", "off", "no"):
        return False
    raise SettingError(f"{value!r} is neither true nor false")


def _one_char(options: Mapping[str, object], name: str, default: str | None) -> str | None:
    if name not in options:
        return default
    text = str(options[name])
    text = {"\\t": "\t", "": ""}.get(text, text)
    if len(text) > 1 or not text.isascii() or text in ("\n", "\r"):
        raise SettingError(f'option "{name}" must be one ASCII character, not {text!r}')
    return text or None
