"""Tables and files of history that tests of the catalog make."""

from __future__ import annotations

from tidemill.catalog.model import DIGEST, FILE_ROWS, VIEW, NewFile, NewTable, Package
from tidemill.types import Column, SqlType


def new_table(name: str = "cars") -> NewTable:
    columns = (Column("ts", SqlType("TIMESTAMP")), Column("vid", SqlType("BIGINT")))
    return NewTable(name, "streaming", columns, time_column="ts", settings={"hot": "1 s"})


def new_view(name: str = "totals", definition: str = '{"query": 1}') -> NewTable:
    columns = (Column("vid", SqlType("BIGINT")), Column("n", SqlType("BIGINT")))
    return NewTable(name, VIEW, columns, definition=definition)


def new_digest(source_id: int, name: str = "totals$digest0") -> NewTable:
    columns = (Column("k0", SqlType("BIGINT")), Column("s0", SqlType("HUGEINT")))
    return NewTable(name, DIGEST, columns, definition='{"keys": ["k0"]}', source_id=source_id)


def new_file(path: str, lo_us: int = 0, kind: str = FILE_ROWS, **changes: object) -> NewFile:
    facts: dict[str, object] = {
        "path": path,
        "kind": kind,
        "lo_us": lo_us,
        "hi_us": lo_us + 10,
        "rows": 7,
        "bytes": 700,
        "row_groups": 1,
        "time_min_us": lo_us + 1,
        "time_max_us": lo_us + 9,
        "seq_min": 1,
        "seq_max": 7,
        "origin": "move",
    }
    return NewFile(**{**facts, **changes})


def package(name: str, **changes: object) -> Package:
    facts: dict[str, object] = {
        "name": name,
        "size": 5,
        "digest": "ab",
        "state": "loaded",
        "reason": None,
        "rows": 3,
        "rejected": 1,
        "late": 0,
        "loaded_at_us": 9,
        "source": "copy",
        "job_id": "j1",
    }
    return Package(**{**facts, **changes})
