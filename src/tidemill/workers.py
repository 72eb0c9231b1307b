"""Workers: threads that do one piece of work again and again until they are closed.

Every loop in the background is one of these: it is woken, pauses, logs what failed and tries again,
and ends with its owner, after the piece of work in progress.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

RETRY_S = 1.0

Work = Callable[[bool], float]
"""Does what is due, and answers for how many seconds nothing will be. It is told whether somebody
woke it; otherwise its pause is over."""


class Worker:
    """``start`` and ``close`` may be called more than once, and ``close`` before ``start``."""

    def __init__(self, name: str, work: Work, log: logging.Logger, *, first_s: float = 0.0) -> None:
        """``first_s`` is the pause before the first piece of work."""
        self._work = work
        self._log = log
        self._first_s = first_s
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def name(self) -> str:
        return self._thread.name

    @property
    def is_stopping(self) -> bool:
        """Whether it was closed: long work should end at the next good moment."""
        return self._is_stopping

    def start(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def wake(self) -> None:
        """There is something to do. Cheap when it knows already."""
        if not self._wake.is_set():
            self._wake.set()

    def close(self, timeout_s: float | None = None) -> None:
        """Stop after the piece of work in progress, which is waited for."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        pause_s = self._first_s
        while True:
            is_woken = self._wake.wait(pause_s) if pause_s > 0 else self._wake.is_set()
            self._wake.clear()
            if self._is_stopping:
                return
            try:
                pause_s = self._work(is_woken)
            except Exception as error:  # the next time may fare better
                self._log.warning("%s: %s", self.name, error)
                pause_s = RETRY_S
