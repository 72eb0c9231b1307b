"""Seal: write the partials of rows that are still hot, before a reference table changes.

A row keeps the partners that it had when it arrived. The digests that join a table which is about
to change therefore get the partials of all hot rows as files, joined with the table as it still is;
their ``moved_seq`` then runs ahead of the stream's, and moves leave these rows out.

Sealing waits for no job: it looks whether the digest is still where it was when it names its files,
and starts again if a move was faster. It is on the board of jobs while it runs, for VACUUM removes
files of jobs that are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from tidemill.catalog.model import NewFile, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock
from tidemill.digests.definition import Digest
from tidemill.digests.partials import References, cut_rows, write_partials
from tidemill.digests.progress import Progress
from tidemill.errors import ConflictError
from tidemill.history.storage import Storage
from tidemill.history.writing import SEQ
from tidemill.hot.crash import point
from tidemill.pipeline.jobs import COMMITTED, FAILED, RUNNING, JobBoard, JobRecord, new_job_id

TRIES_MAX = 5
ORIGIN = "seal"

RowsSince = Callable[[int], tuple[pa.Table, int]]
"""Gives the hot rows behind a sequence number, with their numbers, and up to which they go."""


@dataclass(frozen=True)
class Sealer:
    """Seals digests. The connection's Arrow tables must keep DuckDB's types."""

    catalog: Catalog
    storage: Storage
    board: JobBoard
    clock: Clock

    def seal(
        self,
        digest: Table,
        rows_since: RowsSince,
        connection: duckdb.DuckDBPyConnection,
        references: References,
    ) -> int:
        """Write what is hot to the digest's history; answers up to which number."""
        job_id = new_job_id()
        self._show(job_id, digest)
        try:
            upto_seq = self._seal(job_id, Digest.of(digest), rows_since, connection, references)
        except BaseException as error:
            self.board.update(
                job_id, state=FAILED, ended_at_us=self.clock.now_us(), error=str(error)
            )
            raise
        self.board.update(job_id, state=COMMITTED, ended_at_us=self.clock.now_us())
        return upto_seq

    def _show(self, job_id: str, digest: Table) -> None:
        assert digest.source_id is not None
        now_us = self.clock.now_us()
        detail = f'partials of hot rows for digest "{digest.name}"'
        record = JobRecord(job_id, "seal", digest.source_id, digest.name, RUNNING, now_us, now_us)
        self.board.add(record)
        self.board.update(job_id, detail=detail)

    def _seal(
        self,
        job_id: str,
        digest: Digest,
        rows_since: RowsSince,
        connection: duckdb.DuckDBPyConnection,
        references: References,
    ) -> int:
        for number in range(TRIES_MAX):
            after_seq = self.catalog.snapshot().history(digest.table_id).moved_seq
            rows, upto_seq = rows_since(after_seq)
            if upto_seq <= after_seq:
                return after_seq
            cuts = list(cut_rows([rows], digest.time_column, digest.partition_us))
            label = f"{job_id}-{number}"
            files = write_partials(
                self.storage, connection, digest, cuts, ORIGIN, label, references
            )
            point("seal.written")
            if self._commit(digest.table_id, after_seq, upto_seq, files, rows):
                point("seal.committed")
                self.board.count(job_id, rows=rows.num_rows, bytes=sum(f.bytes for f in files))
                self.board.update(job_id, files=len(files))
                return upto_seq
        raise ConflictError(
            f'digest "{digest.name}" could not be sealed: rows were moved {TRIES_MAX} times '
            "meanwhile",
            hint="try again",
        )

    def _commit(
        self, digest_id: int, after_seq: int, upto_seq: int, files: list[NewFile], rows: pa.Table
    ) -> bool:
        """Whether the digest was still where it had been."""
        with self.catalog.transaction() as change:
            if change.snapshot.history(digest_id).moved_seq != after_seq:
                return False
            progress = Progress.read(self.catalog.progress(digest_id))
            text = None if progress.is_complete else progress.with_sealed(_runs(rows)).text
            change.commit_files(digest_id, files, moved_seq=upto_seq, progress=text)
        return True


def _runs(rows: pa.Table) -> list[tuple[int, int]]:
    """The sequence numbers of rows as ranges, both ends included."""
    seqs = np.sort(rows.column(SEQ).to_numpy())
    if not len(seqs):
        return []
    breaks = np.flatnonzero(np.diff(seqs) != 1)
    firsts = np.concatenate((seqs[:1], seqs[breaks + 1]))
    lasts = np.concatenate((seqs[breaks], seqs[-1:]))
    return [(int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]
