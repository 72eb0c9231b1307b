"""The board: jobs that wait or run, and the last that ended, as ``tidemill.jobs`` shows them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

ENDED_JOBS_KEPT = 1_000

QUEUED, RUNNING, COMMITTED, FAILED, CANCELLED = (
    "queued",
    "running",
    "committed",
    "failed",
    "cancelled",
)


@dataclass(frozen=True)
class JobRecord:
    """A job as the board shows it; times are microseconds since 1970 UTC."""

    job_id: str
    kind: str
    table_id: int
    table_name: str
    state: str
    planned_at_us: int
    started_at_us: int | None = None
    ended_at_us: int | None = None
    tasks: int = 0
    tasks_done: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0
    error: str | None = None
    detail: str | None = None
    ran_on: str | None = None  # where its tasks ran, if it had any

    @property
    def is_ended(self) -> bool:
        return self.state in (COMMITTED, FAILED, CANCELLED)


class JobBoard:
    """All jobs that wait or run, and the last ``kept`` that ended. Thread-safe."""

    def __init__(self, kept: int = ENDED_JOBS_KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._records: OrderedDict[str, JobRecord] = OrderedDict()

    def add(self, record: JobRecord) -> None:
        with self._lock:
            self._records[record.job_id] = record

    def update(self, job_id: str, **changes: Any) -> None:
        with self._lock:
            record = replace(self._records[job_id], **changes)
            self._records[job_id] = record
            if record.is_ended:
                self._forget_oldest()

    def count(self, job_id: str, *, tasks_done: int = 0, rows: int = 0, bytes: int = 0) -> None:
        """Add to what a job has done."""
        with self._lock:
            record = self._records[job_id]
            self._records[job_id] = replace(
                record,
                tasks_done=record.tasks_done + tasks_done,
                rows=record.rows + rows,
                bytes=record.bytes + bytes,
            )

    def get(self, job_id: str) -> JobRecord | None:
        return self._records.get(job_id)

    def records(self) -> list[JobRecord]:
        """In the order in which they were submitted."""
        with self._lock:
            return list(self._records.values())

    def _forget_oldest(self) -> None:
        ended = [job_id for job_id, record in self._records.items() if record.is_ended]
        for job_id in ended[: max(len(ended) - self._kept, 0)]:
            del self._records[job_id]
