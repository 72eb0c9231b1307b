"""Publishing: tables with ``publish = 'delta'`` follow their history for outsiders.

A statement that changed history publishes before it returns; what background jobs did is published
within a second. The catalog is the truth: an error here is logged and tried again, and a crash is
repaired by the next look. deltalake is loaded with the first table that publishes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tidemill.catalog.model import History, Table
from tidemill.catalog.store import Catalog
from tidemill.errors import MissingPackageError, TidemillError
from tidemill.history.storage import Storage

DELTA = "delta"
_log = logging.getLogger("tidemill.publishing")


@contextmanager
def _delta_needed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise _missing_package() from error


def _missing_package() -> MissingPackageError:
    return MissingPackageError.of("publish = 'delta'", "deltalake", "delta")


class Publishing:
    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        compact: Callable[[Table], object],
        has_changes: Callable[[Table], bool] = lambda table: False,
    ) -> None:
        """``compact`` has files with deleted rows written again: Delta tables do not know ours.
        ``has_changes`` says whether files lack changes, and has them carried out."""
        self._has_changes = has_changes
        self._catalog = catalog
        self._compact = compact
        self._storage = storage
        self._lock = threading.Lock()
        self._published: dict[int, History] = {}
        self._refused: set[int] = set()

    def check(self, table: Table) -> None:
        """Refuse a table whose columns others could not read."""
        with _delta_needed():
            from tidemill.history.delta import check_publishable

        check_publishable(table, self._storage)

    def follow(self) -> None:
        """Publish every table whose history has changed since."""
        for table in self._catalog.snapshot().tables.values():
            if table.is_streaming and table.settings["publish"] == DELTA:
                self.publish(table)

    def publish(self, table: Table) -> None:
        if not table.is_streaming or table.settings["publish"] != DELTA:
            return
        if self._without_package(table):
            return
        from tidemill.history.delta import publish_delta, waits_for_compaction

        with self._lock:
            snapshot = self._catalog.snapshot()
            history = snapshot.history(table.table_id)
            if self._published.get(table.table_id) is history:
                return
            if waits_for_compaction(history):
                self._compact(table)
                return
            if self._has_changes(table):
                return
            try:
                publish_delta(self._storage, table, history, snapshot.snapshot_id)
            except (TidemillError, OSError) as error:
                _log.warning('table "%s" could not be published: %s', table.name, error)
                return
            self._published[table.table_id] = history

    def _without_package(self, table: Table) -> bool:
        """Whether nothing can be published here; said once for each table. History goes on."""
        if find_spec("deltalake") is not None:
            return False
        if table.table_id not in self._refused:
            self._refused.add(table.table_id)
            error = _missing_package()
            _log.warning('table "%s" is not published: %s; %s', table.name, error, error.hint)
        return True

    def withdraw(self, table: Table) -> None:
        """Remove what was published: the table no longer is, or is no more."""
        if table.is_streaming and table.settings["publish"] == DELTA:
            with _delta_needed():
                from tidemill.history.delta import unpublish

            with self._lock:
                self._published.pop(table.table_id, None)
                unpublish(self._storage, table)
