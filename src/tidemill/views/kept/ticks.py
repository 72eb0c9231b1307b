"""EVERY INTERVAL: the query is evaluated at the multiples of its slide, in event time.

1. Tick n is the moment n·d since 1970. It is due once every stream's clock has passed it: the
   watermark, or the newest time of a stream without one, or the machine's clock.
2. It is then evaluated as if now were the tick: RECENT ends there, now() is the tick, and a stream
   without a window is read up to it. The answers have the tick as their time. A materialized view
   is read as it is when its tick is evaluated, with the tick as its now.
3. The first tick is the first at or behind the clock that the streams had when the query was made;
   if they were empty, the first at or behind their oldest row.
4. A gap in the data is not walked through tick by tick. Once no window can hold a row any more and
   the query answered nothing, the next tick is the one behind the next row. A query that answers
   all the same (``count(*)``) or whose windows do not end (``rows => k``) is evaluated at
   ``GAP_TICKS_MAX`` ticks without a new row; the rest of the gap is skipped, and noted.
"""

from __future__ import annotations

import logging

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Snapshot
from tidemill.sql.passes import run_passes
from tidemill.types import Column
from tidemill.views.kept.definition import OFFSET_ZERO, Definition
from tidemill.views.kept.environment import Answer, KeptEnvironment
from tidemill.views.kept.ledger import Ledger
from tidemill.views.kept.passes import TICK_PASSES, KeptState
from tidemill.views.kept.reads import Read, reads_of
from tidemill.views.kept.streams import Streams, with_time

GAP_TICKS_MAX = 1_000
# While no more ticks than this are due, nobody looks for gaps.
GAP_LOOK_TICKS = 16
_log = logging.getLogger("tidemill.views")
_NOTHING = pa.table({})


def tick_query(tree: exp.Expression, snapshot: Snapshot) -> tuple[exp.Expression, int | None]:
    """The query that is evaluated at a tick, and how far back its windows reach (None: without
    end). The tree is changed."""
    reach_us = _reach_us(reads_of(tree, snapshot))
    return run_passes(TICK_PASSES, KeptState.of(tree, snapshot)).tree, reach_us


def _reach_us(reads: list[Read]) -> int | None:
    """The longest window, if all reads are windows of time."""
    calls = [read.call if read.function == "RECENT" else None for read in reads]
    known = [call.size_us for call in calls if call is not None and call.rows is None]
    return max(known) if known and len(known) == len(reads) else None


def describe_ticks(definition: Definition, environment: KeptEnvironment) -> Answer:
    """The columns of the answers; nothing is read, as no row is as old as that."""
    query, _ = tick_query(definition.tree(), environment.snapshot())
    return environment.evaluate(exp.select("*").from_(exp.Subquery(this=query)).limit(0), 0)


class Ticks:
    def __init__(
        self,
        definition: Definition,
        environment: KeptEnvironment,
        streams: Streams,
        ledger: Ledger,
        time: Column,
    ) -> None:
        assert definition.slide.every_us is not None
        self._definition = definition
        self._every_us = definition.slide.every_us
        self._environment = environment
        self._streams = streams
        self._ledger = ledger
        self._time = time
        self._query, self._reach_us = tick_query(definition.tree(), environment.snapshot())
        self._gap: tuple[int, int] | None = None  # the last tick with new rows, the next one
        self._quiet_us: int | None = None  # before the first answer: what is complete without one
        self.notice: str | None = None

    @property
    def last_us(self) -> int | None:
        """The tick that was evaluated last."""
        reached = self._ledger.reached
        return None if reached is None else (reached - OFFSET_ZERO) * self._every_us

    @property
    def complete_us(self) -> int | None:
        last = self.last_us
        return self._quiet_us if last is None else last + self._every_us

    def step(self) -> bool:
        """Evaluate the next tick if it is due."""
        clock_us = self._streams.clock_us()
        if clock_us is None:
            return False
        last_due = (clock_us - 1) // self._every_us
        tick = self._next(clock_us)
        if tick is None:  # no row has come yet: the first tick will not be before the clock
            self._quiet_us = -(-clock_us // self._every_us) * self._every_us
            return False
        if tick > last_due:
            self._quiet_us = tick * self._every_us
            return False
        self._streams.settle()
        at_us = tick * self._every_us
        answer, _ = self._environment.evaluate(self._query, at_us)
        self._ledger.store(
            with_time(answer, at_us, self._time.name, self._time), OFFSET_ZERO + tick
        )
        if last_due - tick > GAP_LOOK_TICKS or self._gap is not None:
            after = self._after(tick, last_due, answer.num_rows == 0)
            if after > tick + 1:
                self._ledger.store(_NOTHING, OFFSET_ZERO + after - 1)
        return True

    def _next(self, clock_us: int) -> int | None:
        reached = self._ledger.reached
        if reached is not None:
            return reached - OFFSET_ZERO + 1
        begin_us = self._definition.clock_us
        if begin_us is None:
            begin_us = self._streams.first_us(None, clock_us, self._every_us)
        return None if begin_us is None else -(-begin_us // self._every_us)

    def _after(self, tick: int, last_due: int, is_empty: bool) -> int:
        """The tick to evaluate after this one: the next, or the first behind a gap."""
        every_us = self._every_us
        if self._gap is None or tick >= self._gap[1]:
            self._gap = None
            first_us = self._streams.first_us(tick * every_us, last_due * every_us, every_us)
            target = last_due + 1 if first_us is None else -(-first_us // every_us)
            if target > tick + 1:
                self._gap = (tick, target)
        if self._gap is None:
            return tick + 1
        start, target = self._gap
        is_over = self._reach_us is not None and (tick - start) * every_us > self._reach_us
        if is_over and is_empty:
            self._gap = None
            return target
        if tick - start < GAP_TICKS_MAX:
            return tick + 1
        self._gap = None
        skipped = target - tick - 1
        if skipped:
            self.notice = f"{skipped} ticks without new rows were skipped"
            _log.warning('kept query "%s": %s', self._ledger.table.name, self.notice)
        return target
