"""An update of columns that a reader does not look at is none of its business (§III-B2).

A delete always is: it takes whole rows.
"""

from __future__ import annotations

from tidemill.changes.alike import Alike, Mask
from tidemill.changes.needed import Needed


def may_matter(alike: Alike, needed: Needed) -> Mask:
    sets = alike.form.sets
    if not sets or needed.columns is None:
        return alike.every()
    return alike.every(any(name.lower() in needed.columns for name, _ in sets))
