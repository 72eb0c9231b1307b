"""What the file readers share: a batch found in a file, and how a file is opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

BATCH_ROWS = 131_072
BLOCK_BYTES = 4 << 20


@dataclass
class Found:
    """A batch of rows under the file's names, and (line, reason) of lines that are no rows."""

    rows: pa.Table
    rejects: list[tuple[str, str]] = field(default_factory=list)
    bytes_read: int = 0


def open_stream(path: Path, encoding: str | None = None) -> Any:
    """A stream of the file's bytes, decompressed by its name, in UTF-8."""
    stream = pa.input_stream(str(path), compression="detect")
    if encoding is None:
        return stream
    return pa.transcoding_input_stream(stream, encoding, "utf-8")


def bytes_read(stream: Any) -> int:
    """How far a stream was read; 0 for a compressed one, which does not know."""
    return int(stream.tell()) if stream.seekable() else 0


def has_infinity(rows: pa.Table) -> bool:
    """Arrow reads digits too many as infinity; read again as text, they are told from the word."""
    floats = [column for column in rows.columns if pa.types.is_floating(column.type)]
    return any(pc.any(pc.is_inf(column)).as_py() for column in floats)


def after_rows(founds: Iterator[Found], count: int) -> Iterator[Found]:
    """What follows the first ``count`` rows."""
    for found in founds:
        skipped = min(count, found.rows.num_rows)
        count -= skipped
        if found.rejects or skipped < found.rows.num_rows:
            yield Found(found.rows.slice(skipped), found.rejects, found.bytes_read)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
