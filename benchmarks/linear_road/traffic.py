"""One expressway's traffic, simulated 30 seconds at a time; the generator reads it off.

A round is 30 seconds, in which every car on the road reports exactly once, always in the same
second of the round (its phase). The cars lie in flat arrays in the order of their phases, so that
a second is a slice. ``advance`` makes the next round:

1. count the cars of every segment and direction; the fuller a segment, the slower it is, and one
   with an accident is slower still;
2. move every car by its segment's speed, its driver's temper and some chance; cars that stand,
   stand; a car that reaches its exit takes lane 4 and reports for the last time;
3. when an accident is due, bring one car to where another just stopped, in the same lane; both
   stay for 10 to 20 minutes. A single car breaks down as often, which is no accident;
4. let in as many cars as the reports of this round lack, each in lane 0 at a segment it draws
   from the expressway's demand; some are cars that left a while ago and come again;
5. draw who asks a query after its report.

Positions count in the driving direction here (``way``) and are turned into the road's at the end.
Everything is drawn from one generator seeded with (seed, expressway): an expressway is the same
whichever others are made beside it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from benchmarks.linear_road.fields import (
    BALANCE,
    DAYS,
    ENTRY_LANE,
    EXIT_LANE,
    EXPENDITURE,
    FEET_PER_MPH,
    REPORT_SECONDS,
    ROAD_FEET,
    SEGMENT_FEET,
    SEGMENTS,
    SPEED_MAX,
)
from tidemill.errors import DefinitionError

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

PEAK_PER_MINUTE = 100_000
RAMP_MINUTES = 180
VIDS_PER_XWAY = 1_000_000  # also of query numbers: a car's number tells its expressway
XWAYS_MAX = 2_000  # so that every number fits 32 bits
START_SHARE = 0.004  # of the peak, at the first second: about 1,100 reports in the first minute
RAMP_POWER = 0.9  # with it three hours hold a good 12 million reports

FREE_MPH, CRAWL_MPH = 66.0, 9.0
HALF_SHARE = 0.55  # of the peak's mean: a segment with so many cars is half as fast as an empty one
ACCIDENT_SLOWS = 0.45
ENTRY_SPEEDS = (12, 40)
SPEED_NOISE = np.float32(0.2)  # from one report to the next
TRIP_SEGMENTS_MEAN = 14
SLOW_SHARE, SLOW_TEMPER, SWIFT_TEMPER = 0.2, 0.6, 1.1
AGAIN_SHARE = 0.05  # of the cars let in: they left three rounds ago or more
AGAIN_ROUNDS = 3
AGAIN_WAITING_MAX = 20_000
STAND_ROUNDS = (21, 40)  # of an accident: from 10 1/2 to 19 1/2 minutes until the cars move
BREAKDOWN_ROUNDS = (5, 15)
EXPENDITURE_SHARE = 1 / 6  # of the queries; the others ask for the balance
FEET_MAX = SPEED_MAX * FEET_PER_MPH  # in one round: less than a segment, so none is skipped


@dataclass(frozen=True)
class Plan:
    """What to make: ``xways`` expressways from ``first_xway`` on, seconds
    ``60 * from_minute`` to ``60 * minutes``.

    The reports a minute and expressway rise for ``ramp_minutes`` to ``peak_per_minute`` and stay
    there. What comes out from a later minute on is the same as if all had been made.
    """

    xways: int = 1
    minutes: int = 180
    seed: int = 1
    from_minute: int = 0
    first_xway: int = 0
    peak_per_minute: int = PEAK_PER_MINUTE
    ramp_minutes: int = RAMP_MINUTES
    accident_gap_minutes: float = 20.0
    query_share: float = 0.01

    def __post_init__(self) -> None:
        wrong = [
            (self.xways < 1, "xways", "at least 1"),
            (self.first_xway < 0, "first_xway", "0 or more"),
            (self.first_xway + self.xways > XWAYS_MAX, "xways", f"{XWAYS_MAX} in all at most"),
            (self.minutes < 1, "minutes", "at least 1"),
            (not 0 <= self.from_minute < self.minutes, "from_minute", "before the last minute"),
            (self.seed < 0, "seed", "0 or more"),
            (self.peak_per_minute < 2, "peak_per_minute", "at least 2"),
            (self.ramp_minutes < 1, "ramp_minutes", "at least 1"),
            (self.accident_gap_minutes <= 0, "accident_gap_minutes", "more than 0"),
            (not 0 <= self.query_share <= 1, "query_share", "between 0 and 1"),
        ]
        for is_wrong, name, bound in wrong:
            if is_wrong:
                raise DefinitionError(
                    f"{name} of a Linear Road plan must be {bound}, not {getattr(self, name)}"
                )

    @property
    def rounds(self) -> range:
        """The rounds that come out, counted from the start of the simulation."""
        per_minute = 60 // REPORT_SECONDS
        return range(self.from_minute * per_minute, self.minutes * per_minute)

    def reports(self, number: int) -> int:
        """How many reports a round of one expressway should hold."""
        share = min((number + 0.5) * REPORT_SECONDS / 60 / self.ramp_minutes, 1.0)
        risen = math.sin(math.pi / 2 * share**RAMP_POWER)
        per_minute = self.peak_per_minute * (START_SHARE + (1 - START_SHARE) * risen)
        return max(1, round(per_minute * REPORT_SECONDS / 60))


@dataclass(frozen=True)
class Queries:
    """The queries of a round, in the order of the reports they follow."""

    type: Ints
    vid: Ints
    qid: Ints
    day: Ints  # -1 for a balance
    starts: npt.NDArray[np.int64]  # of each second, and the end


@dataclass(frozen=True)
class Round:
    """The reports of one round of an expressway, in time order."""

    number: int
    vid: Ints
    spd: Ints
    lane: Ints
    dir: Ints
    seg: Ints
    pos: Ints
    starts: npt.NDArray[np.int64]  # of each second, and the end
    queries: Queries


@dataclass(frozen=True)
class _Cars:
    """The cars on the road, in the order of their phases."""

    vid: Ints
    phase: npt.NDArray[np.int8]
    dir: Ints
    way: Ints  # feet from the road's start, in driving direction
    exit: Ints  # where the car will leave, in the same feet
    lane: Ints
    spd: Ints
    stand: npt.NDArray[np.int16]  # rounds it still stands
    temper: Floats

    def take(self, which: npt.NDArray[np.intp]) -> _Cars:
        return _Cars(**{name: getattr(self, name)[which] for name in _NAMES})

    def joined(self, others: _Cars) -> _Cars:
        """Both, in the order of the phases."""
        both = {n: np.concatenate([getattr(self, n), getattr(others, n)]) for n in _NAMES}
        order = np.argsort(both["phase"], kind="stable")
        return _Cars(**{name: values[order] for name, values in both.items()})

    @property
    def segment(self) -> Ints:
        """Of a direction's segments, in driving direction; the second direction's come after."""
        return self.dir * np.int32(SEGMENTS) + self.way // np.int32(SEGMENT_FEET)


_NAMES = tuple(_Cars.__dataclass_fields__)


@dataclass
class Expressway:
    """One expressway's state; ``advance`` makes its next round."""

    plan: Plan
    xway: int
    _cars: _Cars = field(init=False)
    _round: int = field(init=False, default=0)
    _vids_given: int = field(init=False, default=0)
    _queries_made: int = field(init=False, default=0)
    _accident_round: float = field(init=False)
    _slow: list[tuple[int, int]] = field(init=False, default_factory=list)
    _gone: deque[tuple[int, Ints]] = field(init=False, default_factory=deque)

    def __post_init__(self) -> None:
        self._chance = np.random.default_rng([self.plan.seed, self.xway])
        self._demand = np.cumsum(_demand(self._chance))
        mean = self.plan.peak_per_minute * REPORT_SECONDS / 60 / (2 * SEGMENTS)
        self._half = HALF_SHARE * mean
        self._accident_round = self._chance.uniform(0, self._gap_rounds)
        self._cars = _no_cars()

    @property
    def vehicles(self) -> int:
        """How many numbers have been given to cars."""
        return self._vids_given

    def advance(self) -> Round:
        """The next round's reports."""
        moved, leaves = self._moved(self._cars)
        news = self._let_in(self.plan.reports(self._round) - len(moved.vid))
        reporting = moved.joined(news)
        queries = self._ask(reporting)
        made = _round_of(self._round, reporting, queries)
        self._rest(moved.vid[leaves])
        stays = np.flatnonzero(reporting.lane != EXIT_LANE)
        self._cars = reporting.take(stays)
        self._round += 1
        return made

    @property
    def _gap_rounds(self) -> float:
        return self.plan.accident_gap_minutes * 60 / REPORT_SECONDS

    def _moved(self, cars: _Cars) -> tuple[_Cars, npt.NDArray[np.bool_]]:
        """Every car one round on, and who leaves thereby."""
        count = len(cars.vid)
        noise = self._chance.standard_normal(count, dtype=np.float32)
        swerve = self._chance.integers(0, 30, count, dtype=np.uint8)
        segment = cars.segment
        speed = self._speeds(segment)[segment] * cars.temper * (1 + SPEED_NOISE * noise)
        feet = (speed * FEET_PER_MPH).astype(np.int32)
        np.clip(feet, FEET_PER_MPH, FEET_MAX, out=feet)
        stands = cars.stand > 0
        feet[stands] = 0
        left = cars.exit - cars.way
        leaves = feet >= left
        feet = np.where(leaves, left, feet)
        # Lane 0 is left after the first report; a tenth of the others change lanes.
        changes = ((swerve < 3) | (cars.lane == ENTRY_LANE)) & ~stands
        lane = np.where(changes, np.int32(1) + swerve % 3, cars.lane).astype(np.int32)
        lane[leaves] = EXIT_LANE
        stand = np.maximum(cars.stand - 1, 0).astype(np.int16)
        if self._round >= self._accident_round:
            self._crash(cars, feet, lane, stand, leaves | stands)
        moved = replace(cars, way=cars.way + feet, spd=_mph(feet), lane=lane, stand=stand)
        return moved, leaves

    def _speeds(self, segment: Ints) -> Floats:
        """How fast each segment of each direction is, given where the cars are."""
        held = np.bincount(segment, minlength=2 * SEGMENTS)
        speeds = FREE_MPH / (1 + held / self._half)
        self._slow = [(until, at) for until, at in self._slow if until > self._round]
        for _, at in self._slow:
            speeds[at] *= ACCIDENT_SLOWS
        return np.maximum(speeds, CRAWL_MPH).astype(np.float32)

    def _crash(
        self,
        cars: _Cars,
        feet: Ints,
        lane: Ints,
        stand: npt.NDArray[np.int16],
        busy: npt.NDArray[np.bool_],
    ) -> None:
        """Stop one car, and another at the same place in the same lane, when two are near."""
        free = ~busy & (cars.lane != ENTRY_LANE)
        if not free.any():
            return
        first = int(self._chance.choice(np.flatnonzero(free)))
        spot = cars.way[first] + feet[first]
        gap = spot - cars.way
        near = free & (cars.dir == cars.dir[first]) & (gap > 0) & (gap <= FEET_MAX)
        near &= cars.exit > spot
        near[first] = False
        if not near.any():
            return  # an empty road: tried again in the next round
        second = int(np.flatnonzero(near)[np.argmin(gap[near])])
        feet[second] = gap[second]
        lane[second] = lane[first]
        rounds = int(self._chance.integers(*STAND_ROUNDS)) - 1
        stand[[first, second]] = rounds
        at = int(cars.dir[first]) * SEGMENTS + int(spot) // SEGMENT_FEET
        self._slow.append((self._round + rounds, at))
        self._accident_round = self._round + self._gap_rounds * self._chance.uniform(0.5, 1.5)
        free[[first, second]] = False
        if free.any():
            lonely = int(self._chance.choice(np.flatnonzero(free)))
            stand[lonely] = self._chance.integers(*BREAKDOWN_ROUNDS)

    def _let_in(self, wanted: int) -> _Cars:
        """Cars at their first report."""
        count = max(0, wanted)
        chance = self._chance
        drawn = np.searchsorted(self._demand, chance.random(count)).astype(np.int32)
        spot = np.minimum(drawn, 2 * SEGMENTS - 2)  # the sum of the shares may fall short of 1
        entry, heading = spot % SEGMENTS, spot // SEGMENTS
        trip = chance.geometric(1 / TRIP_SEGMENTS_MEAN, count)
        ahead = SEGMENTS - 1 - entry  # a trip longer than the road is left begins again from 1
        leave = (entry + 1 + trip % ahead).astype(np.int32)
        way = entry * SEGMENT_FEET + chance.integers(0, SEGMENT_FEET // 2, count, dtype=np.int32)
        ramp = chance.integers(0, SEGMENT_FEET, count, dtype=np.int32)
        return _Cars(
            vid=self._numbers(count),
            phase=np.sort(chance.integers(0, REPORT_SECONDS, count, dtype=np.int8)),
            dir=heading,
            way=way,
            exit=leave * SEGMENT_FEET + ramp,
            lane=np.full(count, ENTRY_LANE, np.int32),
            spd=chance.integers(*ENTRY_SPEEDS, count, dtype=np.int32),
            stand=np.zeros(count, np.int16),
            temper=self._tempers(count),
        )

    def _tempers(self, count: int) -> Floats:
        """How fast drivers are, by the speed of their segment: one in five is a slow one."""
        is_slow = self._chance.random(count) < SLOW_SHARE
        mean = np.where(is_slow, SLOW_TEMPER, SWIFT_TEMPER)
        drawn = mean + 0.1 * self._chance.standard_normal(count)
        return drawn.clip(0.4, 1.5).astype(np.float32)

    def _numbers(self, count: int) -> Ints:
        """Numbers for cars let in: of some that left a while ago, new ones for the others."""
        again: list[Ints] = []
        wanted = int(count * AGAIN_SHARE)
        while wanted and self._gone and self._gone[0][0] + AGAIN_ROUNDS <= self._round:
            left, vids = self._gone.popleft()
            again.append(vids[:wanted])
            if len(vids) > wanted:
                self._gone.appendleft((left, vids[wanted:]))
            wanted -= len(again[-1])
        new = count - sum(map(len, again))
        first = self._numbered(self._vids_given, new, "vehicles")
        self._vids_given += new
        return np.concatenate([*again, np.arange(first, first + new, dtype=np.int32)])

    def _rest(self, vids: Ints) -> None:
        """Remember who left; beyond the bound nobody more waits to come again."""
        if len(vids) and sum(len(waiting) for _, waiting in self._gone) < AGAIN_WAITING_MAX:
            self._gone.append((self._round, vids[::4]))

    def _ask(self, cars: _Cars) -> Queries:
        """Who asks a query right after its report, and which."""
        asks = np.flatnonzero(
            self._chance.random(len(cars.vid), dtype=np.float32) < self.plan.query_share
        )
        count = len(asks)
        for_a_day = self._chance.random(count) < EXPENDITURE_SHARE
        day = self._chance.integers(1, DAYS + 1, count, dtype=np.int32)
        first = self._numbered(self._queries_made, count, "queries")
        self._queries_made += count
        return Queries(
            type=np.where(for_a_day, np.int32(EXPENDITURE), np.int32(BALANCE)),
            vid=cars.vid[asks],
            qid=np.arange(first, first + count, dtype=np.int32),
            day=np.where(for_a_day, day, np.int32(-1)),
            starts=_starts(cars.phase[asks]),
        )

    def _numbered(self, given: int, more: int, what: str) -> int:
        if given + more > VIDS_PER_XWAY:
            raise DefinitionError(
                f"expressway {self.xway} has more than {VIDS_PER_XWAY:,} {what}",
                hint="make fewer minutes, or a lower peak",
            )
        return self.xway * VIDS_PER_XWAY + given


def _no_cars() -> _Cars:
    none = np.empty(0, np.int32)
    return _Cars(
        vid=none,
        phase=none.astype(np.int8),
        dir=none,
        way=none,
        exit=none,
        lane=none,
        spd=none,
        stand=none.astype(np.int16),
        temper=none.astype(np.float32),
    )


def _demand(chance: np.random.Generator) -> npt.NDArray[np.float64]:
    """The shares in which cars enter at each segment of each direction: three busy places each."""
    segments = np.arange(SEGMENTS)
    # Nobody enters in the last segment: a trip leads to a later one.
    shares = []
    for _ in range(2):
        busy = chance.uniform(5, SEGMENTS - 15, 3)
        share = 1 + 2.0 * np.exp(-(((segments[:, None] - busy) / 6) ** 2)).sum(axis=1)
        share[-1] = 0
        shares.append(share)
    whole = np.concatenate(shares)
    return np.asarray(whole / whole.sum(), np.float64)


def _mph(feet: Ints) -> Ints:
    return (feet + np.int32(FEET_PER_MPH // 2)) // np.int32(FEET_PER_MPH)


def _starts(phase: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
    return np.searchsorted(phase, np.arange(REPORT_SECONDS + 1)).astype(np.int64)


def _round_of(number: int, cars: _Cars, queries: Queries) -> Round:
    east = cars.dir == 0
    pos = np.where(east, cars.way, np.int32(ROAD_FEET - 1) - cars.way)
    return Round(
        number=number,
        vid=cars.vid,
        spd=cars.spd,
        lane=cars.lane,
        dir=cars.dir,
        seg=pos // np.int32(SEGMENT_FEET),
        pos=pos,
        starts=_starts(cars.phase),
        queries=queries,
    )
