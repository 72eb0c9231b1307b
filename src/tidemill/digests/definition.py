"""A digest as its table in the catalog defines it, ready for tasks.

A digest sums up the rows of one stream: *partial* queries rows, *merge* queries partials. Its table
has the columns of a partial, under their exact types, and keeps the queries as JSON; what moves and
loads must know besides (the stream's time column, the length of its partitions) is kept with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.catalog.model import Table
from tidemill.sql.maintain.plan import DigestParts, digest_from_json, digest_to_json
from tidemill.types import Column, quote

# A star that stands for columns, and not for a product or for count(*).
_STAR = re.compile(r"(?:\bSELECT|\bDISTINCT|,|\.|(?<!count)\()\s*\*", re.IGNORECASE)
_ROWS = re.compile(r'\btm_rows\b"?(?:\s+AS\s+"?(\w+))?', re.IGNORECASE)


@dataclass(frozen=True)
class Digest:
    """The parts of a digest with its place in the catalog; it travels to Spark's tasks."""

    parts: DigestParts
    table_id: int
    name: str
    source_id: int
    columns: tuple[Column, ...]
    time_column: str
    partition_us: int

    @classmethod
    def of(cls, table: Table) -> Digest:
        assert table.definition is not None, "a digest has a definition"
        assert table.source_id is not None, "a digest has a stream"
        given = json.loads(table.definition)
        return cls(
            digest_from_json(given["parts"]),
            table.table_id,
            table.name,
            table.source_id,
            table.columns,
            given["time_column"],
            given["partition_us"],
        )

    @property
    def partial(self) -> str:
        return self.parts.partial

    @property
    def merge(self) -> str:
        return self.parts.merge

    @property
    def with_seq(self) -> bool:
        return self.parts.with_seq

    def needed(self, names: Sequence[str]) -> list[str]:
        """Which of the stream's columns the partial may read: those that its text mentions."""
        if _STAR.search(self.partial) or _names_rows(self.partial):
            return list(names)
        text = self.partial.lower()
        return [name for name in names if quote(name.lower())[1:-1] in text]


def _names_rows(partial: str) -> bool:
    """Whether a row as a whole may be a value: the relation's name stands elsewhere than in FROM
    and before a dot."""
    for found in _ROWS.finditer(partial):
        name = re.escape(found[1] or "tm_rows")
        if len(re.findall(rf'(?<![\w.]){name}\b(?!"?\s*\.)', partial, re.IGNORECASE)) > 1:
            return True
    return False


def definition_text(parts: DigestParts, stream: Table) -> str:
    """What the table of a digest keeps as its definition."""
    assert stream.time_column is not None, "a digest is of a streaming table"
    given = {
        "parts": digest_to_json(parts),
        "time_column": stream.get_column(stream.time_column).name,
        "partition_us": stream.settings["partition"],
    }
    return json.dumps(given)
