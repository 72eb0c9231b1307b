"""The write-ahead log of the reference tables' file, checked before DuckDB believes it.

DuckDB checks every block of its file, and replays its log up to the first entry that is damaged:
what follows, which was acknowledged, is dropped without a word, as if it had never been finished.
So after each change the length and the checksum of the log go to ``reference.duckdb.head``, and
with them the checksum of the file's headers, which every checkpoint changes. At a start:

1. if the headers are others, a checkpoint came after the record: it says nothing any more;
2. if they are the same, the log must begin with the bytes that the record speaks of.

The record is never ahead of the log, so it needs no fsync.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tidemill.checksums import crc32
from tidemill.errors import DamagedFileError

_HEADER_BYTES = 3 * 4096  # DuckDB's main header and its two database headers
_PIECE_BYTES = 1 << 20


class ReferenceLog:
    """The record of one file's log. Whoever changes the file calls ``record`` before another may
    change it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}.wal")
        self._head = path.with_name(f"{path.name}.head")
        self._known = (0, 0, 0)  # headers' checksum, length and checksum of the log so far

    def check(self) -> None:
        """An error if changes that were acknowledged are damaged."""
        try:
            record = self._head.read_bytes().split()
        except FileNotFoundError:
            return
        if len(record) != 4 or record[3] != b"%08x" % crc32(b" ".join(record[:3])):
            return  # it is damaged itself
        headers, length, crc = int(record[0], 16), int(record[1]), int(record[2], 16)
        if headers != self._headers() or not length:
            return
        if self._summed(0, 0, length) != (length, crc):
            raise DamagedFileError(
                f'file "{self._log}" is damaged: changes of reference tables in it fail their '
                "checksum",
                detail="changes that were acknowledged would be lost",
                hint="restore the file from a copy together with reference.duckdb; to go on "
                f"without its last changes, remove {self._head}",
            )

    def record(self) -> None:
        """Note how the log looks after a change. What cannot be read is noted as nothing."""
        headers = self._headers()
        size = self._log.stat().st_size if self._log.exists() else 0
        known, length, crc = self._known
        if known != headers or length > size:
            length = crc = 0
        length, crc = self._summed(length, crc, size)
        self._known = headers, length, crc
        text = b"%08x %d %08x" % (headers, length, crc)
        with suppress(OSError):
            handle = os.open(self._head, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                written = os.pwrite(handle, b"%s %08x\n" % (text, crc32(text)), 0)
                os.ftruncate(handle, written)
            finally:
                os.close(handle)

    def _headers(self) -> int:
        try:
            with open(self._path, "rb") as file:
                return int(crc32(file.read(_HEADER_BYTES)))
        except OSError:
            return 0

    def _summed(self, start: int, crc: int, end: int) -> tuple[int, int]:
        """The checksum of the log up to a place, from one that is known; where it ends."""
        if start >= end:
            return start, crc
        try:
            with open(self._log, "rb") as file:
                file.seek(start)
                while start < end and (piece := file.read(min(_PIECE_BYTES, end - start))):
                    crc = crc32(piece, crc)
                    start += len(piece)
        except OSError:
            return 0, 0
        return start, crc
