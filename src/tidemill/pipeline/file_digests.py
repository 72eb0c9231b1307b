"""Digests of files, by which a table knows a file again that it has loaded.

XXH3 of 128 bits reads a file from memory at the speed of memory; it tells files apart that differ
by accident, not by somebody's design, and who loads files into a table may load what they like.
Digests say what made them: those of older warehouses are BLAKE2b and are still compared.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import xxhash

from tidemill.errors import FileFormatError

_XXH3 = "xxh3:"
_BLAKE_BYTES = 16


class Digesting:
    """A digest in the making."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()

    def update(self, block: bytes) -> None:
        self._hash.update(block)

    @property
    def digest(self) -> str:
        return _XXH3 + self._hash.hexdigest()


def digest_of(path: Path) -> str:
    """The digest of a local file's bytes."""
    return _XXH3 + _read(path, xxhash.xxh3_128)


def has_digest(path: Path, digest: str, own: str | None = None) -> bool:
    """Whether a file's digest is another that was taken before; ``own`` is the file's, if known."""
    if digest.startswith(_XXH3):
        return digest == (own or digest_of(path))
    return digest == _read(path, lambda: hashlib.blake2b(digest_size=_BLAKE_BYTES))


def _read(path: Path, make: Any) -> str:
    try:
        with path.expanduser().open("rb") as file:
            return str(hashlib.file_digest(file, make).hexdigest())
    except OSError as error:
        raise FileFormatError(f'file "{path}" cannot be read', detail=error.strerror) from error
