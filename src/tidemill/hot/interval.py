"""The interval index (document 002 §VI-B): from a span of time to the blocks that reach into it.

A circular array of buckets, each standing for ``width_us`` of time and holding the blocks that
have rows in it. Adding the newest block and dropping the oldest are constant work, and a lookup
reads just the buckets of its span. Beyond the paper, streams here are not in order:

1. a block that covers many buckets (a late row from last year, a clock far ahead) would fill the
   array with itself; it goes to a short list of *strays* that every lookup tests by their range;
2. when strays are no longer the exception, the buckets become wider and all blocks are filed
   again, so the array stays bounded while the time in memory grows;
3. readers keep what they were given: ``freeze`` hands out this very index, and the next change is
   made on a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.hot.block import Block

BUCKETS_MAX = 4_096
BLOCK_BUCKETS_MAX = 64
STRAYS_MAX = 4
WIDTH_US_MIN = 1_000


class IntervalIndex:
    def __init__(self, width_us: int = WIDTH_US_MIN, blocks: Iterable[Block] = ()) -> None:
        self.width_us = width_us
        self._start = 0  # number of the bucket that the front stands for
        self._front = 0
        self._used = 0
        self._buckets: list[tuple[Block, ...]] = [()] * 16
        self._strays: tuple[Block, ...] = ()
        self._strays_max = STRAYS_MAX
        self._is_frozen = False
        for block in blocks:
            self._file(block)

    def freeze(self) -> IntervalIndex:
        """This index as it is; whoever changes it next must work on ``copy``."""
        self._is_frozen = True
        return self

    def changed(self, added: Iterable[Block] = (), dropped: Iterable[Block] = ()) -> IntervalIndex:
        """The index with blocks added and dropped: itself, or a copy if readers hold it."""
        target = self._copy() if self._is_frozen else self
        for block in dropped:
            target._drop(block)
        for block in added:
            target._file(block)
        return target

    def find(self, low_us: int | None, high_us: int | None) -> list[Block]:
        """The blocks with rows between two times (both included), in arrival order."""
        found = {
            block.block_id: block
            for bucket in self._between(low_us, high_us)
            for block in bucket
            if block.reaches(low_us, high_us)
        }
        found.update({s.block_id: s for s in self._strays if s.reaches(low_us, high_us)})
        return [found[block_id] for block_id in sorted(found)]

    @property
    def bucket_count(self) -> int:
        return self._used

    def _between(self, low_us: int | None, high_us: int | None) -> Iterator[tuple[Block, ...]]:
        first = 0 if low_us is None else low_us // self.width_us - self._start
        last = self._used - 1 if high_us is None else high_us // self.width_us - self._start
        for offset in range(max(first, 0), min(last, self._used - 1) + 1):
            yield self._buckets[(self._front + offset) % len(self._buckets)]

    def _copy(self) -> IntervalIndex:
        twin = IntervalIndex(self.width_us)
        twin._start, twin._front, twin._used = self._start, self._front, self._used
        twin._buckets, twin._strays = self._buckets.copy(), self._strays
        twin._strays_max = self._strays_max
        return twin

    def _file(self, block: Block) -> None:
        if not self._used and not self._strays:
            span_us = block.time_max_us - block.time_min_us
            self.width_us = max(WIDTH_US_MIN, span_us // 4)
        if not self._place(block):
            self._strays += (block,)
            if len(self._strays) > self._strays_max:
                self._widen()

    def _place(self, block: Block) -> bool:
        """Put the block into the buckets it covers; False if they are too many or too far."""
        first, last = block.time_min_us // self.width_us, block.time_max_us // self.width_us
        if last - first >= BLOCK_BUCKETS_MAX or not self._make_room(first, last):
            return False
        for number in range(first, last + 1):
            self._buckets[(self._front + number - self._start) % len(self._buckets)] += (block,)
        return True

    def _make_room(self, first: int, last: int) -> bool:
        """Let the array cover the buckets first to last; False if it would outgrow its bound."""
        if self._used == 0:
            self._start, self._front = first, 0
        low = min(first, self._start)
        high = max(last, self._start + self._used - 1) if self._used else last
        if high - low >= BUCKETS_MAX:
            return False
        if high - low >= len(self._buckets):
            ordered = [*self._between(None, None)]
            size = 1 << (high - low).bit_length()
            self._buckets = ordered + [()] * (size - len(ordered))
            self._front = 0
        self._front = (self._front - (self._start - low)) % len(self._buckets)
        self._start, self._used = low, high - low + 1
        return True

    def _widen(self) -> None:
        """File every block again, with buckets wide enough for most of them.

        Blocks that still do not fit stay strays, and only twice as many cause another widening,
        so its cost is spread over the blocks that came since."""
        held = {b.block_id: b for bucket in self._between(None, None) for b in bucket}
        blocks = sorted([*held.values(), *self._strays], key=lambda b: b.block_id)
        spans = sorted(b.time_max_us - b.time_min_us for b in blocks)
        ends = sorted(b.time_max_us for b in blocks)
        tenth = len(blocks) // 10
        reach_us = ends[-1 - tenth] - ends[tenth]
        self.width_us = max(
            self.width_us,
            spans[len(spans) // 2] // 4,
            2 * reach_us // BUCKETS_MAX,
        )
        self._start = self._front = self._used = 0
        self._buckets = [()] * 16
        self._strays = tuple(block for block in blocks if not self._place(block))
        self._strays_max = max(STRAYS_MAX, 2 * len(self._strays))

    def _drop(self, block: Block) -> None:
        if any(stray.block_id == block.block_id for stray in self._strays):
            self._strays = tuple(s for s in self._strays if s.block_id != block.block_id)
            return
        first, last = block.time_min_us // self.width_us, block.time_max_us // self.width_us
        for number in range(first, last + 1):
            offset = number - self._start
            if 0 <= offset < self._used:
                at = (self._front + offset) % len(self._buckets)
                held = self._buckets[at]
                self._buckets[at] = tuple(b for b in held if b.block_id != block.block_id)
        self._pop_empty_front()

    def _pop_empty_front(self) -> None:
        while self._used and not self._buckets[self._front]:
            self._front = (self._front + 1) % len(self._buckets)
            self._start += 1
            self._used -= 1
