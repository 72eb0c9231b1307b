"""The calls and the customers of the AIM workload (document 004, §4.3.1).

A call is one row of ``events``: who, when, how long, what it cost, and whether it was a local or a
long-distance one. ``local_calls`` is 1 for a local call and NULL for another, so that
``count(local_calls)`` counts local ones; ``local_cost`` and ``long_distance_cost`` are the cost on
one side and 0 on the other. Costs are whole quarters, so that sums are exact in any order. Every
customer calls once before any other calls twice; then they call at random. Calls lie one
microsecond apart, from the moment at which a run began; ``past`` are calls of the week before it,
which no query may count. A piece depends on nothing but the seed and its number, so that every
system gets the same ones in its own process.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

CUSTOMERS = 1_000_000
PIECE_ROWS = 100_000
PAST_PIECES = 2
WEEK_US = 7 * 86_400 * 1_000_000
SEED = 4
LONG_SHARE = 0.3
DURATION_MAX = 30  # minutes
QUARTERS_MAX = 8  # cost of a minute, in quarters
CITIES = 1_000
REGIONS = 50
TYPES = 4
CATEGORIES = 3
VALUE_TYPES = 4
EVENTS = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("entity_id", pa.int64()),
        ("duration", pa.int32()),
        ("cost", pa.float64()),
        ("long_distance", pa.bool_()),
        ("local_calls", pa.int32()),
        ("local_cost", pa.float64()),
        ("long_distance_cost", pa.float64()),
    ]
)
_PAST_SEED = 1_000_000


@dataclass(frozen=True)
class Calls:
    """All calls of one run: ``anchor_us`` is when it began, in microseconds since 1970."""

    anchor_us: int
    customers: int = CUSTOMERS

    def piece(self, number: int, rows: int = PIECE_ROWS) -> pa.RecordBatch:
        """The first ``rows`` calls of one piece."""
        first_us = self.anchor_us + number * PIECE_ROWS
        return _calls(number, first_us, self.customers).slice(0, rows)

    def batches(self, first: int, last: int, size: int) -> Iterator[pa.RecordBatch]:
        """Calls ``first`` to ``last`` (not included) in batches of ``size``, or what is left of
        a piece."""
        at = first
        while at < last:
            number, skipped = divmod(at, PIECE_ROWS)
            piece = self.piece(number, min(PIECE_ROWS, skipped + last - at)).slice(skipped)
            for start in range(0, piece.num_rows, size):
                yield piece.slice(start, size)
            at += piece.num_rows

    def table(self, last: int) -> pa.Table:
        """The first ``last`` calls."""
        return pa.Table.from_batches(self.batches(0, last, PIECE_ROWS), EVENTS)

    def past(self) -> pa.Table:
        """Calls of the week before."""
        made = []
        for number in range(PAST_PIECES):
            first_us = self.anchor_us - WEEK_US + number * PIECE_ROWS
            made.append(_calls(_PAST_SEED + number, first_us, self.customers))
        return pa.Table.from_batches(made)

    def customer_table(self) -> pa.Table:
        rng = np.random.default_rng([SEED, self.customers])
        ranges = {
            "city_zip": CITIES,
            "region_id": REGIONS,
            "type": TYPES,
            "category": CATEGORIES,
            "value_type": VALUE_TYPES,
        }
        columns = {"id": np.arange(self.customers, dtype=np.int64)}
        for name, count in ranges.items():
            columns[name] = rng.integers(0, count, self.customers, dtype=np.int32)
        return pa.table(columns)

    @property
    def week(self) -> dt.datetime:
        """The Monday on which the run's week began."""
        return week_of(self.anchor_us)


def week_of(us: int) -> dt.datetime:
    """The Monday before a moment.

    >>> week_of(0)
    datetime.datetime(1969, 12, 29, 0, 0)
    """
    day = dt.datetime(1970, 1, 1) + dt.timedelta(days=us // (86_400 * 1_000_000))
    return day - dt.timedelta(days=day.weekday())


@cache
def _everyone(customers: int) -> npt.NDArray[np.int64]:
    """All customers once, in the order in which they call first."""
    return np.random.default_rng([SEED, customers, 0]).permutation(customers)


def _callers(number: int, customers: int) -> npt.NDArray[np.int64]:
    first = _everyone(customers)[number * PIECE_ROWS : (number + 1) * PIECE_ROWS]
    rng = np.random.default_rng([SEED, customers, 1, number])
    return np.concatenate([first, rng.integers(0, customers, PIECE_ROWS - len(first))])


def _calls(number: int, first_us: int, customers: int) -> pa.RecordBatch:
    rng = np.random.default_rng([SEED, customers, 2, number])
    is_long = rng.random(PIECE_ROWS) < LONG_SHARE
    duration = rng.integers(1, DURATION_MAX + 1, PIECE_ROWS, dtype=np.int32)
    cost = duration * rng.integers(1, QUARTERS_MAX + 1, PIECE_ROWS) * 0.25
    columns = [
        pa.array(np.arange(first_us, first_us + PIECE_ROWS)).cast(pa.timestamp("us")),
        pa.array(_callers(number, customers)),
        pa.array(duration),
        pa.array(cost),
        pa.array(is_long),
        pa.array(np.ones(PIECE_ROWS, dtype=np.int32), mask=is_long),
        pa.array(np.where(is_long, 0.0, cost)),
        pa.array(np.where(is_long, cost, 0.0)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENTS)
