"""Loads: COPY of many files and sources.

A load's rows go straight to history, as a job of the pipeline; where no Spark runs and memory holds
them easily, they are an append (``appending``). A single file that COPY stores in memory is
recorded here as well, so that it is loaded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.accept.rows import Checked
from tidemill.catalog.model import LOADED, Source, Table
from tidemill.catalog.store import Catalog
from tidemill.clock import Clock
from tidemill.errors import FileFormatError, UnknownNameError, UnsupportedError
from tidemill.history.storage import Storage
from tidemill.hot.intake import Accepted, AppendResult
from tidemill.hot.table import HotTable
from tidemill.pipeline.digesting import DigestWork
from tidemill.pipeline.job import JobContext, Outcome
from tidemill.pipeline.jobs import JobHandle, Pipeline
from tidemill.pipeline.lifetime import Lifetime
from tidemill.pipeline.load import (
    COPY,
    DigestWriting,
    Load,
    LoadJob,
    LoadReport,
    WrittenLoad,
    split_options,
)
from tidemill.pipeline.loading import KNOWN, Taken
from tidemill.pipeline.loads.appending import Appending
from tidemill.pipeline.loads.environment import WarehouseLoadEnvironment
from tidemill.pipeline.loads.loaded import FileState, look_up, record
from tidemill.pipeline.loads.options import SourceOptions, option_texts
from tidemill.pipeline.packages import Listed, list_packages
from tidemill.pipeline.sources import SourcePoller, SourceStatus, is_as_recorded
from tidemill.types import quote

LOAD_PRIORITY = 5


@dataclass(frozen=True)
class _LoadJob(LoadJob):
    """A load whose commit lets no writer of the table in, if it has keys to compare."""

    hot: HotTable | None = None

    def _run(
        self, context: JobContext, first_seq: int, digests: Sequence[DigestWork]
    ) -> WrittenLoad:
        try:
            return super()._run(context, first_seq, digests)
        except BaseException:
            self._end(first_seq)
            raise

    def commit(self, ready: WrittenLoad) -> Outcome[LoadReport]:
        try:
            with self._paused():
                return super().commit(ready)
        finally:
            self._end(ready.first_seq)

    def _paused(self) -> AbstractContextManager[None]:
        if self.hot is None or not self.plan.table.primary_key:
            return nullcontext()
        return self.hot.paused()

    def _end(self, first_seq: int) -> None:
        """The rows are there, or never will be: changes need not spare their numbers any more."""
        if self.hot is not None:
            with self.hot.published.lock:
                self.hot.published.loads.end(first_seq)


class Loads:
    def __init__(
        self,
        catalog: Catalog,
        environment: WarehouseLoadEnvironment,
        appending: Appending,
        pipeline: Pipeline,
        storage: Storage,
        life: Lifetime,
        publish: Callable[[Table], None],
        clock: Clock,
    ) -> None:
        """``publish`` is called with a table whose history a COPY has changed."""
        self._catalog = catalog
        self._environment = environment
        self._appending = appending
        self._pipeline = pipeline
        self._storage = storage
        self._publish = publish
        self._clock = clock
        self.poller = SourcePoller(
            self._submit_source, environment.known, clock, may_load=life.allows_background
        )

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
        return look_up(self._catalog, self._environment.hot(table.table_id), table, path)

    def store(self, table: Table, file: FileState, checked: Checked) -> AppendResult:
        """Store the rows of a file, and that it was loaded, in one append."""
        hot, count = self._environment.hot(table.table_id), sum(b.num_rows for b in checked.batches)
        package = record(file, count, len(checked.rejects), self._clock.now_us())
        rows = tuple(batch for batch in checked.batches if batch.num_rows)
        with hot.holding_log():
            accepted = Accepted(rows, checked.rejects, packages=(package,))
            stored = hot.append(accepted) if rows or checked.rejects else AppendResult(0)
            with self._catalog.transaction() as change:
                change.add_packages(table.table_id, [package])
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
        load = Load(table, self._storage, left, form, columns, texts, COPY, is_forced=force)
        report = self._copied(load)
        known = tuple(Taken(e, KNOWN, before[e.name]) for e in packages if e.name in before)
        return replace(report, packages=(*known, *report.packages))

    def _loaded_before(self, table: Table, packages: Sequence[Listed]) -> dict[str, str]:
        """The digests, by name, of packages that were loaded and not touched since."""
        sizes = {each.name: each for each in packages}
        return {
            known.name: known.digest
            for known in self._environment.known(table.table_id, list(sizes))
            if known.state == LOADED and is_as_recorded(sizes[known.name], known)
        }

    def _copied(self, load: Load) -> LoadReport:
        """By an append if no Spark runs and memory holds it easily, else by the pipeline."""
        if not load.packages:
            return LoadReport("", (), 0, 0)
        if not self._pipeline.executor.is_ready and self._appending.suits(load):
            appended = self._appending.copy(load)
            if appended is not None:
                return appended
        report = self._submit(load).wait_cancellable().value
        self._publish(load.table)
        return report

    def recall(self, hot: HotTable) -> None:
        """After a start: packages that were appended and that the catalog does not know."""
        self._appending.recall(hot)

    def _submit_source(self, source: Source, packages: tuple[Listed, ...]) -> JobHandle[LoadReport]:
        table = self._catalog.snapshot().table(source.table_id)
        if table is None:
            raise UnknownNameError(f'the table of source "{source.name}" was dropped')
        kept = SourceOptions.of(source.options)
        what = (packages, source.format, kept.columns, kept.texts, source.name)
        return self._submit(Load(table, self._storage, *what))

    def _submit(self, load: Load) -> JobHandle[LoadReport]:
        digests = DigestWriting(self._catalog)
        hot = self._environment.hot(load.table.table_id)
        job = _LoadJob(load, self._environment, self._clock, digests, hot=hot)
        return self._pipeline.submit(job, LOAD_PRIORITY)
