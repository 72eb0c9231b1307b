"""Domains: which values a column can have, as far as conditions tell.

A domain is some ranges of plain values (times in microseconds) and perhaps NULL. It may hold more
values than there can be, never fewer: what is not understood is ``ANY``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Span: TypeAlias = tuple[Any, bool, Any, bool]
"""Low, whether it is included, high, whether it is included; None is an open end."""

Domains: TypeAlias = Mapping[str, "Domain"]
"""Of columns, in lower case; others can have any value."""

_EVERY: Span = (None, True, None, True)
RANGES_MAX = 1_000  # of one domain; more are one that spans them


@dataclass(frozen=True, slots=True)
class Domain:
    """The values of a column that can matter."""

    ranges: tuple[Span, ...] = ()
    has_null: bool = False

    @property
    def is_any(self) -> bool:
        return self.has_null and _EVERY in self.ranges

    @property
    def is_empty(self) -> bool:
        return not self.ranges and not self.has_null

    @property
    def points(self) -> list[Any] | None:
        """Its values, if it is a list of them."""
        if self.has_null or any(low is None or low != high for low, _, high, _ in self.ranges):
            return None
        return [low for low, _, _, _ in self.ranges]

    def holds(self, value: object) -> bool:
        """Whether a value may be among them; a value of another kind may."""
        if value is None:
            return self.has_null
        if value != value:  # NaN, which has a place of its own among the others
            return bool(self.ranges)
        try:
            return any(_is_within(value, span) for span in self.ranges)
        except TypeError:
            return True

    def meets(self, other: Domain) -> bool:
        """Whether a value may be in both."""
        if self.has_null and other.has_null:
            return True
        try:
            return any(_meet(a, b) for a in self.ranges for b in other.ranges)
        except TypeError:
            return True

    def __and__(self, other: Domain) -> Domain:
        """The values in both."""
        if len(self.ranges) * len(other.ranges) > RANGES_MAX:
            return min(self, other, key=lambda each: len(each.ranges))
        try:
            met = [_met(a, b) for a in self.ranges for b in other.ranges if _meet(a, b)]
        except TypeError:
            return self
        return Domain(tuple(dict.fromkeys(met)), self.has_null and other.has_null)

    def __or__(self, other: Domain) -> Domain:
        """The values in either."""
        ranges = tuple(dict.fromkeys((*self.ranges, *other.ranges)))
        if len(ranges) > RANGES_MAX or _EVERY in ranges:
            ranges = (_EVERY,)
        return Domain(ranges, self.has_null or other.has_null)


ANY = Domain((_EVERY,), True)
NOT_NULL = Domain((_EVERY,))
NULL = Domain((), True)
NOTHING = Domain()


def compared(op: str, value: Any) -> Domain:
    """The values for which a comparison with a constant holds."""
    if value is None:
        return NOTHING
    if value != value:
        return NOT_NULL
    if op == "=":
        return Domain(((value, True, value, True),))
    if op in (">", ">="):
        return Domain(((value, op == ">=", None, True),))
    if op in ("<", "<="):
        return Domain(((None, True, value, op == "<="),))
    return Domain(((None, True, value, False), (value, False, None, True)))  # <>


def listed(values: Iterable[Any]) -> Domain:
    """The values of a list; NULL in it equals nothing."""
    known = [value for value in values if value is not None]
    if any(value != value for value in known) or len(known) > RANGES_MAX:
        return NOT_NULL
    return Domain(tuple((value, True, value, True) for value in dict.fromkeys(known)))


def starting_with(prefix: str) -> Domain:
    """The texts that begin with some characters."""
    if not prefix:
        return NOT_NULL
    following = ord(prefix[-1]) + 1
    if 0xD800 <= following <= 0xDFFF or following > 0x10FFFF:
        return Domain(((prefix, True, None, True),))
    return Domain(((prefix, True, prefix[:-1] + chr(following), False),))


def not_listed(values: Iterable[Any]) -> Domain:
    """The values that are not in a list."""
    found = NOT_NULL
    for value in values:
        if len(found.ranges) < RANGES_MAX:
            found &= NOT_NULL if value is None else compared("<>", value)
    return found


def both(one: Domains, other: Domains) -> dict[str, Domain]:
    """The columns' values where two conditions hold."""
    found = dict(one)
    for name, domain in other.items():
        found[name] = found[name] & domain if name in found else domain
    return found


def either(one: Domains, other: Domains) -> dict[str, Domain]:
    """The same where one of two conditions holds, or both do."""
    return {name: one[name] | other[name] for name in one if name in other}


def _is_within(value: Any, span: Span) -> bool:
    low, has_low, high, has_high = span
    if low is not None and (value < low or (value == low and not has_low)):
        return False
    return high is None or bool(value < high) or (bool(value == high) and has_high)


def _meet(a: Span, b: Span) -> bool:
    return _begins(a, b) and _begins(b, a)


def _begins(a: Span, b: Span) -> bool:
    """Whether one span begins before another ends."""
    low, has_low, _, _ = a
    _, _, high, has_high = b
    if low is None or high is None:
        return True
    return bool(low < high) or (bool(low == high) and has_low and has_high)


def _met(a: Span, b: Span) -> Span:
    """What two spans that meet have in common."""
    low, has_low = a[:2]
    if b[0] is not None and (low is None or b[0] > low):
        low, has_low = b[:2]
    elif b[0] == low:
        has_low = has_low and b[1]
    high, has_high = a[2:]
    if b[2] is not None and (high is None or b[2] < high):
        high, has_high = b[2:]
    elif b[2] == high:
        has_high = has_high and b[3]
    return low, has_low, high, has_high
