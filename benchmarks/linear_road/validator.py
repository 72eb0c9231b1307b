"""Every answer that an input of Linear Road calls for, by the rules, one row after the other.

Written to be read beside ``docs/linear-road.md``, not to be fast: dictionaries, one loop, the
names of the rules (R1 to R9) where they are applied. It shares nothing with any application. It
holds the cars seen so far, the statistics of six minutes, and what it expects.

1. At the first row of a new minute the old one is closed: its statistics are kept for five
   minutes, its accidents are those that stand at its end.
2. A position report moves its car, may charge the segment that was left, and may call for a toll
   and an accident notification; it counts in its own minute's statistics, which only later minutes
   look at.
3. A query is noted with its time. Balances and expenditures are looked up at the end.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.linear_road.fields import BALANCE, EXIT_LANE, EXPENDITURE, REPORT, TRAVEL_TIME
from tidemill.errors import RowsRejectedError

MINUTE_SECONDS = 60
TRIP_GAP_SECONDS = 60  # R2: a longer silence ends a trip
STOPPED_REPORTS = 4  # R6
CARS_FREE = 50  # R5: no more cars, no toll
SPEED_FREE = 40  # R5: at this average and above, no toll
LAV_MINUTES = 5  # R4
UNITS = 1_000_000_000  # R4: averages are whole numbers of so many in a mile an hour
ZONE_SEGMENTS = 5  # R7: the car's own and the four after it
BALANCE_AGE_SECONDS = 60  # R8: a balance may be as old as this

Segment = tuple[int, int, int]  # expressway, direction, segment
Place = tuple[int, int, int, int]  # expressway, direction, lane, position


@dataclass(frozen=True)
class Expected:
    """What the input calls for."""

    tolls: list[tuple[int, int, int, int]]  # vehicle, time, average speed, toll
    accidents: list[tuple[int, int, int]]  # vehicle, time, segment of the accident
    balances: dict[int, tuple[int, int]]  # query: time, vehicle
    expenditures: dict[int, tuple[int, int]]  # query: time, sum
    charges: dict[int, list[tuple[int, int]]]  # vehicle: time and toll of every charge

    def balance(self, vid: int, at: int) -> int:
        """R8: what has been charged to a vehicle up to and with second ``at``."""
        return sum(toll for time, toll in self.charges.get(vid, []) if time <= at)


@dataclass(slots=True)
class Car:
    """A car as of its last report."""

    time: int
    xway: int
    dir: int
    seg: int
    lane: int
    pos: int
    reports_here: int  # in a row, from the same lane and position
    toll: int  # of the segment it is in, charged when it leaves for the next


@dataclass(slots=True)
class Minute:
    """One minute's statistics of every segment (R3, R4): of each car that reported from it the sum
    of its speeds and the number of its reports."""

    number: int
    cars: dict[Segment, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def count(self, segment: Segment, vid: int, speed: int) -> None:
        cars = self.cars.setdefault(segment, {})
        speeds, reports = cars.get(vid, (0, 0))
        cars[vid] = (speeds + speed, reports + 1)

    def average(self, segment: Segment) -> int | None:
        """R4: the mean of the cars' mean speeds, in units; None without a car."""
        cars = self.cars.get(segment)
        if not cars:
            return None
        means = sum(nearest(speeds * UNITS, reports) for speeds, reports in cars.values())
        return nearest(means, len(cars))


@dataclass(frozen=True)
class Conditions:
    """What tolls of one minute depend on: only what happened in the minutes before it."""

    before: list[Minute]  # the five minutes before, those without any report left out
    number: int
    accidents: set[Segment]  # R6: standing at the end of the minute before

    @cached_property
    def _known(self) -> dict[Segment, tuple[int, int, int | None]]:
        return {}

    def of(self, segment: Segment) -> tuple[int, int, int | None]:
        """Average speed, toll and accident ahead for a car that enters a segment."""
        if segment not in self._known:
            accident = self._accident_ahead(segment)
            lav = self._average_speed(segment)
            self._known[segment] = (lav, self._toll(segment, lav, accident), accident)
        return self._known[segment]

    def _average_speed(self, segment: Segment) -> int:
        """R4: the mean of the minutes' averages, rounded down; 0 when there are none."""
        known = [minute.average(segment) for minute in self.before]
        averages = [average for average in known if average is not None]
        if not averages:
            return 0
        return (sum(averages) + len(averages)) // (len(averages) * UNITS)

    def _toll(self, segment: Segment, lav: int, accident: int | None) -> int:
        """R5."""
        last = [minute for minute in self.before if minute.number == self.number - 1]
        cars = len(last[0].cars.get(segment, ())) if last else 0
        if accident is None and lav < SPEED_FREE and cars > CARS_FREE:
            return 2 * (cars - CARS_FREE) ** 2
        return 0

    def _accident_ahead(self, segment: Segment) -> int | None:
        """R7: the segment of the nearest accident among this and the next four."""
        xway, direction, seg = segment
        step = 1 if direction == 0 else -1
        for ahead in range(ZONE_SEGMENTS):
            if (xway, direction, seg + step * ahead) in self.accidents:
                return seg + step * ahead
        return None


