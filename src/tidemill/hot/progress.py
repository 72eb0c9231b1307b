"""What a streaming table calls now, and its watermark.

With ``clock = 'wall'`` now is the machine's clock; with ``clock = 'event'`` it is the newest time
seen, for replays. Writers see a row when it is written and readers when it is published, so the
two may stand a batch apart. The watermark stands ``delay_us`` behind the writers' now and never
goes back. A time further ahead of the machine's clock than ``max_future_us`` is stored but not
believed: it moves neither.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.clock import Clock

NO_WATERMARK_US = -(2**62)


class Progress:
    def __init__(
        self,
        clock: Clock,
        is_event: bool,
        delay_us: int | None,
        max_future_us: int | None,
    ) -> None:
        self._clock = clock
        self.is_event = is_event
        self.delay_us = delay_us
        self.max_future_us = max_future_us
        self._written_us: int | None = None
        self._shown_us: int | None = None
        self._watermark_us = NO_WATERMARK_US

    @property
    def newest_us(self) -> int | None:
        """The newest time to be believed of all rows written."""
        return self._written_us

    @newest_us.setter
    def newest_us(self, us: int | None) -> None:
        self._written_us = self._shown_us = us

    def write(self, newest_us: int | None) -> None:
        """Rows up to this time are written; readers do not see them yet."""
        self._written_us = newest_us

    def show(self, newest_us: int | None) -> None:
        """Readers see the rows up to this time."""
        self._shown_us = newest_us

    def now_us(self) -> int | None:
        """Now for readers, or None for an event clock that has seen nothing."""
        return self._shown_us if self.is_event else self._clock.now_us()

    def upper_us(self) -> int | None:
        """The newest time that RECENT believes."""
        if self.is_event:
            return self._shown_us
        future = self.max_future_us
        return None if future is None else self._clock.now_us() + future

    def watermark_us(self) -> int | None:
        """No row below this is expected any more; None without WATERMARK or before any row."""
        now = self._written_us if self.is_event else self._clock.now_us()
        if self.delay_us is None or now is None:
            return None
        self._watermark_us = max(self._watermark_us, now - self.delay_us)
        return self._watermark_us

    def lag_us(self) -> int | None:
        """How far the newest row stands behind the machine's clock."""
        return None if self.newest_us is None else self._clock.now_us() - self.newest_us

    def newest_of(self, times: npt.NDArray[np.int64]) -> int | None:
        """The newest time to be believed once these rows are in."""
        newest = int(times.max())
        if self.max_future_us is not None:
            limit = self._clock.now_us() + self.max_future_us
            if newest > limit:
                believed = times[times <= limit]
                if not len(believed):
                    return self.newest_us
                newest = int(believed.max())
        return newest if self.newest_us is None else max(newest, self.newest_us)

    def newest_of_one(self, time_us: int) -> int | None:
        """``newest_of`` for a single row."""
        newest = self.newest_us
        if newest is not None and time_us <= newest:
            return newest
        if self.max_future_us is None or time_us <= self._clock.now_us() + self.max_future_us:
            return time_us
        return newest
