"""Recovery: a table built again from its log.

Segments are read in the order they were written, each frame checked. What may be wrong, and what
follows from it:

- the last segment ends in the middle of a frame: the process died while writing, nobody was told
  that those rows are safe; the tail is cut off, kept aside and reported;
- anything else (a bad checksum with whole frames behind it or before the end that a clean close
  recorded, a last frame that cannot be unfinished (``ending``), a torn segment that is not the
  last, a segment without its STATE frame): rows that were acknowledged are damaged; the start stops
  with an error that names file and offset.
"""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidemill.errors import CorruptLogError
from tidemill.hot import frame
from tidemill.hot.ending import END_FILE, End, boot_id, keep_torn, read_end
from tidemill.hot.frame_meta import TableState
from tidemill.hot.log import Files, Log, Segment, list_segments
from tidemill.hot.replay import replay
from tidemill.hot.table import HotTable


@dataclass(frozen=True)
class Recovered:
    """What a start found: for the start-up line and for ``tidemill.ingest``."""

    table: str
    rows: int
    frames: int
    log_bytes: int
    torn_bytes: int
    elapsed_s: float
    torn_path: str | None = None  # where the bytes that were cut off are kept


def recover(hot: HotTable, folder: Path, segment_bytes: int, files: Files) -> Recovered:
    """Replay a table's log and open it for writing."""
    began = time.perf_counter()
    segments = list_segments(folder)
    end = read_end(folder)
    _check_last(folder, hot.table.name, segments, end)
    frames = log_bytes = torn_bytes = 0
    torn_path: Path | None = None
    kept = []
    for segment in segments:
        count, size, torn = _replay_segment(hot, segment, segment is segments[-1], end)
        frames, log_bytes, torn_bytes = frames + count, log_bytes + size, torn_bytes + torn
        if torn or not size:
            torn_path = keep_torn(segment.path, size)
        if size:
            kept.append(segment)
    settings = hot.table.settings
    log = Log(folder, hot.table.name, settings["durability"], segment_bytes, files, kept, hot.start)
    hot.open_log(log)
    hot.expire()
    rows = hot.view().rows
    elapsed = time.perf_counter() - began
    torn_name = None if torn_path is None else str(torn_path)
    return Recovered(hot.table.name, rows, frames, log_bytes, torn_bytes, elapsed, torn_name)


def _check_last(folder: Path, table: str, segments: list[Segment], end: End | None) -> None:
    """The last segment of a closed log goes only when others have come after it."""
    if end is not None and (not segments or segments[-1].number < end.number):
        raise CorruptLogError(
            f'segment {end.number} of the log of table "{table}" is missing',
            detail=f"the log in {folder} ended with it when it was closed",
            hint="restore the file from a backup; to go on without its rows, remove the file "
            f"{folder / END_FILE}",
        )


def check_log(hot: HotTable) -> None:
    """Read all frames of the segments that are closed; an error if one is damaged."""
    for segment in hot.log.segments[:-1]:
        try:
            buffer = _map(segment.path)
        except FileNotFoundError:  # moved meanwhile
            continue
        offset = 0
        while offset < buffer.size:
            try:
                offset += frame.read_at(buffer, offset).size
            except frame.TornError as error:
                raise _corrupt(segment.path, offset, str(error)) from error


def _replay_segment(
    hot: HotTable, segment: Segment, is_last: bool, end: End | None
) -> tuple[int, int, int]:
    """Answers frames, whole bytes and torn bytes."""
    buffer = _map(segment.path)
    known = end.size if end is not None and end.number == segment.number else 0
    if buffer.size == 0 and not is_last:
        raise _corrupt(segment.path, 0, "the segment is empty")
    if buffer.size < known:
        reason = f"it ends there and had {known} bytes when the log was closed"
        raise _corrupt(segment.path, buffer.size, reason)
    boot: str | None = None
    offset = frames = 0
    while offset < buffer.size:
        try:
            read = frame.read_at(buffer, offset)
        except frame.TornError as error:
            may_be_torn = is_last and offset >= known and not frame.has_frame_after(buffer, offset)
            if may_be_torn and (boot == boot_id() or offset == 0):
                may_be_torn = frame.is_torn(buffer, offset)
            if not may_be_torn:
                raise _corrupt(segment.path, offset, str(error)) from error
            return frames, offset, buffer.size - offset
        state = read.meta if isinstance(read.meta, TableState) else None
        if (offset == 0) != (state is not None):
            raise _corrupt(segment.path, offset, "the segment does not begin with its state")
        if state is not None:
            boot = state.boot_id or None
        replay(hot, read)
        frames += state is None
        offset += read.size
    return frames, offset, 0


def _map(path: Path) -> pa.Buffer:
    if path.stat().st_size == 0:
        return pa.py_buffer(b"")
    with path.open("rb") as file:
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _corrupt(path: Path, offset: int, reason: str) -> CorruptLogError:
    return CorruptLogError(
        f"log segment {path.name} is damaged at byte {offset}: {reason}",
        detail=f"acknowledged rows stand there or behind it in {path}",
        hint="restore the file from a backup; to go on without it, move the file away and accept "
        "the loss of its rows",
    )
