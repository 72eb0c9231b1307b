"""Committing files: a ``FileCommit`` is checked against the snapshot to be, written, and carried
into it.

1. what it claims is compared with the table's history: files to drop must live, numbers must grow;
2. the spans of time that change begin a new generation;
3. the rows are written (``filing``), and the history that results takes the old one's place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

import sqlalchemy as sa

from tidemill.catalog import checks, filing
from tidemill.catalog.commits import FileCommit
from tidemill.catalog.draft import Draft
from tidemill.catalog.model import (
    FILE_DELETES,
    FILE_REPLACED,
    DataFile,
    Generation,
    History,
    NewFile,
    Ranged,
    Reservation,
)
from tidemill.catalog.splicing import concerned, find_file, reaching, with_files
from tidemill.errors import CatalogError, ConflictError

_BEGIN = attrgetter("lo_us")


def commit_files(draft: Draft, table_id: int, commit: FileCommit) -> History:
    """Change a table's history; gives what it will be."""
    before = checks.history_of(draft.snapshot, table_id)
    moved = checks.check_moved(before, commit.moved_seq)
    _check(draft, before, commit)
    dropped = _find_files(draft, before, commit.drop)
    ranges = [
        Reservation(each.first_seq, each.last_seq, draft.snapshot_id) for each in commit.reserved
    ]
    raised = _raise_generations(draft, before, commit.add, dropped)
    added = _write_files(draft, before, commit.add, dropped, raised)
    _write_replaced(draft, table_id, commit.replaced)
    after = with_files(
        before, added, dropped, moved_seq=moved, reservations=ranges, generations=raised
    )
    if moved > before.moved_seq:
        filing.put_move(draft.run, table_id, draft.snapshot_id, moved)
    if ranges:
        filing.add_reservations(draft.run, table_id, ranges)
        filing.put_reserved(draft.run, table_id, after.reserved_seq)
    _write_facts(draft, table_id, commit)
    _write_changes(draft, table_id, commit)
    has_changes = bool(commit.changes or commit.done)
    if added or dropped or commit.replaced or ranges or moved > before.moved_seq or has_changes:
        draft.put_history(after)
        return after
    return before


def _check(draft: Draft, before: History, commit: FileCommit) -> None:
    table = checks.live_table(draft.snapshot, before.table_id)
    checks.check_reserved(before, commit.reserved)
    checks.check_files(table, commit.add)
    checks.check_files(table, commit.replaced, (FILE_REPLACED,))
    checks.check_packages(commit.packages)
    checks.check_text("progress", commit.progress or "")


def _write_facts(draft: Draft, table_id: int, commit: FileCommit) -> None:
    """What is not part of snapshots."""
    if commit.progress is not None:
        filing.put_progress(draft.run, table_id, commit.progress)
    if commit.packages:
        filing.put_packages(draft.run, table_id, commit.packages)
    if commit.marks:
        filing.put_marks(draft.run, table_id, commit.marks)


def _write_changes(draft: Draft, table_id: int, commit: FileCommit) -> None:
    if commit.done:
        filing.end_changes(draft.run, table_id, commit.done, draft.snapshot_id)
    if commit.changes:
        filing.add_changes(draft.run, table_id, commit.changes, draft.snapshot_id)


def _find_files(draft: Draft, history: History, file_ids: Sequence[int]) -> list[DataFile]:
    """The live files of those ids; a conflict if one is not live."""
    if not file_ids:
        return []
    wanted = dict.fromkeys(file_ids)
    places = filing.find_whereabouts(draft.run, list(wanted))
    found = {file_id: find_file(history, file_id, *place) for file_id, place in places.items()}
    gone = [file_id for file_id in wanted if found.get(file_id) is None]
    if gone:
        raise ConflictError(
            f"file {gone[0]} of the table with id {history.table_id} is not live",
            detail=f"{len(gone)} of {len(wanted)} files to be dropped are not",
            hint="another job replaced it first; plan the job again",
        )
    return [file for file in found.values() if file is not None]


def _raise_generations(
    draft: Draft, history: History, add: Sequence[NewFile], drop: Sequence[DataFile]
) -> list[Generation]:
    """The next generations of times whose files change, or that lose rows by deletes."""
    places: list[Ranged] = [file for file in (*add, *drop) if file.is_rows]
    for file in add:
        if file.kind == FILE_DELETES:
            places.extend(concerned(history, file))
    return filing.raise_generations(draft.run, history.table_id, places)


def _write_files(
    draft: Draft,
    history: History,
    add: Sequence[NewFile],
    drop: Sequence[DataFile],
    raised: Sequence[Generation],
) -> list[DataFile]:
    """Write what comes and goes; the files as they will be known."""
    filing.drop_files(draft.run, sorted(file.file_id for file in drop), draft.snapshot_id)
    if not add:
        return []
    first_id = filing.next_file_id(draft.run, len(add))
    added = [
        filing.named(
            new,
            first_id + number,
            history.table_id,
            _generation(history, new, raised),
            draft.snapshot_id,
        )
        for number, new in enumerate(add)
    ]
    _insert_files(draft, added)
    return added


def _write_replaced(draft: Draft, table_id: int, files: Sequence[NewFile]) -> None:
    """Name files that end as they begin: they are of no generation, and of no snapshot."""
    if not files:
        return
    first_id = filing.next_file_id(draft.run, len(files))
    named = [
        filing.named(file, first_id + number, table_id, 0, draft.snapshot_id)
        for number, file in enumerate(files)
    ]
    _insert_files(draft, named)
    filing.drop_files(draft.run, [file.file_id for file in named], draft.snapshot_id)


def _insert_files(draft: Draft, files: Sequence[DataFile]) -> None:
    try:
        filing.insert_files(draft.run, files)
    except CatalogError as error:
        if isinstance(error.__cause__, sa.exc.IntegrityError):
            raise ConflictError(
                f'file "{files[0].path}" or one added with it is named already',
                hint="the job was committed before; plan it again",
            ) from error
        raise


def _generation(history: History, new: NewFile, raised: Sequence[Generation]) -> int:
    """The generation that a file's commit begins; rows set aside have their own, by arrival."""
    if new.is_rows or new.kind == FILE_DELETES:
        start = max(bisect_right(raised, new.lo_us, key=_BEGIN) - 1, 0)
        end = bisect_left(raised, new.hi_us, start, key=_BEGIN)
        return max((g.number for g in raised[start:end] if g.hi_us > new.lo_us), default=1)
    beside = reaching(history.sides, new.lo_us, new.hi_us)
    return 1 + max((each.generation for each in beside), default=0)
