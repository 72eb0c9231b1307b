"""The rows of every benchmark: position reports of cars on expressways, the same for everyone.

100,000 cars report every 30 seconds, each at its own moment within the 30 seconds; so the reports
come in order of time and a batch of 10,000 covers about three seconds. A round (one report of each
car) depends on nothing but the seed and its number, so every process makes the same rows by
itself. Speeds, positions and segments follow from each car's own pace; a few cars stand still.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

CARS = 100_000
BATCH_ROWS = 10_000
SEED = 2
BASE_US = 1_704_067_200_000_000  # 2024-01-01 00:00:00
ROUND_US = 30_000_000
XWAYS, SEGMENTS, SEGMENT_FEET = 10, 100, 5_280
STOPPED_SHARE = 0.005
ARROW_ROW_BYTES = 8 + 8 + 6 * 4
_FEET_A_ROUND = 30 * 5_280 / 3_600  # per mile an hour

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("vid", pa.int64()),
        ("spd", pa.int32()),
        ("xway", pa.int32()),
        ("lane", pa.int32()),
        ("dir", pa.int32()),
        ("seg", pa.int32()),
        ("pos", pa.int32()),
    ]
)
COLUMNS = tuple(SCHEMA.names)
KINDS = ("standard", "lorry", "bus", "taxi", "motorcycle")

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


def _make_cars(seed: int) -> _Cars:
    rng = np.random.default_rng([seed, CARS])
    return _Cars(
        rng.permutation(CARS).astype(np.int64),
        np.sort(rng.integers(0, ROUND_US, CARS)),
        np.clip(rng.normal(58, 14, CARS), 5, 95),
        rng.uniform(0, SEGMENTS * SEGMENT_FEET, CARS),
        rng.integers(0, XWAYS, CARS, dtype=np.int32),
        rng.integers(0, 2, CARS, dtype=np.int32),
    )


def _make_round(cars: _Cars, number: int, seed: int) -> Columns:
    rng = np.random.default_rng([seed, CARS, number])
    speed = np.clip(cars.pace + rng.normal(0, 6, CARS), 0, 100).astype(np.int32)
    speed[rng.random(CARS) < STOPPED_SHARE] = 0
    feet = (cars.start + cars.pace * _FEET_A_ROUND * number) % (SEGMENTS * SEGMENT_FEET)
    position = feet.astype(np.int32)
    return {
        "ts": BASE_US + number * ROUND_US + cars.phase_us,
        "vid": cars.vid,
        "spd": speed,
        "xway": cars.xway,
        "lane": rng.integers(0, 5, CARS, dtype=np.int32),
        "dir": cars.dir,
        "seg": position // SEGMENT_FEET,
        "pos": position,
    }


def rounds(rows: int, seed: int = SEED) -> Iterator[Columns]:
    """The columns of the first ``rows`` reports, at most one round of the cars at a time."""
    cars = _make_cars(seed)
    for number in range(-(-rows // CARS)):
        wanted = min(CARS, rows - number * CARS)
        made = _make_round(cars, number, seed)
        yield {name: values[:wanted] for name, values in made.items()}


def batches(rows: int, batch_rows: int = BATCH_ROWS, seed: int = SEED) -> Iterator[pa.RecordBatch]:
    """The reports as Arrow batches, each with buffers of its own, as a producer would send them."""
    for columns in rounds(rows, seed):
        count = len(columns["ts"])
        for start in range(0, count, batch_rows):
            part = slice(start, min(start + batch_rows, count))
            arrays = [
                pa.array(columns[field.name][part].copy()).cast(field.type) for field in SCHEMA
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def car_table() -> pa.Table:
    """A reference table to join with: one row a car."""
    vids = np.arange(CARS, dtype=np.int64)
    kinds = np.array(KINDS)[np.random.default_rng([SEED, 7]).integers(0, len(KINDS), CARS)]
    return pa.table({"vid": vids, "kind": kinds})


@dataclass(frozen=True)
class Expected:
    """What a system must answer once it holds the rows; times in microseconds since the base."""

    count: int
    sums: tuple[int, ...]
    lookup_vid: int
    lookup: tuple[tuple[int, ...], ...]


def expected(rows: int, lookup_vid: int = 4_711) -> Expected:
    """Computed with numpy from the rows themselves, without any database."""
    count, sums, found = 0, [0] * len(COLUMNS), []
    for columns in rounds(rows):
        columns = {**columns, "ts": columns["ts"] - BASE_US}
        count += len(columns["ts"])
        for at, name in enumerate(COLUMNS):
            sums[at] += int(columns[name].astype(np.int64).sum())
        for row in np.flatnonzero(columns["vid"] == lookup_vid):
            found.append(tuple(int(columns[name][row]) for name in COLUMNS))
    return Expected(count, tuple(sums), lookup_vid, tuple(sorted(found)))


def time_span_us(rows: int) -> tuple[int, int]:
    """The times of the first and the last report."""
    first = last = 0
    for columns in rounds(rows):
        first = first or int(columns["ts"][0])
        last = int(columns["ts"][-1])
    return first, last
