"""The record of the reference tables' log: what was acknowledged and is damaged is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.errors import DamagedFileError
from tidemill.federation.reference_log import ReferenceLog

HEADERS = b"h" * 3 * 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of reference tables with a log of two changes."""
    path = tmp_path / "reference.duckdb"
    path.write_bytes(HEADERS + b"blocks")
    wal(path).write_bytes(b"first;second;")
    return path


def wal(path: Path) -> Path:
    return path.with_name(f"{path.name}.wal")


def head(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def test_a_log_as_it_was_recorded_is_believed(path: Path) -> None:
    ReferenceLog(path).record()
    ReferenceLog(path).check()


def test_what_follows_the_record_was_not_acknowledged(path: Path) -> None:
    ReferenceLog(path).record()
    wal(path).write_bytes(b"first;second;thi")
    ReferenceLog(path).check()


@pytest.mark.parametrize("damaged", [b"first;sEcond;", b"first;", b""])
def test_a_log_that_lost_what_was_recorded_is_refused(path: Path, damaged: bytes) -> None:
    ReferenceLog(path).record()
    wal(path).write_bytes(damaged)
    with pytest.raises(DamagedFileError, match="fail their checksum"):
        ReferenceLog(path).check()


def test_a_log_that_is_gone_is_refused(path: Path) -> None:
    ReferenceLog(path).record()
    wal(path).unlink()
    with pytest.raises(DamagedFileError):
        ReferenceLog(path).check()


def test_after_a_checkpoint_the_record_says_nothing(path: Path) -> None:
    ReferenceLog(path).record()
    path.write_bytes(b"i" + HEADERS[1:] + b"blocks")
    wal(path).write_bytes(b"")
    ReferenceLog(path).check()


def test_without_a_record_or_with_a_damaged_one_nothing_is_compared(path: Path) -> None:
    ReferenceLog(path).check()
    ReferenceLog(path).record()
    head(path).write_bytes(head(path).read_bytes().replace(b" ", b"0", 1))
    wal(path).write_bytes(b"other")
    ReferenceLog(path).check()


def test_a_record_goes_on_where_the_last_one_ended(path: Path) -> None:
    log = ReferenceLog(path)
    log.record()
    wal(path).write_bytes(b"first;second;third;")
    log.record()
    ReferenceLog(path).check()
    wal(path).write_bytes(b"first;second;thirD;")
    with pytest.raises(DamagedFileError):
        ReferenceLog(path).check()


def test_the_record_is_the_owners_alone(path: Path) -> None:
    ReferenceLog(path).record()
    assert head(path).stat().st_mode & 0o777 == 0o600
