"""How much memory a task of the pipeline may take, and giving back what it no longer uses.

The runtime of Spark tells its Python workers their share by a variable of the environment. A task
bounds DuckDB with it and sizes the rows that it holds at once by it; where no variable is (in this
process, or in a worker of a foreign Spark) nothing is bounded more than the tasks' own
constants say. It is no limit of the operating system: a task may pass it for a moment, by what
sorting and encoding a portion takes.
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress

import pyarrow as pa

TASK_MEMORY_VARIABLE = "TIDEMILL_TASK_MEMORY"
TASK_BYTES_MIN = 128 << 20
# Rows that are sorted and encoded take about this many times their size.
COPIES = 4


def task_bytes() -> int | None:
    """What this task may take; None if nobody said."""
    with suppress(ValueError, KeyError):
        return max(int(os.environ[TASK_MEMORY_VARIABLE]), TASK_BYTES_MIN)
    return None


def held_bytes(most: int) -> int:
    """How many bytes of rows a task holds before it writes them, ``most`` where memory is ample."""
    given = task_bytes()
    return most if given is None else min(most, given // COPIES)


def duck_settings() -> dict[str, str]:
    """What bounds a DuckDB of this task; beyond that it spills."""
    given = task_bytes()
    return {} if given is None else {"memory_limit": f"{given >> 20}MiB"}


def worker_environment() -> dict[str, str]:
    """For Python workers: few arenas, so that freed memory does not stay with threads, and one
    allocator, which gives back what it is told to."""
    return {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def give_back() -> None:
    """After a task: return freed memory to the system; an idle worker shall be small."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
