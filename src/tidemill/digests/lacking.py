"""Which changes (UPDATE, DELETE) of a stream the partials of its digests do not have yet."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.catalog.model import DataFile, Table
from tidemill.changes.files import touching
from tidemill.changes.needed import Needed
from tidemill.changes.pending import Pending
from tidemill.digests.definition import Digest


def concerning(changes: Pending, digest: Digest, stream: Table) -> Pending:
    """The changes that a digest may have to know: deletes, and updates of columns that it reads."""
    if not changes:
        return changes
    names = [column.name for column in stream.columns]
    return changes.concerning(Needed.of([*digest.needed(names), digest.time_column]))


def lacking(
    changes: Pending, digest: Digest, stream: Table, files: Iterable[DataFile]
) -> list[DataFile]:
    """The files of partials that do not have all changes of their rows."""
    concerned = concerning(changes, digest, stream)
    return [file for file in files if touching(concerned, file).any()] if concerned else []
