"""A query's SQL, cut where it reads scans, so that filling it in is joining pieces.

The planner gives every scan a name of its own, and DuckDB finds rows in memory by that name. Where
files are read as well, another table expression takes the name's place. The places are found once,
in the tree, when the plan is made: a literal, an alias or a comment that looks like a scan is
never hit, and nobody searches in texts afterwards.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from tidemill.types import quote

# Stands around the names of scans while the text is written: no SQL text can hold it, since the
# parser refuses it and the generator writes it as an escape.
_MARK = "\0"


@dataclass(frozen=True)
class Template:
    """``texts`` are the pieces of SQL, and between each two of them stands one of ``scans``."""

    texts: tuple[str, ...]
    scans: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.texts) == len(self.scans) + 1, "a scan stands between two texts"

    @classmethod
    def of(cls, tree: exp.Expression, scans: Container[str], *, comments: bool = True) -> Template:
        """The text of a tree, cut at the tables that have the names of scans."""
        marked = tree.copy()
        for node in marked.find_all(exp.Table):
            if node.name in scans and not node.db:
                node.set("this", exp.to_identifier(f"{_MARK}{node.name}{_MARK}", quoted=True))
        text = marked.sql(dialect="duckdb", comments=comments, copy=False)
        pieces = text.split(_MARK)
        names = pieces[1::2]
        texts = [*pieces[::2]]
        for at in range(len(names)):  # the quotes around the name go with it
            texts[at], texts[at + 1] = texts[at][:-1], texts[at + 1][1:]
        return cls(tuple(texts), tuple(names))

    @cached_property
    def text(self) -> str:
        """The SQL that reads every scan by its name."""
        return self.filled({})

    def filled(self, expressions: Mapping[str, str]) -> str:
        """The SQL with table expressions in the places of some scans."""
        parts = [self.texts[0]]
        for scan, text in zip(self.scans, self.texts[1:], strict=True):
            parts += (expressions.get(scan) or quote(scan), text)
        return "".join(parts)
