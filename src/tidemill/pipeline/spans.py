"""Spans of time that files share: none of the files of one reaches into another span.

Compactions join partitions, and late rows come to partitions that were joined, so ranges of files
overlap. Whoever must take all that there is of a time, or leave all of it, goes by spans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

from tidemill.catalog.model import NewFile

File = TypeVar("File", bound=NewFile)

_BEGIN = attrgetter("lo_us")


@dataclass(frozen=True)
class Span(Generic[File]):
    """``[lo, hi)``, and the files in it."""

    lo_us: int
    hi_us: int
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def spans_of(files: Iterable[File]) -> list[Span[File]]:
    """Files by the spans that they share, the oldest first."""
    groups: list[list[File]] = []
    reach_us = 0
    for file in sorted(files, key=_BEGIN):
        if groups and file.lo_us < reach_us:
            groups[-1].append(file)
            reach_us = max(reach_us, file.hi_us)
        else:
            groups.append([file])
            reach_us = file.hi_us
    return [Span(g[0].lo_us, max(file.hi_us for file in g), tuple(g)) for g in groups]


def touches(spans: Sequence[Span[File]], file: NewFile) -> bool:
    """Whether a file's range reaches into one of the spans, which are the oldest first."""
    at = bisect_right(spans, file.lo_us, key=_BEGIN)
    before, after = spans[max(at - 1, 0) : at], spans[at : at + 1]
    return any(each.hi_us > file.lo_us for each in before) or any(
        each.lo_us < file.hi_us for each in after
    )
