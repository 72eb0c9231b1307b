"""A file of the log as memory: rows that stand in it need not stand in memory once more.

What was written to a file is in the operating system's page cache already, and a mapping shows it
without a copy. The mapping is made for more bytes than the file has, since the file grows; only
what was written is ever looked at. It ends when the last buffer in it has gone, even if the file
was removed before. (``mmap`` of the standard library maps no more than there is, and keeps a file
descriptor for each mapping.)
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import pyarrow as pa

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value
_SYNC_FILE_RANGE_WRITE = 2


def begin_writing(fd: int, offset: int, size: int) -> None:
    """Let the disk begin with bytes that will be forced soon, and do not wait. No promise: whether
    it does is nobody's concern but the clock's."""
    call = getattr(_libc, "sync_file_range", None)
    if call is not None:
        call(fd, ctypes.c_int64(offset), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)


class MappedFile:
    """The first ``size`` bytes of a file, to be read where the file has them."""

    def __init__(self, fd: int, size: int) -> None:
        """Raises OSError if the file system cannot."""
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.size = size
        self._address = address
        weakref.finalize(self, _libc.munmap, address, size).atexit = False

    def buffer(self, start: int, size: int) -> pa.Buffer:
        """Some bytes; the mapping lives as long as they do."""
        if not 0 <= start <= start + size <= self.size:
            raise ValueError(f"{size} bytes from {start} on are not in a mapping of {self.size}")
        return pa.foreign_buffer(self._address + start, size, base=self)
