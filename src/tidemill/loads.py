"""Loads: COPY of many files and sources, wired to the catalog and the hot tier.

A load's rows go straight to history. What it needs of the warehouse is here: sequence numbers from
the table's own counter, the comparison of primary keys with files and memory, and the transaction
that names its files. While keys are compared and committed, writers of the table wait.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidemill.accept.rows import Checked
from tidemill.appending import Appending
from tidemill.catalog.model import FILE_DELETES, LOADED, NewFile, Package, Source, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock
from tidemill.errors import FileFormatError, UnknownNameError, UnsupportedError
from tidemill.federation.duck import Duck
from tidemill.history.checking import check_files
from tidemill.history.reading import prune, scan_sql
from tidemill.history.storage import Storage
from tidemill.hot.crash import point
from tidemill.hot.intake import Accepted, AppendResult
from tidemill.hot.table import HotTable
from tidemill.hot.tier import HotTier
from tidemill.keeping import Keeping
from tidemill.loaded import FileState, look_up, marked, record
from tidemill.pipeline.digesting import commit_loaded
from tidemill.pipeline.fixing import fix_partition, follow_table
from tidemill.pipeline.jobs import JobHandle, Outcome
from tidemill.pipeline.load import (
    COPY,
    DigestDesk,
    KeyConflicts,
    Load,
    LoadCommit,
    LoadDesk,
    LoadJob,
    LoadReport,
    split_options,
)
from tidemill.pipeline.loading import KNOWN, Taken
from tidemill.pipeline.packages import Listed, list_packages
from tidemill.pipeline.sources import SourcePoller, SourceStatus, is_as_recorded
from tidemill.statements.writing import check_writable
from tidemill.types import quote

LOAD_PRIORITY = 5
COLUMNS_OPTION = "tidemill.columns"  # where a source keeps its list of columns
_NO_NUMBERS = np.empty(0, dtype=np.int64)


class Desk:
    """The ``LoadDesk`` of a warehouse."""

    def __init__(self, catalog: Catalog, tier: HotTier, storage: Storage, duck: Duck) -> None:
        self._catalog = catalog
        self._tier = tier
        self._storage = storage
        self._duck = duck

    def hot(self, table_id: int) -> HotTable:
        hot = self._tier.tables.get(table_id)
        if hot is None:
            raise UnknownNameError("the table of the load was dropped")
        return hot

    def known(self, table_id: int, names: Sequence[str]) -> Sequence[Package]:
        return [*self._catalog.packages(table_id, names), *marked(self.hot(table_id), names)]

    def reserve(self, table_id: int, count: int) -> int:
        def record(first: int, last: int) -> None:
            self._catalog.reserve(table_id, first, last)

        return self.hot(table_id).reserve(count, record)

    def check_keys(self, table: Table, files: Sequence[NewFile]) -> KeyConflicts:
        """Keys that files repeat: of each other, of history, and of rows in memory."""
        if not files:
            return KeyConflicts(_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS)
        assert table.time_column is not None
        hot = self.hot(table.table_id)
        view = hot.view()
        history = self._catalog.snapshot().history(table.table_id)
        low = min(file.time_min_us for file in files)
        high = max(file.time_max_us for file in files)
        old = prune(history, low, high)
        names = list(table.primary_key)
        read = [*files, *old.files, *old.deletes]
        check_files(self._storage, table.name, read, [*names, "_seq"])
        keys = ", ".join(quote(name) for name in names)
        time = quote(table.time_column)
        new_sql = scan_sql(self._storage, table, files, (), names, with_seq=True)
        old_sql = scan_sql(
            self._storage,
            table,
            old.files,
            old.deletes,
            names,
            with_seq=True,
            buried=view.buried,
        )
        held = view.after(history.moved_seq).whole(True).select([*names, "_seq"])
        columns = f"{keys}, _seq"
        sql = f"""
            WITH added AS (SELECT {columns} FROM ({new_sql})),
            there AS (
                SELECT {columns} FROM ({old_sql}) UNION ALL SELECT {columns} FROM tm_held
            ),
            met AS (SELECT * FROM there SEMI JOIN added USING ({keys})),
            rows AS (
                SELECT {columns}, true AS is_new FROM added
                UNION ALL SELECT {columns}, false FROM met
            )
            SELECT _seq, lag(_seq) OVER w AS against, epoch_us({time}) AS at_us
            FROM rows
            WINDOW w AS (PARTITION BY {keys} ORDER BY is_new, _seq)
            QUALIFY is_new AND against IS NOT NULL
        """
        found, _ = self._duck.query(sql, {}, {"tm_held": held}, exact=True)
        return KeyConflicts(*(_numbers(found.column(at)) for at in range(3)))

    def commit(self, commit: LoadCommit) -> None:
        point("load.written")
        with self._catalog.transaction() as change:
            fix_partition(change, commit.table_id, commit.files)
            change.commit_files(
                commit.table_id,
                add=commit.files,
                packages=commit.packages,
                reserved=[commit.reserved] if commit.reserved is not None else [],
            )
            commit_loaded(change, commit.digested)
        point("load.committed")
        hot = self.hot(commit.table_id)
        follow_table(hot, self._catalog)
        if hot.on_published is not None:
            hot.on_published(hot)
        deletes = [file.path for file in commit.files if file.kind == FILE_DELETES]
        if deletes:
            self.hot(commit.table_id).forget(commit.replaced, deletes)


@dataclass(frozen=True)
class _LoadJob(LoadJob):
    """A load whose commit lets no writer of the table in, if it has keys to compare."""

    hot: HotTable | None = None

    def commit(self, outcome: Outcome) -> Outcome:
        if self.hot is None or not self.plan.table.primary_key:
            return super().commit(outcome)
        with self.hot.paused():
            return super().commit(outcome)


class Loads:
    def __init__(
        self, catalog: Catalog, desk: Desk, keeping: Keeping, clock: Clock, appending: Appending
    ) -> None:
        self._catalog = catalog
        self._appending = appending
        self._desk = desk
        self._keeping = keeping
        self._clock = clock
        allowed = keeping.life.allows_background
        self.poller = SourcePoller(self._submit_source, desk.known, clock, may_load=allowed)

    def start(self) -> None:
        self.follow()
        self.poller.start()

    def close(self) -> None:
        self.poller.close()

    def follow(self) -> None:
        """Look at the sources that the catalog has now."""
        self.poller.follow(self._catalog.snapshot().sources.values())

    def status(self) -> dict[str, SourceStatus]:
        """How the sources are doing, by their names in lower case."""
        return {each.source.name.lower(): each for each in self.poller.status()}

    def look_up(self, table: Table, path: Path) -> FileState | None:
        """A file for a streaming table; None if it was loaded before, as it is."""
        return look_up(self._catalog, self._desk.hot(table.table_id), table, path)

    def store(self, table: Table, file: FileState, checked: Checked) -> AppendResult:
        """Store the rows of a file, and that it was loaded, in one append."""
        hot, count = self._desk.hot(table.table_id), sum(b.num_rows for b in checked.batches)
        package = record(file, count, len(checked.rejects), self._clock.now_us())
        rows = tuple(batch for batch in checked.batches if batch.num_rows)
        with hot.holding_log():
            accepted = Accepted(rows, checked.rejects, packages=(package,))
            stored = hot.append(accepted) if rows or checked.rejects else AppendResult(0)
            self._catalog.add_packages(table.table_id, [package])
            hot.settle_packages([package])
        return stored

    def copy(
        self,
        table: Table,
        pattern: str,
        form: str,
        columns: tuple[str, ...] | None,
        options: Mapping[str, object],
        force: bool = False,
    ) -> LoadReport:
        """Load what a pattern matches, all or nothing; ``force`` loads again what is loaded."""
        check_writable(table)
        if not table.is_streaming:
            raise UnsupportedError(
                f'many files can be loaded into a streaming table only, "{table.name}" is none',
                hint=f"INSERT INTO {quote(table.name)} SELECT * FROM '…' reads them with DuckDB",
            )
        texts = option_texts(options)
        packages = tuple(list_packages(pattern, split_options(texts)[1]))
        if not packages:
            raise FileFormatError(f'"{pattern}" matches no file')
        before = {} if force else self._loaded_before(table, packages)
        left = tuple(each for each in packages if each.name not in before)
        place = self._keeping.storage
        load = Load(table, place, left, form, columns, texts, COPY, is_forced=force)
        report = self._copied(load)
        known = tuple(Taken(e, KNOWN, before[e.name]) for e in packages if e.name in before)
        return replace(report, packages=(*known, *report.packages))

    def _loaded_before(self, table: Table, packages: Sequence[Listed]) -> dict[str, str]:
        """The digests, by name, of packages that were loaded and not touched since."""
        sizes = {each.name: each for each in packages}
        return {
            known.name: known.digest
            for known in self._desk.known(table.table_id, list(sizes))
            if known.state == LOADED and is_as_recorded(sizes[known.name], known)
        }

    def _copied(self, load: Load) -> LoadReport:
        """By an append if no Spark runs and memory holds it easily, else by the pipeline."""
        if not load.packages:
            return LoadReport("", (), 0, 0)
        if not self._keeping.pipeline.executor.is_ready and self._appending.suits(load):
            appended = self._appending.copy(load)
            if appended is not None:
                return appended
        report = self._keeping.wait(self._submit(load)).value
        self._keeping.publishing.publish(load.table)
        assert isinstance(report, LoadReport)
        return report

    def recall(self, hot: HotTable) -> None:
        """After a start: packages that were appended and that the catalog does not know."""
        self._appending.recall(hot)

    def _submit_source(self, source: Source, packages: tuple[Listed, ...]) -> JobHandle:
        table = self._catalog.snapshot().table(source.table_id)
        if table is None:
            raise UnknownNameError(f'the table of source "{source.name}" was dropped')
        options = dict(source.options)
        columns = json.loads(options.pop(COLUMNS_OPTION, "null"))
        names = None if columns is None else tuple(columns)
        storage = self._keeping.storage
        load = Load(table, storage, packages, source.format, names, options, source.name)
        return self._submit(load)

    def _submit(self, load: Load) -> JobHandle:
        desk: LoadDesk = self._desk
        digests = DigestDesk(self._catalog)
        hot = self._desk.hot(load.table.table_id)
        job = _LoadJob(load, desk, self._clock, digests, hot=hot)
        return self._keeping.submit(job, LOAD_PRIORITY)


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Options as the catalog keeps them.

    >>> option_texts({"header": True, "delimiter": "|"})
    {'header': 'true', 'delimiter': '|'}
    """
    return {name: _option_text(value) for name, value in options.items()}


def _option_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value)
    return str(value)


def _numbers(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype=np.int64)
