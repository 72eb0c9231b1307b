"""The store: what lies on disk, opened. The folder is this process's from here on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidemill.catalog.owner import Owner
from tidemill.catalog.store import Catalog
from tidemill.catalog.urls import sqlite_url
from tidemill.clock import Clock
from tidemill.closing import Closing
from tidemill.config import Settings
from tidemill.federation.duck import Duck
from tidemill.federation.references import References
from tidemill.folder.entering import enter, match_catalog
from tidemill.folder.settings import belonging, storage_of
from tidemill.history.storage import Storage
from tidemill.stream.keys import Keys
from tidemill.stream.pins import Pins


@dataclass(frozen=True)
class Store:
    path: Path
    settings: Settings
    clock: Clock
    owner: Owner
    catalog: Catalog
    storage: Storage
    duck: Duck
    references: References
    pins: Pins
    keys: Keys


def open_store(
    path: Path, settings: Settings, clock: Clock, create: bool, closing: Closing
) -> Store:
    enter(path, create=create)
    owner = Owner.acquire(path, clock)
    closing.add(owner.release)
    url = settings["catalog"]
    catalog = Catalog.open(sqlite_url(path / "catalog.sqlite") if url == "sqlite" else url, clock)
    closing.add(catalog.close)
    match_catalog(path, catalog)
    settings = belonging(path, catalog, settings)
    storage = storage_of(path, settings["storage"])
    storage.clean()
    duck = Duck(
        path / "reference.duckdb", settings["threads"], settings["query_memory"], storage.prepare
    )
    closing.add(duck.close)
    references = References(duck)
    tables = catalog.snapshot().tables.values()
    references.clean(table for table in tables if table.is_reference)
    pins = Pins(catalog.snapshot)
    keys = Keys(catalog.snapshot, storage, duck)
    return Store(path, settings, clock, owner, catalog, storage, duck, references, pins, keys)
