"""A session: the warehouse itself, or a connection to the process that owns it.

The owner is looked for first: where there is one, nothing of the engine is loaded. Otherwise
``tidemill.open`` is, and others can connect to this process meanwhile.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import tidemill
from tidemill.config import DATABASE_SETTINGS, check
from tidemill.errors import ClosedError, OwnedError, SettingError, UnknownNameError
from tidemill.server.connection import connect_owner, find_owner
from tidemill.text_result import TextResult

if TYPE_CHECKING:
    from tidemill.hot.recovery import Recovered

WAREHOUSE = "warehouse"
WAREHOUSE_VARIABLE = "TIDEMILL_WAREHOUSE"
ATTEMPTS_MAX = 5
SHORT, AUTO = "short", "auto"
SETTINGS_OF_OWNER = "SELECT name, value FROM tidemill.settings WHERE scope = 'database'"


class Asked(Protocol):
    """What answers the shell: the engine, or a connection to it."""

    def sql_text(
        self, text: str, params: Any = None, *, form: str = ..., rows_max: int | None = ...
    ) -> TextResult: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class Database(Protocol):
    """What loading and status need: the surface that the engine and the remote client share."""

    def sql(self, text: str, params: Any = None) -> Any: ...

    def append(
        self, table: str, rows: Any, *, source: str | None = None, offset: int | None = None
    ) -> Any: ...

    def cancel(self, thread: int | None = None) -> None: ...


class Session:
    """An open warehouse; ``owner`` describes the process that owns it, if that is another one."""

    def __init__(self, asked: Asked, path: Path, owner: Mapping[str, object] | None = None) -> None:
        self.asked = asked
        self.path = path
        self.owner = owner
        self._stack = ExitStack()
        self._stack.callback(asked.close)

    @cached_property
    def database(self) -> Database:
        """The whole surface of a database, for those who need more than texts."""
        return self.connect() if self.owner is not None else cast(Database, self.asked)

    def connect(self) -> Database:
        """Another connection, if the warehouse is another process's; closed with the session."""
        return self._stack.enter_context(tidemill.connect(self.path))

    @property
    def notice(self) -> str | None:
        """A line for people: who answers them, or what the start found."""
        if self.owner is not None:
            return f"connected to process {self.owner.get('pid')}, which owns {self.path}"
        return _recovery_line(getattr(self.asked, "recovered", []))

    @property
    def alert(self) -> str | None:
        """The notice, if a script should see it too: another owner, a torn log, a slow start."""
        recovered: list[Recovered] = getattr(self.asked, "recovered", [])
        is_worth_it = any(found.torn_bytes or found.elapsed_s >= 1 for found in recovered)
        return self.notice if self.owner is not None or is_worth_it else None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _recovery_line(recovered: list[Recovered]) -> str | None:
    """What was read from the logs and how long it took; None for an empty start."""
    frames = sum(found.frames for found in recovered)
    torn = sum(found.torn_bytes for found in recovered)
    elapsed_s = sum(found.elapsed_s for found in recovered)
    if not frames and not torn:
        return None
    rows = sum(found.rows for found in recovered)
    line = f"recovered {rows:,} rows from the log in {elapsed_s:.2f} s"
    if not torn:
        return line
    places = ", ".join(found.torn_path for found in recovered if found.torn_path)
    return f"{line}; cut {torn:,} bytes of an unfinished append, kept in {places}"


def add_warehouse_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--warehouse",
        "-w",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get(WAREHOUSE_VARIABLE) or WAREHOUSE),
        help=f"the warehouse's folder (default: ${WAREHOUSE_VARIABLE}, or ./{WAREHOUSE})",
    )


def add_settings_option(parser: argparse.ArgumentParser) -> None:
    """``--set name=value``; ``open_session`` takes what it collects."""
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the database, such as spark_master=inline (may be repeated)",
    )


def read_settings(given: Sequence[str]) -> dict[str, str]:
    """The settings of ``--set name=value``, each checked."""
    settings = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise SettingError(
                f'"{text}" is not a setting', hint="write --set name=value, such as threads=2"
            )
        name, value = name.strip().lower(), value.strip()
        settings[name] = check(DATABASE_SETTINGS, name, value)
    return settings


def open_session(
    path: Path, *, create: bool = True, settings: Sequence[str] = (), lifetime: str = SHORT
) -> Session:
    """Connects to the owner of a warehouse, or opens it if nobody has it.

    Owners come and go: who finds neither an owner to ask nor the warehouse free looks again. A
    command is short: it leaves work in the background to processes that stay."""
    given = read_settings(settings)
    if not create and not path.is_dir():
        raise UnknownNameError(
            f'there is no warehouse in "{path}"',
            hint=f"name its folder with --warehouse or ${WAREHOUSE_VARIABLE}",
        )
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            owner = find_owner(path)
            if owner is not None:
                return _connected(path, owner, given)
            how = {"lifetime": lifetime, **given}
            return Session(tidemill.open(path, create=create, **how), path)
        except (OwnedError, ClosedError):
            if attempt == ATTEMPTS_MAX:
                raise
    raise AssertionError("unreachable")


def _connected(path: Path, owner: Mapping[str, object], given: Mapping[str, str]) -> Session:
    connection = connect_owner(path, owner)
    try:
        if given:
            rows = connection.sql_text(SETTINGS_OF_OWNER).rows()
            _check_settings(owner, {row[0]: row[1] for row in rows}, given)
    except BaseException:
        connection.close()
        raise
    return Session(connection, path, owner)


def _check_settings(
    owner: Mapping[str, object], there: Mapping[str | None, str | None], given: Mapping[str, str]
) -> None:
    """The owner opened the warehouse, so its settings hold; another value is an error."""
    for name, value in given.items():
        parse = DATABASE_SETTINGS[name].parse
        has = there.get(name)
        if has is None or parse(has) != parse(value):
            raise SettingError(
                f"setting \"{name}\" is '{has}' in process {owner.get('pid')}, which owns the "
                f"warehouse, and cannot be '{value}' here",
                hint="leave --set away, or end that process",
            )
