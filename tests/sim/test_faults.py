"""Disks that fail: what is acknowledged stays true, what cannot be promised is refused.

A failed fsync is final until the warehouse is opened again; a full disk is an error and nothing
more; a damaged log stops the start and says where; a torn tail is cut and reported.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tidemill.clock import FakeClock
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.errors import CorruptLogError, DiskFullError, DurabilityError
from tidemill.hot.ending import END_FILE
from tidemill.hot.log import SystemFiles

START = datetime(2024, 1, 1)
WAIT_S = 30.0


class Faults(SystemFiles):
    """The operating system's files, until a test breaks them."""

    def __init__(self) -> None:
        self.sync_error: OSError | None = None
        self.truncate_error: OSError | None = None
        self.space_bytes: int | None = None
        self.before_sync: Callable[[], object] = lambda: None
        self.writes = 0
        self.changed = threading.Condition()

    def write(self, fd: int, parts: list[bytes | memoryview]) -> int:
        with self.changed:
            self.writes += 1
            self.changed.notify_all()
        if self.space_bytes is None:
            return super().write(fd, parts)
        if self.space_bytes == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # As a real disk does: as much as fits first, the error with the next call.
        done = super().write(fd, [b"".join(parts)[: self.space_bytes]])
        self.space_bytes -= done
        return done

    def sync(self, fd: int) -> None:
        self.before_sync()
        if self.sync_error is not None:
            raise self.sync_error
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        if self.truncate_error is not None:
            raise self.truncate_error
        super().truncate(fd, size)

    def wait_for_writes(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.writes >= count, WAIT_S)


def _open(path: Path, files: Faults | None = None, **settings: object) -> Database:
    return Database(path, Settings(DATABASE_SETTINGS, settings), FakeClock(START), files)


def _create(db: Database, name: str = "t", **settings: str) -> None:
    given = ", ".join(f"{key} = '{value}'" for key, value in settings.items())
    columns = "ts TIMESTAMP, id BIGINT, note VARCHAR"
    db.sql(f"CREATE STREAMING TABLE {name} ({columns}) {f'WITH ({given})' if given else ''}")
    db.sql(f"CREATE INDEX ON {name} (id)")


def _rows(*ids: int, note: str = "x") -> list[dict[str, Any]]:
    return [{"ts": START + timedelta(seconds=own), "id": own, "note": note} for own in ids]


def _ids(db: Database, name: str = "t") -> list[int]:
    return [row[0] for row in db.sql(f"SELECT id FROM {name} ORDER BY id").fetchall()]


def _ingest(db: Database, column: str, name: str = "t") -> Any:
    query = f"SELECT {column} FROM tidemill.ingest WHERE table_name = ?"
    return db.sql(query, [name]).fetchall()[0][0]


def _segments(path: Path, table_id: int = 1) -> list[Path]:
    return sorted((path / "log" / str(table_id)).glob("*.tml"))


def _eio() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


# -- fsync


