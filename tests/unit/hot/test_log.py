"""The log on disks that fail: what is promised is kept, and what failed is said."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from hot_kit import (
    NOW_US,
    FaultyFiles,
    accepted,
    held,
    make_table,
    open_hot,
)

from tidemill.errors import CorruptLogError, DiskFullError, DurabilityError
from tidemill.hot.log import Log, SystemFiles, list_segments, segment_path
from tidemill.hot.table import HotTable

SYNC = {"durability": "sync"}
BATCH = {"durability": "batch"}


def rows(first: int, count: int = 3) -> list[tuple[int, int, str, float]]:
    return [(NOW_US + n, n, "x" * 10, 0.5) for n in range(first, first + count)]


def log_bytes(folder: Path) -> bytes:
    return b"".join(segment.path.read_bytes() for segment in list_segments(folder))


def reopened(folder: Path, settings: dict[str, str]) -> list[tuple[object, ...]]:
    hot = open_hot(make_table(settings), folder)
    found = held(hot)
    hot.close()
    return found


def test_a_full_disk_stores_nothing_and_work_goes_on(tmp_path: Path) -> None:
    files = FaultyFiles()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    before, counters = log_bytes(tmp_path), hot.counters.dump()
    size = len(before)
    for left in (0, 1, 31, 32, 33, 200):
        files.bytes_left = left
        with pytest.raises(DiskFullError, match="no space left") as caught:
            hot.append(accepted(rows(3)))
        assert caught.value.hint
        assert log_bytes(tmp_path) == before
        assert hot.counters.dump() == counters
        assert held(hot) == rows(0)
    files.bytes_left = 5
    with pytest.raises(DiskFullError):
        hot.append_row(rows(3)[0])
    assert log_bytes(tmp_path) == before
    files.bytes_left = None
    hot.append(accepted(rows(3)))
    assert hot.append_row(rows(6)[0])
    hot.close()
    assert len(log_bytes(tmp_path)) > size
    assert reopened(tmp_path, SYNC) == rows(0, 7)


def test_a_full_disk_at_the_beginning_of_a_segment(tmp_path: Path) -> None:
    files = FaultyFiles()
    hot = open_hot(make_table(SYNC), tmp_path, files=files, segment_bytes=100)
    files.bytes_left = 10
    with pytest.raises(DiskFullError):
        hot.append(accepted(rows(0)))
    assert list_segments(tmp_path) == []
    files.bytes_left = None
    hot.append(accepted(rows(0)))
    files.bytes_left = 40
    with pytest.raises(DiskFullError):
        hot.append(accepted(rows(3)))
    assert len(list_segments(tmp_path)) == 1
    files.bytes_left = None
    hot.append(accepted(rows(3)))
    assert len(list_segments(tmp_path)) == 2
    hot.close()
    assert reopened(tmp_path, SYNC) == rows(0, 6)


def test_an_error_while_writing_stores_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    files.write_error = errno.EIO
    with pytest.raises(DurabilityError, match="cannot write") as caught:
        hot.append(accepted(rows(3)))
    assert not isinstance(caught.value, DiskFullError)
    files.write_error = None
    hot.append(accepted(rows(3)))
    hot.close()
    assert reopened(tmp_path, SYNC) == rows(0, 6)


def test_a_half_frame_that_cannot_be_cut_stops_the_log(tmp_path: Path) -> None:
    files = FaultyFiles()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    files.bytes_left, files.truncate_error = 20, errno.EIO
    with pytest.raises(DiskFullError):
        hot.append(accepted(rows(3)))
    files.bytes_left = files.truncate_error = None
    with pytest.raises(DurabilityError, match="accepts no more rows"):
        hot.append(accepted(rows(3)))
    hot.close()
    assert reopened(tmp_path, SYNC) == rows(0)


def test_an_interrupted_write_leaves_no_half_frame(tmp_path: Path) -> None:
    class Interrupted(FaultyFiles):
        armed = False

        def write(self, fd: int, parts: list[bytes | memoryview]) -> int:
            if self.armed:
                super().write(fd, [b"".join(parts)[:40]])
                raise KeyboardInterrupt
            return super().write(fd, parts)

    files = Interrupted()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    files.armed = True
    with pytest.raises(KeyboardInterrupt):
        hot.append(accepted(rows(3)))
    files.armed = False
    hot.append(accepted(rows(3)))
    hot.close()
    assert reopened(tmp_path, SYNC) == rows(0, 6)


def test_an_interrupted_sync_does_not_lock_the_others_out(tmp_path: Path) -> None:
    class Interrupted(FaultyFiles):
        armed = False

        def sync(self, fd: int) -> None:
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt
            super().sync(fd)

    files = Interrupted()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    files.armed = True
    with pytest.raises(KeyboardInterrupt):
        hot.append(accepted(rows(3)))
    hot.append(accepted(rows(6)))
    assert held(hot) == rows(0, 9)
    hot.close()


def test_a_failed_sync_is_final(tmp_path: Path) -> None:
    files = FaultyFiles()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    files.sync_error = errno.EIO
    with pytest.raises(DurabilityError, match="accepts no more rows"):
        hot.append(accepted(rows(3), source="s", offset=1))
    files.sync_error = None
    calls = len(files.calls)
    for _ in range(2):
        with pytest.raises(DurabilityError, match="accepts no more rows") as caught:
            hot.append(accepted(rows(6)))
    assert caught.value.hint
    with pytest.raises(DurabilityError):
        hot.append(accepted(rows(3), source="s", offset=1))
    with pytest.raises(DurabilityError):
        hot.append_row(rows(9)[0])
    assert len(files.calls) == calls, "no retry that pretends"
    assert held(hot) == rows(0), "reads go on, with what was acknowledged"
    hot.close()
    found = reopened(tmp_path, SYNC)
    assert found[:3] == rows(0)
    assert found in (rows(0), rows(0, 6)), "acknowledged rows, and at most the batch in flight"


def test_a_failed_sync_reaches_everybody_who_waits(tmp_path: Path) -> None:
    """One thread forces for three; when that fails, all three hear of it."""
    files, everyone_wrote = FaultyFiles(), threading.Event()

    class Gated(FaultyFiles):
        is_gated = False

        def sync(self, fd: int) -> None:
            if self.is_gated:
                everyone_wrote.wait(10)
                raise OSError(errno.EIO, "bad disk")
            super().sync(fd)

    files = Gated()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    files.is_gated = True
    errors: list[BaseException] = []
    threads = appenders(hot, 3, errors)
    when_written(hot.log, 4, hot, everyone_wrote)
    join(threads)
    assert len(errors) == 3
    assert all(isinstance(error, DurabilityError) for error in errors)
    assert held(hot) == rows(0)
    hot.close()


def appenders(hot: HotTable, count: int, errors: list[BaseException]) -> list[threading.Thread]:
    def work(number: int) -> None:
        try:
            hot.append(accepted(rows(100 + 3 * number)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def when_written(log: Log, frames: int, hot: HotTable, event: threading.Event) -> None:
    """Let the forced write go once so many batches of three rows are in the log."""
    deadline = threading.Event()
    for _ in range(4_000):
        if hot.counters.stored >= frames * 3:
            break
        deadline.wait(0.002)
    event.set()


def test_many_appends_share_a_sync(tmp_path: Path) -> None:
    everyone_wrote = threading.Event()

    class Slow(FaultyFiles):
        is_gated = False

        def sync(self, fd: int) -> None:
            if self.is_gated:
                everyone_wrote.wait(10)
            super().sync(fd)

    files = Slow()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    files.is_gated = True
    before = files.calls.count("sync")
    errors: list[BaseException] = []
    threads = appenders(hot, 8, errors)
    when_written(hot.log, 9, hot, everyone_wrote)
    join(threads)
    assert errors == []
    assert files.calls.count("sync") - before <= 2, "one for the first, one for all the others"
    assert len(held(hot)) == 27
    hot.close()
    assert len(reopened(tmp_path, SYNC)) == 27


def test_nothing_is_seen_or_acknowledged_before_its_sync(tmp_path: Path) -> None:
    seen: list[int] = []

    class Looking(FaultyFiles):
        hot: HotTable | None = None

        def sync(self, fd: int) -> None:
            super().sync(fd)
            if self.hot is not None:
                seen.append(self.hot.view().rows)

    files = Looking()
    hot = open_hot(make_table(SYNC), tmp_path, files=files)
    hot.append(accepted(rows(0)))
    files.hot = hot
    files.calls.clear()
    hot.append(accepted(rows(3)))
    assert files.calls == ["write", "sync"]
    assert seen == [3]
    files.calls.clear()
    assert hot.append_row(rows(6)[0])
    assert files.calls == ["write", "sync"]
    assert seen == [3, 6]
    hot.close()


def test_batch_forces_on_flush_and_none_never(tmp_path: Path) -> None:
    files = FaultyFiles()
    hot = open_hot(make_table(BATCH), tmp_path / "batch", files=files)
    hot.append(accepted(rows(0)))
    opened = files.calls.count("sync")
    hot.append(accepted(rows(3)))
    assert files.calls.count("sync") == opened
    assert held(hot) == rows(0, 6)
    hot.flush()
    assert files.calls.count("sync") == opened + 1
    hot.flush()
    assert files.calls.count("sync") == opened + 1, "nothing new, nothing to force"
    hot.append(accepted(rows(6)))
    files.sync_error = errno.EIO
    hot.flush()
    with pytest.raises(DurabilityError):
        hot.append(accepted(rows(9)))
    hot.close()
    files = FaultyFiles()
    hot = open_hot(make_table({"durability": "none"}), tmp_path / "none", files=files)
    hot.append(accepted(rows(0)))
    hot.close()
    assert "sync" not in files.calls


def test_segments_are_closed_at_their_size(tmp_path: Path) -> None:
    files = FaultyFiles()
    hot = open_hot(make_table(SYNC), tmp_path, files=files, segment_bytes=1_500)
    for n in range(20):
        hot.append(accepted(rows(3 * n)))
    segments = list_segments(tmp_path)
    assert len(segments) > 3
    assert [s.number for s in segments] == list(range(1, len(segments) + 1))
    assert segments[0].first_seq == 1
    assert tuple(segments) == hot.log.segments
    assert hot.log.size_bytes() == len(log_bytes(tmp_path))
    hot.close()
    assert reopened(tmp_path, SYNC) == rows(0, 60)


def test_a_large_state_does_not_make_every_frame_a_segment(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path, segment_bytes=4_000)
    for n in range(600):
        hot.offsets.add("s", 2 * n)
    for n in range(30):
        hot.append(accepted(rows(3 * n)))
    assert len(list_segments(tmp_path)) < 10
    hot.close()


def test_the_state_is_forced_before_older_segments_may_go(tmp_path: Path) -> None:
    files = FaultyFiles()
    hot = open_hot(make_table(SYNC), tmp_path, files=files, segment_bytes=1)
    hot.append(accepted(rows(0)))
    files.calls.clear()
    hot.append(accepted(rows(3)))
    assert files.calls == ["sync", "write", "sync", "write", "sync"]
    hot.close()


def test_a_segment_that_cannot_be_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = open_hot(make_table(), tmp_path, segment_bytes=1)
    for n in range(4):
        hot.append(accepted(rows(3 * n)))

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "no")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        assert hot.log.remove_segments(lambda first, following: False) == 0
    assert len(hot.log.segments) == 4
    assert hot.log.remove_segments(lambda first, following: first == 4) == 2
    assert [s.first_seq for s in hot.log.segments] == [4, 10]
    assert hot.log.remove_segments(lambda first, following: first == 4, only_oldest=True) == 0
    hot.close()


def test_removing_and_beginning_segments_at_the_same_time(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path, segment_bytes=1)
    done = threading.Event()

    def remove() -> None:
        while not done.is_set():
            hot.log.remove_segments(lambda first, following: False)

    remover = threading.Thread(target=remove)
    remover.start()
    for n in range(300):
        hot.append(accepted(rows(3 * n)))
    done.set()
    join([remover])
    hot.log.remove_segments(lambda first, following: False)
    assert tuple(list_segments(tmp_path)) == hot.log.segments
    assert len(hot.log.segments) == 1
    hot.close()


def test_a_file_with_another_name_is_refused(tmp_path: Path) -> None:
    segment_path(tmp_path, 1, 1).touch()
    (tmp_path / "00000001-1 (copy).tml").touch()
    with pytest.raises(CorruptLogError, match="copy"):
        list_segments(tmp_path)


def test_a_long_frame_is_written_whole(tmp_path: Path) -> None:
    """More buffers than one call takes, and calls that take only some bytes."""

    class Short(SystemFiles):
        def write(self, fd: int, parts: list[bytes | memoryview]) -> int:
            return super().write(fd, [b"".join(parts)[:1_000]])

    hot = open_hot(make_table(), tmp_path, files=Short())
    hot.append(accepted(rows(0, 500)))
    hot.close()
    assert reopened(tmp_path, {}) == rows(0, 500)
    hot = open_hot(make_table(), tmp_path)
    ticket = hot.log.write([b"x"] * 2_000)
    assert ticket >= 2_000
    hot.close()
