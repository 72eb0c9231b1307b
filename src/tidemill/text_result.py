"""A result as texts, for those who show it: the shell, here or over the local socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

Texts = list[list[str | None]]
"""The columns of some rows, each value as SQL writes it; NULL is None."""


@dataclass(frozen=True)
class TextResult:
    """What a statement answered. ``chunks`` can be read once; with a bound on the rows they hold
    fewer than ``rowcount``."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    message: str
    elapsed_s: float
    rowcount: int
    chunks: Iterator[Texts]

    def rows(self) -> list[tuple[str | None, ...]]:
        """All rows that came, as tuples of texts."""
        return list(chain.from_iterable(zip(*chunk, strict=True) for chunk in self.chunks))
