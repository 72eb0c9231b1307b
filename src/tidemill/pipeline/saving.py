"""Saving: a commit that names files with changes puts those that the log had alone into the
catalog, so that a restart knows them and the log may go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidemill.catalog.commits import ChangeSet
from tidemill.changes.model import pack
from tidemill.changes.pending import NOTHING_PENDING, Pending
from tidemill.hot.table import HotTable


@dataclass(frozen=True)
class HeldChanges:
    """Changes that rows may need, all up to the number ``last``."""

    changes: Pending = NOTHING_PENDING
    last: int = 0


def changes_of(hot: HotTable | None) -> HeldChanges:
    """What files get that are written now; the log has it for good."""
    if hot is None or not hot.published.changes.last:
        return HeldChanges()
    view = hot.view()
    hot.flush()  # files that have a change must not outlive it
    return HeldChanges(view.changes, view.last_change)


@contextmanager
def saving(hot: HotTable | None, upto: int) -> Iterator[tuple[ChangeSet, ...]]:
    """Gives the changes up to a number that the catalog does not know of yet, for a transaction
    inside; once that is over it knows of them. One transaction at a time."""
    if hot is None:
        yield ()
        return
    with hot.changing.saving:
        changes = hot.published.changes
        first = changes.saved + 1
        if upto < first:
            yield ()
            return
        own = [change for change in changes.pending if first <= change.number <= upto]
        yield (ChangeSet(first, upto, pack(own)),)
        changes.saved = upto
