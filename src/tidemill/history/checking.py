"""Checking: a file of history is compared with its checksums before anybody believes it.

The catalog keeps a checksum for every block of a file. Code that reads a file, in any process
and by any engine, calls ``check_files`` first, in the process that reads (Spark's own SQL: in
the owner):

1. the blocks at the end are checked: they hold the footer, its statistics and the bloom filters, by
   which readers skip rows;
2. the footer says where the columns lie; the blocks of those that are wanted are checked, in a
   window of time only those of row groups that can have rows of it. A small file is checked
   whole, which is less work than reading its footer;
3. what was checked is remembered by this process for ``RECHECK_S``, as long as size, inode and time
   of change of the file stay the same. Objects in a store are not changed in place: theirs are not
   looked at again before.

So a file is read once more when a process first needs it, and afterwards costs a look at its
directory entry. VACUUM checks all blocks of all files and believes no memory. Files of releases
without checksums are read as they are.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from tidemill.catalog.model import FILE_DIGEST, NewFile
from tidemill.checksums import BLOCK_BYTES, crc32, read_sums
from tidemill.errors import DamagedFileError
from tidemill.history.footers import Footer
from tidemill.history.partitions import folder_name
from tidemill.history.storage import Storage
from tidemill.history.window import Window

RECHECK_S = 24 * 3600.0
WHOLE_BYTES_MAX = 4 * BLOCK_BYTES  # a file of that size is checked whole
KNOWN_FILES_MAX = 200_000
FOOTERS_MAX = 1_000  # of files that windows cut, kept for the next window
THREADS_MAX = 4
TOGETHER_BYTES_MIN = 32 * 2**20  # less than that is not worth threads
_FOOTER_BYTES = 8

Identity = tuple[int, int, int]
ReadAt = Callable[[int, int], bytes | memoryview]


@dataclass(frozen=True)
class Reads:
    """Files that a statement reads: all their columns, or those named, and all their rows, or
    those of a window. Whoever gives a window has it in the SELECT that reads the files."""

    storage: Storage
    table: str
    files: tuple[NewFile, ...]
    columns: frozenset[str] | None = None
    window: Window | None = None

    def check(self) -> None:
        check_files(self.storage, self.table, self.files, self.columns, self.window)

    def check_all_times(self) -> None:
        """For a reader that may look at rows outside the window."""
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
_footers: dict[tuple[str, Identity, frozenset[str] | None, str], Footer] = {}
_lock = threading.Lock()


def check_files(
    storage: Storage,
    table: str,
    files: Sequence[NewFile],
    columns: Collection[str] | None = None,
    window: Window | None = None,
) -> None:
    """Raise a DamagedFileError if a file is not what was written, as far as reading the named
    columns (None: all) and the times of a window (None: all) can meet it. ``table`` is for the
    error."""
    named = columns if columns is None or window is None else {*columns, window.column.name}
    lower = None if named is None else frozenset(name.lower() for name in named)
    due = []
    for file in files:
        within = window if window is not None and window.cuts(file) else None
        entry = _due(storage, table, file, lower, within)
        if entry is not None:
            due.append(entry)
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
                _Due(storage, table, file, None, None, None, None).check()
            except DamagedFileError as error:
                yield file, error


def _due(
    storage: Storage,
    table: str,
    file: NewFile,
    columns: frozenset[str] | None,
    window: Window | None,
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
    footer = None
    if window is not None:
        footer = _footers.get((place, identity, columns, window.column.name))
        if footer is not None and _blocks(_spans(footer, window)) <= known.blocks:
            return None
    return _Due(storage, table, file, columns, window, known, footer)


def _spans(footer: Footer, window: Window | None) -> list[tuple[int, int]]:
    return footer.spans() if window is None else footer.spans(window.low_us, window.high_us)


def _blocks(spans: Iterable[tuple[int, int]]) -> set[int]:
    """The blocks in which some ranges of bytes lie."""
    return {
        block for low, high in spans for block in range(low // BLOCK_BYTES, -(-high // BLOCK_BYTES))
    }


@dataclass(frozen=True)
class _Due:
    """One file to check. With ``known``, only blocks that it does not have yet; with ``footer``,
    those at its end are among these."""

    storage: Storage
    table: str
    file: NewFile
    columns: frozenset[str] | None
    window: Window | None
    known: _Known | None
    footer: Footer | None

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
        size, known, window = self.file.bytes, self.known, self.window
        is_whole = self.columns is None and window is None
        if is_whole or size <= WHOLE_BYTES_MAX or known is None:
            self._check_blocks(read_at, [(0, size)])
            if known is not None:
                known.is_whole = True
            return
        footer = self._footer(read_at) if self.footer is None else self.footer
        self._check_blocks(read_at, [(footer.end, size)])
        self._check_blocks(read_at, _spans(footer, window))
        if window is not None:
            self._keep(footer, window, known)
        elif self.columns is not None:
            known.columns |= self.columns

    def _footer(self, read_at: ReadAt) -> Footer:
        """What the footer says of the wanted columns; it is checked before."""
        size = self.file.bytes
        self._check_blocks(read_at, [(size - _FOOTER_BYTES, size)])
        length = int.from_bytes(bytes(read_at(size - _FOOTER_BYTES, size))[:4], "little")
        begin = max(size - _FOOTER_BYTES - length, 0)
        self._check_blocks(read_at, [(begin, size)])
        time_column = None if self.window is None else self.window.column.name
        try:
            return Footer.read(bytes(read_at(begin, size)), self.columns, time_column)
        except pa.ArrowException as error:  # its checksum is right: it was written so
            raise self._damaged(f"its footer cannot be read: {error}") from error

    def _keep(self, footer: Footer, window: Window, known: _Known) -> None:
        place = self.storage.place(self.file.path)
        with _lock:
            while len(_footers) >= FOOTERS_MAX:
                _footers.pop(next(iter(_footers)))
            _footers[place, known.identity, self.columns, window.column.name] = footer

    def _check_blocks(self, read_at: ReadAt, spans: Iterable[tuple[int, int]]) -> None:
        """Check the blocks of some ranges of bytes; neighbours are read one after the other."""
        assert self.file.checksums is not None
        sums = read_sums(self.file.checksums)
        done = self.known.blocks if self.known is not None else set()
        for block in sorted(_blocks(spans) - done):
            start = block * BLOCK_BYTES
            end = min(start + BLOCK_BYTES, self.file.bytes)
            if block >= len(sums) or crc32(read_at(start, end)) != sums[block]:
                raise self._damaged(f"bytes {start} to {end} fail their checksum")
            done.add(block)

    def _damaged(self, reason: str) -> DamagedFileError:
        return _damaged(self.storage, self.table, self.file, reason)


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
