"""One process owns a warehouse.

1. The owner holds ``flock`` on ``owner.lock`` in the warehouse's folder for as long as it lives;
   the kernel lets go when it dies, however it dies, so there is no stale lock to clean up.
2. The file's content says who that is (JSON: pid, host, user, command, started_at, and what
   ``update`` adds, such as the socket where clients may connect). It counts only while the lock
   is held; what a dead owner left behind is ignored and overwritten.
3. The file is never removed: two processes could then each lock a file of that name.
4. A forked child gives up its copy of the lock at once, so that only the owner's life counts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import socket
import sys
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidemill.clock import Clock, from_us
from tidemill.errors import CatalogError, OwnedError

LOCK_FILE = "owner.lock"
ATTEMPTS_MAX = 1_000
CONTENT_BYTES_MAX = 65_536
COMMAND_CHARS_MAX = 500
_HINT = "close it, or use `tidemill sql`, which connects to the owner"
_HINT_SELF = "close the database that this process has open first"

_alive: weakref.WeakSet[Owner] = weakref.WeakSet()


class Owner:
    """The right to a warehouse's folder, held until ``release`` or the end of the process."""

    def __init__(self, folder: Path, descriptor: int, info: dict[str, object]) -> None:
        self._folder = folder
        self._descriptor: int | None = descriptor
        self._pid = os.getpid()
        self.info = info
        _alive.add(self)

    @classmethod
    def acquire(cls, folder: Path, clock: Clock) -> Owner:
        """Own the folder, or raise an OwnedError that names the owner."""
        with _translated(folder):
            descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                locked = _lock(descriptor)
                content = None if locked else _content(descriptor)
            except OSError:
                os.close(descriptor)
                raise
        if not locked:
            os.close(descriptor)
            raise owned_error(f'warehouse "{folder}"', content or {})
        owner = cls(folder, descriptor, describe_process(clock))
        try:
            owner.update()
        except CatalogError:
            owner.release()
            raise
        return owner

    @staticmethod
    def read(folder: Path) -> dict[str, object] | None:
        """What the owner says of itself; None when nobody owns the folder."""
        try:
            descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _fault(folder, error) from error
        try:
            if _try(descriptor, fcntl.LOCK_SH):
                return None
            return _content(descriptor) or {}
        finally:
            os.close(descriptor)

    def update(self, **info: object) -> None:
        """Add to what clients can read of the owner; None takes an entry away."""
        if self._descriptor is None:
            return
        merged = {**self.info, **info}
        self.info = {key: value for key, value in merged.items() if value is not None}
        content = json.dumps(self.info).encode()
        with _translated(self._folder):
            os.pwrite(self._descriptor, content, 0)
            os.ftruncate(self._descriptor, len(content))

    def release(self) -> None:
        """Let go. In a forked child this touches only the child's copy."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def describe_process(clock: Clock) -> dict[str, object]:
    """Who we are, for the next one who wants what we own."""
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "user": _user(),
        "command": " ".join(sys.argv)[:COMMAND_CHARS_MAX] or sys.executable,
        "started_at": from_us(clock.now_us()).isoformat(sep=" ", timespec="seconds") + "Z",
    }


def owned_error(what: str, owner: Mapping[str, object]) -> OwnedError:
    """The error for the second opener of ``what``."""
    if not owner.get("pid"):
        return OwnedError(f"{what} is owned by another process", hint=_HINT)
    ourselves = owner["pid"] == os.getpid() and owner.get("host") == socket.gethostname()
    who = "this process" if ourselves else f"process {owner['pid']} on {owner.get('host')}"
    return OwnedError(
        f"{what} is owned by {who}",
        detail=f"pid {owner['pid']}, host {owner.get('host')}, user {owner.get('user')}, "
        f'command "{owner.get("command")}", since {owner.get("started_at")}',
        hint=_HINT_SELF if ourselves else _HINT,
    )


def _lock(descriptor: int) -> bool:
    """Take the lock unless somebody owns it; a client that is just looking is no owner."""
    for _ in range(ATTEMPTS_MAX):
        if _try(descriptor, fcntl.LOCK_EX):
            return True
        if not _try(descriptor, fcntl.LOCK_SH):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _content(descriptor: int) -> dict[str, object] | None:
    """The file's JSON object, or None; what may follow it is the rest of a longer, older one."""
    text = os.pread(descriptor, CONTENT_BYTES_MAX, 0).decode(errors="replace")
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@contextlib.contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _fault(folder, error) from error


def _fault(folder: Path, error: OSError) -> CatalogError:
    hints = {
        errno.EACCES: "check the permissions of the folder",
        errno.EROFS: "a warehouse needs a folder that can be written",
        errno.ENOENT: "create the folder first",
        errno.ENOTDIR: "the path is a file; give a folder",
        errno.ENOSPC: "free some space",
    }
    return CatalogError(
        f'warehouse "{folder}" cannot be locked',
        detail=str(error),
        hint=hints.get(error.errno or 0, "check the folder and its file system"),
    )


def _give_up_in_child() -> None:
    for owner in list(_alive):
        if owner._descriptor is not None:
            os.close(owner._descriptor)
            owner._descriptor = None


os.register_at_fork(after_in_child=_give_up_in_child)
