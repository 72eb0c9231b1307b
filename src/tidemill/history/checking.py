"""Checking: a file of history is compared with its checksums before anybody believes it.

The catalog keeps a checksum for every block of a file. Code that reads a file, in any process
and by any engine, calls ``check_files`` first, in the process that reads (Spark's own SQL: in
the owner):

1. the blocks at the end are checked: they hold the footer, its statistics and the bloom filters, by
   which readers skip rows;
2. the footer says where the columns lie; the blocks of those that are wanted are checked. A small
   file is checked whole, which is less work than reading its footer;
3. what was checked is remembered by this process for ``RECHECK_S``, as long as size, inode and time
   of change of the file stay the same. Objects in a store are not changed in place: theirs are not
   looked at again before.

So a file is read once more when a process first needs it, and afterwards costs a look at its
directory entry. VACUUM checks all blocks of all files and believes no memory. Files of releases
without checksums are read as they are.
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.catalog.model import FILE_DIGEST, NewFile
from tidemill.checksums import BLOCK_BYTES, crc32, read_sums
from tidemill.errors import DamagedFileError
from tidemill.history.partitions import folder_name
from tidemill.history.storage import Storage

RECHECK_S = 24 * 3600.0
WHOLE_BYTES_MAX = 4 * BLOCK_BYTES  # a file of that size is checked whole
KNOWN_FILES_MAX = 200_000
THREADS_MAX = 4
TOGETHER_BYTES_MIN = 32 * 2**20  # less than that is not worth threads
_FOOTER_BYTES = 8

Identity = tuple[int, int, int]
ReadAt = Callable[[int, int], bytes | memoryview]


@dataclass(frozen=True)
class Reads:
    """Files that a statement reads: all their columns, or those named."""

    storage: Storage
    table: str
    files: tuple[NewFile, ...]
    columns: frozenset[str] | None = None

    def check(self) -> None:
        check_files(self.storage, self.table, self.files, self.columns)


@dataclass
class _Known:
    """What this process has checked of a file."""

    identity: Identity
    until_s: float
    blocks: set[int] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)
    is_whole: bool = False

    def covers(self, columns: Collection[str] | None) -> bool:
        return self.is_whole or (columns is not None and self.columns.issuperset(columns))


_known: dict[str, _Known] = {}
_lock = threading.Lock()


def check_files(
    storage: Storage,
    table: str,
    files: Sequence[NewFile],
    columns: Collection[str] | None = None,
) -> None:
    """Raise a DamagedFileError if a file is not what was written, as far as reading the named
    columns (None: all) can meet it. ``table`` is for the error."""
    lower = None if columns is None else frozenset(name.lower() for name in columns)
    due = [entry for file in files if (entry := _due(storage, table, file, lower)) is not None]
    size = sum(entry.file.bytes for entry in due)
    if len(due) > 1 and size >= TOGETHER_BYTES_MIN:
        with ThreadPoolExecutor(min(THREADS_MAX, os.cpu_count() or 1), "tidemill-check") as pool:
            list(pool.map(_Due.check, due))
    else:
        for entry in due:
            entry.check()


def damaged_files(
    storage: Storage, files: Iterable[tuple[str, NewFile]]
) -> Iterable[tuple[NewFile, DamagedFileError]]:
    """Those of some files, with the names of their tables, that are damaged; read whole."""
    for table, file in files:
        if file.checksums is not None:
            try:
                _Due(storage, table, file, None, None).check()
            except DamagedFileError as error:
                yield file, error


def _due(
    storage: Storage, table: str, file: NewFile, columns: frozenset[str] | None
) -> _Due | None:
    """What is left to check of a file; None if nothing is."""
    if file.checksums is None:
        return None
    place = storage.place(file.path)
    if storage.folder is None:
        identity: Identity = (file.bytes, 0, 0)
    else:
        try:
            status = os.stat(place)
        except OSError as error:
            raise _unreadable(storage, table, file, error) from error
        identity = status.st_size, status.st_mtime_ns, status.st_ino
    known = _known.get(place)
    if known is None or known.identity != identity or known.until_s < time.monotonic():
        known = _Known(identity, time.monotonic() + RECHECK_S)
    elif known.covers(columns):
        return None
    return _Due(storage, table, file, columns, known)


@dataclass(frozen=True)
class _Due:
    """One file to check. With ``known``, only blocks that it does not have yet."""

    storage: Storage
    table: str
    file: NewFile
    columns: frozenset[str] | None
    known: _Known | None

    def check(self) -> None:
        file, known = self.file, self.known
        try:
            with self.storage.opened(file.path) as (size, read_at):
                if size != file.bytes:
                    raise self._damaged(f"it has {size} bytes and should have {file.bytes}")
                self._check(read_at)
        except OSError as error:
            raise _unreadable(self.storage, self.table, file, error) from error
        if known is not None:
            with _lock:
                while len(_known) >= KNOWN_FILES_MAX:
                    _known.pop(next(iter(_known)))
                _known[self.storage.place(file.path)] = known

    def _check(self, read_at: ReadAt) -> None:
        size, known = self.file.bytes, self.known
        if self.columns is None or size <= WHOLE_BYTES_MAX or known is None:
            self._check_blocks(read_at, [(0, size)])
            if known is not None:
                known.is_whole = True
            return
        spans, tail = self._spans(read_at)
        self._check_blocks(read_at, [(tail, size)])
        self._check_blocks(read_at, spans)
        known.columns |= self.columns

    def _spans(self, read_at: ReadAt) -> tuple[list[tuple[int, int]], int]:
        """Where the wanted columns lie, and where the last of all columns ends."""
        size = self.file.bytes
        self._check_blocks(read_at, [(size - _FOOTER_BYTES, size)])
        length = int.from_bytes(bytes(read_at(size - _FOOTER_BYTES, size))[:4], "little")
        begin = max(size - _FOOTER_BYTES - length, 0)
        self._check_blocks(read_at, [(begin, size)])
        try:
            about = pq.read_metadata(io.BytesIO(b"PAR1" + bytes(read_at(begin, size))))
            found = list(_chunks(about))
        except pa.ArrowException as error:  # its checksum is right: it was written so
            raise self._damaged(f"its footer cannot be read: {error}") from error
        wanted = self.columns or frozenset()
        spans = [(low, high) for name, low, high in found if _is_of(name, wanted)]
        return spans, max((high for _, _, high in found), default=0)

    def _check_blocks(self, read_at: ReadAt, spans: Iterable[tuple[int, int]]) -> None:
        """Check the blocks of some ranges of bytes; neighbours are read one after the other."""
        assert self.file.checksums is not None
        sums = read_sums(self.file.checksums)
        done = self.known.blocks if self.known is not None else set()
        wanted = {
            block
            for low, high in spans
            for block in range(low // BLOCK_BYTES, -(-high // BLOCK_BYTES))
        }
        for block in sorted(wanted - done):
            start = block * BLOCK_BYTES
            end = min(start + BLOCK_BYTES, self.file.bytes)
            if block >= len(sums) or crc32(read_at(start, end)) != sums[block]:
                raise self._damaged(f"bytes {start} to {end} fail their checksum")
            done.add(block)

    def _damaged(self, reason: str) -> DamagedFileError:
        return _damaged(self.storage, self.table, self.file, reason)


def _chunks(about: pq.FileMetaData) -> Iterable[tuple[str, int, int]]:
    """The column chunks of a file: name, begin and end."""
    for group in range(about.num_row_groups):
        row_group = about.row_group(group)
        for at in range(row_group.num_columns):
            chunk = row_group.column(at)
            begin = chunk.data_page_offset
            if chunk.dictionary_page_offset is not None:
                begin = min(begin, chunk.dictionary_page_offset)
            yield chunk.path_in_schema.lower(), begin, begin + chunk.total_compressed_size


def _is_of(path: str, columns: frozenset[str]) -> bool:
    """Whether a column of a file belongs to one of those wanted; parts of nested ones do."""
    return path in columns or any(path.startswith(f"{name}.") for name in columns)


def _unreadable(storage: Storage, table: str, file: NewFile, error: OSError) -> DamagedFileError:
    reason = "it is missing" if isinstance(error, FileNotFoundError) else str(error)
    return _damaged(storage, table, file, reason)


def _damaged(storage: Storage, table: str, file: NewFile, reason: str) -> DamagedFileError:
    return DamagedFileError(
        f'file "{file.path}" of table "{table}" is damaged: {reason}',
        detail=f"partition {folder_name(file.lo_us)}, {file.rows} rows of kind {file.kind}, "
        f"at {storage.place(file.path)}",
        hint="restore the file from a copy; "
        + (
            "or have the view built anew with CREATE OR REPLACE MATERIALIZED VIEW"
            if file.kind == FILE_DIGEST
            else f'to go on without its rows, VACUUM "{table}" DROP DAMAGED'
        ),
    )
