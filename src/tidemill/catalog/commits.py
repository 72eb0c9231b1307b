"""A commit of files: what a job hands to the catalog, as one value.

A move, a load, a compaction, an expiry and a back-fill each fill the fields that they mean; the
transaction (``committing``) checks all of them against the snapshot and writes them as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemill.catalog.model import NewFile, Package


@dataclass(frozen=True)
class SeqRange:
    """Sequence numbers, both ends included."""

    first_seq: int
    last_seq: int


class Mark(NamedTuple):
    """The last sequence number that a table had reached at a moment."""

    at_us: int
    seq: int


@dataclass(frozen=True)
class ChangeSet:
    """Updates and deletes of a stream with consecutive numbers that files or memory still need, as
    a text (``changes.model``)."""

    first_number: int
    last_number: int
    body: str


@dataclass(frozen=True)
class FileCommit:
    """What changes in a table's history.

    ``add`` are files to put in, ``drop`` the ids of those to take out. ``replaced`` are files of
    rows that gave way to others before they were moved: they end with the snapshot that names them,
    so that none has them, and ``Records.dropped_files`` finds them. ``moved_seq``: rows of the hot
    tier up to it are in files now. ``progress`` is a text to be read back by whoever goes on.
    ``reserved`` are the numbers of rows that a load brings, ``packages`` what it loaded or set
    aside, ``marks`` when which number had been reached. ``changes`` are updates and deletes that
    the log will not keep any longer, ``done`` the first numbers of sets that nothing needs.

    Files, moves and reservations make a snapshot, the others alone do not."""

    add: Sequence[NewFile] = ()
    drop: Sequence[int] = ()
    replaced: Sequence[NewFile] = ()
    moved_seq: int | None = None
    progress: str | None = None
    reserved: Sequence[SeqRange] = ()
    packages: Sequence[Package] = ()
    marks: Sequence[Mark] = ()
    changes: Sequence[ChangeSet] = ()
    done: Sequence[int] = ()
