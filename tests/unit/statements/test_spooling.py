"""Pipes as files: what they give until their writers are gone, and how that is broken off."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tidemill.clock import FakeClock
from tidemill.errors import BackpressureError, QueryError
from tidemill.executions import Executions
from tidemill.statements.spooling import as_file


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.csv.gz"
    os.mkfifo(path)
    return path


def test_a_file_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("a")
    with as_file(path, 10) as place:
        assert place is path


def test_a_pipe_is_copied_until_its_writers_are_gone(pipe: Path) -> None:
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"x" * 3_000_000))
    writer.start()
    with as_file(pipe, 1 << 30) as place:
        assert place.suffixes[-2:] == [".csv", ".gz"]
        assert place.stat().st_size == 3_000_000
    writer.join()
    assert not place.exists()


def test_a_pipe_that_gives_too_much_is_refused(pipe: Path) -> None:
    reader_is_gone = threading.Event()

    def write() -> None:
        with open(pipe, "wb", buffering=0) as sink:
            try:
                for _ in range(100):
                    sink.write(b"x" * 65_536)
            except BrokenPipeError:
                reader_is_gone.set()

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(BackpressureError), as_file(pipe, 100_000):
        pytest.fail("it is too large")
    writer.join()
    assert reader_is_gone.is_set()


def test_nobody_writes_and_it_is_cancelled(pipe: Path) -> None:
    executions = Executions("w", FakeClock())
    with executions.begin("COPY t FROM 'pipe.csv'") as execution:
        threading.Timer(0.05, execution.cancel).start()
        with pytest.raises(QueryError, match="cancelled"), as_file(pipe, 10):
            pytest.fail("there is nothing to read")
