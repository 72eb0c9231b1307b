"""Spans of time that files share: none of the files of one reaches into another span.

Compactions merge partitions and late rows come to merged ones, so ranges of files
overlap. Whoever takes some of the files, and must take all that there is of a time, goes by spans;
those of all files of rows are the partitions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

from tidemill.catalog.model import NewFile, overlapping

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
    groups = overlapping(files)
    return [Span(g[0].lo_us, max(file.hi_us for file in g), tuple(g)) for g in groups]


def touches(spans: Sequence[Span[File]], file: NewFile) -> bool:
    """Whether a file's range reaches into one of the spans, which are the oldest first."""
    at = bisect_right(spans, file.lo_us, key=_BEGIN)
    before, after = spans[max(at - 1, 0) : at], spans[at : at + 1]
    return any(each.hi_us > file.lo_us for each in before) or any(
        each.lo_us < file.hi_us for each in after
    )
