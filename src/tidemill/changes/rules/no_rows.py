"""A change that compares a column with NULL means no row: nothing equals NULL (§III-B3)."""

from __future__ import annotations

from tidemill.changes.alike import Alike, Mask
from tidemill.changes.needed import Needed


def may_matter(alike: Alike, needed: Needed) -> Mask:
    mask = alike.every()
    for _, slot in alike.form.keys:
        if not alike.has_batches:
            mask &= ~alike.is_null(slot)
    return mask
