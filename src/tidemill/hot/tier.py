"""The hot tier: all streaming tables of a warehouse, their logs, and the thread that keeps them.

The *keeper* forces the logs of tables with durability = 'batch' at short intervals and lets
retention drop what has expired. It is one thread, it holds no rows, and it stops with the tier.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tidemill.catalog.model import Table
from tidemill.clock import Clock
from tidemill.hot.ending import sync_folder
from tidemill.hot.environment import Environment, NoHistory
from tidemill.hot.log import Files
from tidemill.hot.numbers import HistoryNumbers
from tidemill.hot.recovery import Recovered, recover
from tidemill.hot.table import HotTable
from tidemill.permissions import make_folder
from tidemill.subscribers import Subscribers
from tidemill.workers import Worker

EXPIRE_EVERY_S = 1.0
_log = logging.getLogger("tidemill.hot")


class HotTier:
    def __init__(
        self,
        folder: Path,
        clock: Clock,
        files: Files,
        backpressure_wait_us: int,
        segment_bytes: int,
        batch_interval_us: int,
        tables: dict[int, HotTable] | None = None,
        environment: Environment | None = None,
        listeners: Subscribers[HotTable] | None = None,
    ) -> None:
        """``tables`` is where the tables are kept, for those who were made before; the other two
        are every table's."""
        self.tables = {} if tables is None else tables
        self._environment = environment or NoHistory()
        self._listeners = listeners or Subscribers[HotTable]()
        self._folder = folder
        self._clock = clock
        self._files = files
        self._wait_us = backpressure_wait_us
        self._segment_bytes = segment_bytes
        self._batch_s = batch_interval_us / 1_000_000
        self._expired_s = time.monotonic()
        self._keeper = Worker("tidemill-keeper", self._keep, _log, first_s=self._batch_s)

    def open(
        self,
        tables: Iterable[Table],
        numbers_of: Callable[[int], HistoryNumbers] = lambda _: HistoryNumbers(),
    ) -> list[Recovered]:
        """Recover every table from its log, remove logs of tables that are gone, start to keep."""
        make_folder(self._folder)
        known = list(tables)
        names = {str(table.table_id) for table in known}
        for left_over in self._folder.iterdir():
            if left_over.name not in names:
                shutil.rmtree(left_over, ignore_errors=True)
        recovered = [self._open_table(table, numbers_of(table.table_id)) for table in known]
        self._keeper.start()
        return recovered

    def create(self, table: Table) -> None:
        """Begin a table with an empty log, whatever an unfinished attempt may have left."""
        folder = self._folder / str(table.table_id)
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder)
        sync_folder(self._folder)
        self._open_table(table, HistoryNumbers())

    def drop(self, table_id: int) -> None:
        hot = self.tables.pop(table_id, None)
        if hot is not None:
            hot.close()
            shutil.rmtree(self._folder / str(table_id), ignore_errors=True)

    def close(self) -> None:
        self._keeper.close()
        for hot in self.tables.values():
            hot.close()
        self.tables.clear()

    def _open_table(self, table: Table, numbers: HistoryNumbers) -> Recovered:
        hot = HotTable(
            table, self._clock, self._wait_us, numbers, self._environment, self._listeners
        )
        folder = self._folder / str(table.table_id)
        found = recover(hot, folder, self._segment_bytes, self._files)
        self.tables[table.table_id] = hot
        if found.torn_bytes:
            _log.warning(
                'table "%s": cut %d bytes of an unfinished append off the log, kept in %s',
                table.name,
                found.torn_bytes,
                found.torn_path,
            )
        return found

    def _keep(self, _is_woken: bool) -> float:
        tables = list(self.tables.values())
        for hot in tables:
            if hot.table.settings["durability"] == "batch":
                hot.flush()
        if time.monotonic() - self._expired_s >= EXPIRE_EVERY_S:
            self._expired_s = time.monotonic()
            for hot in tables:
                hot.expire()
        return self._batch_s
