"""Closing: what has been opened is closed, the newest first."""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger("tidemill")


class Closing:
    """Calls to be made once. An error of one is logged, and the others are made all the same."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], object]] = []

    def add(self, *calls: Callable[[], object]) -> None:
        self._calls += calls

    def run(self) -> None:
        while self._calls:
            try:
                self._calls.pop()()
            except Exception as error:
                _log.warning("while closing: %s", error)
