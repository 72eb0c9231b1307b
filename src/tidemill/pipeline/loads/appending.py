"""Appending: COPY of files that are small together, where no Spark runs.

Starting Spark for a few megabytes takes longer than everything else about them. Such files are read
here and stored as one append, as a single file is: rows are in memory and in the log, and move
to history later with others. That they were loaded is part of the append's frame (*one frame, one
acknowledgement*), so that none is stored twice, whatever happens before the catalog knows:

1. what the catalog knows already is left out, by name, size and digest;
2. the rest is read, all of it or nothing;
3. one append stores rows and the names of their packages;
4. the catalog takes the packages over. After a crash in between, the log tells it (``recall``), and
   a move takes them along, before the log lets go.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from tidemill.catalog.model import APPENDED, LOADED, Package
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock
from tidemill.errors import UnknownNameError
from tidemill.hot.intake import Accepted, AppendResult
from tidemill.hot.table import HotTable
from tidemill.pipeline.job import new_job_id
from tidemill.pipeline.load import Load, LoadReport, record_of, split_options
from tidemill.pipeline.loading import (
    PACKAGE_ROWS_MAX,
    LoadTask,
    Read,
    TaskPackage,
    TooLargeError,
    read_packages,
)

MEMORY_SHARES = 4  # files of at least this part of the table's memory are for the pipeline
ROWS_WEIGHT = 2  # rows in memory, beside the text that they come from


class Appending:
    def __init__(self, catalog: Catalog, tables: Mapping[int, HotTable], clock: Clock) -> None:
        self._catalog = catalog
        self._tables = tables
        self._clock = clock
        self._lock = threading.Lock()  # two COPYs of the same files store them once

    def suits(self, load: Load) -> bool:
        """Whether files are small enough, and an append would do with them what the pipeline does:
        where it sets bad rows aside, the pipeline still refuses keys that are there already."""
        hot = self._tables.get(load.table.table_id)
        settings = load.table.settings
        sets_keys_aside = load.table.primary_key and settings["rejected"] != "error"
        if hot is None or sets_keys_aside:
            return False
        weight = sum(package.weight for package in load.packages)
        held = hot.nbytes + ROWS_WEIGHT * weight
        is_small = weight * MEMORY_SHARES < settings["memory"]
        return bool(is_small and held < settings["move_fill"] * settings["memory"])

    def copy(self, load: Load) -> LoadReport | None:
        """Store the rows of a load; None if there turn out to be too many."""
        hot = self._tables.get(load.table.table_id)
        if hot is None:
            raise UnknownNameError(f'table "{load.table.name}" was dropped')
        job_id = new_job_id()
        with self._lock:
            try:
                read = read_packages(self._task(load, job_id))
            except TooLargeError:
                return None
            stored = self._store(hot, load, read, job_id)
        return LoadReport(job_id, read.packages, stored.stored, stored.rejected)

    def recall(self, hot: HotTable) -> None:
        """After a start: tell the catalog of packages that only the log knows."""
        found = hot.packages
        if not found:
            return
        table_id = hot.table.table_id
        known = set(self._catalog.records.packages(table_id, [each.name for each in found]))
        if missing := [each for each in found if each not in known]:
            with self._catalog.transaction() as change:
                change.add_packages(table_id, missing)
        hot.settle_packages(found)

    def _task(self, load: Load, job_id: str) -> LoadTask:
        options, reach = split_options(load.options)
        known: dict[str, list[Package]] = {}
        names = [] if load.is_forced else [each.name for each in load.packages]
        for package in self._catalog.records.packages(load.table.table_id, names):
            known.setdefault(package.name, []).append(package)
        packages = tuple(
            TaskPackage(listed, at * PACKAGE_ROWS_MAX, tuple(known.get(listed.name, ())))
            for at, listed in enumerate(load.packages)
        )
        return LoadTask(
            job_id,
            0,
            load.table,
            load.storage,
            load.form,
            load.columns,
            options,
            reach,
            packages,
            self._clock.now_us(),
            strict=True,
        )

    def _store(self, hot: HotTable, load: Load, read: Read, job_id: str) -> AppendResult:
        now_us = self._clock.now_us()
        records: Sequence[Package] = tuple(
            record_of(package, job_id, APPENDED, now_us)
            for package in read.packages
            if package.state == LOADED
        )
        if load.is_forced:  # what is recorded already stays so
            found = self._catalog.records.packages(
                hot.table.table_id, [each.name for each in records]
            )
            known = {(each.name, each.size, each.digest) for each in found}
            records = tuple(r for r in records if (r.name, r.size, r.digest) not in known)
        accepted = Accepted(read.rows, read.rejects, packages=tuple(records), is_load=True)
        with hot.holding_log():
            stored = hot.append(accepted) if accepted.rows else AppendResult(0)
            if records:
                with self._catalog.transaction() as change:
                    change.add_packages(hot.table.table_id, records)
                hot.settle_packages(records)
        return stored
