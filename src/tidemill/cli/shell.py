"""The shell: runs pieces of a script against a session and writes what they answer."""

from __future__ import annotations

import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tidemill.cli.paging import find_pager, page
from tidemill.cli.progress import PATIENCE_S, watch
from tidemill.cli.render import FORMATS, collect, form_of, records, render, table
from tidemill.cli.report import print_error
from tidemill.cli.script import Piece, read_pieces
from tidemill.cli.session import Session
from tidemill.cli.style import DIM, paint, wants_color
from tidemill.errors import SettingError, TidemillError, UnknownNameError, did_you_mean
from tidemill.text_result import TextResult, Texts

ROWS_SHOWN = 200
ROWS_PAGED = 10_000
INCLUDE_DEPTH_MAX = 20
CANCEL_EVERY_S = 0.2
INDEXES_OF = "SELECT index_name, columns, method FROM tidemill.indexes WHERE lower(table_name) = ?"
SETTINGS_OF = """\
SELECT name, value FROM tidemill.settings WHERE lower(table_name) = ? AND is_given ORDER BY name"""
QUERY_OF = "SELECT definition FROM tidemill.views WHERE lower(view_name) = ?"
TABLES = "SELECT table_name, kind, rows, bytes FROM tidemill.tables ORDER BY table_name"
VIEWS = "SELECT view_name, kind, streams, state, last_error FROM tidemill.views ORDER BY view_name"
LINES_AROUND = 4  # head, rule, count and the next prompt
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
        self,
        session: Session,
        out: TextIO,
        *,
        style: str = "table",
        timing: bool = False,
        interactive: bool = False,
    ) -> None:
        self.session = session
        self.out = out
        self.style = style
        self.timing = timing
        self.expanded = False
        self.pager = find_pager() if interactive else None
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

    def ask(self, text: str, params: list[str] | None = None) -> TextResult:
        """A short question of the shell's own, in the form that it shows."""
        return self.session.asked.sql_text(
            text, params, form=form_of(self.style), rows_max=self._rows_max
        )

    def look_up(self, text: str, params: list[str] | None = None) -> list[tuple[str | None, ...]]:
        """A short question whose rows are not shown as they are."""
        return self.session.asked.sql_text(text, params).rows()

    @property
    def _rows_max(self) -> int | None:
        """How many rows of a table a person would look at; other formats have all."""
        if not self.terminal or self.style != "table":
            return None
        return ROWS_PAGED if self.pager else ROWS_SHOWN

    def _ask(self, text: str) -> TextResult:
        """Runs a statement so that Ctrl-C breaks it off: beside this thread, which can listen."""
        future = self._beside.submit(self.ask, text)
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
        if self.session.owner is None and self._thread is not None:
            self.session.database.cancel(self._thread)
        else:
            self.session.asked.cancel()

    def _watch(self, future: Future[Any]) -> None:
        """Show the jobs of a long statement; a connection is busy with it, so another one asks."""
        if not wait([future], PATIENCE_S).done:
            watch(future, self.session.database.sql, self.out if self.terminal else sys.stderr)

    def run_command(self, text: str) -> None:
        name, _, argument = text.partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            raise UnknownNameError(
                f'command "{name}" does not exist',
                hint=did_you_mean(name, COMMANDS) or "\\? lists the commands",
            )
        command.run(self, argument.strip().rstrip(";").strip())

    def show(self, result: TextResult) -> None:
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

    def _write_rows(self, result: TextResult) -> None:
        if self.style != "table":
            for line in render(result, self.style):
                self.write(line)
            return
        texts = collect(result)
        size = shutil.get_terminal_size()
        tall = sum(len(column) for column in texts) if self.expanded else len(texts[0])
        if self.pager and tall > size.lines - LINES_AROUND:
            self.out.flush()
            page(self._lines(result, texts, None), self.pager)
            return
        is_cut = self.terminal and result.message != "EXPLAIN"
        for line in self._lines(result, texts, size.columns if is_cut else None):
            self.write(line)

    def _lines(self, result: TextResult, texts: Texts, width: int | None) -> Iterator[str]:
        if self.expanded:
            return records(result, texts, self.color)
        return table(result, texts, width=width, color=self.color)

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
    if not name:
        shell.show(shell.ask(TABLES))
        return
    shell.show(shell.ask(f"DESCRIBE {name}"))
    if shell.style != "table":
        return
    wanted = [name.replace('"', "").lower()]
    for index, columns, method in shell.look_up(INDEXES_OF, wanted):
        shell.write(f"index {index} ({str(columns).strip('[]')}) {method}")
    if settings := shell.look_up(SETTINGS_OF, wanted):
        shell.write("with " + ", ".join(f"{setting} = '{value}'" for setting, value in settings))
    for (query,) in shell.look_up(QUERY_OF, wanted):
        shell.write(f"query:\n{textwrap.indent(str(query).strip(), '  ')}")


def _tables(shell: Shell, _: str) -> None:
    shell.show(shell.ask(TABLES))


def _views(shell: Shell, _: str) -> None:
    shell.show(shell.ask(VIEWS))


def _indexes(shell: Shell, _: str) -> None:
    shell.show(shell.ask("SHOW INDEXES"))


def _switched(argument: str, now: bool, name: str) -> bool:
    if argument and argument.lower() not in _ON_OFF:
        raise SettingError(f"{name} is either on or off")
    return _ON_OFF[argument.lower()] if argument else not now


def _expanded(shell: Shell, argument: str) -> None:
    shell.expanded = _switched(argument, shell.expanded, "\\x")
    shell.write(f"rows are shown as {'records' if shell.expanded else 'a table'}")


def _pager(shell: Shell, argument: str) -> None:
    wanted = _switched(argument, bool(shell.pager), "\\pager")
    shell.pager = find_pager() if wanted and shell.terminal else None
    if wanted and shell.pager is None:
        raise SettingError("there is no pager", hint="install less, or name one in $PAGER")
    shell.write(f"the pager is {'on: ' + ' '.join(shell.pager) if shell.pager else 'off'}")


def _timing(shell: Shell, argument: str) -> None:
    shell.timing = _switched(argument, shell.timing, "\\timing")
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
    "\\d": Command("\\d [NAME]", "list the tables, or describe one, or a view", _describe),
    "\\dt": Command("\\dt", "list the tables", _tables),
    "\\dv": Command("\\dv", "list the views", _views),
    "\\di": Command("\\di", "list the indexes", _indexes),
    "\\x": Command("\\x [on|off]", "show rows as records, or as a table again", _expanded),
    "\\pager": Command("\\pager [on|off]", "show long answers in a pager, or stop it", _pager),
    "\\timing": Command("\\timing [on|off]", "say how long statements took, or stop it", _timing),
    "\\format": Command(f"\\format {'|'.join(FORMATS)}", "how results look", _format),
    "\\i": Command("\\i FILE", "run the statements of a file", _include),
    "\\?": Command("\\?, help", "list these commands", _help),
    "\\q": Command("\\q, quit, exit", "leave", _quit),
}
