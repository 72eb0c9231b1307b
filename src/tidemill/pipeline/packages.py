"""Packages: the files in which rows arrive, as they lie in a folder or behind a URL.

``list_packages`` names what a pattern matches, ``fetched`` brings one package to where the readers
can open it, with its digest, and ``group`` deals packages out to tasks. A package is known by its
name (an absolute path, or a URL), its size and the digest of its bytes.

Names that begin with a dot or an underscore are left alone, as by most tools: writers use them for
files that are not finished.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fsspec  # type: ignore[import-untyped]

from tidemill.errors import FileFormatError, SettingError
from tidemill.errors import PackageChangedError as PackageChangedError
from tidemill.pipeline.file_digests import Digesting, digest_of, has_digest

LISTED_MAX = 5_000_000
WHOLE_FILE = 2**62  # the offset that marks a file which was appended in batches as whole
FINGERPRINT_BYTES = 1 << 20
COPY_BYTES = 1 << 20
TASK_WEIGHT_MIN = 16 << 20
TASK_WEIGHT_MAX = 256 << 20
TASK_PACKAGES_MAX = 10_000
TASKS_PER_CORE = 2
PACKAGE_WEIGHT = 64 << 10  # what opening a package costs, in bytes of text
PACKED_WEIGHT = 4
PACKED_SUFFIXES = (".gz", ".zst", ".bz2", ".lz4", ".parquet")

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class Listed:
    """A package as it was seen: ``modified_us`` is 0 where the file system does not know it."""

    name: str
    size: int
    modified_us: int = 0

    @property
    def weight(self) -> int:
        """How much work it is, in bytes of text."""
        packed = PACKED_WEIGHT if self.name.lower().endswith(PACKED_SUFFIXES) else 1
        return PACKAGE_WEIGHT + packed * self.size


@dataclass(frozen=True)
class Fetched:
    """A package within reach: where it lies now, and what it holds."""

    path: Path
    size: int
    digest: str

    def has_digest(self, digest: str) -> bool:
        """Whether a digest that was taken before is of these bytes."""
        return has_digest(self.path, digest, self.digest)


def list_packages(pattern: str, options: Mapping[str, str] | None = None) -> list[Listed]:
    """The packages that a pattern matches, by name; ``options`` are for fsspec.

    A pattern is a path or a URL in which ``*``, ``?``, ``[…]`` stand for parts of a name and
    ``**`` for folders; a folder stands for the files in it.
    """
    local = local_path(pattern)
    found = _list_local(local) if local is not None else _list_remote(pattern, options or {})
    listed = []
    for package in found:
        if os.path.basename(package.name.rstrip("/")).startswith((".", "_")):
            continue
        listed.append(package)
        if len(listed) > LISTED_MAX:
            raise SettingError(
                f'"{pattern}" matches more than {LISTED_MAX:,} files',
                hint="use several patterns that match less each",
            )
    return sorted(listed)


def local_path(pattern: str) -> str | None:
    """The absolute path of a local pattern; None for a URL of another place.

    >>> local_path("file:///a/b*.csv"), local_path("s3://bucket/a") is None
    ('/a/b*.csv', True)
    """
    if not _URL.match(pattern):
        return os.path.abspath(os.path.expanduser(pattern))
    parts = urlsplit(pattern.replace("?", "%3F").replace("#", "%23"))
    return os.path.abspath(unquote(parts.path)) if parts.scheme.lower() == "file" else None


def _list_local(pattern: str) -> Iterator[Listed]:
    if os.path.isdir(pattern):
        pattern = os.path.join(glob.escape(pattern), "*")
    names = [pattern] if os.path.exists(pattern) else glob.iglob(pattern, recursive=True)
    for name in names:
        with suppress(FileNotFoundError):
            status = os.stat(name)
            if stat.S_ISREG(status.st_mode):  # a pipe would be waited for without end
                yield Listed(name, status.st_size, status.st_mtime_ns // 1_000)


def _list_remote(pattern: str, options: Mapping[str, str]) -> Iterator[Listed]:
    filesystem, path = _filesystem(pattern, options)
    try:
        filesystem.invalidate_cache()
        if not glob.has_magic(path) and filesystem.isdir(path):
            path = path.rstrip("/") + "/*"
        found = filesystem.glob(path, detail=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileFormatError(f'"{pattern}" cannot be listed', detail=str(error)) from error
    for name, about in found.items():
        if about.get("type") == "file":
            size = int(about.get("size") or 0)
            yield Listed(filesystem.unstrip_protocol(name), size, _modified_us(about))


def _modified_us(about: Mapping[str, Any]) -> int:
    for key in ("mtime", "LastModified", "last_modified", "updated", "created"):
        value = about.get(key)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1_000_000)
        if isinstance(value, int | float):
            return int(value * 1_000_000)
    return 0


def _filesystem(name: str, options: Mapping[str, str]) -> tuple[Any, str]:
    try:
        filesystem, path = fsspec.core.url_to_fs(name, **options)
        return filesystem, str(path)
    except (ValueError, ImportError, TypeError) as error:
        raise SettingError(
            f'"{name}" cannot be reached',
            detail=str(error),
            hint="install the fsspec package of that protocol, for instance s3fs",
        ) from error


@contextmanager
def fetched(listed: Listed, options: Mapping[str, str] | None = None) -> Iterator[Fetched]:
    """Bring a package within reach for as long as it is read.

    A local file is read where it lies, and must be the same at the end as at the beginning.
    Anything else is copied first, into a folder of its own that goes with it."""
    if not _URL.match(listed.name):
        before = _state(listed.name)
        if before[0] != listed.size:
            raise _changed(listed.name)
        yield Fetched(Path(listed.name), listed.size, digest_of(Path(listed.name)))
        if _state(listed.name) != before:
            raise _changed(listed.name)
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-package-") as folder:
        yield _copied(listed, options or {}, Path(folder))


def file_source(path: Path) -> str:
    """The source under which the rows of a file are appended in batches: its name, its size and a
    digest of its ends. Another file of the same name is another source."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            digest = hashlib.blake2b(file.read(FINGERPRINT_BYTES), digest_size=8)
            if size > FINGERPRINT_BYTES:
                file.seek(max(size - FINGERPRINT_BYTES, FINGERPRINT_BYTES), os.SEEK_SET)
                digest.update(file.read())
    except OSError as error:
        raise FileFormatError(f'file "{path}" cannot be read', detail=error.strerror) from error
    return f"file:{path.name}:{size}:{digest.hexdigest()}"


