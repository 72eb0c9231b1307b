"""How far a digest is: from which time on it has the stream's history.

A back-fill goes from the newest partition to the oldest, and every commit of it lowers ``from_us``.
Rows that a seal wrote are in the digest whatever their time is; the back-fill will meet them in the
stream's files and must know them, so their numbers are kept until it is done. The text is the
``progress`` of the digest's history in the catalog.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemill.history.partitions import US_MAX

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Progress:
    """``from_us`` None: complete; ``US_MAX``: nothing yet. ``sealed`` are ranges of sequence
    numbers, both ends included. ``failed`` says why a digest could not be kept: it has nothing, and
    gets nothing, until it is asked to be made again."""

    from_us: int | None = None
    sealed: Spans = ()
    failed: str | None = None

    @classmethod
    def read(cls, text: str | None) -> Progress:
        """From what the catalog keeps; a digest without a text is complete.

        >>> Progress.read(None).is_complete, Progress.read('{"from_us": 7}').from_us
        (True, 7)
        """
        given = json.loads(text) if text else {}
        sealed = tuple((first, last) for first, last in given.get("sealed", ()))
        return cls(given.get("from_us"), sealed, given.get("failed"))

    @classmethod
    def nothing(cls) -> Progress:
        """Of a digest whose stream has a history that it has not seen."""
        return cls(US_MAX)

    @property
    def text(self) -> str:
        given = {"from_us": self.from_us, "sealed": self.sealed}
        return json.dumps(given if self.failed is None else {**given, "failed": self.failed})

    @property
    def is_complete(self) -> bool:
        return self.from_us is None

    @property
    def upper_us(self) -> int | None:
        """Rows before this time are still to be digested; None means all."""
        assert self.from_us is not None, "nothing is left of a complete digest"
        return None if self.from_us == US_MAX else self.from_us

    def covers(self, lo_us: int) -> bool:
        """Whether whatever is written to the partition that begins there belongs into the digest;
        otherwise the back-fill will find it."""
        if self.failed is not None:
            return False
        return self.from_us is None or (self.from_us != US_MAX and lo_us >= self.from_us)

    def lowered(self, from_us: int | None) -> Progress:
        if self.failed is not None:
            return self
        return Progress() if from_us is None else replace(self, from_us=from_us)

    def with_sealed(self, spans: Sequence[tuple[int, int]]) -> Progress:
        return self if self.is_complete else replace(self, sealed=(*self.sealed, *spans))
