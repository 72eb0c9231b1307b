"""Requests as in document 000, Fig. 15 to 18: readings of sensors, corrections and deletions.

Readings have a growing number and a time that grows with it. A correction sets two values of an
earlier reading, a deletion takes one away; most concern the newest readings, some go far back.
Requests come in *blocks*: which of them are what, and whom they concern, is known of a block before
any system sees it, and ``Model`` knows what is right after each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BASE = datetime(2026, 1, 1)
BASE_US = 1_767_225_600_000_000
STEP_US = 10  # between two readings: 100,000 in a second
SENSORS, SITES, KINDS = 2_000, 40, 8
VALUES = 6
BLOCK = 10_000
RECENT = 200_000  # readings that most corrections concern
FAR_SHARE = 0.03
DELETES_SHARE = 0.1  # of changes

INSERT, UPDATE, DELETE = 0, 1, 2
COLUMNS = ("ts", "id", "sensor", *(f"v{at}" for at in range(1, VALUES + 1)))
SCHEMA = pa.schema(
    [("ts", pa.timestamp("us")), ("id", pa.int64()), ("sensor", pa.int32())]
    + [(f"v{at}", pa.float64()) for at in range(1, VALUES + 1)]
)
CORRECTIONS = pa.schema(
    [("ts", pa.timestamp("us")), ("id", pa.int64()), ("v1", pa.float64()), ("v2", pa.float64())]
)

Numbers = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """Requests in their order: ``kinds``, and of each that is a change whom it concerns and what it
    sets. Readings have the numbers from ``first`` on."""

    kinds: npt.NDArray[np.int8]
    targets: Numbers
    v1: Values
    v2: Values
    first: int
    readings: pa.RecordBatch

    @property
    def requests(self) -> int:
        return len(self.kinds)

    def corrections(self) -> pa.RecordBatch | None:
        return _batch(self, UPDATE, CORRECTIONS)

    def deletions(self) -> pa.RecordBatch | None:
        return _batch(self, DELETE, pa.schema(list(CORRECTIONS)[:2]))


def _batch(block: Block, kind: int, schema: pa.Schema) -> pa.RecordBatch | None:
    mask = block.kinds == kind
    if not mask.any():
        return None
    ids = block.targets[mask]
    columns = [times_of(ids), pa.array(ids), pa.array(block.v1[mask]), pa.array(block.v2[mask])]
    return pa.RecordBatch.from_arrays(columns[: len(schema)], schema=schema)


def time_us(number: int) -> int:
    """When a reading was taken."""
    return BASE_US + number * STEP_US


def time_of(number: int) -> datetime:
    return BASE + timedelta(microseconds=number * STEP_US)


def times_of(ids: Numbers) -> pa.Array:
    return pa.array(BASE_US + ids * STEP_US, pa.timestamp("us"))


def readings_of(first: int, count: int) -> pa.RecordBatch:
    """Readings with consecutive numbers; their values follow from these, in whole numbers, so that
    sums are exact."""
    ids = np.arange(first, first + count, dtype=np.int64)
    columns = [times_of(ids), pa.array(ids), pa.array((ids * 7_919 % SENSORS).astype(np.int32))]
    for at in range(1, VALUES + 1):
        columns.append(pa.array(values_of(ids, at)))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def values_of(ids: Numbers, at: int) -> Values:
    found: Values = (ids * (104_729 + 2 * at) % 1_000).astype(np.float64)
    return found


def blocks(share: float, first: int, seed: int, size: int = BLOCK) -> Iterator[Block]:
    """Requests without end; ``first`` readings are there already."""
    rng = np.random.default_rng(seed)
    while True:
        draws = rng.random(size)
        kinds = np.full(size, INSERT, dtype=np.int8)
        kinds[draws < share] = UPDATE
        kinds[draws < share * DELETES_SHARE] = DELETE
        far = rng.random(size) < FAR_SHARE
        reach = np.where(far, first, min(RECENT, first))
        targets = first - 1 - (rng.random(size) * reach).astype(np.int64)
        v1, v2 = (rng.integers(0, 1_000, size).astype(np.float64) for _ in range(2))
        count = int(np.count_nonzero(kinds == INSERT))
        yield Block(kinds, targets, v1, v2, first, readings_of(first, count))
        first += count


class Model:
    """What is right: the first two values of all readings, and which are gone."""

    def __init__(self) -> None:
        self.v1 = np.empty(0)
        self.v2 = np.empty(0)
        self.alive = np.empty(0, dtype=bool)

    def add(self, readings: pa.RecordBatch) -> None:
        ids = readings.column("id").to_numpy()
        self.v1 = np.concatenate([self.v1, values_of(ids, 1)])
        self.v2 = np.concatenate([self.v2, values_of(ids, 2)])
        self.alive = np.concatenate([self.alive, np.ones(len(ids), dtype=bool)])

    def take(self, block: Block) -> None:
        self.add(block.readings)
        updated = block.kinds == UPDATE
        self.v1[block.targets[updated]] = block.v1[updated]
        self.v2[block.targets[updated]] = block.v2[updated]
        self.alive[block.targets[block.kinds == DELETE]] = False

    def totals(self) -> tuple[int, int, int, int]:
        """Rows, the sum of the first and of the second values, the sum of the numbers."""
        alive = self.alive
        ids = np.flatnonzero(alive)
        sums = (self.v1[alive].sum(), self.v2[alive].sum(), ids.sum())
        return (len(ids), *(int(each) for each in sums))  # type: ignore[return-value]


TOTALS = "SELECT count(*), sum(v1), sum(v2), sum(id) FROM readings"


def monitoring() -> list[str]:
    """Fourteen queries over the last second of readings (``:since``): one to five aggregates, one
    to three conditions."""
    aggregates = ["count(*)", "avg(v1)", "max(v3)", "min(v2)", "sum(v4)"]
    conditions = ["v1 > 900", "v2 > 500", "v3 < 300", "v5 >= 100"]
    found = []
    for at in range(14):
        given = ", ".join(aggregates[: at % 5 + 1])
        tests = " AND ".join(conditions[at % 4 : at % 4 + at % 3 + 1])
        order = " ORDER BY g" if at % 2 else ""
        found.append(
            f"SELECT sensor % 16 AS g, {given} FROM readings WHERE ts > :since AND {tests} "
            f"GROUP BY sensor % 16{order}"
        )
    return found


def analytics() -> list[str]:
    """Twelve queries over history: joins with what is known of sensors, functions of values."""
    joins = (
        "FROM readings AS r JOIN sensors AS s ON r.sensor = s.sensor JOIN sites AS p ON "
        "s.site = p.site JOIN kinds AS k ON s.kind = k.kind"
    )
    groups = ["p.region", "k.kind", "s.site", "p.region, k.kind"]
    measures = [
        "count(*) AS n, avg(sqrt(r.v1)) AS a",
        "max(r.v3 - k.low) AS m, sum(floor(r.v4 / 10)) AS f",
        "avg(abs(r.v5 - r.v6)) AS d, min(r.v2) AS l",
    ]
    tests = ["r.v1 > k.low", "r.v2 < k.high AND r.v3 > 100", "r.id % 3 = 0"]
    return [
        f"SELECT {groups[at % 4]}, {measures[at % 3]} {joins} WHERE {tests[at // 4]} "
        f"GROUP BY {groups[at % 4]}"
        for at in range(12)
    ]


def reference_tables() -> dict[str, pa.Table]:
    sensors, sites, kinds = (np.arange(n, dtype=np.int32) for n in (SENSORS, SITES, KINDS))
    return {
        "sensors": pa.table(
            {"sensor": sensors, "site": sensors % SITES, "kind": sensors // SITES % KINDS}
        ),
        "sites": pa.table({"site": sites, "region": sites % 5}),
        "kinds": pa.table(
            {"kind": kinds, "low": kinds * 10.0, "high": 900.0 + kinds.astype(np.float64)}
        ),
    }
