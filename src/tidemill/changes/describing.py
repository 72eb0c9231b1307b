"""Describing: changes as people read them, for EXPLAIN and ``tidemill.changes``."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.changes.model import Change, Text
from tidemill.changes.needed import Needed
from tidemill.changes.pending import Pending
from tidemill.changes.values import literal_of
from tidemill.types import SEQ, quote

SHOWN_MAX = 3  # changes that are described one by one


def condition_of(change: Change) -> str:
    """Which rows are meant."""
    form = change.form
    if any(name == SEQ for name, _ in form.keys):
        return f"{change.count:,} rows by number"
    parts = [f"{quote(name)} = {_value(change, slot)}" for name, slot in form.keys]
    if form.condition:
        parts.append(_text(change, form.condition))
    return " AND ".join(parts) or "true"


def sets_of(change: Change) -> str | None:
    """What an UPDATE sets; None for a DELETE."""
    if not change.form.sets:
        return None
    return ", ".join(f"{quote(name)} = {_text(change, text)}" for name, text in change.form.sets)


def describe(changes: Sequence[Change]) -> list[str]:
    """Lines of EXPLAIN."""
    if not changes:
        return []
    count = f"{len(changes):,} change{'' if len(changes) == 1 else 's'}"
    lines = [f"changes: {count} (UPDATE, DELETE) carried out while files are read"]
    for change in changes[:SHOWN_MAX]:
        sets = sets_of(change)
        what = f"SET {sets} " if sets else ""
        lines.append(
            f"  {change.number}: {change.form.kind.upper()} {what}WHERE {condition_of(change)}"
        )
    if len(changes) > SHOWN_MAX:
        lines.append(f"  and {len(changes) - SHOWN_MAX:,} more: tidemill.changes")
    return lines


def left_out_lines(changes: Pending, needed: Needed, where: str) -> list[str]:
    """Lines of EXPLAIN on changes that some rows lack and that a query does not need."""
    found = changes.analysed(needed).left_out()
    if not found:
        return []
    count = sum(found.values())
    reasons = ", ".join(f"{why}: {number:,}" for why, number in found.items())
    return [f"changes that {where} lack and the query does not need: {count:,} ({reasons})"]


def _text(change: Change, text: Text) -> str:
    shown = "".join(part if isinstance(part, str) else _value(change, part) for part in text)
    return shown.replace('r."', '"')


def _value(change: Change, slot: int) -> str:
    if len(change.rows) != 1:
        return f"one of {change.count:,}"
    return literal_of(change.rows[0][slot], change.form.types[slot])
