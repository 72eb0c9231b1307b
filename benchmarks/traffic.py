"""The rows of the history benchmarks: position reports over hours, as Linear Road has them.

10,000 cars report every 30 seconds, each at its own moment within the 30 seconds: 1.2 million rows
an hour, so 10 million rows lie in nine one-hour partitions and 100 million in 84. Reports come in
order of time. A piece of 100,000 rows (ten rounds of the cars) depends on nothing but the seed and
its number, so that pieces are made in any order, by any process. (``data.py`` makes the rows of the
hot benchmarks: ten times as many cars, so minutes where this makes hours.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.data import BASE_US, COLUMNS, KINDS, ROUND_US, SCHEMA, SEGMENT_FEET, SEGMENTS, XWAYS

CARS = 10_000
ROUNDS = 10
PIECE_ROWS = CARS * ROUNDS
SEED = 3
STOPPED_SHARE = 0.005
_FEET_A_ROUND = 30 * 5_280 / 3_600  # per mile an hour

Columns = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class _Cars:
    """What is fixed for each car, in the order in which the cars report."""

    vid: npt.NDArray[np.int64]
    phase_us: npt.NDArray[np.int64]
    pace: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]
    xway: npt.NDArray[np.int32]
    dir: npt.NDArray[np.int32]


@cache
def _cars() -> _Cars:
    rng = np.random.default_rng([SEED, CARS])
    return _Cars(
        rng.permutation(CARS).astype(np.int64),
        np.sort(rng.integers(0, ROUND_US, CARS)),
        np.clip(rng.normal(58, 14, CARS), 5, 95),
        rng.uniform(0, SEGMENTS * SEGMENT_FEET, CARS),
        rng.integers(0, XWAYS, CARS, dtype=np.int32),
        rng.integers(0, 2, CARS, dtype=np.int32),
    )


def piece(number: int, rows: int = PIECE_ROWS) -> Columns:
    """The columns of the first ``rows`` reports of one piece."""
    cars, rng = _cars(), np.random.default_rng([SEED, CARS, number])
    rounds = np.arange(number * ROUNDS, (number + 1) * ROUNDS)[:, None]
    shape = (ROUNDS, CARS)
    speed = np.clip(cars.pace + rng.normal(0, 6, shape), 0, 100).astype(np.int32)
    speed[rng.random(shape) < STOPPED_SHARE] = 0
    feet = (cars.start + cars.pace * _FEET_A_ROUND * rounds) % (SEGMENTS * SEGMENT_FEET)
    position = feet.astype(np.int32)
    made = {
        "ts": BASE_US + rounds * ROUND_US + cars.phase_us,
        "vid": np.broadcast_to(cars.vid, shape),
        "spd": speed,
        "xway": np.broadcast_to(cars.xway, shape),
        "lane": rng.integers(0, 5, shape, dtype=np.int32),
        "dir": np.broadcast_to(cars.dir, shape),
        "seg": position // SEGMENT_FEET,
        "pos": position,
    }
    return {name: values.reshape(-1)[:rows] for name, values in made.items()}


def pieces(rows: int) -> list[int]:
    """How many rows each piece has."""
    full, rest = divmod(rows, PIECE_ROWS)
    return [PIECE_ROWS] * full + [rest] * bool(rest)


def table(number: int, rows: int = PIECE_ROWS) -> pa.Table:
    """One piece as Arrow."""
    made = piece(number, rows)
    return pa.table([pa.array(made[f.name]).cast(f.type) for f in SCHEMA], schema=SCHEMA)


def car_table() -> pa.Table:
    """A reference table to join with: one row a car."""
    kinds = np.array(KINDS)[np.random.default_rng([SEED, 7]).integers(0, len(KINDS), CARS)]
    return pa.table({"vid": np.arange(CARS, dtype=np.int64), "kind": kinds})


def expected(rows: int) -> tuple[int, ...]:
    """Count and the sum of every column (times from ``BASE_US``), by numpy alone."""
    sums = np.zeros(len(COLUMNS), dtype=np.int64)
    for number, count in enumerate(pieces(rows)):
        made = piece(number, count)
        made["ts"] = made["ts"] - BASE_US
        sums += [made[name].astype(np.int64).sum() for name in COLUMNS]
    return rows, *(int(value) for value in sums)


def totals_sql() -> str:
    """What ``expected`` computes, as DuckDB and Tidemill say it."""
    sums = (f"sum(epoch_us({c}) - {BASE_US})" if c == "ts" else f"sum({c})" for c in COLUMNS)
    return f"count(*), {', '.join(sums)}"


def span_us(rows: int) -> tuple[int, int]:
    """The times between which the first ``rows`` reports lie."""
    return BASE_US, BASE_US + -(-rows // CARS) * ROUND_US


def tables(rows: int) -> Iterator[pa.Table]:
    for number, count in enumerate(pieces(rows)):
        yield table(number, count)
