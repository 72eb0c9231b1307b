"""Lifetime: whether work that nobody waits for may run now. The one place that decides it.

Spark takes seconds and memory to start. A process that stays open wants it early and warm; one that
answers a statement and leaves must not start it for work that can as well be done later. So:

1. A warehouse is opened for ``long`` (a service), ``short`` (one command) or ``auto``: short until
   the process has had it open for ``AUTO_S``.
2. A long one starts Spark in the background and keeps it.
3. Work in the background (moves by period or by queries, compaction, back-fills, sources) is done
   only where Spark is running already: nobody queues it for a Spark that has to start. What tidies
   up (compaction) also waits for a calm moment (``calm``), and so does the start of Spark where
   nobody said that the process stays.
4. What is waited for starts Spark in any process: FLUSH, a COPY that memory cannot hold, a query
   routed there, and a memory that writers are filling.

docs/design/20261118-spark-lifetime.md has the reasons.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

AUTO, LONG, SHORT = "auto", "long", "short"
AUTO_S = 20.0


class Starter(Protocol):
    """What can be started."""

    @property
    def is_ready(self) -> bool: ...

    def start(self) -> None: ...


class Lifetime:
    def __init__(
        self,
        told: str,
        starter: Starter,
        is_calm: Callable[[], bool],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._told = told
        self._starter = starter
        self._is_calm = is_calm
        self._now_s = now_s
        self._opened_s = now_s()

    @property
    def is_long(self) -> bool:
        """Whether the process stays, as far as can be told."""
        if self._told == AUTO:
            return self._now_s() - self._opened_s >= AUTO_S
        return self._told == LONG

    def begin(self) -> None:
        """The warehouse is open."""
        self.foresee()

    def foresee(self) -> None:
        """Work may come: have Spark started, if the process stays."""
        if not self._starter.is_ready and self.is_long and (self._told == LONG or self._is_calm()):
            self._starter.start()

    def need(self) -> None:
        """Work will come that is waited for: have Spark started, in any process."""
        if not self._starter.is_ready:
            self._starter.start()

    def allows_background(self) -> bool:
        """Whether work that nobody waits for may be submitted now."""
        self.foresee()
        return self._starter.is_ready

    def allows_tidying(self) -> bool:
        """Whether work may be submitted now that makes later reads faster and takes time from
        those of now."""
        return self.allows_background() and self._is_calm()
