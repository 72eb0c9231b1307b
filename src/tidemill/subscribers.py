"""Subscribers: who is told of an event.

The list is made before those who tell and those who want to hear, so that neither has to know the
other. Whoever puts the warehouse together adds the calls; nobody is told before that is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Subscribers(Generic[T]):
    """Calls, in the order in which they were added. An error of one reaches whoever tells.

    >>> heard = []
    >>> subscribers = Subscribers[int]()
    >>> subscribers.add(heard.append)
    >>> subscribers.tell(7)
    >>> heard
    [7]
    """

    def __init__(self) -> None:
        self._calls: tuple[Callable[[T], object], ...] = ()

    def add(self, call: Callable[[T], object]) -> None:
        self._calls = (*self._calls, call)

    def tell(self, event: T) -> None:
        for call in self._calls:
            call(event)
