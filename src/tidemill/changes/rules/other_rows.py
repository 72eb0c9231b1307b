"""Predicates that contradict each other (§III-B2).

A delete does not matter if no row that it means can satisfy the query. An update does not matter if
no row that it means can satisfy the query before it, and none can after it: what it sets is then
seen instead of what the row had.
"""

from __future__ import annotations

from tidemill.changes.alike import Alike, Mask
from tidemill.changes.domains import Domain
from tidemill.changes.needed import Needed


def may_matter(alike: Alike, needed: Needed) -> Mask:
    if not needed.domains:
        return alike.every()
    before, after = alike.every(), alike.every()
    sets = {name.lower(): text for name, text in alike.form.sets}
    for name, domain in needed.domains.items():
        meant = _meant(alike, name, domain)
        before &= meant
        text = sets.get(name)
        if text is None:
            after &= meant
        elif len(text) == 1 and isinstance(text[0], int):
            after &= _given(alike, text[0], domain)
    return before | after if sets else before


def _meant(alike: Alike, name: str, domain: Domain) -> Mask:
    """Where a row that is meant may have a value of a domain in a column."""
    mask = alike.every()
    for column, slot in alike.form.keys:
        if column.lower() == name:
            mask &= alike.within(slot, domain)
    for column, op, slot in alike.form.compared:
        if column.lower() == name:
            mask &= alike.within(slot, _partners(op, domain))
    for column, known in alike.form.within:
        if column.lower() == name and not known.meets(domain):
            mask &= False
    return mask


def _given(alike: Alike, slot: int, domain: Domain) -> Mask:
    """Where what a slot gives a column is of a domain."""
    mask = alike.within(slot, domain)
    return mask | alike.is_null(slot) if domain.has_null else mask


def _partners(op: str, domain: Domain) -> Domain:
    """The constants ``c`` for which some value ``x`` of a domain satisfies ``x op c``."""
    ranges = []
    for low, has_low, high, has_high in domain.ranges:
        if op in (">", ">="):
            ranges.append((None, True, high, has_high and op == ">="))
        else:
            ranges.append((low, has_low and op == "<=", None, True))
    return Domain(tuple(ranges))
