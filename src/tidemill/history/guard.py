"""The guard: statements name files, and none of them may be the warehouse's own.

Writing one would destroy rows; reading one would show what a query should not, or, for the file of
the owner's lock, give the lock away. A path is followed to where it really leads: relative paths,
``..``, ``~``, symbolic and hard links, ``file:`` URLs and patterns all end at a file, and that file
must lie neither in the warehouse's folder nor in its storage.
"""

from __future__ import annotations

import glob
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from tidemill.errors import UnsupportedError
from tidemill.history.storage import Storage

Expand = Callable[[str], Iterable[str]]
"""The files that a pattern names."""

_URL = re.compile(r"([a-z][a-z0-9+.-]*):/", re.IGNORECASE)
_FILE_URL = re.compile(r"file:(?://(?:localhost)?(?=/))?", re.IGNORECASE)
_MAGIC = re.compile(r"[*?[]")
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs"}


@dataclass(frozen=True)
class Guard:
    """``folder`` is the warehouse's."""

    folder: str
    storage: Storage

    def check_read(self, path: str) -> None:
        """Refuse to read a path, or any file that a pattern means."""
        for each in _named(path, _matches):
            self._check(each)

    def check_query(self, path: str, expand: Expand) -> None:
        """The same for a file function of a query, which would wait for a pipe without end."""
        for each in _named(path, expand):
            self._check(each)
            _check_not_a_pipe(each)

    def check_write(self, path: str) -> None:
        """Refuse to write a path."""
        for each in _spellings(path):
            self._check(each)

    def _check(self, path: str) -> None:
        if self._is_own(path):
            raise UnsupportedError(
                f'"{path[:200]}" belongs to the warehouse',
                detail="its files are read and written by Tidemill alone",
                hint="query the tables themselves, and keep other files outside of the folder "
                f'"{self.folder}"',
            )

    def _is_own(self, path: str) -> bool:
        if _is_remote(path):
            return self.storage.folder is None and _is_below(path, self.storage.root)
        real = os.path.realpath(path)
        if any(real == root or real.startswith(root.rstrip("/") + "/") for root in self._roots()):
            return True
        return self._is_linked(real)

    def _roots(self) -> Iterator[str]:
        yield os.path.realpath(self.folder)
        if self.storage.folder is not None:
            yield os.path.realpath(self.storage.folder)

    def _is_linked(self, path: str) -> bool:
        """Whether a file is one of the warehouse's under another name."""
        try:
            status = os.stat(path)
        except OSError:
            return False
        if status.st_nlink < 2 or os.path.isdir(path):
            return False
        return any(
            (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino)
            for root in self._roots()
            for found in _files(root)
        )


def _check_not_a_pipe(path: str) -> None:
    try:
        is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:  # whoever reads it says so
        return
    if is_pipe:
        raise UnsupportedError(
            f'"{path[:200]}" is a pipe, and a query may read a file more than once',
            hint="COPY table FROM reads a pipe",
        )


def _files(root: str) -> Iterator[os.stat_result]:
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                yield os.stat(os.path.join(folder, name))
            except OSError:
                continue


def _spellings(path: str) -> Iterator[str]:
    """A path as a file system sees it: without ``file:``, with and without escapes."""
    is_url = _FILE_URL.match(path) is not None
    plain = os.path.expanduser(_FILE_URL.sub("", path, count=1) if is_url else path)
    yield plain
    if is_url and "%" in plain:
        yield unquote(plain)


def _named(path: str, expand: Expand) -> Iterator[str]:
    """A path in all its spellings, with the files that it means as a pattern."""
    for each in _spellings(path):
        yield each
        if _MAGIC.search(each) and not _is_remote(each):
            yield from expand(each)


def _matches(pattern: str) -> Iterable[str]:
    return glob.iglob(pattern, recursive=True)


def _is_remote(path: str) -> bool:
    return bool(_URL.match(path)) and "://" in path


def _is_below(url: str, root: str) -> bool:
    found, own = _normal(url), _normal(root)
    return found == own or found.startswith(own.rstrip("/") + "/")


def _normal(url: str) -> str:
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    path = posixpath.normpath("/" + unquote(f"{parts.netloc}/{parts.path}").strip("/"))
    return f"{_SAME.get(scheme, scheme)}:{path}"
