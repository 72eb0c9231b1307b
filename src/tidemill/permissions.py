"""Private files: what a warehouse writes, its owner alone may read.

Folders are made with mode 0700 and files with 0600, whatever the process's umask is. The umask
itself is the program's that imports us and is left alone. Libraries that create files by
themselves (DuckDB, SQLite, Arrow, Spark's Java) write into such folders; where they can be given a
file that is there already, it is made first.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
import uuid
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_OTHERS = 0o077


def make_folder(path: str | Path) -> None:
    """Make a folder, and those above it that are missing, for the owner alone."""
    try:
        os.mkdir(path, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    except FileNotFoundError:
        parent = os.path.dirname(os.path.abspath(path))
        if parent == os.path.abspath(path):
            raise
        make_folder(parent)
        make_folder(path)


def make_file(path: str | Path) -> None:
    """Make an empty file for the owner alone, for others to fill; one that is there stays."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))


def spill_folder() -> str:
    """Where a DuckDB of this process may put what its memory cannot hold: DuckDB makes the folder
    when it is needed, in one that is closed to others and goes when the process ends."""
    return f"{_process_folder()}/{uuid.uuid4().hex}"


@lru_cache(maxsize=1)
def _process_folder() -> str:
    folder = tempfile.mkdtemp(prefix="tidemill-spill-")
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: str, pid: int) -> None:
    if os.getpid() == pid:  # a forked child shares the folder
        shutil.rmtree(folder, ignore_errors=True)


def make_private(path: str | Path) -> None:
    """Close a file to others, if it is there."""
    with suppress(FileNotFoundError):
        os.chmod(path, FILE_MODE)


def is_open_to_others(path: Path) -> bool:
    """Whether other users may do anything with a file or folder of ours."""
    status = os.lstat(path)
    return status.st_uid == os.geteuid() and bool(stat.S_IMODE(status.st_mode) & _OTHERS)


def tighten(folder: Path) -> int:
    """Close a folder and all below it to others, where it is ours; answers how many were open.

    The folder itself is closed last: while it is open, the next start finds work left to do."""
    count = 0
    for parent, folders, files in os.walk(folder):
        for name, mode in (*((n, FOLDER_MODE) for n in folders), *((n, FILE_MODE) for n in files)):
            path = Path(parent, name)
            with suppress(FileNotFoundError):
                if not path.is_symlink() and is_open_to_others(path):
                    os.chmod(path, mode)
                    count += 1
    if is_open_to_others(folder):
        os.chmod(folder, FOLDER_MODE)
        count += 1
    return count
