"""The machine and the versions under a measurement: enough to judge it, nothing that names it."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

PACKAGES = ("tidemill", "duckdb", "pyarrow", "numpy", "sqlglot", "sqlalchemy", "psycopg")
_SYNC_BYTES = 400_000  # one batch of 10,000 reports
_SYNC_TIMES = 25


def describe_machine(folder: Path) -> dict[str, str]:
    """Processor, memory, system and the disk under ``folder``."""
    small, batch = _sync_ms(folder, 4_096), _sync_ms(folder, _SYNC_BYTES)
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "system": f"{_os_name()}, kernel {platform.release().split('-')[0]}",
        "file system of the data": file_system(folder),
        "fdatasync": f"{small} for 4 KB, {batch} for 400 KB",
        "load before the run": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def describe_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def file_system(folder: Path) -> str:
    """The type of the file system that holds a folder, from the longest mount point above it."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, this_kind, *_ = line.split()
        if folder.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, this_kind
    return kind


def rss_bytes() -> tuple[int, int]:
    """Resident memory of this process: all of it, and the part that no file backs."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    total, anonymous = (int(fields[name].split()[0]) * 1_024 for name in ("VmRSS", "RssAnon"))
    return total, anonymous


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def _sync_ms(folder: Path, size: int) -> str:
    """How long the disk takes to make an appended piece durable: the floor of a durable append.
    The fastest beside the median shows how quiet the machine was."""
    taken = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(_SYNC_TIMES):
            began = time.perf_counter()
            file.write(b"\1" * size)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return f"{median(taken) * 1_000:.2f} ms (fastest {min(taken) * 1_000:.2f})"
