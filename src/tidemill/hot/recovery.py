"""Recovery: a table built again from its log.

Segments are read in the order they were written, each frame checked. What may be wrong, and what
follows from it:

- the last segment ends in the middle of a frame: the process died while writing, nobody was told
  that those rows are safe; the tail is cut off and reported;
- anything else (a bad checksum with whole frames behind it, a torn segment that is not the last, a
  segment without its STATE frame): rows that were acknowledged are damaged; the start stops with
  an error that names file and offset.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidemill.errors import CorruptLogError
from tidemill.hot import frame
from tidemill.hot.log import Files, Log, Segment, list_segments
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


def recover(hot: HotTable, folder: Path, segment_bytes: int, files: Files) -> Recovered:
    """Replay a table's log and open it for writing."""
    began = time.perf_counter()
    segments = list_segments(folder)
    frames = log_bytes = torn_bytes = 0
    kept = []
    for segment in segments:
        is_last = segment is segments[-1]
        count, size, torn = _replay_segment(hot, segment, is_last)
        frames, log_bytes, torn_bytes = frames + count, log_bytes + size, torn_bytes + torn
        if size:
            kept.append(segment)
    settings = hot.table.settings
    log = Log(folder, hot.table.name, settings["durability"], segment_bytes, files, kept, hot.state)
    hot.open_log(log)
    hot.expire()
    rows = hot.view().rows
    elapsed = time.perf_counter() - began
    return Recovered(hot.table.name, rows, frames, log_bytes, torn_bytes, elapsed)


def _replay_segment(hot: HotTable, segment: Segment, is_last: bool) -> tuple[int, int, int]:
    """Answers frames, whole bytes and torn bytes."""
    buffer = _map(segment.path)
    if buffer.size == 0:
        if not is_last:
            raise _corrupt(segment.path, 0, "the segment is empty")
        _cut(segment.path, 0)
    offset = frames = 0
    while offset < buffer.size:
        try:
            read = frame.read_at(buffer, offset)
        except frame.TornError as error:
            if not is_last or frame.has_frame_after(buffer, offset):
                raise _corrupt(segment.path, offset, str(error)) from error
            torn = buffer.size - offset
            _cut(segment.path, offset)
            return frames, offset, torn
        if (offset == 0) != (read.kind == frame.STATE):
            raise _corrupt(segment.path, offset, "the segment does not begin with its state")
        hot.replay(read)
        frames += read.kind != frame.STATE
        offset += read.size
    return frames, offset, 0


def _map(path: Path) -> pa.Buffer:
    if path.stat().st_size == 0:
        return pa.py_buffer(b"")
    with path.open("rb") as file:
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _cut(path: Path, size: int) -> None:
    """Cut a torn tail off, durably; a segment with nothing whole in it goes."""
    if size == 0:
        path.unlink()
        return
    with path.open("r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def _corrupt(path: Path, offset: int, reason: str) -> CorruptLogError:
    return CorruptLogError(
        f"log segment {path.name} is damaged at byte {offset}: {reason}",
        detail=f"acknowledged rows stand behind it in {path}",
        hint="restore the file from a backup; to go on without it, move the file away and accept "
        "the loss of its rows",
    )
