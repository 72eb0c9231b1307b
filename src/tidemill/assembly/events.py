"""Events: what rooms tell each other without knowing each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.hot.table import HotTable
from tidemill.subscribers import Subscribers


@dataclass(frozen=True)
class Events:
    """Made before the rooms; who hears of what is said in ``writing.wire``."""

    published: Subscribers[HotTable] = field(default_factory=Subscribers)
    """Rows of a stream can be read."""
    changes: Subscribers[int] = field(default_factory=Subscribers)
    """A reference table, by its id, is about to change."""
    looks: Subscribers[bool] = field(default_factory=Subscribers)
    """It was looked what history needs; whether work in the background is allowed."""
