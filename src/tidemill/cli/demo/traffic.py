"""Simulated expressway traffic: cars that report where they are, every 30 seconds each.

1. Every expressway has two directions of 100 segments of 5,280 feet and, by lane: 0 entry,
   1 to 3 travel, 4 exit. A car enters at a segment, travels, leaves at another, and is replaced.
2. A car's second of the half minute is fixed, so a simulated second concerns a thirtieth of the
   cars: those are moved by their last 30 seconds and report.
3. A car drives at what it wishes, less where its segment is crowded, and crawls behind an
   accident. An accident stops two cars at one place for some minutes; a breakdown stops one.
4. Some reports are held back and arrive late, and some are wrong: a missing vehicle, a speed that
   is no number, a time that is none.

Everything follows from the seed. All of it is numpy over arrays with one entry per car.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.clock import from_us

REPORT_EVERY_S = 30
SEGMENTS = 100
SEGMENT_FEET = 5_280
LENGTH_FEET = SEGMENTS * SEGMENT_FEET
FEET_PER_MILE_HOUR_S = SEGMENT_FEET / 3_600
DIRECTIONS = 2
LANE_ENTRY, LANE_EXIT = 0, 4
SECOND_US = 1_000_000

TRIP_SEGMENTS = (5, 60)
WISHED_MPH = (50, 90)
CRAWL_MPH = 9.0
JAM_MPH = 20.0
# A segment is comfortable up to so many times the mean crowd, and full at so many.
COMFORTABLE_CROWD = 1.6
FULL_CROWD = 4.0
CROWD_MIN = 20.0
ACCIDENT_REACH_SEGMENTS = 4
STOP_S = (150, 420)
ACCIDENTS_PER_XWAY_HOUR = 40.0
BREAKDOWNS_PER_XWAY_HOUR = 40.0
LATE_SHARE = 0.004
LATE_S = (10, 60)
WRONG_SHARE = 0.001
WRONG_PER_SECOND_MAX = 5

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


@dataclass(frozen=True)
class Reports:
    """What arrives in a stretch of simulated time: good rows, overdue ones, and wrong ones."""

    rows: pa.Table
    overdue: pa.Table
    wrong: list[dict[str, object]]

    @property
    def count(self) -> int:
        return int(self.rows.num_rows + self.overdue.num_rows + len(self.wrong))


class Traffic:
    """The cars of all expressways. ``now_us`` is the simulated time up to which all is told."""

    def __init__(
        self, *, xways: int, cars: int, start_us: int, first_vid: int = 1, seed: int = 1
    ) -> None:
        self.now_us = start_us - start_us % SECOND_US
        self.xways = xways
        self._random = np.random.default_rng(seed)
        self._next_vid = first_vid
        self._accidents: list[tuple[int, int, int, int]] = []  # road, segment, from_us, until_us
        self._overdue: list[tuple[int, pa.Table]] = []  # when they arrive, the rows
        self._make(cars)

    @property
    def cars(self) -> int:
        return len(self._vid)

    def advance(self, seconds: int) -> Reports:
        """Lets simulated time pass and gives what arrives meanwhile."""
        rows, wrong = [SCHEMA.empty_table()], []
        for _ in range(seconds):
            told, broken = self._second()
            rows.append(told)
            wrong += broken
        overdue = [table for due_us, table in self._overdue if due_us <= self.now_us]
        self._overdue = [held for held in self._overdue if held[0] > self.now_us]
        return Reports(
            pa.concat_tables(rows), pa.concat_tables([SCHEMA.empty_table(), *overdue]), wrong
        )

    def _make(self, cars: int) -> None:
        random = self._random
        self._vid = self._new_vids(cars)
        self._road = random.integers(0, self.xways * DIRECTIONS, cars)
        self._gone_feet = random.uniform(0, LENGTH_FEET * 0.9, cars)
        self._lane = random.integers(LANE_ENTRY + 1, LANE_EXIT, cars)
        self._wished_mph = random.uniform(*WISHED_MPH, cars)
        self._mph = self._wished_mph.copy()
        self._stopped_until_us = np.zeros(cars, np.int64)
        self._exit_feet = self._draw_exits(self._gone_feet)
        order = random.permutation(cars)
        self._due = [order[second::REPORT_EVERY_S] for second in range(REPORT_EVERY_S)]

    def _second(self) -> tuple[pa.Table, list[dict[str, object]]]:
        self.now_us += SECOND_US
        due = self._due[(self.now_us // SECOND_US) % REPORT_EVERY_S]
        self._stop_some()
        self._move(due)
        rows = self._report(due)
        self._replace_those_who_left(due)
        rows = self._hold_some_back(rows)
        return rows, self._spoil_some(rows)

    def _move(self, due: np.ndarray) -> None:
        mph = np.maximum(self._speeds(due) + self._random.normal(0, 2, len(due)), 3)
        mph = np.where(self._stopped_until_us[due] > self.now_us, 0.0, mph)
        moving = mph > 0
        self._mph[due] = mph
        self._gone_feet[due] += mph * FEET_PER_MILE_HOUR_S * REPORT_EVERY_S
        lane = np.where(self._gone_feet[due] >= self._exit_feet[due], LANE_EXIT, self._lane[due])
        settled = np.where(lane == LANE_ENTRY, self._random.integers(1, LANE_EXIT, len(due)), lane)
        self._told_lane = np.where(moving, lane, self._lane[due])
        self._lane[due] = np.where(moving, settled, self._lane[due])

    def _speeds(self, due: np.ndarray) -> np.ndarray:
        """What the cars drive: their wish, slowed by the crowd, crawling behind an accident."""
        place = self._road[due] * SEGMENTS + self._segments(due)
        places = self.xways * DIRECTIONS * SEGMENTS
        everyone = self._road * SEGMENTS + self._segments(slice(None))
        crowd = np.bincount(everyone, minlength=places)[place]
        crowding = crowd / max(self.cars / places, CROWD_MIN)
        ease = np.clip((FULL_CROWD - crowding) / (FULL_CROWD - COMFORTABLE_CROWD), 0.0, 1.0)
        ease = np.maximum(ease, self._random.random(len(due)) ** 2)  # gaps, or jams never dissolve
        mph: np.ndarray = JAM_MPH + (self._wished_mph[due] - JAM_MPH) * ease
        self._accidents = [one for one in self._accidents if one[3] > self.now_us]
        for road, segment, _, _ in self._accidents:
            behind = segment - self._segments(due)
            caught = (self._road[due] == road) & (behind >= 0) & (behind < ACCIDENT_REACH_SEGMENTS)
            mph = np.where(caught, np.minimum(mph, CRAWL_MPH * (1 + behind)), mph)
        return mph

    def _segments(self, cars: np.ndarray | slice) -> np.ndarray:
        """Segments in the direction of travel."""
        segments = np.minimum(self._gone_feet[cars] // SEGMENT_FEET, SEGMENTS - 1)
        return np.asarray(segments, dtype=np.int64)

    def _stop_some(self) -> None:
        hour_s = 3_600
        for _ in range(self._random.poisson(self.xways * ACCIDENTS_PER_XWAY_HOUR / hour_s)):
            first, second = self._random.integers(0, self.cars, 2).tolist()
            until_us = self._stop(first)
            self._road[second] = self._road[first]
            self._gone_feet[second] = self._gone_feet[first]
            self._exit_feet[second] = self._exit_feet[first]
            self._lane[second] = self._lane[first]
            self._stopped_until_us[second] = until_us
            segment = int(self._segments(np.array([first]))[0])
            self._accidents.append((int(self._road[first]), segment, self.now_us, until_us))
        for _ in range(self._random.poisson(self.xways * BREAKDOWNS_PER_XWAY_HOUR / hour_s)):
            self._stop(int(self._random.integers(0, self.cars)))

    def _stop(self, car: int) -> int:
        until_us = self.now_us + int(self._random.integers(*STOP_S)) * SECOND_US
        self._stopped_until_us[car] = until_us
        return until_us

    def _report(self, due: np.ndarray) -> pa.Table:
        direction = self._road[due] % DIRECTIONS
        gone = np.minimum(self._gone_feet[due], LENGTH_FEET - 1).astype(np.int32)
        position = np.where(direction == 0, gone, LENGTH_FEET - 1 - gone).astype(np.int32)
        columns = [
            np.full(len(due), self.now_us, np.int64).view("datetime64[us]"),
            self._vid[due],
            np.rint(self._mph[due]).astype(np.int32),
            (self._road[due] // DIRECTIONS).astype(np.int32),
            self._told_lane.astype(np.int32),
            direction.astype(np.int32),
            position // SEGMENT_FEET,
            position,
        ]
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)

    def _replace_those_who_left(self, due: np.ndarray) -> None:
        left = due[self._gone_feet[due] >= np.minimum(self._exit_feet[due], LENGTH_FEET - 1)]
        random, count = self._random, len(left)
        self._vid[left] = self._new_vids(count)
        self._road[left] = random.integers(0, self.xways * DIRECTIONS, count)
        self._gone_feet[left] = random.integers(0, SEGMENTS * 9 // 10, count) * float(SEGMENT_FEET)
        self._exit_feet[left] = self._draw_exits(self._gone_feet[left])
        self._wished_mph[left] = random.uniform(*WISHED_MPH, count)
        self._lane[left] = LANE_ENTRY
        self._stopped_until_us[left] = 0

    def _draw_exits(self, gone_feet: np.ndarray) -> np.ndarray:
        trips = self._random.integers(*TRIP_SEGMENTS, len(gone_feet)) * SEGMENT_FEET
        return np.minimum(gone_feet + trips, LENGTH_FEET)

    def _new_vids(self, count: int) -> np.ndarray:
        vids = np.arange(self._next_vid, self._next_vid + count, dtype=np.int64)
        self._next_vid += count
        return vids

    def _hold_some_back(self, rows: pa.Table) -> pa.Table:
        held = self._random.random(rows.num_rows) < LATE_SHARE
        if not held.any():
            return rows
        due_us = self.now_us + int(self._random.integers(*LATE_S)) * SECOND_US
        self._overdue.append((due_us, rows.filter(pa.array(held))))
        return rows.filter(pa.array(~held))

    def _spoil_some(self, rows: pa.Table) -> list[dict[str, object]]:
        """Rows beside the good ones, each wrong in one column."""
        count = self._random.binomial(rows.num_rows, WRONG_SHARE)
        spoiled = []
        for row in rows.slice(0, min(count, WRONG_PER_SECOND_MAX)).to_pylist():
            faults: list[dict[str, object]] = [
                {"vid": None},
                {"spd": "fast"},
                {"spd": 10**12},
                {"ts": "yesterday"},
                {"xway": "I-95"},
            ]
            spoiled.append({**row, **faults[self._random.integers(len(faults))]})
        return spoiled

    def __repr__(self) -> str:
        return f"{self.cars:,} cars on {self.xways} expressways at {from_us(self.now_us)}"
