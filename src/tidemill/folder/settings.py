"""Settings that belong to a warehouse: properties of its data, kept in the catalog.

Not given, the kept value counts; given and different, it is refused, unless nothing is lost by it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tidemill.catalog.store import Catalog
from tidemill.config import Settings
from tidemill.errors import SettingError
from tidemill.history.storage import Storage

_KEY = "setting."
_log = logging.getLogger("tidemill")


def storage_of(path: Path, setting: str) -> Storage:
    """A URL as it is; a folder beside the rest of the warehouse, unless its path is whole."""
    return Storage(setting if "://" in setting else str((path / setting).absolute()))


def belonging(path: Path, catalog: Catalog, settings: Settings) -> Settings:
    """The settings with those that the warehouse has kept; what is new or changed is kept."""
    kept: dict[str, str] = {}
    for name, setting in settings.registry.items():
        if not setting.is_kept:
            continue
        value = catalog.records.get_meta(_KEY + name)
        chosen = settings.text(name) if value is None or name in settings.given else value
        if chosen != value and name == "storage":
            chosen = _checked_storage(path, catalog, settings, value)
        if chosen != value:
            with catalog.transaction() as change:
                change.set_meta(_KEY + name, chosen)
            if value is not None:
                _log.info('%s: setting %s changes from "%s" to "%s"', path, name, value, chosen)
        kept[name] = chosen
    return settings.with_kept(kept)


def _checked_storage(path: Path, catalog: Catalog, settings: Settings, kept: str | None) -> str:
    """The storage to be kept, if the files of history are there."""
    chosen = _portable(path, settings.text("storage"))
    new = storage_of(path, chosen)
    old = storage_of(path, settings.registry["storage"].default if kept is None else kept)
    known = catalog.records.known_paths()
    if kept is not None and new == old:
        return kept
    if not known:
        return chosen
    missing = known - _paths(new)
    elsewhere = missing & _paths(old) if new != old else set()
    if missing == known or elsewhere or (kept is not None and missing):
        raise _wrong_storage(path, chosen, old, kept, len(missing), len(known))
    if missing:
        _log.warning("%s: %d of %d files are not in %s", path, len(missing), len(known), new.root)
    return chosen


def _paths(storage: Storage) -> set[str]:
    return {path for path, _, _ in storage.list()}


def _portable(path: Path, setting: str) -> str:
    """A folder inside of the warehouse is kept by its place in it, so that both may be moved."""
    if "://" in setting or not os.path.isabs(setting):
        return setting
    inside = os.path.relpath(setting, path.absolute())
    return setting if inside.startswith(os.pardir) else inside


def _wrong_storage(
    path: Path, chosen: str, old: Storage, kept: str | None, missing: int, known: int
) -> SettingError:
    if kept is not None:
        return SettingError(
            f'storage of warehouse "{path}" is "{kept}", not "{chosen}"',
            detail=f'{missing} of {known} files of its history are not in "{chosen}"',
            hint="open it without the setting storage; to change it, copy all files first, with "
            f'their folders, from "{old.root}"',
        )
    return SettingError(
        f'files of history of warehouse "{path}" are not in "{chosen}"',
        detail=f"{missing} of {known} files are missing there",
        hint="open it with the setting storage that it was made with; if files lie in two places, "
        "copy all to one of them, with their folders",
    )
