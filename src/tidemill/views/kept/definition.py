"""What the catalog keeps of a kept query: its text, its slide, its streams and where it began.

The answers are an ordinary streaming table; this is its ``definition``, as JSON. How far the query
came is not here: that is the newest offset that its own appends left in the table of answers.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.sql import statements as st
from tidemill.sql.parser import parse_one

# Offsets are not negative, but times before 1970 are.
OFFSET_ZERO = 2**60
# The column of the answers that holds the time of their evaluation.
TIME_NAME = "ts"


@dataclass(frozen=True)
class StreamBegin:
    """A stream that a query reads, and the last row it had when the query was made."""

    table_id: int
    name: str
    seq: int


@dataclass(frozen=True)
class Definition:
    """``clock_us`` is the streams' common clock at creation, None if they had none. ``tables``
    are the names in the query that rows come from; ``streams`` stand behind them. Loads that were
    committed after snapshot ``snapshot_id`` are new to the query."""

    query: str
    slide: st.Slide
    streams: tuple[StreamBegin, ...]
    tables: tuple[str, ...]
    clock_us: int | None
    snapshot_id: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def tree(self) -> exp.Expression:
        """The query's tree; a new one with every call."""
        statement = parse_one(self.query)
        assert isinstance(statement, st.Query)
        return statement.body


def definition_of(table: Table) -> Definition:
    """The definition of a kept query's table."""
    assert table.definition is not None
    found = json.loads(table.definition)
    return Definition(
        found["query"],
        st.Slide(**found["slide"]),
        tuple(StreamBegin(**each) for each in found["streams"]),
        tuple(found["tables"]),
        found["clock_us"],
        found["snapshot_id"],
    )


def is_kept(table: Table) -> bool:
    """Whether the rows of a table are the answers of a kept query, and nobody else's."""
    return table.is_streaming and table.definition is not None


def source_of(table_id: int) -> str:
    """The source under which a kept query appends to its table."""
    return f"kept:{table_id}"


def loads_source_of(table_id: int) -> str:
    """The source under which it appends what it answers to loaded rows."""
    return f"kept:{table_id}:loads"


def slide_text(slide: st.Slide) -> str:
    """The slide as people write it.

    >>> slide_text(st.Slide(every_us=60_000_000))
    "EVERY INTERVAL '60' SECOND"
    """
    if slide.every_us is not None:
        seconds, rest = divmod(slide.every_us, 1_000_000)
        if rest:
            return f"EVERY INTERVAL '{slide.every_us // 1_000}' MILLISECOND"
        return f"EVERY INTERVAL '{seconds}' SECOND"
    return "EVERY ROW" if slide.every_row else "EMIT ON WINDOW CLOSE"
