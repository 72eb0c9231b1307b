"""Threads that work at once, for the tests in which many write and read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WAIT_S = 60.0


class Crowd:
    """Threads that are started together; the first error of any is raised by ``join``."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self.errors.append(error)
                self.stopping.set()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def join(self, *threads: threading.Thread) -> None:
        for thread in threads or self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a thread hangs"
        if self.errors:
            raise self.errors[0]


@contextmanager
def crowd_of_threads() -> Iterator[Crowd]:
    crowd = Crowd()
    try:
        yield crowd
    finally:
        crowd.stopping.set()
    crowd.join()
