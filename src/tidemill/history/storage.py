"""Where files lie: a local folder, or whatever fsspec reaches by URL.

A local folder is used directly and made durable with fsync; anything else goes through fsspec,
which DuckDB calls for its reads and writes. Paths are relative to the root, with slashes: the
catalog keeps them, so a warehouse may be moved or mounted elsewhere. A storage is small and can be
pickled: Spark's tasks get it by value.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import fsspec  # type: ignore[import-untyped]

from tidemill.catalog.frozen import FrozenMap
from tidemill.checksums import SummedFile
from tidemill.config import DUCKDB_CLOSED
from tidemill.errors import SettingError
from tidemill.history.memory import duck_settings
from tidemill.permissions import make_file, make_folder, spill_folder
from tidemill.types import literal

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")  # no folders; a bucket is not made
_GLOB = re.compile(r"[*?[]")
_SPILL = ".spill"


@dataclass(frozen=True)
class Storage:
    """``root`` is an absolute folder or a URL (file://, s3://, memory://…); ``options`` are what
    fsspec's filesystem of that URL is made with."""

    root: str
    options: Mapping[str, str] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        if not _URL.match(self.root) and not os.path.isabs(self.root):
            raise SettingError(
                f'storage "{self.root}" is neither an absolute folder nor a URL',
                hint="give a folder that begins with / or a URL such as s3://bucket/folder",
            )

    @property
    def folder(self) -> str | None:
        """The local folder, or None if the root is elsewhere."""
        if not _URL.match(self.root):
            return self.root.rstrip("/") or "/"
        parts = urlsplit(self.root)
        if parts.scheme.lower() != "file":
            return None
        return unquote(parts.path).rstrip("/") or "/"

    @property
    def _filesystem(self) -> Any:
        protocol = self.root.split("://", 1)[0].lower()
        try:
            # fsspec keeps one per options; a listing it kept would hide what other processes write
            return fsspec.filesystem(protocol, **{"use_listings_cache": False, **self.options})
        except (ValueError, ImportError) as error:
            raise SettingError(
                f'storage "{self.root}" cannot be reached',
                detail=str(error),
                hint="install the fsspec package of that protocol; for S3: "
                "pip install 'tidemill[s3]'",
            ) from error

    def place(self, path: str) -> str:
        """The whole name of a file, as DuckDB writes it."""
        folder = self.folder
        base = self.root.rstrip("/") if folder is None else folder.rstrip("/")
        return f"{base}/{path}"

    def pattern(self, path: str) -> str:
        """The whole name of a file, as DuckDB reads it: a pattern that matches nothing else."""
        return _GLOB.sub(lambda found: f"[{found[0]}]", self.place(path))

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let DuckDB reach the root."""
        if self.folder is not None:
            return
        filesystem = self._filesystem
        names = filesystem.protocol  # one name or several, of which DuckDB lists the first
        first = names if isinstance(names, str) else names[0]
        if first not in connection.list_filesystems():
            connection.register_filesystem(filesystem)

    def connect(self, threads: int = 1) -> duckdb.DuckDBPyConnection:
        """A DuckDB of its own, as the pipeline's tasks use one; whoever asked closes it."""
        connection = duckdb.connect(
            ":memory:", config={"threads": threads, **DUCKDB_CLOSED, **duck_settings()}
        )
        connection.execute("SET TimeZone = 'UTC'; SET arrow_lossless_conversion = true")
        connection.execute(f"SET temp_directory = {literal(self._spill_folder())}")
        self.prepare(connection)
        return connection

    def create(self, path: str) -> SummedFile:
        """An open file to be written, its folder made; it knows its checksums in the end."""
        self.make_folder(path.rpartition("/")[0])
        if self.folder is not None:
            make_file(self.place(path))
            return SummedFile(open(self.place(path), "wb"))
        return SummedFile(self._filesystem.open(self.place(path), "wb"))

    @contextmanager
    def opened(self, path: str) -> Iterator[tuple[int, Callable[[int, int], bytes | memoryview]]]:
        """A file to be read in pieces: its size, and what gives the bytes between two places. A
        piece is good until the next one is asked for."""
        if self.folder is None:
            place, filesystem = self.place(path), self._filesystem
            size = int(filesystem.size(place))
            yield size, lambda start, end: filesystem.cat_file(place, start=start, end=end)
            return
        handle = os.open(self.place(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield os.fstat(handle).st_size, _Reader(handle)
        finally:
            os.close(handle)

    def clean(self) -> None:
        """Remove what tasks that were killed have left beside the files."""
        if self.folder is not None:
            shutil.rmtree(self.place(_SPILL), ignore_errors=True)

    def _spill_folder(self) -> str:
        """Where a DuckDB may put what its memory cannot hold: a folder of its own, in one that is
        closed to other users. DuckDB makes it when it is needed and removes it."""
        if self.folder is None:
            return spill_folder()
        make_folder(self.place(_SPILL))
        return self.place(f"{_SPILL}/{uuid.uuid4().hex}")

    def make_folder(self, path: str) -> None:
        """Make the folder of files to be written."""
        if self.folder is not None:
            make_folder(self.place(path))
        elif self.root.partition("://")[0].lower() not in _BUCKETS:
            self._filesystem.makedirs(self.place(path), exist_ok=True)

    def make_file(self, path: str) -> None:
        """Make an empty local file for DuckDB to fill, closed to other users."""
        if self.folder is not None:
            make_file(self.place(path))

    def finish(self, path: str) -> int:
        """Make a written file durable, with the folders that lead to it; answers its bytes."""
        return self.finish_all([path])[0]

    def finish_all(self, paths: Sequence[str]) -> Sequence[int]:
        """Make written files durable; a folder that several share is forced to disk once."""
        folder = self.folder
        if folder is None:
            return [int(self._filesystem.size(self.place(path))) for path in paths]
        sizes = [_sync(self.place(path)) for path in paths]
        parents = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
        for parent in sorted(parents, reverse=True):
            _sync(f"{folder}/{parent}")
        return sizes

    def list(self, prefix: str = "") -> Iterator[tuple[str, int, float]]:
        """Path, bytes and time of change (seconds since 1970) of every file below a folder."""
        return self._list_remote(prefix) if self.folder is None else self._list_local(prefix)

    def delete(self, path: str) -> None:
        """Remove a file and the folder that it leaves empty; a missing file is no error."""
        if self.folder is None:
            with suppress(FileNotFoundError):
                self._filesystem.rm_file(self.place(path))
            return
        place = self.place(path)
        with suppress(FileNotFoundError):
            os.remove(place)
        with suppress(OSError):  # not empty, or gone
            os.rmdir(os.path.dirname(place))

    def _list_local(self, prefix: str) -> Iterator[tuple[str, int, float]]:
        base = Path(self.folder or "/")
        for parent, _, names in os.walk(base / prefix):
            for name in sorted(names):
                place = Path(parent, name)
                with suppress(FileNotFoundError):
                    status = place.stat()
                    yield place.relative_to(base).as_posix(), status.st_size, status.st_mtime

    def _list_remote(self, prefix: str) -> Iterator[tuple[str, int, float]]:
        base = self._filesystem._strip_protocol(self.root).rstrip("/") + "/"
        try:
            found = self._filesystem.find(base + prefix, detail=True, refresh=True)
        except FileNotFoundError:
            return
        for name, about in sorted(found.items()):
            if about.get("type") == "directory":  # what some stores keep of a folder once used
                continue
            yield name.removeprefix(base), int(about["size"]), _changed(about)


class _Reader:
    """Reads pieces of a local file into one buffer."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._buffer = bytearray(0)

    def __call__(self, start: int, end: int) -> memoryview:
        if len(self._buffer) < end - start:
            self._buffer = bytearray(end - start)
        view = memoryview(self._buffer)[: end - start]
        done = 0
        while done < len(view):
            count = os.preadv(self._handle, [view[done:]], start + done)
            if not count:
                break
            done += count
        return view[:done]


def _sync(place: str) -> int:
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def _changed(about: Mapping[str, Any]) -> float:
    """The time of change: filesystems name it differently, and some do not know it."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = about.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0