def _state(name: str) -> tuple[int, int]:
    try:
        status = os.stat(name)
    except FileNotFoundError as error:
        raise PackageChangedError(f'"{name}" is gone') from error
    return status.st_size, status.st_mtime_ns


def _copied(listed: Listed, options: Mapping[str, str], folder: Path) -> Fetched:
    filesystem, path = _filesystem(listed.name, options)
    place = folder / os.path.basename(path)
    digesting, size = Digesting(), 0
    try:
        with filesystem.open(path, "rb") as source, place.open("wb") as target:
            while block := source.read(COPY_BYTES):
                digesting.update(block)
                size += len(block)
                target.write(block)
    except FileNotFoundError as error:
        raise PackageChangedError(f'"{listed.name}" is gone') from error
    if size != listed.size:
        raise _changed(listed.name)
    return Fetched(place, size, digesting.digest)


def _changed(name: str) -> PackageChangedError:
    return PackageChangedError(
        f'"{name}" changed while it was read', hint="write packages under another name first"
    )


def group(packages: Sequence[Listed], parallelism: int) -> list[list[Listed]]:
    """Deal packages out to tasks, in their order: neighbours by name are mostly neighbours in
    time, and what one task reads for one partition becomes one file.

    Tasks are as many as keep all cores busy to the end, and neither tiny nor huge; a package is
    never divided.
    """
    total = sum(package.weight for package in packages)
    share = total // max(parallelism * TASKS_PER_CORE, 1) + 1
    target = min(max(share, TASK_WEIGHT_MIN), TASK_WEIGHT_MAX)
    groups: list[list[Listed]] = []
    held = 0
    for package in packages:
        is_full = held + package.weight // 2 > target or (
            bool(groups) and len(groups[-1]) >= TASK_PACKAGES_MAX
        )
        if not groups or is_full:
            groups.append([])
            held = 0
        groups[-1].append(package)
        held += package.weight
    return groups
