"""A session: the warehouse itself, or a connection to the process that owns it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import tidemill
from tidemill.errors import OwnedError, TidemillError, UnknownNameError
from tidemill.hot.recovery import Recovered
from tidemill.server.local import LocalServer
from tidemill.server.remote import connect

WAREHOUSE = "warehouse"
WAREHOUSE_VARIABLE = "TIDEMILL_WAREHOUSE"
SHORT, AUTO = "short", "auto"


class Database(Protocol):
    """What the shell needs: the surface that the engine and the remote client share."""

    @property
    def path(self) -> Path: ...

    def sql(self, text: str, params: Any = None) -> Any: ...

    def append(
        self, table: str, rows: Any, *, source: str | None = None, offset: int | None = None
    ) -> Any: ...

    def cancel(self) -> None: ...


@dataclass(frozen=True)
class Session:
    """An open warehouse; ``owner`` describes the process that owns it, if that is another one."""

    database: Database
    path: Path
    owner: dict[str, object] | None = None

    @property
    def notice(self) -> str | None:
        """A line for people: who answers them, or what the start found."""
        if self.owner is not None:
            return f"connected to process {self.owner.get('pid')}, which owns {self.path}"
        return _recovery_line(getattr(self.database, "recovered", []))

    @property
    def alert(self) -> str | None:
        """The notice, if a script should see it too: another owner, a torn log, a slow start."""
        recovered: list[Recovered] = getattr(self.database, "recovered", [])
        is_worth_it = any(found.torn_bytes or found.elapsed_s >= 1 for found in recovered)
        return self.notice if self.owner is not None or is_worth_it else None


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


@contextmanager
def open_session(
    path: Path, *, create: bool = True, serve: bool = False, lifetime: str = SHORT
) -> Iterator[Session]:
    """Opens a warehouse, or connects to its owner if another process has it.

    With ``serve``, others can connect to this process in turn while it has the warehouse. A command
    is short: it leaves work in the background to processes that stay.
    """
    if not create and not path.is_dir():
        raise UnknownNameError(
            f'there is no warehouse in "{path}"',
            hint=f"name its folder with --warehouse or ${WAREHOUSE_VARIABLE}",
        )
    with ExitStack() as stack:
        try:
            database = stack.enter_context(tidemill.open(path, create=create, lifetime=lifetime))
        except OwnedError as error:
            yield stack.enter_context(_connected(path, error))
            return
        if serve:
            stack.enter_context(LocalServer(database))
        yield Session(database, path)


@contextmanager
def _connected(path: Path, owned: OwnedError) -> Iterator[Session]:
    try:
        remote = connect(path)
    except TidemillError as error:
        raise error from owned
    with remote:
        yield Session(remote, path, remote.owner_info)
