"""A file of history while it is written: rows in, in the order of the file, a ``NewFile`` out.

Rows may come in several runs, so that a file can be larger than memory; what the catalog is told of
the file grows with each. The file lies in its final place from the beginning, and exists for nobody
until the catalog names it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa

from tidemill.catalog.model import NewFile
from tidemill.errors import DiskFullError, DurabilityError
from tidemill.history.parquet import Layout, open_parquet, write_groups
from tidemill.history.ranges import united
from tidemill.history.storage import Storage


class OpenFile:
    """A file to which rows are added."""

    def __init__(self, storage: Storage, path: str, schema: pa.Schema, layout: Layout) -> None:
        self._path = path
        self._told: NewFile | None = None
        with failing_as_ours(path):
            self._sink = storage.create(path)
            self._writer = open_parquet(self._sink, schema, layout)

    @property
    def rows(self) -> int:
        return 0 if self._told is None else self._told.rows

    def add(self, rows: pa.RecordBatch, ends: Sequence[int], told: NewFile) -> None:
        """Write rows in row groups that end so; ``told`` is what the catalog shall know of them."""
        with failing_as_ours(self._path):
            write_groups(self._writer, rows, ends)
        self._told = told if self._told is None else _joined(self._told, told)

    def close(self) -> NewFile:
        """The file, with its checksums and without its size."""
        assert self._told is not None, "no rows"
        with failing_as_ours(self._path):
            self._writer.close()
            self._sink.close()
        return replace(self._told, checksums=self._sink.checksums)

    def abandon(self) -> None:
        """Let go of a file that could not be written."""
        for each in (self._writer, self._sink):
            with suppress(Exception):  # what failed before is told, not what fails now
                each.close()


def finished(storage: Storage, files: Sequence[NewFile]) -> list[NewFile]:
    """The files, durable, with their sizes."""
    if not files:
        return []
    with failing_as_ours(files[0].path):
        sizes = storage.finish_all([file.path for file in files])
    return [replace(file, bytes=size) for file, size in zip(files, sizes, strict=True)]


@contextmanager
def failing_as_ours(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC or "No space left" in str(error):
            raise DiskFullError(f'no space left for "{path}"', detail=str(error)) from error
        raise DurabilityError(f'"{path}" could not be written', detail=str(error)) from error


def _joined(one: NewFile, other: NewFile) -> NewFile:
    """What is told of rows and of those that follow them."""
    return replace(
        one,
        rows=one.rows + other.rows,
        row_groups=one.row_groups + other.row_groups,
        time_min_us=min(one.time_min_us, other.time_min_us),
        time_max_us=max(one.time_max_us, other.time_max_us),
        seq_min=min(one.seq_min, other.seq_min),
        seq_max=max(one.seq_max, other.seq_max),
        ranges={name: united(found, other.ranges[name]) for name, found in one.ranges.items()},
    )
