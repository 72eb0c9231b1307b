"""A reader whose conditions contradict each other needs no change at all (§III-B3)."""

from __future__ import annotations

from tidemill.changes.alike import Alike, Mask
from tidemill.changes.needed import Needed


def may_matter(alike: Alike, needed: Needed) -> Mask:
    return alike.every(not needed.is_nothing)