def test_failed_fsync_reaches_every_waiting_writer(tmp_path: Path) -> None:
    files = Faults()
    with _open(tmp_path, files) as db:
        _create(db)
        _create(db, "other")
        db.append("t", _rows(0))
        db.append("other", _rows(0))
        errors: list[BaseException] = []
        expected = files.writes + 4
        files.before_sync = lambda: files.wait_for_writes(expected)
        files.sync_error = _eio()

        def write(own: int) -> None:
            rows = _rows(own)
            try:
                db.append("t", rows[0] if own % 2 else rows)
            except DurabilityError as error:
                errors.append(error)

        threads = [threading.Thread(target=write, args=(own,)) for own in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert len(errors) == 4
        assert not any(isinstance(error, DiskFullError) for error in errors)

        files.sync_error, files.before_sync = None, lambda: None
        for rows in (_rows(9), _rows(9)[0], []):
            with pytest.raises(DurabilityError, match="accepts no more rows"):
                db.append("t", rows)
        with pytest.raises(DurabilityError):
            db.sql("INSERT INTO t VALUES ('2024-01-01', 9, 'x')")
        assert _ids(db) == [0]
        assert _ids(db, "t WHERE id = 0 OR id = 3") == [0]
        assert _ingest(db, "accepts_rows") is False
        assert _ingest(db, "rows_in = stored + late + rejected") is True
        assert _ingest(db, "accepts_rows", "other") is True
        db.append("other", _rows(1))
        assert _ids(db, "other") == [0, 1]
    with _open(tmp_path) as db:
        # They were written and not acknowledged: they may be there, each whole and once.
        found = _ids(db)
        assert found[0] == 0
        assert set(found) <= set(range(5))
        assert len(set(found)) == len(found)
        assert _ingest(db, "accepts_rows") is True
        assert _ingest(db, "stored") == len(found)
        db.append("t", _rows(9))
        assert _ids(db) == [*found, 9]


def test_failed_flush_of_a_batch_shows_at_the_next_append(tmp_path: Path) -> None:
    files = Faults()
    with _open(tmp_path, files, batch_interval="0.001 seconds") as db:
        _create(db, durability="batch")
        db.append("t", _rows(0))
        files.sync_error = _eio()
        sent = [0]

        def write() -> None:
            while sent[-1] < 100_000:
                db.append("t", _rows(sent[-1] + 1))
                sent.append(sent[-1] + 1)

        with pytest.raises(DurabilityError, match="accepts no more rows"):
            write()
        assert _ids(db) == sent
        assert _ingest(db, "accepts_rows") is False
    with _open(tmp_path) as db:
        assert _ids(db) == sent


def test_rows_of_durability_batch_reach_the_disk_soon_by_default(tmp_path: Path) -> None:
    files = Faults()
    with _open(tmp_path, files) as db:
        _create(db, durability="batch")
        db.append("t", _rows(0))
        forced = threading.Event()
        files.before_sync = forced.set
        db.append("t", _rows(1))
        assert forced.wait(5), "batch_interval is 20 ms by default"


def test_failed_fsync_of_a_new_segment_stores_nothing(tmp_path: Path) -> None:
    files = Faults()
    with _open(tmp_path, files) as db:
        _create(db)
        files.sync_error = _eio()
        with pytest.raises(DurabilityError):
            db.append("t", _rows(0))
        assert _ids(db) == []
        files.sync_error = None
        assert _segments(tmp_path) == []
    with _open(tmp_path) as db:
        assert _ids(db) == []
        db.append("t", _rows(1))
        assert _ids(db) == [1]


# -- a full disk


@pytest.mark.parametrize("space_bytes", [0, 1, 100, 400])
@pytest.mark.parametrize("is_single", [True, False])
def test_full_disk_is_an_error_and_work_goes_on(
    tmp_path: Path, space_bytes: int, is_single: bool
) -> None:
    files = Faults()
    with _open(tmp_path, files) as db:
        _create(db)
        db.append("t", _rows(0, 1))
        size = _segments(tmp_path)[-1].stat().st_size
        rows = _rows(2, note="x" * 500)
        for _ in range(3):
            files.space_bytes = space_bytes
            with pytest.raises(DiskFullError) as caught:
                db.append("t", rows[0] if is_single else rows)
            assert "free some space" in (caught.value.hint or "")
            assert _ids(db) == [0, 1]
            assert _ingest(db, "[rows_in, stored, rejected, late]") == [2, 2, 0, 0]
            assert _ingest(db, "accepts_rows") is True
            assert _segments(tmp_path)[-1].stat().st_size == size
        files.space_bytes = None
        db.append("t", rows)
        assert _ids(db) == [0, 1, 2]
    with _open(tmp_path) as db:
        assert _ids(db) == [0, 1, 2]
        assert [found.torn_bytes for found in db.recovered] == [0]


def test_full_disk_forgets_the_source_offset_and_the_key(tmp_path: Path) -> None:
    files = Faults()
    with _open(tmp_path, files) as db:
        db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT, PRIMARY KEY (ts, id))")
        rows = [{"ts": START, "id": 1}]
        db.append("t", [{"ts": START, "id": 0}], source="s", offset=0)
        files.space_bytes = 10
        with pytest.raises(DiskFullError):
            db.append("t", rows, source="s", offset=1)
        files.space_bytes = None
        assert not db.append("t", rows, source="s", offset=1).is_repeat
        assert db.append("t", rows, source="s", offset=1).is_repeat
        assert _ids(db) == [0, 1]


