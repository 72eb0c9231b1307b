"""The folder of a warehouse: who may make one, who may read it, which catalog it belongs to.

1. ``enter`` comes first when a warehouse is opened: it refuses a folder that holds something else,
   makes a new one only if it may, and closes it to other users.
2. ``match_catalog`` comes once the catalog is open: a folder belongs to one catalog.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from tidemill.catalog.store import Catalog
from tidemill.errors import CatalogError, UnknownNameError, UnsupportedError
from tidemill.hot.ending import sync_folder
from tidemill.permissions import FOLDER_MODE, is_open_to_others, make_file, tighten

MARK = "catalog.id"
_OURS = ("catalog.", "owner.lock", "reference.duckdb", "tidemill.sock")
_OUR_FOLDERS = frozenset({"log", "data", "spark", "spill", "superseded"})
_CATALOG_ID = re.compile(r"[0-9a-f]{32}")
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


def match_catalog(path: Path, catalog: Catalog) -> None:
    """A folder belongs to one catalog: with another, its rows would look like left-overs."""
    mark = path / MARK
    try:
        if not mark.exists():
            partial = mark.with_name("catalog.id.partial")
            make_file(partial)
            partial.write_text(catalog.catalog_id)
            partial.replace(mark)
            sync_folder(path)
        known = mark.read_bytes().decode(errors="replace")
    except OSError as error:
        raise CatalogError(f'cannot read or write in "{path}"', detail=str(error)) from error
    if not _CATALOG_ID.fullmatch(known):
        raise CatalogError(
            f'file "{mark}" is damaged: it does not hold the id of a catalog',
            hint=f"restore it from a copy, or write {catalog.catalog_id} into it if the warehouse "
            f"belongs to {catalog.place}",
        )
    if known != catalog.catalog_id:
        raise CatalogError(
            f'warehouse "{path}" belongs to another catalog than {catalog.place}',
            detail=f'file "{mark}" names the catalog {known}, this one is {catalog.catalog_id}',
            hint="open it with the setting catalog that it was made with; if the file is damaged, "
            "restore it from a copy",
        )
