"""EMIT ON WINDOW CLOSE: each TUMBLE or HOP window is answered once, when it closes.

1. Window n is ``[n·slide, n·slide + size)``. It closes when every stream's clock has reached its
   end. Windows that had closed before the query was made are not answered.
2. The query is evaluated over the rows of the window and no others; now() and the time of the
   answers are its end. Where the query allows it, windows that close together are one evaluation
   (``tagging``); one that closes by itself is not part of any key (``one_window``).
3. Late rows of a closed window change nothing any more.
4. Stretches of time without rows are skipped: a window without rows is never answered.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Snapshot
from tidemill.errors import UnsupportedError
from tidemill.sql.passes import run_passes
from tidemill.types import Column
from tidemill.views.kept.definition import OFFSET_ZERO, TIME_NAME, Definition
from tidemill.views.kept.environment import Answer, KeptEnvironment
from tidemill.views.kept.ledger import Ledger
from tidemill.views.kept.passes import MANY_CLOSES_PASSES, ONE_CLOSE_PASSES, KeptState
from tidemill.views.kept.reads import Read, reads_of
from tidemill.views.kept.streams import Streams, moment, with_time
from tidemill.views.kept.tagging import finished

WINDOWS_AT_ONCE = 1_000
_NOTHING = pa.table({})


def grid_of(reads: list[Read]) -> tuple[int, int]:
    """The slide and the size that all windows of a query share."""
    grids: set[tuple[int, int]] = set()
    for read in reads:
        if read.function not in ("TUMBLE", "HOP") or read.call is None:
            raise UnsupportedError(
                f'EMIT ON WINDOW CLOSE reads windows that close, "{read.table.name}" has none here',
                hint="FROM TUMBLE(t, ts, INTERVAL '1' MINUTE) or HOP(…); other windows slide: "
                "EVERY INTERVAL '…' or EVERY ROW",
                position=read.position,
            )
        grids.add((read.call.slide_us or read.call.size_us, read.call.size_us))
        if len(grids) > 1:
            raise UnsupportedError(
                "the windows of the query close at different times",
                hint="use windows of one size and one slide",
                position=read.position,
            )
    (grid,) = grids
    return grid


def close_query(
    tree: exp.Expression, snapshot: Snapshot, own_time: bool
) -> tuple[exp.Expression, exp.Expression | None]:
    """The query of a single window, and of many at once if it can be tagged. Both have the window's
    starts as parameters."""
    state = KeptState.of(tree, snapshot)
    single = run_passes(ONE_CLOSE_PASSES, state.copied()).tree
    many = run_passes(MANY_CLOSES_PASSES, state.copied())
    if not many.is_tagged:
        return single, None
    own = exp.column(TIME_NAME) if own_time else None
    return single, finished(many.tree, own, TIME_NAME)


def describe_closes(definition: Definition, environment: KeptEnvironment) -> Answer:
    """The columns of the answers; nothing is read, as no row is as old as that."""
    tree, snapshot = definition.tree(), environment.snapshot()
    reads = reads_of(tree, snapshot)
    grid_of(reads)
    single, _ = close_query(tree, snapshot, own_time=False)
    none = exp.select("*").from_(exp.Subquery(this=single)).limit(0)
    return environment.evaluate(none, 0, _bounds(reads[0].time, 0, 0, 0))


def _bounds(column: Column, low_us: int, high_us: int, end_us: int) -> dict[str, object]:
    pairs = (("tm_lo", low_us), ("tm_hi", high_us), ("tm_end", end_us))
    return {name: moment(us, column) for name, us in pairs}


class Closes:
    def __init__(
        self,
        definition: Definition,
        environment: KeptEnvironment,
        streams: Streams,
        ledger: Ledger,
        time: Column,
        own_time: bool,
    ) -> None:
        tree, snapshot = definition.tree(), environment.snapshot()
        reads = reads_of(tree, snapshot)
        self._definition = definition
        self._environment = environment
        self._streams = streams
        self._ledger = ledger
        self._time = time
        self._own_time = own_time
        self._column = reads[0].time
        self._slide_us, self._size_us = grid_of(reads)
        self._single, self._many = close_query(tree, snapshot, own_time)
        self._quiet_us: int | None = None  # before the first answer: what is complete without one
        self.notice: str | None = None

    @property
    def last_us(self) -> int | None:
        """The end of the window that was answered last."""
        reached = self._ledger.reached
        return None if reached is None else self._end_us(reached - OFFSET_ZERO)

    @property
    def complete_us(self) -> int | None:
        last = self.last_us
        return self._quiet_us if last is None else last + self._slide_us

    def _end_us(self, window: int) -> int:
        return window * self._slide_us + self._size_us

    def _closed(self, clock_us: int) -> int:
        """The last window whose end a clock has reached."""
        return (clock_us - self._size_us) // self._slide_us

    def step(self) -> bool:
        """Answer the next windows that have closed."""
        clock_us = self._streams.clock_us()
        done = None if clock_us is None else self._done(clock_us)
        if clock_us is None:
            return False
        last = self._closed(clock_us)
        if done is None:  # no row has come yet: none will be in a window that has closed
            self._quiet_us = self._end_us(last + 1)
            return False
        if done >= last:
            self._quiet_us = self._end_us(done + 1)
            return False
        self._streams.settle()
        if self._many is None:
            empty = self._before_rows(done, last)
            answers = _NOTHING if empty > done else self._answers(done + 1, done + 1)
            self._ledger.store(answers, OFFSET_ZERO + max(empty, done + 1))
            return True
        upto = min(done + self._at_once(), last)
        answers = self._answers(done + 1, upto)
        if not answers.num_rows and upto < last:
            upto = self._before_rows(upto, last)
        self._ledger.store(answers, OFFSET_ZERO + upto)
        return True

    def _done(self, clock_us: int) -> int | None:
        reached = self._ledger.reached
        if reached is not None:
            return reached - OFFSET_ZERO
        begin_us = self._definition.clock_us
        if begin_us is None:
            begin_us = self._streams.first_us(None, clock_us, self._size_us)
        return None if begin_us is None else self._closed(begin_us)

    def _at_once(self) -> int:
        """How many windows are one evaluation. It is made as of the end of the first one, when
        the retention hid no row of those behind it, unless windows are longer than that."""
        kept = [table.settings["retention"] for table in self._streams.tables()]
        is_cut = any(each is not None and each < self._size_us for each in kept)
        return 1 if is_cut else WINDOWS_AT_ONCE

    def _before_rows(self, window: int, last: int) -> int:
        """The last window before the next row that is in none up to this one."""
        after_us = (window + 1) * self._slide_us - 1
        first_us = self._streams.first_us(after_us, self._end_us(last) - 1, self._size_us)
        return last if first_us is None else max(self._closed(first_us), window)

    def _answers(self, first: int, last: int) -> pa.Table:
        low_us, high_us = first * self._slide_us, last * self._slide_us
        end_us = self._end_us(last)
        bounds = _bounds(self._column, low_us, high_us, end_us)
        if self._many is not None and last > first:
            return self._environment.evaluate(self._many, self._end_us(first), bounds)[0]
        answer, _ = self._environment.evaluate(self._single, end_us, bounds)
        if self._own_time:
            return answer
        return with_time(answer, end_us, self._time.name, self._time)
