"""Windows that do not overlap: a change of another span of time (§III-B2). No change that waits
sets the time, so a row stays in its span."""

from __future__ import annotations

from tidemill.changes.alike import Alike, Mask
from tidemill.changes.needed import Needed


def may_matter(alike: Alike, needed: Needed) -> Mask:
    mask: Mask = (alike.highs >= needed.low_us) & (alike.lows <= needed.high_us)
    return mask
