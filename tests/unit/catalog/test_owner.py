"""Ownership of a folder, with real processes that are really killed."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from tidemill.catalog.owner import LOCK_FILE, Owner
from tidemill.clock import FakeClock
from tidemill.errors import CatalogError, OwnedError

HOLDER = dedent(
    """
    import sys
    from pathlib import Path
    from tidemill.catalog.owner import Owner
    from tidemill.clock import FakeClock
    owner = Owner.acquire(Path(sys.argv[1]), FakeClock(0))
    owner.update(socket="/run/tm.sock")
    print("held", flush=True)
    sys.stdin.read()
    """
)


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns the folder until it is killed or its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_owner_can_be_read_and_lets_go(tmp_path: Path) -> None:
    assert Owner.read(tmp_path) is None
    owner = Owner.acquire(tmp_path, FakeClock(0))
    info = Owner.read(tmp_path)
    assert info["pid"] == os.getpid()
    assert info["host"] == socket.gethostname()
    assert info["started_at"] == "1970-01-01 00:00:00Z"
    assert set(info) == {"pid", "host", "user", "command", "started_at"}
    owner.update(socket="/a/very/long/path" * 20)
    assert Owner.read(tmp_path)["socket"].startswith("/a/very")
    owner.update(socket=None)
    assert "socket" not in Owner.read(tmp_path)
    owner.release()
    owner.release()
    owner.update(socket="x")
    assert Owner.read(tmp_path) is None
    Owner.acquire(tmp_path, FakeClock(0)).release()


def test_twice_in_one_process(tmp_path: Path) -> None:
    owner = Owner.acquire(tmp_path, FakeClock(0))
    for _ in range(2):
        with pytest.raises(OwnedError, match="this process") as caught:
            Owner.acquire(tmp_path, FakeClock(0))
    assert "close the database" in caught.value.hint
    assert Owner.read(tmp_path)["pid"] == os.getpid()
    owner.release()


def test_the_error_names_the_other_process(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(OwnedError) as caught:
            Owner.acquire(tmp_path, FakeClock(0))
        error = caught.value
        assert f"process {process.pid} on {socket.gethostname()}" in error.message
        assert "-c" in error.detail
        assert "since 1970-01-01 00:00:00Z" in error.detail
        assert "tidemill sql" in error.hint
        assert Owner.read(tmp_path)["socket"] == "/run/tm.sock"


def test_kill_dash_nine_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.kill()
        process.wait()
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == process.pid
        assert Owner.read(tmp_path) is None
        owner = Owner.acquire(tmp_path, FakeClock(0))
        assert Owner.read(tmp_path)["pid"] == os.getpid()
        owner.release()


@pytest.mark.parametrize("content", ["", "{", "nonsense", "[1]", '{"pid": "x"} trailing', "\xff"])
def test_old_content_is_no_obstacle(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK_FILE).write_bytes(content.encode("latin-1"))
    assert Owner.read(tmp_path) is None
    owner = Owner.acquire(tmp_path, FakeClock(0))
    assert Owner.read(tmp_path)["pid"] == os.getpid()
    owner.release()


def test_an_owner_without_a_name_still_owns(tmp_path: Path) -> None:
    owner = Owner.acquire(tmp_path, FakeClock(0))
    (tmp_path / LOCK_FILE).write_text("")
    assert Owner.read(tmp_path) == {}
    with pytest.raises(OwnedError, match="another process"):
        Owner.acquire(tmp_path, FakeClock(0))
    owner.release()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_neither_breaks_nor_prolongs_ownership(tmp_path: Path) -> None:
    """The child releases and exits: still owned. The child lives on: release is enough."""
    owner = Owner.acquire(tmp_path, FakeClock(0))
    stay, leave = os.pipe()
    child = os.fork()
    if child == 0:
        owner.release()
        os.close(leave)
        os.read(stay, 1)
        os._exit(0)
    os.close(stay)
    with pytest.raises(OwnedError):
        Owner.acquire(tmp_path, FakeClock(0))
    owner.release()
    again = Owner.acquire(tmp_path, FakeClock(0))
    os.close(leave)
    assert os.waitpid(child, 0)[1] == 0
    assert Owner.read(tmp_path) is not None
    again.release()


def test_clients_that_look_do_not_get_in_the_way(tmp_path: Path) -> None:
    looking = os.open(tmp_path / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(looking, fcntl.LOCK_SH)
    with pytest.raises(OwnedError):  # one that never stops looking does, after many attempts
        Owner.acquire(tmp_path, FakeClock(0))
    os.close(looking)
    Owner.acquire(tmp_path, FakeClock(0)).release()


def test_folders_that_cannot_be_owned(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(CatalogError, match="cannot be locked") as caught:
            Owner.acquire(folder, FakeClock(0))
        assert caught.value.hint
    assert Owner.read(tmp_path / "missing") is None


def test_a_full_disk_lets_go_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(CatalogError, match="cannot be locked") as caught:
            Owner.acquire(tmp_path, FakeClock(0))
    assert caught.value.hint == "free some space"
    Owner.acquire(tmp_path, FakeClock(0)).release()
