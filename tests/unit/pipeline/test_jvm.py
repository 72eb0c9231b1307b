"""The process behind Spark: its gateway, its progress, its end. Shell scripts stand in for Java."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidemill.pipeline.jvm import Gateway, Jvm, JvmEndedError, processor_ticks, watch

Start = Callable[[str], Jvm]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Jvm] = []

    def run(script: str) -> Jvm:
        started.append(Jvm(["/bin/sh", "-c", script], os.environ, tmp_path / "log"))
        return started[-1]

    yield run
    for jvm in started:
        jvm.kill()


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_the_gateway_is_read_once_it_is_there(start: Start) -> None:
    told = r"\000\000\142\250\000\000\000\006secret"
    jvm = start(
        f'printf "{told}" > "$_PYSPARK_DRIVER_CONN_INFO_PATH.part"; '
        'mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.part" "$_PYSPARK_DRIVER_CONN_INFO_PATH"; '
        "cat"
    )  # ends with its standard input
    assert jvm.wait_for_gateway() == Gateway(25256, "secret")
    assert jvm.exit_code is None
    jvm.end()
    assert jvm.exit_code == 0


def test_a_process_that_ends_before_is_told(start: Start, tmp_path: Path) -> None:
    jvm = start("echo broken >&2; exit 3")
    with pytest.raises(JvmEndedError):
        jvm.wait_for_gateway()
    assert jvm.exit_code == 3
    assert (tmp_path / "log").read_text() == "broken\n"


def test_one_that_does_nothing_is_killed(start: Start) -> None:
    jvm = start("sleep 600")
    assert watch(jvm, lambda: False, stalled_s=0.2)
    assert jvm.exit_code is not None
    with pytest.raises(JvmEndedError):
        jvm.wait_for_gateway()


@pytest.mark.skipif(processor_ticks(os.getpid()) is None, reason="there is no /proc")
def test_one_that_works_is_waited_for_also_by_its_children(start: Start) -> None:
    jvm = start("(while :; do :; done) & wait")
    first = jvm.progress()[0] or 0
    assert not watch(jvm, lambda: (jvm.progress()[0] or 0) > first + 30, stalled_s=30)
    assert jvm.exit_code is None


def test_killing_ends_what_it_started_and_can_be_repeated(start: Start, tmp_path: Path) -> None:
    jvm = start(f"sleep 600 & echo $! > {tmp_path}/child; mv {tmp_path}/child {tmp_path}/pid; wait")
    place = tmp_path / "pid"
    assert not watch(jvm, place.exists, stalled_s=60)
    child = int(place.read_text())
    jvm.kill()
    jvm.kill()
    jvm.end()
    assert jvm.exit_code is not None
    stat = Path(f"/proc/{child}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
