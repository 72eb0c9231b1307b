"""Saving: a commit that names files with changes puts those that the log had alone into the
catalog, so that a restart knows them and the log may go."""

from __future__ import annotations

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


def unsaved(hot: HotTable, upto: int) -> tuple[ChangeSet, ...]:
    """The changes up to a number that the catalog does not know of yet."""
    first = hot.published.changes.saved + 1
    if upto < first:
        return ()
    own = [change for change in hot.published.changes.pending if first <= change.number <= upto]
    return (ChangeSet(first, upto, pack(own)),)


def saved(hot: HotTable, upto: int) -> None:
    """The catalog knows of them now."""
    hot.published.changes.saved = max(hot.published.changes.saved, upto)
