"""Checksums of bytes at rest: CRC-32, over whole pieces or over the blocks of a file.

One flipped bit, or any run of wrong bytes up to 32 bits, always changes a CRC-32. Frames of the log
carry one each. A file of history has one for each block of ``BLOCK_BYTES``, so that a reader who
needs a few columns of a large file checks the blocks where these lie, and no others. zlib-ng gives
the same values as zlib, several times faster (docs/design/20261118-checksums.md).
"""

from __future__ import annotations

import base64
import struct
from typing import Any

from zlib_ng.zlib_ng import crc32

__all__ = [
    "BLOCK_BYTES",
    "BlockSums",
    "SummedFile",
    "crc32",
    "read_sums",
]

BLOCK_BYTES = 256 * 1024


class BlockSums:
    """The checksums of a file's blocks, taken while its bytes pass by in any pieces."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._crc = 0
        self._filled = 0

    def add(self, piece: Any) -> None:
        view = memoryview(piece).cast("B")
        start = 0
        while start < len(view):
            part = view[start : start + BLOCK_BYTES - self._filled]
            self._crc = crc32(part, self._crc)
            self._filled += len(part)
            start += len(part)
            if self._filled == BLOCK_BYTES:
                self._done.append(self._crc)
                self._crc = self._filled = 0

    def text(self) -> str:
        """What the catalog keeps."""
        found = [*self._done, self._crc] if self._filled else self._done
        return base64.b64encode(struct.pack(f"<{len(found)}I", *found)).decode()


def read_sums(text: str) -> tuple[int, ...]:
    """The checksums of a file's blocks from what the catalog keeps.

    >>> sums = BlockSums()
    >>> sums.add(b"rows")
    >>> read_sums(sums.text()) == (crc32(b"rows"),)
    True
    """
    packed = base64.b64decode(text)
    return struct.unpack(f"<{len(packed) // 4}I", packed)


class SummedFile:
    """A file to be written, an ordinary one for its writer, that keeps the checksums of what goes
    through it; ``checksums`` is their text when all is written."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._sums = BlockSums()
        self._size = 0

    @property
    def checksums(self) -> str:
        return self._sums.text()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def write(self, piece: Any) -> int:
        self._file.write(piece)
        self._sums.add(piece)
        size = memoryview(piece).nbytes
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SummedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
