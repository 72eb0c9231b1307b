"""What a process and its children use while they are measured: processor and memory, by the second.

Read from ``/proc``. A page that several processes share (Spark's workers are forks of one) counts
once in all. Java's share is told apart: it is Spark's, and only there while Spark runs.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

EVERY_S = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Sample:
    """One second: cores in use (1.0 is one core), resident bytes; Java's are not in the others."""

    at: float  # seconds from the start
    cores: float
    resident: int
    anonymous: int  # the part of ``resident`` that no file backs
    java_cores: float
    java_resident: int


@dataclass(frozen=True)
class _Usage:
    cpu_s: float = 0.0
    resident: int = 0
    anonymous: int = 0

    def plus(self, other: _Usage) -> _Usage:
        return _Usage(
            self.cpu_s + other.cpu_s,
            self.resident + other.resident,
            self.anonymous + other.anonymous,
        )


class Sampler:
    """A thread that samples this process and its children until it is told to finish."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._origin = 0.0
        self._thread = threading.Thread(target=self._run, name="sampler")

    def start(self, origin: float) -> None:
        self._origin = origin
        self._thread.start()

    def finish(self) -> list[Sample]:
        self._stop.set()
        self._thread.join()
        return self._samples

    def _run(self) -> None:
        before, last = _usages(), time.perf_counter()
        # Of a run shorter than that there is one sample all the same.
        while not self._stop.wait(EVERY_S) or not self._samples:
            now, moment = _usages(), time.perf_counter()
            own, java = (
                (after.cpu_s - earlier.cpu_s) / (moment - last)
                for after, earlier in zip(now, before, strict=True)
            )
            usage, java_usage = now
            sample = Sample(
                moment - self._origin,
                max(own, 0.0),  # a child that ended takes its time along
                usage.resident,
                usage.anonymous,
                max(java, 0.0),
                java_usage.resident,
            )
            self._samples.append(sample)
            before, last = now, moment


def _usages() -> tuple[_Usage, _Usage]:
    """Of everything but Java, and of Java."""
    others = java = _Usage()
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        try:
            name, usage = _usage(process)
            tasks = list((_PROC / str(process) / "task").iterdir())
        except OSError:  # it ended meanwhile
            continue
        for task in tasks:
            with suppress(OSError):  # a thread that ended has no children; its process goes on
                waiting += map(int, (task / "children").read_text().split())
        if name == "java":
            java = java.plus(usage)
        else:
            others = others.plus(usage)
    return others, java


def _usage(process: int) -> tuple[str, _Usage]:
    folder = _PROC / str(process)
    name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
    cells = rest.split()
    cpu_s = (int(cells[11]) + int(cells[12])) / _TICKS
    lines = (folder / "smaps_rollup").read_text().splitlines()[1:]
    told = dict(line.split(":", 1) for line in lines)  # none of a process that has just ended
    resident, anonymous = (
        int(told[key].split()[0]) * 1_024 if key in told else 0 for key in ("Pss", "Pss_Anon")
    )
    return name, _Usage(cpu_s, resident, anonymous)
