"""EVERY ROW: the query is evaluated for each row that arrives, in the order of arrival.

The query reads one stream, other streams that are joined with it (``sides``), and reference tables
as they are at that moment. What it sees of the stream when a row arrives, and the time of its
answers, is

- without a window: the row itself;
- ``RECENT(t, rows => k [, partition_by => key])``: the newest k rows (of the row's key), the row
  among them, without rows that came later or are younger;
- ``RECENT(t, INTERVAL …)``: the window that ends at the row's time, of rows that arrived before it,
  the row among them.

A stream's retention is taken as of the row's time, not as of the moment when it is answered, so
that a query which is behind answers the same.

Rows come from the stream's feed, in batches (answers to them: ``row_answers``). Rows that a load
brings straight into history are answered when it is committed, in steps of ``LOAD_ROWS``, and
before rows that were appended after them. The position in the feed is what the ledgers say: rows
that were appended and those of loads have one each. What was answered stays answered: rows that
others replace are not taken back.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tidemill.catalog.model import Table
from tidemill.stream.feed import Batch, Feed, Origin
from tidemill.stream.position import Position
from tidemill.types import SEQ, Column
from tidemill.views.kept.definition import Definition
from tidemill.views.kept.environment import KeptEnvironment
from tidemill.views.kept.ledger import Ledger
from tidemill.views.kept.row_answers import RowAnswers, last_seq, times_of
from tidemill.views.kept.stream_reads import StreamReads
from tidemill.views.kept.streams import Streams
from tidemill.views.kept.waiting import OldestWaiting

BATCH_ROWS = 65_536
LOAD_ROWS = 500_000


class EveryRow:
    def __init__(
        self,
        definition: Definition,
        environment: KeptEnvironment,
        streams: Streams,
        ledger: Ledger,
        loads: Ledger,
        time: Column,
        own_time: bool,
    ) -> None:
        self._definition = definition
        self._begin_seq = definition.streams[0].seq  # the others are joined with it
        self._environment = environment
        self._streams = streams
        self._ledger = ledger
        self._loads = loads
        self._reads = StreamReads(environment)
        clock_of = streams.clock_of
        self._answers = RowAnswers(definition, environment, self._reads, clock_of, time, own_time)
        self._position: Position | None = None  # None: the ledgers have to be asked
        self._waiting: tuple[int, int] | None = None  # behind which row, and its time
        self._load_waits: tuple[int, int] | None = None
        self._oldest = OldestWaiting()
        self._at_us: int | None = None
        self._loads_at = -1  # the snapshot in which no load was left
        self.notice: str | None = None

    @property
    def last_us(self) -> int | None:
        """The time of the last row that was answered."""
        return self._answers.last_us

    @property
    def complete_us(self) -> int | None:
        """The stream's clock, or the time of the oldest row that is not answered yet."""
        return self._at_us

    @property
    def reached_seq(self) -> int:
        reached = self._ledger.reached
        return self._begin_seq if reached is None else reached

    def lag_rows(self) -> int:
        """Rows in memory that are not answered yet."""
        feed = self._environment.feed(self._streams.tables()[0])
        return feed.arrivals().count_after(Position(self.reached_seq))

    def step(self) -> bool:
        """Answer the next batch of rows, or the next part of a load."""
        try:
            return self._step()
        except BaseException:
            self._answers.forget()  # it may hold rows that will come again
            self._position = None  # some of them may be stored
            raise

    def _step(self) -> bool:
        clock_us = self._streams.clock_us()
        table = self._streams.tables()[0]
        published_seq = self._environment.hot(table).published.last_seq
        feed = self._environment.feed(table)
        position = self._known_position(feed)
        if published_seq <= position.seq:
            if self._step_load(table, feed):
                return True
            self._answers.make_ready(table, self._last_answered(feed, position))
            self._come_to(clock_us)
            return False
        if self._is_early(self._waiting, position.seq):
            return self._go_on_waiting(table, feed, published_seq, clock_us)
        batch = feed.next_batch(position, BATCH_ROWS, Origin.APPENDED)
        if batch is None:
            return False
        before = self._before_load(feed, batch)
        if not before and self._step_load(table, feed):
            return True
        batch = batch.first(before) if before else batch
        ready = self._answers.ready(batch.rows)
        if batch.rows.num_rows and not ready:
            self._waiting = (position.seq, self._first_us(batch))
            return self._go_on_waiting(table, feed, published_seq, clock_us)
        batch = batch.first(ready)
        self._answer(table, batch, self._ledger)
        if not feed.loads(self._definition.snapshot_id):  # while rows come, nobody sees us idle
            self._come_to(self._until_us(feed, batch.upto_seq, published_seq, clock_us))
        return True

    # -- position

    def _known_position(self, feed: Feed) -> Position:
        """How far the answers have come, as the ledgers say."""
        if self._position is None:
            begin = self._definition.snapshot_id
            position = Position(self.reached_seq, begin)
            for load in feed.loads(begin):
                upto = self._loads.newest_in(load.first_seq, load.last_seq)
                if upto >= load.first_seq:
                    position = position.with_load(load.first_seq, upto)
            self._position = position
        return self._position

    def _last_answered(self, feed: Feed, position: Position) -> int:
        """The greatest number of a row that was answered, when none waits: a load may have
        greater ones than the rows that were appended."""
        loads = feed.loads(self._definition.snapshot_id)
        return max([position.seq, *(load.last_seq for load in loads)])

    # -- waiting for other streams

    def _first_us(self, batch: Batch) -> int:
        return int(times_of(batch.rows.slice(0, 1), self._answers.query())[0])

    def _is_early(self, waiting: tuple[int, int] | None, low: int) -> bool:
        """Whether the row behind a number is known to wait for other streams, and still does."""
        query = self._answers.query()
        if waiting is None or waiting[0] != low or not query.sides:
            return False
        return not self._answers.sides(query).upto(np.array(waiting[1:]))

    def _go_on_waiting(self, table: Table, feed: Feed, upto_seq: int, clock_us: int | None) -> bool:
        """While rows wait for other streams, the answers are complete up to the oldest of them;
        loads need not wait behind them. True if a load had something to answer."""
        low = self._known_position(feed).seq
        self._come_to(self._until_us(feed, low, upto_seq, clock_us))
        return self._step_load(table, feed)

    # -- how far the answers are complete

    def _until_us(self, feed: Feed, low: int, high: int, clock_us: int | None) -> int | None:
        """No answer of an earlier time is to come, if rows are answered up to one number and are
        there up to another. The clock was read before."""
        if clock_us is None or low >= high:
            return clock_us
        arrivals = feed.arrivals()
        if arrivals.view.moved_seq <= low:
            oldest_us = arrivals.oldest_us(low)
            return clock_us if oldest_us is None else min(oldest_us, clock_us)
        least = partial(self._reads.least_us, feed.hot.table, self._answers.query().time)
        return self._oldest.until(low, high, clock_us, least)

    def _come_to(self, at_us: int | None) -> None:
        """It does not go back: a late row has been late already when it came."""
        if at_us is not None:
            self._at_us = at_us if self._at_us is None else max(self._at_us, at_us)

    # -- loads

    def _before_load(self, feed: Feed, batch: Batch) -> int:
        """How many of the first rows came before the next load that is to be answered: those
        behind it see its rows. A load that is still under way is not waited for."""
        count = int(batch.rows.num_rows)
        if self._environment.snapshot().snapshot_id == self._loads_at:
            return count
        loads = feed.loads(self._definition.snapshot_id)
        load = next(self._known_position(feed).open_loads(loads), None)
        if load is None or not count:
            return count
        seqs = batch.rows.column(SEQ).to_numpy()
        return int(np.searchsorted(seqs, load.first_seq))

    def _step_load(self, table: Table, feed: Feed) -> bool:
        """Answer the next rows of a load that was committed since the query was made."""
        snapshot = self._environment.snapshot()
        if snapshot.snapshot_id == self._loads_at:
            return False
        position = self._known_position(feed)
        load = next(position.open_loads(feed.loads(self._definition.snapshot_id)), None)
        if load is None:
            self._loads_at = snapshot.snapshot_id
            return False
        return self._answer_load(table, feed, position, position.reached_in(load))

    def _answer_load(self, table: Table, feed: Feed, position: Position, low: int) -> bool:
        """Its rows may be the newest of their keys from then on. False if they have to wait."""
        self._answers.forget()
        if self._is_early(self._load_waits, low):
            return False
        batch = feed.next_batch(position, LOAD_ROWS, Origin.LOADED)
        if batch is None:
            return False
        ready = self._answers.ready(batch.rows)
        if batch.rows.num_rows and not ready:
            self._load_waits = (low, self._first_us(batch))
            return False
        self._answer(table, batch.first(ready), self._loads)
        self._loads.close()
        self._answers.forget()
        return True

    # -- answers

    def _answer(self, table: Table, batch: Batch, ledger: Ledger) -> None:
        """Answer and store a batch, in parts whose windows are not too large together."""
        rows, upto = batch.rows, batch.upto_seq
        last = last_seq(rows) if rows.num_rows else None
        for part in self._answers.of(table, rows, is_loaded=batch.load is not None):
            ledger.store(part.answers, upto if part.upto_seq == last else part.upto_seq)
        if last is None:
            ledger.store(rows, upto)  # no row, no answer
        self._position = batch.position