def nearest(sum_: int, count: int) -> int:
    """The quotient, rounded to the nearest whole number.

    >>> nearest(5, 3), nearest(7, 3)
    (2, 2)
    """
    return (sum_ + count // 2) // count


def expect(batches: Iterable[pa.RecordBatch], daily_tolls: Iterable[pa.RecordBatch]) -> Expected:
    """All answers that the input calls for, given the tolls of the past."""
    judge = _Judge()
    for row in _rows(batches):
        judge.take(*row)
    asked = judge.asked_days
    sums = _expenditures(daily_tolls, {key for _, key in asked.values()})
    expenditures = {qid: (time, sums[key]) for qid, (time, key) in asked.items()}
    return Expected(judge.tolls, judge.accidents, judge.asked_balances, expenditures, judge.charges)


class _Judge:
    """The rules, applied to one row after the other."""

    def __init__(self) -> None:
        self.tolls: list[tuple[int, int, int, int]] = []
        self.accidents: list[tuple[int, int, int]] = []
        self.asked_balances: dict[int, tuple[int, int]] = {}
        self.asked_days: dict[int, tuple[int, tuple[int, int, int]]] = {}
        self.charges: dict[int, list[tuple[int, int]]] = {}
        self._cars: dict[int, Car] = {}
        self._stopped: dict[int, Place] = {}  # R6: cars whose last four reports are alike
        self._minute = Minute(-1)
        self._before: deque[Minute] = deque(maxlen=LAV_MINUTES)
        self._conditions = Conditions([], -1, set())

    def take(
        self,
        kind: int,
        time: int,
        vid: int,
        spd: int,
        xway: int,
        lane: int,
        direction: int,
        seg: int,
        pos: int,
        qid: int,
        day: int,
    ) -> None:
        number = time // MINUTE_SECONDS  # R1
        if number != self._minute.number:
            self._open(number, time)
        if kind == REPORT:
            self._report(time, vid, spd, xway, lane, direction, seg, pos)
        elif kind == BALANCE:
            self._new_query(qid)
            self.asked_balances[qid] = (time, vid)
        elif kind == EXPENDITURE:
            self._new_query(qid)
            self.asked_days[qid] = (time, (vid, day, xway))
        elif kind != TRAVEL_TIME:  # which nobody answers
            raise RowsRejectedError(f"a row at second {time} is of type {kind}")

    def _open(self, number: int, time: int) -> None:
        """Close the minute that ended, and say what holds in the new one."""
        if number < self._minute.number:
            raise RowsRejectedError(f"a row at second {time} comes after rows of later minutes")
        self._before.append(self._minute)
        before = [minute for minute in self._before if minute.number >= number - LAV_MINUTES]
        self._conditions = Conditions(before, number, self._standing_accidents(number))
        self._minute = Minute(number)

    def _standing_accidents(self, number: int) -> set[Segment]:
        """R6: where two cars or more stand at the end of the minute before ``number``."""
        start = (number - 1) * MINUTE_SECONDS
        standing = {v: place for v, place in self._stopped.items() if self._cars[v].time >= start}
        cars_at = Counter(standing.values())
        accidents = set()
        for vid, place in standing.items():
            if cars_at[place] >= 2:
                car = self._cars[vid]
                accidents.add((car.xway, car.dir, car.seg))
        return accidents

    def _report(
        self,
        time: int,
        vid: int,
        spd: int,
        xway: int,
        lane: int,
        direction: int,
        seg: int,
        pos: int,
    ) -> None:
        last = self._cars.get(vid)
        if last is not None and last.time >= time:
            raise RowsRejectedError(
                f"vehicle {vid} reports at second {time} after a report at {last.time}",
                hint="a vehicle's reports must be in time order, one at a time",
            )
        # R2: is it the same trip, and has the car come into a segment with this report?
        if last is not None and (
            time - last.time > TRIP_GAP_SECONDS or last.xway != xway or last.dir != direction
        ):
            last = None
        enters = last is None or last.seg != seg
        if last is not None and enters and last.toll > 0:  # R8
            self.charges.setdefault(vid, []).append((time, last.toll))
        segment = (xway, direction, seg)
        toll = last.toll if last is not None and not enters else 0
        if enters and lane != EXIT_LANE:
            lav, toll, accident = self._conditions.of(segment)
            self.tolls.append((vid, time, lav, toll))  # R5
            if accident is not None:
                self.accidents.append((vid, time, accident))  # R7
        alike = last is not None and last.lane == lane and last.pos == pos
        reports_here = last.reports_here + 1 if last is not None and alike else 1
        self._cars[vid] = Car(time, xway, direction, seg, lane, pos, reports_here, toll)
        if reports_here >= STOPPED_REPORTS:
            self._stopped[vid] = (xway, direction, lane, pos)
        else:
            self._stopped.pop(vid, None)
        self._minute.count(segment, vid, spd)

    def _new_query(self, qid: int) -> None:
        if qid in self.asked_balances or qid in self.asked_days:
            raise RowsRejectedError(f"query {qid} is asked twice")


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, ...]]:
    names = ("type", "time", "vid", "spd", "xway", "lane", "dir", "seg", "pos", "qid", "day")
    for batch in batches:
        yield from zip(*(batch.column(name).to_numpy().tolist() for name in names), strict=True)


def _expenditures(
    daily_tolls: Iterable[pa.RecordBatch], asked: set[tuple[int, int, int]]
) -> Counter[tuple[int, int, int]]:
    """R9: the sums of the asked (vehicle, day, expressway); one without rows has 0."""
    vids = pa.array(sorted({vid for vid, _, _ in asked}), pa.int32())
    sums: Counter[tuple[int, int, int]] = Counter()
    for batch in daily_tolls:
        found = batch.filter(pc.is_in(batch.column("vid"), vids))
        columns = (found.column(name).to_pylist() for name in ("vid", "day", "xway", "toll"))
        for vid, day, xway, toll in zip(*columns, strict=True):
            if (vid, day, xway) in asked:
                sums[vid, day, xway] += toll
    return sums
