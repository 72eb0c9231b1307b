"""The folder of a warehouse and what belongs to it: who may make one, who may read it, and the
settings that are properties of the data.

1. ``enter`` comes first when a warehouse is opened: it refuses a folder that holds something else,
   makes a new one only if it may, and closes it to other users.
2. ``belonging`` comes once the catalog is open: settings such as ``storage`` are kept there. Not
   given, the kept value counts; given and different, it is refused, unless nothing is lost by it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from tidemill.catalog.store import Catalog
from tidemill.config import Settings
from tidemill.errors import SettingError, UnknownNameError, UnsupportedError
from tidemill.history.storage import Storage
from tidemill.permissions import FOLDER_MODE, is_open_to_others, tighten

MARK = "catalog.id"
_OURS = ("catalog.", "owner.lock", "reference.duckdb", "tidemill.sock")
_OUR_FOLDERS = frozenset({"log", "data", "spark", "spill", "superseded"})
_KEY = "setting."
_log = logging.getLogger("tidemill")


def is_warehouse(path: Path) -> bool:
    return (path / MARK).is_file()


def enter(path: Path, *, create: bool = True) -> None:
    """Make sure that a folder is a warehouse or may become one; with ``create`` it is made."""
    if not is_warehouse(path):
        names = _names(path)
        if names is not None and not all(map(_is_ours, names)):
            shown = ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "")
            raise UnsupportedError(
                f'"{path}" is not a warehouse, and not empty',
                detail=f"it holds {shown}",
                hint="name the folder of a warehouse, or a new or empty one to make a warehouse",
            )
        if not create:
            raise no_warehouse(path)
        _make(path)
    _close_to_others(path)


def no_warehouse(path: Path) -> UnknownNameError:
    return UnknownNameError(
        f'there is no warehouse in "{path}"',
        hint="name its folder, or make one: tidemill.open(folder) and `tidemill sql` do",
    )


def _names(path: Path) -> list[str] | None:
    """What is in a folder; None if there is no such folder."""
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot_be(path, error) from error


def _is_ours(name: str) -> bool:
    """Whether an unfinished first start may have left it."""
    return name.startswith(_OURS) or name in _OUR_FOLDERS


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise _cannot_be(path, error) from error


def _cannot_be(path: Path, error: OSError) -> UnsupportedError:
    return UnsupportedError(f'"{path}" cannot be a warehouse folder', detail=str(error))


def _close_to_others(path: Path) -> None:
    """Whatever earlier releases left open; a folder that is closed was looked through before."""
    try:
        if is_open_to_others(path) and (count := tighten(path)) > 1:
            _log.warning(
                "%s: %d files and folders were open to other users; they are closed now",
                path,
                count,
            )
    except OSError as error:
        _log.warning("%s stays open to other users: %s", path, error)


# -- settings that belong to the warehouse


def storage_of(path: Path, setting: str) -> Storage:
    """A URL as it is; a folder beside the rest of the warehouse, unless its path is whole."""
    return Storage(setting if "://" in setting else str((path / setting).absolute()))


def belonging(path: Path, catalog: Catalog, settings: Settings) -> Settings:
    """The settings with those that the warehouse has kept; what is new or changed is kept."""
    kept: dict[str, str] = {}
    for name, setting in settings.registry.items():
        if not setting.is_kept:
            continue
        value = catalog.get_meta(_KEY + name)
        chosen = settings.text(name) if value is None or name in settings.given else value
        if chosen != value and name == "storage":
            chosen = _checked_storage(path, catalog, settings, value)
        if chosen != value:
            catalog.set_meta(_KEY + name, chosen)
            if value is not None:
                _log.info('%s: setting %s changes from "%s" to "%s"', path, name, value, chosen)
        kept[name] = chosen
    return settings.with_kept(kept)


def _checked_storage(path: Path, catalog: Catalog, settings: Settings, kept: str | None) -> str:
    """The storage to be kept, if the files of history are there."""
    chosen = _portable(path, settings.text("storage"))
    new = storage_of(path, chosen)
    old = storage_of(path, settings.registry["storage"].default if kept is None else kept)
    known = catalog.known_paths()
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
