"""Digests in jobs: what each task must write beside the rows, and how that is committed.

A job that brings rows into a stream's history plans one ``DigestWork`` for each digest of the
stream; its tasks write the partials of their rows (``digest_rows``); its commit names these files
in the very transaction that names the rows, so no row is ever in one of the two and not the other.

Which rows belong into a digest's files:

- of a move, those behind ``after_seq``: a digest that was sealed has the rows before it already.
  While it is being back-filled, their numbers are noted, as those of a seal are: the back-fill
  will meet the rows in the stream's files. So a view answers for new rows wherever they are;
- of a load, those of partitions that the digest's progress covers: what lies below, a back-fill
  will find. Loads do not have the table for themselves while they run, so they write the partials
  of all partitions and leave out what is not covered when they commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.catalog.commits import FileCommit
from tidemill.catalog.model import FILE_DIGEST, History, NewFile, Table
from tidemill.catalog.store import Catalog
from tidemill.catalog.transaction import Transaction
from tidemill.digests.definition import Digest
from tidemill.digests.partials import Cut, cut_rows, failing_alone, failure_of, write_partials
from tidemill.digests.progress import Progress, Spans
from tidemill.errors import ConflictError
from tidemill.history.storage import Storage
from tidemill.types import SEQ

Digested = Mapping[int, tuple[NewFile, ...]]
"""Files of partials, by the id of their digest."""


@dataclass(frozen=True)
class DigestWork:
    """What a task does for one digest."""

    digest: Digest
    progress: Progress = field(default_factory=Progress)
    after_seq: int = 0


# -- in the driver


def planned_digests(catalog: Catalog, table_id: int) -> tuple[DigestWork, ...]:
    """The work for every digest of a stream."""
    return tuple(_planned(catalog, table) for table in catalog.snapshot().digests_of(table_id))


def _planned(catalog: Catalog, table: Table) -> DigestWork:
    progress = Progress.read(catalog.records.progress(table.table_id))
    after_seq = catalog.snapshot().history(table.table_id).moved_seq
    return DigestWork(Digest.of(table), progress, after_seq)


def gathered(parts: Iterable[Digested]) -> dict[int, tuple[NewFile, ...]]:
    """What several tasks wrote, as one."""
    whole: dict[int, tuple[NewFile, ...]] = {}
    for part in parts:
        for table_id, files in part.items():
            whole[table_id] = (*whole.get(table_id, ()), *files)
    return whole


def by_digest(files: Iterable[NewFile]) -> dict[int, tuple[NewFile, ...]]:
    """Files of partials by their digest, in whose folder they lie."""
    held = [file for file in files if file.kind == FILE_DIGEST]
    return gathered({int(file.path.partition("/")[0]): (file,)} for file in held)


def commit_moved(
    change: Transaction,
    table_id: int,
    works: Sequence[DigestWork],
    digested: Digested,
    upto_seq: int,
) -> None:
    """Name the partials of moved rows, in the transaction that names the rows."""
    alive = {table.table_id: table for table in change.snapshot.digests_of(table_id)}
    planned = {work.digest.table_id: work for work in works}
    for digest_id, table in alive.items():
        moved_seq = change.snapshot.history(digest_id).moved_seq
        work = planned.get(digest_id)
        if work is not None and moved_seq >= upto_seq:
            continue  # sealed up to there, before the move or while it ran
        if work is None or moved_seq != work.after_seq:
            raise ConflictError(
                f'digest "{table.name}" changed while rows of its stream were moved',
                hint="nothing was moved; the next move takes the rows",
            )
        files = digested.get(digest_id, ())
        error = failure_of(files)
        if error is not None:
            fail_digest(change, digest_id, error, upto_seq)
            continue
        text = _with_moved(work, upto_seq, change.snapshot.history(table_id))
        commit = FileCommit(files, moved_seq=upto_seq, progress=text)
        change.commit_files(digest_id, commit)


def fail_digest(
    change: Transaction, digest_id: int, error: str, moved_seq: int | None = None
) -> None:
    """A view's expressions failed: its digest has nothing from now on, and its stream goes on."""
    gone = [file.file_id for file in change.snapshot.history(digest_id).files]
    text = Progress(failed=error).text
    change.commit_files(digest_id, FileCommit(drop=gone, moved_seq=moved_seq, progress=text))


def _with_moved(work: DigestWork, upto_seq: int, history: History) -> str | None:
    """The progress of a digest that is being back-filled, with the numbers that were moved."""
    progress = work.progress
    if progress.is_complete or progress.failed is not None:
        return None
    moved = without_loads([(work.after_seq + 1, upto_seq)], history)
    if progress.sealed and moved and progress.sealed[-1][1] + 1 == moved[0][0]:
        moved = ((progress.sealed[-1][0], moved[0][1]), *moved[1:])
        progress = replace(progress, sealed=progress.sealed[:-1])
    return progress.with_sealed(moved).text


def without_loads(spans: Sequence[tuple[int, int]], history: History) -> Spans:
    """Ranges of numbers without those that were reserved for loads; all ends included."""
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        first = begin
        for load in sorted(history.reservations, key=lambda each: each.first_seq):
            if first <= load.last_seq and load.first_seq <= end:
                if first < load.first_seq:
                    found.append((first, load.first_seq - 1))
                first = load.last_seq + 1
        if first <= end:
            found.append((first, end))
    return tuple(found)


def commit_loaded(change: Transaction, digested: Digested) -> None:
    """Name the partials of loaded rows, in the transaction that names the rows. A digest that was
    dropped meanwhile needs none."""
    for digest_id, files in digested.items():
        if not files or change.snapshot.table(digest_id) is None:
            continue
        error = failure_of(files)
        if error is not None:
            fail_digest(change, digest_id, error)
        else:
            change.commit_files(digest_id, FileCommit(files))


# -- in the task


def digest_rows(
    storage: Storage,
    connection: duckdb.DuckDBPyConnection,
    works: Sequence[DigestWork],
    batches: Sequence[pa.RecordBatch],
    origin: str,
    label: str,
) -> dict[int, tuple[NewFile, ...]]:
    """Write the partials of rows for all digests of their stream; rows are cut once for all."""
    if not works or not batches:
        return {}
    first = works[0].digest
    names = batches[0].schema.names
    needed = {SEQ, first.time_column, *(n for work in works for n in work.digest.needed(names))}
    narrow = [batch.select([name for name in names if name in needed]) for batch in batches]
    cuts = list(cut_rows(narrow, first.time_column, first.partition_us))
    found: dict[int, tuple[NewFile, ...]] = {}
    for work in works:
        if work.progress.failed is not None:
            continue
        mine = [_behind(cut, work.after_seq) for cut in cuts]
        written: list[NewFile] = []
        with failing_alone(work.digest, origin, written):
            written += write_partials(storage, connection, work.digest, mine, origin, label)
        found[work.digest.table_id] = tuple(written)
    return found


def _behind(cut: Cut, after_seq: int) -> Cut:
    """The rows of a cut behind a sequence number."""
    mask = pc.greater(cut.rows.column(SEQ), after_seq)
    if pc.all(mask).as_py():
        return cut
    return Cut(cut.lo_us, cut.hi_us, cut.rows.filter(mask))
