"""The log of one table: segments of frames, appended and forced to disk.

1. ``write`` appends one frame with a single gathered write and answers a *ticket*, the count of
   bytes written so far. A write that fails half-way (disk full) is cut off again, so that the log
   ends with a whole frame and the next write may succeed. ``write_in_place`` does the same with a
   frame whose bytes are then read from the file instead of being kept a second time.
2. ``wait_durable`` returns when everything up to a ticket is as safe as the table's ``durability``
   promises. With ``sync`` one waiting thread forces the file for all that wait (group commit).
   With ``batch`` the engine's flusher calls ``flush`` at short intervals. With ``none`` nobody
   forces anything. In every mode the bytes are with the operating system before the
   acknowledgement, so a killed process loses nothing.
3. A forced write that fails is final: the kernel may have dropped the pages, so no retry can be
   believed. The log refuses further frames until the warehouse is opened again.
4. A segment that reaches its size is forced and closed. Each segment begins with a STATE frame,
   the table's counters and offsets before it, so older segments can be removed at any time.
5. ``close`` records where the log ended (``ending``), so that the next start can tell an
   unfinished append from a damaged one.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NoReturn, Protocol

import pyarrow as pa

from tidemill.errors import CorruptLogError, DiskFullError, DurabilityError
from tidemill.hot import frame
from tidemill.hot.crash import is_armed, point
from tidemill.hot.ending import End, boot_id, sync_folder, write_end
from tidemill.hot.frame_meta import TableState
from tidemill.hot.mapping import MappedFile, begin_writing
from tidemill.permissions import FILE_MODE, make_folder

SUFFIX = ".tml"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_WRITE_PARTS_MAX = 512


class Files(Protocol):
    """The calls to the operating system that may fail; tests give one that does."""

    def write(self, fd: int, parts: list[bytes | memoryview]) -> int: ...

    def sync(self, fd: int) -> None: ...

    def write_at(self, fd: int, part: bytes, offset: int) -> None: ...

    def truncate(self, fd: int, size: int) -> None: ...


class SystemFiles:
    def write(self, fd: int, parts: list[bytes | memoryview]) -> int:
        return os.writev(fd, parts)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def write_at(self, fd: int, part: bytes, offset: int) -> None:
        if os.pwrite(fd, part, offset) != len(part):
            raise OSError(errno.EIO, "only a part of the bytes could be written")

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)
        os.lseek(fd, size, os.SEEK_SET)


@dataclass(frozen=True)
class Segment:
    """A closed or current segment file; it holds sequence numbers from ``first_seq`` on."""

    number: int
    first_seq: int
    path: Path


@dataclass(frozen=True)
class SegmentStart:
    """What a new segment begins with: the next sequence number, and the table before it."""

    next_seq: int
    state: TableState


def segment_path(folder: Path, number: int, first_seq: int) -> Path:
    return folder / f"{number:08d}-{first_seq}{SUFFIX}"


def list_segments(folder: Path) -> list[Segment]:
    """The segments of a folder in the order they were written."""
    segments = []
    for path in folder.glob(f"*{SUFFIX}"):
        number, _, first_seq = path.stem.partition("-")
        if not (number.isdecimal() and first_seq.isdecimal()):
            raise CorruptLogError(
                f"{path.name} is no name of a log segment",
                detail=str(path),
                hint="move the file away if it is a copy; otherwise give it its old name again",
            )
        segments.append(Segment(int(number), int(first_seq), path))
    return sorted(segments, key=lambda segment: segment.number)


class Log:
    def __init__(
        self,
        folder: Path,
        name: str,
        durability: str,
        segment_bytes: int,
        files: Files,
        segments: list[Segment],
        start: Callable[[], SegmentStart],
    ) -> None:
        self.durability = durability
        self._folder = folder
        self._name = name
        self._segment_bytes = segment_bytes
        self._files = files
        self._segments = segments
        self._start = start
        self._lock = threading.RLock()  # by itself it is entered faster than the condition
        self._changed = threading.Condition(self._lock)
        self._fd = -1
        self._mapping: MappedFile | None = None  # of the current segment
        self._size = 0
        self._size_max = segment_bytes
        self._written = 0
        self._durable = 0
        self._is_syncing = False
        self._failure: BaseException | None = None

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def size_bytes(self) -> int:
        return sum(s.path.stat().st_size for s in self._segments if s.path.exists())

    def write(self, parts: list[bytes | memoryview]) -> int:
        """Append a frame; the caller holds the table's write lock. Answers its ticket."""
        self._open_segment()
        return self._add(self._write_whole(parts))

    def write_in_place(self, laid: frame.Layout) -> tuple[int, pa.Buffer] | None:
        """Append a frame and answer its ticket and its bytes as they stand in the file; None, with
        nothing written, if files cannot be mapped here.

        Nobody may look at the bytes before they are durable: what a failed force leaves in them
        is not known."""
        self._open_segment()
        start, size = self._size, frame.HEADER_BYTES + laid.body_bytes
        try:
            mapping = self._mapped(start + size)
        except OSError:
            return None
        self._write_whole([bytes(frame.HEADER_BYTES), *laid.parts])
        begin_writing(self._fd, start, size)  # while the checksum is taken
        whole = mapping.buffer(start, size)
        point("log.unsealed")
        header = laid.header([memoryview(whole)[frame.HEADER_BYTES :]])
        try:
            self._files.write_at(self._fd, header, start)
        except BaseException as error:
            self._undo(error)
        return self._add(size), whole

    def _open_segment(self) -> None:
        self.check()
        if self._fd < 0 or self._size >= self._size_max:
            self._start_segment()

    def _mapped(self, size: int) -> MappedFile:
        """The current segment as memory, so many bytes at least."""
        if self._mapping is None or self._mapping.size < size:
            self._mapping = MappedFile(self._fd, max(size, 2 * self._segment_bytes))
        return self._mapping

    def _add(self, written: int) -> int:
        self._size += written
        point("log.written")
        with self._lock:
            self._written += written
            return self._written

    def set_durability(self, durability: str) -> None:
        """Promise more or less from now on; the current segment's name must then be safe too."""
        if self.durability == "none" and durability != "none" and self._fd >= 0:
            sync_folder(self._folder)
        self.durability = durability

    def check(self) -> None:
        if self._failure is not None:
            raise DurabilityError(
                f'table "{self._name}" accepts no more rows: its log could not be forced to disk',
                detail=f"{self._failure}; rows written but not acknowledged may or may not be kept",
                hint="check the disk, then close the warehouse and open it again",
            )

    def stop(self, failure: BaseException) -> None:
        """Refuse further frames: what the log says and what the table says went apart."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    def written_ticket(self) -> int:
        """The ticket of the newest frame."""
        with self._lock:
            return self._written

    def durable_ticket(self) -> int:
        """Everything up to here may be published."""
        with self._lock:
            return self._durable if self.durability == "sync" else self._written

    def wait_durable(self, ticket: int) -> None:
        """Return once the frame is as safe as promised; raise if it cannot be."""
        if self.durability != "sync":
            return
        while True:
            with self._changed:
                while self._is_syncing and self._durable < ticket and self._failure is None:
                    self._changed.wait()
                if self._durable >= ticket:
                    return
                self.check()
                self._is_syncing = True
                fd, target = self._fd, self._written
            self._force(fd, target)

    def flush(self) -> None:
        """Force what was written (durability = 'batch'); a failure shows at the next append."""
        with self._changed:
            while self._is_syncing:
                self._changed.wait()
            if self._fd < 0 or self._durable >= self._written or self._failure is not None:
                return
            self._is_syncing = True
            fd, target = self._fd, self._written
        try:
            self._force(fd, target)
        except DurabilityError:
            return

    def remove_segments(
        self, is_needed: Callable[[int, int], bool], only_oldest: bool = False
    ) -> int:
        """Remove closed segments that are not needed; ``is_needed(first, following)`` decides.

        ``only_oldest`` keeps everything behind the first segment that is needed, for tables whose
        frames speak about rows of older segments (replaced keys). A file that cannot be removed
        stays for the next time."""
        removed = 0
        for segment, following in pairwise(self._segments):
            if is_needed(segment.first_seq, following.first_seq):
                if only_oldest:
                    break
                continue
            try:
                segment.path.unlink(missing_ok=True)
            except OSError:
                break
            point("segment.removed")
            with self._changed:
                self._segments = [s for s in self._segments if s is not segment]
            removed += 1
        return removed

    def close(self) -> None:
        """Force what was written and record where the log ends, if all went well."""
        if self._fd < 0:
            return
        is_forced = self.durability != "none"
        if self._failure is None and is_forced:
            self.flush()
        os.close(self._fd)
        self._fd, self._mapping = -1, None
        if self._failure is None:
            with suppress(OSError):  # then the next start knows less, and nothing is lost
                write_end(self._folder, End(self._segments[-1].number, self._size), is_forced)

    def _write_whole(self, parts: list[bytes | memoryview]) -> int:
        total = sum(len(part) for part in parts)
        if is_armed("log.partial"):
            self._files.write(self._fd, [b"".join(parts)[: total // 2]])
        point("log.partial")
        done = 0
        try:
            while done < total:
                rest = parts if done == 0 else _after(parts, done)
                done += self._files.write(self._fd, rest[:_WRITE_PARTS_MAX])
        except BaseException as error:
            self._undo(error)
        return total

    def _undo(self, error: BaseException) -> NoReturn:
        """A frame was not written whole; Ctrl-C between two writes must not leave half of it."""
        self._cut(error)
        if isinstance(error, OSError):
            raise self._translated(error) from error
        raise error

    def _cut(self, error: BaseException) -> None:
        """Remove a half-written frame. If even that fails, nothing more may be written."""
        try:
            self._files.truncate(self._fd, self._size)
        except OSError:
            self._failure = error

    def _translated(self, error: OSError) -> DurabilityError:
        if error.errno in _NO_SPACE:
            return DiskFullError(
                f'no space left for the log of table "{self._name}"; nothing was stored',
                detail=str(error),
                hint="free some space and append again: the table goes on accepting rows",
            )
        return DurabilityError(
            f'cannot write the log of table "{self._name}"; nothing was stored',
            detail=str(error),
            hint="check the disk and append again",
        )

    def _force(self, fd: int, target: int) -> None:
        """Force a file with ``_is_syncing`` held, and tell everyone who waits."""
        failure: OSError | None = None
        is_forced = False
        try:
            self._files.sync(fd)
            is_forced = True
        except OSError as error:
            failure = error
        finally:  # also when Ctrl-C comes: nobody may wait for a thread that has gone
            with self._changed:
                self._is_syncing = False
                if is_forced:
                    self._durable = max(self._durable, target)
                elif failure is not None:
                    self._failure = failure
                self._changed.notify_all()
        if failure is not None:
            self.check()
        point("log.synced")

    def _start_segment(self) -> None:
        if self._fd >= 0:
            self._close_segment()
        start = self._start()
        next_seq = start.next_seq
        number = self._segments[-1].number + 1 if self._segments else 1
        path = segment_path(self._folder, number, next_seq)
        opening = b"".join(frame.encode(next_seq, replace(start.state, boot_id=boot_id())))
        try:
            make_folder(self._folder)
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_TRUNC
            fd = os.open(path, flags, FILE_MODE)
        except OSError as error:
            raise self._translated(error) from error
        self._fd, self._size, self._mapping = fd, 0, None
        try:
            self._size = self._write_whole([opening])
            self._size_max = self._size + self._segment_bytes
            if self.durability != "none":
                # The state must be safe before older segments, which say it too, may go.
                self._files.sync(fd)
                sync_folder(self._folder)
        except (OSError, DurabilityError) as error:
            os.close(fd)
            self._fd = -1
            path.unlink(missing_ok=True)
            raise self._translated(error) if isinstance(error, OSError) else error from None
        point("segment.created")
        with self._changed:
            self._segments = [*self._segments, Segment(number, next_seq, path)]

    def _close_segment(self) -> None:
        with self._changed:
            while self._is_syncing:
                self._changed.wait()
            self.check()
            self._is_syncing = True
            fd, target = self._fd, self._written
        if self.durability != "none":
            self._force(fd, target)
        with self._changed:
            self._fd = -1
            self._is_syncing = False
            self._changed.notify_all()
        os.close(fd)


def _after(parts: list[bytes | memoryview], done: int) -> list[bytes | memoryview]:
    rest: list[bytes | memoryview] = []
    for part in parts:
        if done >= len(part):
            done -= len(part)
        else:
            rest.append(memoryview(part)[done:])
            done = 0
    return rest
