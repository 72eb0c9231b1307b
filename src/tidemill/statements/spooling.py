"""Pipes as files: COPY FROM a FIFO, which can be read only once and may never end.

Readers look at the head of a file before they read it, and a read of a pipe that nobody writes to
never comes back. So a pipe is first copied into a file, in steps that can be broken off.
"""

from __future__ import annotations

import os
import select
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.errors import BackpressureError, FileFormatError, QueryError
from tidemill.executions import cancellable

STEP_BYTES = 1 << 20
LOOK_EVERY_S = 0.1


@contextmanager
def as_file(path: Path, bytes_max: int) -> Iterator[Path]:
    """The path itself, or a copy of what a pipe gives until its writers are gone."""
    if not is_pipe(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(
        prefix="tidemill-pipe-", suffix="".join(path.suffixes)
    ) as copy:
        cancelled = threading.Event()
        with cancellable(lambda _: cancelled.set()):
            _copy(path, copy.fileno(), cancelled, bytes_max)
        yield Path(copy.name)


def is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False


def _copy(path: Path, target: int, cancelled: threading.Event, bytes_max: int) -> None:
    try:
        source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise FileFormatError(f'"{path}" cannot be read', detail=error.strerror) from error
    try:
        copied = 0
        while block := _next_block(source, cancelled, has_begun=copied > 0):
            copied += os.write(target, block)
            if copied > bytes_max:
                raise BackpressureError(
                    f'"{path}" gave more than {bytes_max:,} bytes, which memory should not hold',
                    hint="write it to a file, which is loaded in pieces",
                )
    finally:
        os.close(source)


def _next_block(source: int, cancelled: threading.Event, has_begun: bool) -> bytes:
    """What comes next; nothing once the writers are gone. Before the first has opened the pipe,
    there is nothing either, and that is waited for."""
    while not cancelled.is_set():
        ready, _, _ = select.select([source], [], [], LOOK_EVERY_S)
        if not ready:
            continue
        try:
            block = os.read(source, STEP_BYTES)
        except BlockingIOError:
            continue
        if block or has_begun:
            return block
        cancelled.wait(LOOK_EVERY_S)
    raise QueryError("the statement was cancelled")
