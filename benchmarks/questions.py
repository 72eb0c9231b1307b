"""The questions of the hot-query benchmark, with parameters that differ each time.

Parameters are named ``:name``. ``spread`` draws them from the rows that are there, the same for
every system. A question of the kind LOOKUP is asked many times with different parameters and
judged by its percentiles; one of the kind SCAN is asked once a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.data import CARS, SEED
from benchmarks.systems.base import TABLE

LOOKUP = "lookup"
SCAN = "scan"
MINUTE_US = 60_000_000

Values = dict[str, int]
Draw = Callable[[np.random.Generator, int, int], Values]  # random, first and last time


@dataclass(frozen=True)
class Question:
    """``own`` is the text for a system that says it differently, by the system's name. With
    ``is_literal`` the values are written into the text, which then is new each time."""

    name: str
    kind: str
    sql: str
    draw: Draw
    own: dict[str, str] = field(default_factory=dict)
    is_literal: bool = False
    only: tuple[str, ...] = ()
    is_everything: bool = False

    def values(self, turn: int, count: int, first_us: int, last_us: int) -> list[Values]:
        rng = np.random.default_rng([SEED, turn, len(self.name)])
        return [self.draw(rng, first_us, last_us) for _ in range(count)]


def _nothing(rng: np.random.Generator, first_us: int, last_us: int) -> Values:
    return {}


def _key(rng: np.random.Generator, first_us: int, last_us: int) -> Values:
    return {"vid": int(rng.integers(CARS))}


def _span(minutes: float) -> Draw:
    length = int(minutes * MINUTE_US)

    def draw(rng: np.random.Generator, first_us: int, last_us: int) -> Values:
        low = int(rng.integers(first_us, max(first_us + 1, last_us - length)))
        return {"low": low, "high": low + length}

    return draw


def _key_and_span(rng: np.random.Generator, first_us: int, last_us: int) -> Values:
    return {**_key(rng, first_us, last_us), **_span(5)(rng, first_us, last_us)}


def _cars(share: float) -> Draw:
    def draw(rng: np.random.Generator, first_us: int, last_us: int) -> Values:
        start = int(rng.integers(0, int(CARS * (1 - share)) + 1))
        return {"start": start, "stop": start + int(CARS * share) - 1}

    return draw


def _last_minutes(minutes: int) -> Draw:
    def draw(rng: np.random.Generator, first_us: int, last_us: int) -> Values:
        return {"low": last_us - minutes * MINUTE_US}

    return draw


_KEY_WINDOW = f"SELECT * FROM {TABLE} WHERE vid = :vid AND ts BETWEEN :low AND :high"
_BY_SEGMENT = (
    "SELECT xway, dir, seg, count(*) AS n, avg(spd) AS speed FROM {} GROUP BY xway, dir, seg"
)

QUESTIONS = (
    Question("one key, 5 minutes", LOOKUP, _KEY_WINDOW, _key_and_span),
    Question(
        "one key, 5 minutes, every text new",
        LOOKUP,
        _KEY_WINDOW,
        _key_and_span,
        is_literal=True,
        only=("tidemill", "duckdb-memory", "postgres", "sqlite"),
    ),
    Question("one key, all time", LOOKUP, f"SELECT * FROM {TABLE} WHERE vid = :vid", _key),
    Question(
        "one minute of all cars",
        SCAN,
        f"SELECT count(*), sum(spd), max(pos) FROM {TABLE} WHERE ts BETWEEN :low AND :high",
        _span(1),
    ),
    Question(
        "count and average where spd > 50",
        SCAN,
        f"SELECT count(*), avg(spd) FROM {TABLE} WHERE spd > 50",
        _nothing,
        is_everything=True,
    ),
    Question(
        "group by xway, dir, seg",
        SCAN,
        _BY_SEGMENT.format(TABLE),
        _nothing,
        is_everything=True,
    ),
    Question(
        "sums of half of the cars",
        SCAN,
        f"SELECT count(*), sum(spd), sum(pos) FROM {TABLE} WHERE vid BETWEEN :start AND :stop",
        _cars(0.5),
        is_everything=True,
    ),
    Question(
        "sums of one car in a hundred",
        SCAN,
        f"SELECT count(*), sum(spd), sum(pos) FROM {TABLE} WHERE vid BETWEEN :start AND :stop",
        _cars(0.01),
    ),
    Question(
        "last 5 minutes by segment (RECENT)",
        SCAN,
        _BY_SEGMENT.format(f"{TABLE} WHERE ts >= :low"),
        _last_minutes(5),
        own={"tidemill": _BY_SEGMENT.format(f"RECENT({TABLE}, INTERVAL '5' MINUTE)")},
    ),
    Question(
        "join with the table of cars, last 5 minutes",
        SCAN,
        f"SELECT c.kind, count(*), avg(r.spd) FROM {TABLE} r JOIN cars c ON r.vid = c.vid "
        "WHERE r.ts >= :low GROUP BY c.kind",
        _last_minutes(5),
    ),
    Question(
        "join with the table of cars, everything",
        SCAN,
        f"SELECT c.kind, count(*), avg(r.spd) FROM {TABLE} r JOIN cars c ON r.vid = c.vid "
        "GROUP BY c.kind",
        _nothing,
    ),
    Question(
        "ten fastest",
        SCAN,
        f"SELECT spd, ts, vid, pos FROM {TABLE} ORDER BY spd DESC, ts, vid LIMIT 10",
        _nothing,
    ),
)
