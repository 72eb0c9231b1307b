"""The shell: runs pieces of a script against a session and writes what they answer."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import tidemill
from tidemill.cli.progress import PATIENCE_S, watch
from tidemill.cli.render import FORMATS, render
from tidemill.cli.report import print_error
from tidemill.cli.script import Piece, read_pieces
from tidemill.cli.session import Session
from tidemill.cli.style import DIM, paint, wants_color
from tidemill.errors import SettingError, TidemillError, UnknownNameError, did_you_mean
from tidemill.server.remote import connect

ROWS_SHOWN = 200
INCLUDE_DEPTH_MAX = 20
CANCEL_EVERY_S = 0.2
INDEXES_OF = "SELECT index_name, columns, method FROM tidemill.indexes WHERE lower(table_name) = ?"
SETTINGS_OF = """\
SELECT name, value FROM tidemill.settings WHERE lower(table_name) = ? AND is_given ORDER BY name"""
_ON_OFF = {"on": True, "off": False}


class Quit(Exception):
    """The user asked to leave."""


@dataclass(frozen=True)
class Command:
    """A backslash command: how it is written, what it does, and its function."""

    usage: str
    about: str
    run: Callable[[Shell, str], None]


class Shell:
    """A session, where its answers go, and how they look."""

    def __init__(
        self, session: Session, out: TextIO, *, style: str = "table", timing: bool = False
    ) -> None:
        self.session = session
        self.out = out
        self.style = style
        self.timing = timing
        self.terminal = out.isatty()
        self.color = wants_color(out)
        self._depth = 0
        self._thread: int | None = None  # that runs statements
        self._beside = ThreadPoolExecutor(
            1, thread_name_prefix="tidemill-statement", initializer=self._note_thread
        )

    def _note_thread(self) -> None:
        self._thread = threading.get_ident()

    def run_lines(self, lines: Iterable[str], place: str | None = None) -> bool:
        """Runs a whole script; stops at the first error, tells it, and answers false."""
        return all(self.run_reported(piece, place) for piece in read_pieces(lines))

    def run_reported(self, piece: Piece, place: str | None = None) -> bool:
        """Runs a piece; an error is told where it happened, and answered with false."""
        try:
            self.run(piece)
        except _ToldError:
            return False
        except TidemillError as error:
            self.out.flush()
            print_error(error, piece.text, place=place, line_offset=piece.line)
            return False
        return True

    def run(self, piece: Piece) -> None:
        """Runs one statement or command."""
        if piece.is_command:
            self.run_command(piece.text)
        else:
            self.show(self._ask(piece.text))

    def _ask(self, text: str) -> Any:
        """Runs a statement so that Ctrl-C breaks it off: beside this thread, which can listen."""
        database = self.session.database
        future = self._beside.submit(database.sql, text)
        try:
            if self.terminal or sys.stderr.isatty():
                self._watch(future)
            return future.result()
        except KeyboardInterrupt:
            while not future.done():
                self._cancel()
                wait([future], timeout=CANCEL_EVERY_S)
            raise

    def _cancel(self) -> None:
        """Break off the statement in hand; in a warehouse of our own, others may have theirs."""
        database = self.session.database
        if isinstance(database, tidemill.Database) and self._thread is not None:
            database.cancel(self._thread)
        else:
            database.cancel()

    def _watch(self, future: Future[Any]) -> None:
        """Show the jobs of a long statement; a connection is busy with it, so another one asks."""
        database = self.session.database
        with ExitStack() as stack:
            if not isinstance(database, tidemill.Database):
                if wait([future], PATIENCE_S).done:
                    return
                database = stack.enter_context(connect(self.session.path))
            watch(future, database.sql, self.out if self.terminal else sys.stderr)

    def run_command(self, text: str) -> None:
        name, _, argument = text.partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            raise UnknownNameError(
                f'command "{name}" does not exist',
                hint=did_you_mean(name, COMMANDS) or "\\? lists the commands",
            )
        command.run(self, argument.strip().rstrip(";").strip())

    def show(self, result: Any) -> None:
        """Writes a result: its rows, and for people what they need to know beside them."""
        rows = bool(result.columns)
        if rows:
            self._write_rows(result)
        if self.style != "table":
            return
        words = []
        if rows:
            words.append("1 row" if result.rowcount == 1 else f"{result.rowcount:,} rows")
        elif result.message:
            words.append(result.message)
        if self.timing:
            words.append(format_seconds(result.elapsed_s))
        text = ", ".join(words)
        self.write(paint(f"({text})" if rows else text, DIM if rows else "", self.color and rows))

    def _write_rows(self, result: Any) -> None:
        width = shutil.get_terminal_size().columns if self.terminal else None
        rows_max = ROWS_SHOWN if self.terminal else None
        for line in render(result, self.style, width=width, rows_max=rows_max, color=self.color):
            self.write(line)

    def write(self, line: str) -> None:
        self.out.write(line + "\n")

    def include(self, name: str) -> None:
        """Runs a file; the files that it includes count as deeper."""
        if self._depth >= INCLUDE_DEPTH_MAX:
            raise SettingError(
                f'"{name}" is included {INCLUDE_DEPTH_MAX} files deep',
                hint="does a file include itself?",
            )
        self._depth += 1
        try:
            if not self.run_lines(read_file(Path(name)), place=name):
                raise _ToldError(name)
        finally:
            self._depth -= 1


class _ToldError(TidemillError):
    """An error inside an included file, which was told there."""


def read_file(path: Path) -> list[str]:
    """The lines of a script."""
    try:
        return path.expanduser().read_text(encoding="utf-8-sig").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UnknownNameError(f'file "{path}" cannot be read', detail=reason) from error


def format_seconds(seconds: float) -> str:
    """A duration as people say it.

    >>> format_seconds(0.00042), format_seconds(0.0123), format_seconds(3.25)
    ('0.42 ms', '12.3 ms', '3.25 s')
    """
    if seconds < 0.01:
        return f"{seconds * 1_000:.2f} ms"
    return f"{seconds * 1_000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _describe(shell: Shell, name: str) -> None:
    database = shell.session.database
    if not name:
        shell.show(database.sql("SHOW TABLES"))
        return
    shell.show(database.sql(f"DESCRIBE {name}"))
    table = [name.replace('"', "").lower()]
    for index, columns, method in database.sql(INDEXES_OF, table).fetchall():
        shell.write(f"index {index} ({', '.join(columns)}) {method}")
    settings = database.sql(SETTINGS_OF, table).fetchall()
    if settings:
        shell.write("with " + ", ".join(f"{setting} = '{value}'" for setting, value in settings))


def _indexes(shell: Shell, _: str) -> None:
    shell.show(shell.session.database.sql("SHOW INDEXES"))


def _timing(shell: Shell, argument: str) -> None:
    if argument and argument.lower() not in _ON_OFF:
        raise SettingError("\\timing is either on or off")
    shell.timing = _ON_OFF[argument.lower()] if argument else not shell.timing
    shell.write(f"timing is {'on' if shell.timing else 'off'}")


def _format(shell: Shell, argument: str) -> None:
    if argument not in FORMATS:
        raise SettingError(
            f'format "{argument}" does not exist' if argument else f"the format is {shell.style}",
            hint=did_you_mean(argument, FORMATS) or f"the formats are {', '.join(FORMATS)}",
        )
    shell.style = argument


def _include(shell: Shell, argument: str) -> None:
    if not argument:
        raise SettingError("\\i needs a file's name")
    shell.include(argument.strip("'\""))


def _quit(shell: Shell, _: str) -> None:
    raise Quit


def _help(shell: Shell, _: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        shell.write(f"  {command.usage:<{width}}  {command.about}")
    shell.write("  a statement ends with ; and may have many lines; docs/sql.md shows them all")


COMMANDS = {
    "\\d": Command("\\d [TABLE]", "list the tables, or describe one", _describe),
    "\\di": Command("\\di", "list the indexes", _indexes),
    "\\timing": Command("\\timing [on|off]", "say how long statements took, or stop it", _timing),
    "\\format": Command(f"\\format {'|'.join(FORMATS)}", "how results look", _format),
    "\\i": Command("\\i FILE", "run the statements of a file", _include),
    "\\?": Command("\\?", "list these commands", _help),
    "\\q": Command("\\q", "leave", _quit),
}
