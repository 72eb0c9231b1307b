"""The rows of the small view benchmarks (document 004, §4.3.3): a time and six whole numbers.

Each number is drawn evenly from 1 to ``keys``, so that any column can be a key and any other one a
value. A piece depends on nothing but the keys and its number; times lie one microsecond apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

COLUMNS = ("a", "b", "c", "d", "e", "f")
COLUMNS_SQL = "ts TIMESTAMP, " + ", ".join(f"{name} INTEGER" for name in COLUMNS)
SCHEMA = pa.schema([("ts", pa.timestamp("us")), *((name, pa.int32()) for name in COLUMNS)])
PIECE_ROWS = 100_000
SEED = 4
_BASE_US = 1_767_225_600_000_000  # 2026-01-01


def piece(number: int, keys: int) -> pa.RecordBatch:
    rng = np.random.default_rng([SEED, keys, number])
    first_us = _BASE_US + number * PIECE_ROWS
    times = pa.array(np.arange(first_us, first_us + PIECE_ROWS)).cast(pa.timestamp("us"))
    drawn = rng.integers(1, keys + 1, (len(COLUMNS), PIECE_ROWS), dtype=np.int32)
    return pa.RecordBatch.from_arrays([times, *map(pa.array, drawn)], schema=SCHEMA)


def batches(rows: int, keys: int, size: int) -> Iterator[pa.RecordBatch]:
    """``rows`` rows in batches of ``size``, which divides them and the size of a piece.

    >>> [batch.num_rows for batch in batches(200, 10, 100)]
    [100, 100]
    """
    for start in range(0, rows, PIECE_ROWS):
        made = piece(start // PIECE_ROWS, keys).slice(0, rows - start)
        for at in range(0, made.num_rows, size):
            yield made.slice(at, size)


def chart(values: Sequence[float], width: int = 60) -> str:
    """Values as a line of small bars, the largest as high as can be.

    >>> chart([0, 1, 2, 4], 4)
    '▁▃▅█'
    """
    step = max(len(values) / width, 1)
    taken = [values[int(at * step)] for at in range(int(len(values) / step))]
    top = max(taken, default=0) or 1
    return "".join("▁▂▃▄▅▆▇█"[min(int(value * 8 / top), 7)] for value in taken)
