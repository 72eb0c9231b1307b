"""Digests of files: what made them stands in them, and older ones are still compared."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import xxhash

from tidemill.errors import FileFormatError
from tidemill.pipeline.file_digests import Digesting, digest_of, has_digest

CONTENT = b"ts,vid\n2024-01-01,1\n" * 100_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_bytes(CONTENT)
    return path


def test_a_digest_says_what_made_it(file: Path) -> None:
    assert digest_of(file) == "xxh3:" + xxhash.xxh3_128(CONTENT).hexdigest()


def test_pieces_give_the_digest_of_the_whole(file: Path) -> None:
    digesting = Digesting()
    for at in range(0, len(CONTENT), 12_345):
        digesting.update(CONTENT[at : at + 12_345])
    assert digesting.digest == digest_of(file)


@pytest.mark.parametrize("changed", [False, True])
def test_digests_of_older_warehouses_are_compared(file: Path, changed: bool) -> None:
    before = hashlib.blake2b(CONTENT, digest_size=16).hexdigest()
    now = digest_of(file)
    if changed:
        file.write_bytes(CONTENT[:-1] + b" ")
    for digest in (before, now):
        assert has_digest(file, digest) is not changed


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"gone\.csv"):
        digest_of(tmp_path / "gone.csv")