def test_full_disk_at_the_first_frame_of_a_segment(tmp_path: Path) -> None:
    files = Faults()
    with _open(tmp_path, files, segment_size="1 MB") as db:
        _create(db)
        for space_bytes in (0, 50):  # before any segment: its state does not fit
            files.space_bytes = space_bytes
            with pytest.raises(DiskFullError):
                db.append("t", _rows(0))
        files.space_bytes = None
        big = "x" * 600_000
        db.append("t", _rows(0, note=big))
        db.append("t", _rows(1, note=big))
        for space_bytes in (0, 50, 1_000):  # the next append begins a segment
            files.space_bytes = space_bytes
            with pytest.raises(DiskFullError):
                db.append("t", _rows(2, note=big))
            assert _ids(db) == [0, 1]
        files.space_bytes = None
        db.append("t", _rows(2, note=big))
    with _open(tmp_path) as db:
        assert _ids(db) == [0, 1, 2]
        assert len(_segments(tmp_path)) == 2


def test_half_a_frame_that_cannot_be_cut_off_stops_the_table(tmp_path: Path) -> None:
    files = Faults()
    with _open(tmp_path, files) as db:
        _create(db)
        db.append("t", _rows(0))
        files.space_bytes, files.truncate_error = 70, _eio()
        with pytest.raises(DurabilityError):
            db.append("t", _rows(1))
        files.space_bytes = files.truncate_error = None
        with pytest.raises(DurabilityError, match="accepts no more rows"):
            db.append("t", _rows(1))
        assert _ids(db) == [0]
        assert _ingest(db, "accepts_rows") is False
    with _open(tmp_path) as db:
        assert [found.torn_bytes for found in db.recovered] == [70]
        assert _ids(db) == [0]
        db.append("t", _rows(1))
        assert _ids(db) == [0, 1]


LIMITED = """
import json, resource, sys
import tidemill
db = tidemill.open(sys.argv[1])
db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT, note VARCHAR)")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
row = {"ts": "2024-01-01", "note": "x" * 50_000}
stored, errors = [], []
for number in range(10):
    try:
        db.append("t", [{**row, "id": number}])
        stored.append(number)
    except tidemill.TidemillError as error:
        errors.append(error.as_dict())
found = [row[0] for row in db.sql("SELECT id FROM t ORDER BY id").fetchall()]
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
db.append("t", [{**row, "id": 10}])
print(json.dumps([stored, errors, found]))
db.close()
"""


