"""Pairs of SQL: changes of a stream, and a query, as the engine itself understands them."""

from __future__ import annotations

from collections.abc import Sequence

from catalog_tables import snapshot_of, stream

from tidemill.changes.model import Change, span_of
from tidemill.changes.needed import Needed
from tidemill.changes.pending import Pending
from tidemill.changes.rules import RULES
from tidemill.federation.asked import Known, asked_of
from tidemill.federation.needing import needed_of
from tidemill.federation.planner import make_plan
from tidemill.sql import statements as st
from tidemill.sql.parser import parse_one
from tidemill.statements.deferring import deferred

COLUMNS = {
    "ts": "TIMESTAMP",
    "a": "BIGINT",
    "b": "BIGINT",
    "d": "DOUBLE",
    "s": "VARCHAR",
    "ok": "BOOLEAN",
}
TABLE = stream(1, "t", COLUMNS, indexes={"a": "hash"})
SNAPSHOT = snapshot_of(TABLE)


def change(text: str, number: int = 1, params: Sequence[object] = ()) -> Change:
    """An UPDATE or DELETE that waits."""
    statement = parse_one(text)
    assert isinstance(statement, st.Change)
    found = deferred(statement.body, TABLE, list(params) or None, 0)
    assert found is not None, f"does not wait: {text}"
    values = found.values(list(params) or None, 0)
    assert values is not None
    low_us, high_us = span_of(found.form, [values])
    return Change(number, 1_000, 0, found.form, (values,), None, low_us, high_us)


def needed(query: str, table: str = "t") -> Needed:
    """What a query needs of the stream."""
    statement = parse_one(query)
    assert isinstance(statement, st.Query)
    plan = make_plan(statement.body, SNAPSHOT)
    (scan,) = [each for each in plan.scans if each.table is not None and each.table.name == table]
    return needed_of(scan, asked_of(scan, Known({}, {})))


def reason(text: str, query: str) -> str | None:
    """The rule that leaves a change out; None if it may matter."""
    (verdict,) = Pending.of([change(text)]).analysed(needed(query)).verdicts.tolist()
    return None if verdict < 0 else RULES[verdict].why
