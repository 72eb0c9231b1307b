"""Where a log ended: what a clean close leaves, and what a process that died can have left.

A log that is closed writes the number and the size of its last segment to the file ``end`` beside
it. A segment is never written again after that, so the record stays true for as long as the segment
is there: whatever fails its checksum before that end was acknowledged, and is damaged.

A process that was killed leaves no record, but the operating system keeps every byte that it had
written. So, as long as the machine was not started again since (each segment begins with the boot's
id), the only unfinished frames are those that ``is_torn`` describes, and anything else is damage.
After a crash of the machine blocks may be missing anywhere behind what was forced to disk; then a
bad end of the last segment is always an unfinished append.

What is cut off is kept beside the log, in a file that ends in ``.torn``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tidemill.checksums import crc32
from tidemill.permissions import make_file

END_FILE = "end"
TORN_SUFFIX = ".torn"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class End:
    """The last segment of a log that was closed: its number and its bytes."""

    number: int
    size: int


@cache
def boot_id() -> str:
    """What the machine's current run is called; empty where that is not known."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def write_end(folder: Path, end: End, is_forced: bool) -> None:
    """Record where a log ends; ``is_forced`` makes it durable."""
    text = b"%d %d" % (end.number, end.size)
    made = folder / f"{END_FILE}.new"
    make_file(made)
    with open(made, "wb") as file:
        file.write(b"%s %08x\n" % (text, crc32(text)))
        if is_forced:
            file.flush()
            os.fsync(file.fileno())
    made.replace(folder / END_FILE)
    if is_forced:
        sync_folder(folder)


def read_end(folder: Path) -> End | None:
    """The record of the last clean close; None if there is none, or if it is damaged itself."""
    try:
        text, _, check = (folder / END_FILE).read_bytes().rstrip(b"\n").rpartition(b" ")
    except FileNotFoundError:
        return None
    if check != b"%08x" % crc32(text):
        return None
    number, size = text.split()
    return End(int(number), int(size))


def keep_torn(path: Path, size: int) -> Path | None:
    """Cut a segment at a size, durably, and keep what is cut beside it; a segment with nothing
    whole in it is kept aside altogether. None if there was nothing to keep."""
    content = path.read_bytes()[size:]
    kept: Path | None = None
    if content:
        kept = _free_name(path)
        make_file(kept)
        with open(kept, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    if size == 0:
        path.unlink()
    else:
        with path.open("r+b") as segment:
            segment.truncate(size)
            os.fsync(segment.fileno())
    sync_folder(path.parent)
    return kept


def _free_name(path: Path) -> Path:
    number, kept = 1, path.with_suffix(TORN_SUFFIX)
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.stem}-{number}{TORN_SUFFIX}")
    return kept


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