def test_file_size_limit_of_the_system_is_a_clear_error(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    stored, errors, found = json.loads(done.stdout)
    assert stored == found == [0, 1, 2, 3, 4]
    assert {error["code"] for error in errors} <= {"durability", "disk_full"}
    assert all("nothing was stored" in error["message"] for error in errors)
    assert all("File too large" in error["detail"] for error in errors)
    with _open(tmp_path) as db:
        assert _ids(db) == [*stored, 10]
        assert db.sql("SHOW TABLES").fetchall()[0][0] == "t"


# -- damaged and torn logs


def _write_log(path: Path) -> list[int]:
    """Ten appends of two rows; answers the size of the log after each."""
    with _open(path) as db:
        _create(db)
        sizes = []
        for number in range(10):
            db.append("t", _rows(2 * number, 2 * number + 1))
            sizes.append(_segments(path)[0].stat().st_size)
    return sizes


@pytest.mark.parametrize("place", [0, 4, 13, 20, 40])
def test_damage_in_the_middle_refuses_the_start(tmp_path: Path, place: int) -> None:
    sizes = _write_log(tmp_path)
    segment = _segments(tmp_path)[0]
    good = segment.read_bytes()
    at = sizes[4] + place
    bad = bytearray(good)
    bad[at] ^= 0x40
    segment.write_bytes(bad)
    for _ in range(2):
        with pytest.raises(CorruptLogError) as caught:
            _open(tmp_path)
        assert segment.name in caught.value.message
        assert str(sizes[4]) in caught.value.message
        assert str(segment) in (caught.value.detail or "")
    assert segment.read_bytes() == bad
    segment.write_bytes(good)
    with _open(tmp_path) as db:
        assert _ids(db) == list(range(20))


@pytest.mark.parametrize("kept_bytes", [0, 10, -1])
def test_torn_segment_that_is_not_the_last_refuses_the_start(
    tmp_path: Path, kept_bytes: int
) -> None:
    _write_log(tmp_path)
    with _open(tmp_path) as db:
        db.append("t", _rows(20))  # a second segment
    first = _segments(tmp_path)[0]
    first.write_bytes(first.read_bytes()[:kept_bytes])
    with pytest.raises(CorruptLogError) as caught:
        _open(tmp_path)
    assert first.name in caught.value.message


def test_torn_tail_is_cut_and_reported(tmp_path: Path) -> None:
    sizes = _write_log(tmp_path)
    segment = _segments(tmp_path)[0]
    _as_if_killed(segment)
    good = segment.read_bytes()
    start, end = sizes[8], sizes[9]
    for cut in [start + 1, start + 31, start + 32, (start + end) // 2, end - 8, end - 1]:
        segment.write_bytes(good[:cut])
        with _open(tmp_path) as db:
            assert [(found.table, found.torn_bytes) for found in db.recovered] == [
                ("t", cut - start)
            ]
            assert _ids(db) == list(range(18))
            assert _ingest(db, "rows_in") == 18
        assert segment.stat().st_size == start
        with _open(tmp_path) as db:
            assert [found.torn_bytes for found in db.recovered] == [0]


def _as_if_killed(segment: Path) -> None:
    """What a clean close leaves goes."""
    (segment.parent / END_FILE).unlink()


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_flipped_bit_in_the_last_frame_refuses_the_start(tmp_path: Path, is_closed: bool) -> None:
    sizes = _write_log(tmp_path)
    segment = _segments(tmp_path)[0]
    good = segment.read_bytes()
    if not is_closed:
        _as_if_killed(segment)
    for place in (0, 8, 12, 40, sizes[9] - sizes[8] - 1):
        bad = bytearray(good)
        bad[sizes[8] + place] ^= 0x10
        segment.write_bytes(bad)
        with pytest.raises(CorruptLogError, match=f"at byte {sizes[8]}"):
            _open(tmp_path)
        assert segment.read_bytes() == bad
    segment.write_bytes(good)
    with _open(tmp_path) as db:
        assert _ids(db) == list(range(20))


def test_a_cut_after_a_clean_close_refuses_the_start(tmp_path: Path) -> None:
    sizes = _write_log(tmp_path)
    segment = _segments(tmp_path)[0]
    segment.write_bytes(segment.read_bytes()[: sizes[8]])
    with pytest.raises(CorruptLogError, match=f"had {sizes[9]} bytes when the log was closed"):
        _open(tmp_path)
    segment.unlink()
    with pytest.raises(CorruptLogError, match="missing"):
        _open(tmp_path)


def test_what_is_cut_off_is_kept_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sizes = _write_log(tmp_path)
    segment = _segments(tmp_path)[0]
    _as_if_killed(segment)
    good = segment.read_bytes()
    segment.write_bytes(good[:-5])
    with _open(tmp_path) as db:
        kept = db.recovered[0].torn_path
        assert kept is not None
        assert Path(kept).read_bytes() == good[sizes[8] : -5]
        assert kept in caplog.text
        assert _ids(db) == list(range(18))


def test_after_a_crash_of_the_machine_a_damaged_last_frame_is_a_torn_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = _write_log(tmp_path)
    segment = _segments(tmp_path)[0]
    _as_if_killed(segment)
    monkeypatch.setattr("tidemill.hot.recovery.boot_id", lambda: "another")
    data = bytearray(segment.read_bytes())
    data[sizes[8] + 50] ^= 1
    segment.write_bytes(data + b"\0" * 4_096)  # a file system may leave zeros at the end
    with _open(tmp_path) as db:
        assert db.recovered[0].torn_bytes == sizes[9] - sizes[8] + 4_096
        assert _ids(db) == list(range(18))


def test_segment_without_a_whole_frame_is_removed(tmp_path: Path) -> None:
    _write_log(tmp_path)
    with _open(tmp_path) as db:
        db.append("t", _rows(20))
    last = _segments(tmp_path)[-1]
    _as_if_killed(last)
    for data in (b"", last.read_bytes()[:20]):
        last.write_bytes(data)
        with _open(tmp_path) as db:
            assert _ids(db) == list(range(20))
        assert not last.exists()
    with _open(tmp_path) as db:
        db.append("t", _rows(20))
    with _open(tmp_path) as db:
        assert _ids(db) == list(range(21))
