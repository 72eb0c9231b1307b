"""Relevance: which changes concern a reader, from the newest to the oldest.

An update matters if it sets a column that the reader looks at, or that a later change which matters
looks at; a delete always does. Changes outside the span of time that is read were left out before
(``pending``). "It may matter" is always allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemill.changes.model import Change


def concerning(changes: Sequence[Change], columns: Iterable[str] | None) -> tuple[Change, ...]:
    """The changes that may matter to a reader of some columns (None: of all)."""
    wanted = None if columns is None else {name.lower() for name in columns}
    kept: list[Change] = []
    for change in reversed(changes):
        form = change.form
        if wanted is not None:
            if form.sets and not any(name.lower() in wanted for name, _ in form.sets):
                continue
            wanted |= {name.lower() for name in form.reads}
        kept.append(change)
    return tuple(reversed(kept))
