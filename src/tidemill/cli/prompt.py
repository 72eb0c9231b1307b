"""The interactive prompt: history, many lines, completion of names, colours while typing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.output import Output
from pygments.lexers.sql import PostgresLexer

from tidemill.cli.script import command_of, is_complete, read_pieces
from tidemill.cli.session import Session
from tidemill.cli.shell import COMMANDS, Quit, Shell
from tidemill.config import TABLE_SETTINGS
from tidemill.errors import TidemillError

PROMPT = "tidemill> "
CONTINUATION = "     ...> "
COMPLETIONS_MAX = 200
WORDS = (
    "STREAMING WATERMARK TUMBLE HOP SESSION RECENT INTERVAL COPY EXPLAIN INDEX INDEXES TABLES "
    "INSERT VALUES UPDATE DELETE DROP ALTER SET COUNT SUM AVG MIN MAX"
)


def run_prompt(shell: Shell, input_: Input | None = None, output: Output | None = None) -> int:
    """Asks until the user leaves."""
    shell.write(f"tidemill {version('tidemill')}, warehouse {shell.session.path}")
    shell.write(shell.session.notice or "others can connect to it while you are here")
    shell.write('end a statement with ";", help lists the commands, exit leaves')
    names = Names(shell.session)
    prompt: PromptSession[str] = PromptSession(
        history=open_history(),
        completer=SqlCompleter(names),
        complete_while_typing=True,
        lexer=PygmentsLexer(PostgresLexer),
        multiline=True,
        prompt_continuation=CONTINUATION,
        key_bindings=build_keys(),
        input=input_,
        output=output,
    )
    while True:
        names.refresh()
        try:
            text = prompt.prompt(PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        try:
            run_text(shell, text)
        except Quit:
            return 0


def run_text(shell: Shell, text: str) -> None:
    """Runs what was entered; an error or Ctrl-C ends that and not the shell."""
    try:
        for piece in read_pieces(text.splitlines(keepends=True)):
            if not shell.run_reported(piece):
                break
    except KeyboardInterrupt:
        shell.write("cancelled")
    shell.out.flush()


def is_finished(text: str) -> bool:
    """Whether Enter should run what was typed rather than start another line."""
    stripped = text.strip()
    return not stripped or command_of(stripped) is not None or is_complete(stripped)


def build_keys() -> KeyBindings:
    """Enter runs a finished statement and breaks the line of any other."""
    keys = KeyBindings()

    @Condition
    def choosing() -> bool:
        return has_completions() and _completion_chosen()

    @keys.add("enter", filter=has_focus("DEFAULT_BUFFER") & ~choosing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_finished(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _completion_chosen() -> bool:
    state = get_app().current_buffer.complete_state
    return state is not None and state.current_completion is not None


def open_history() -> History:
    """The history file of the user; in memory where that cannot be written."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = state / "tidemill" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


class Names:
    """What can be completed: words of the language, tables, columns. Refreshed at each prompt."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.words = sorted({*WORDS.split(), *_keywords(session)})
        self.settings = sorted(TABLE_SETTINGS)
        self.tables: list[str] = []
        self.columns: list[str] = []

    def refresh(self) -> None:
        """Reads the names again; the old ones stay where that fails."""
        asked = self._session.asked
        try:
            tables = asked.sql_text("SELECT table_name FROM tidemill.tables").rows()
            columns = asked.sql_text("SELECT DISTINCT column_name FROM tidemill.columns").rows()
        except TidemillError:
            return
        self.tables = sorted(str(name) for (name,) in tables)
        self.columns = sorted(str(name) for (name,) in columns)

    def kinds(self) -> Iterator[tuple[Iterable[str], str]]:
        yield self.tables, "table"
        yield self.columns, "column"
        yield self.settings, "setting"
        yield self.words, ""


class SqlCompleter(Completer):
    """Completes the word before the cursor, names before words of the language."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if text.startswith("\\") and " " not in text:
            yield from self._commands(text)
            return
        word = document.get_word_before_cursor()
        if not word or not (word[0].isalpha() or word[0] in "_$"):
            return
        lower = word.lower()
        count = 0
        for names, kind in self._names.kinds():
            for name in names:
                if not name.lower().startswith(lower) or count >= COMPLETIONS_MAX:
                    continue
                count += 1
                shown = name.lower() if not kind and word.islower() else name
                yield Completion(shown, start_position=-len(word), display_meta=kind)

    def _commands(self, text: str) -> Iterator[Completion]:
        for name, command in COMMANDS.items():
            if name.startswith(text):
                yield Completion(name, start_position=-len(text), display_meta=command.about)


def _keywords(session: Session) -> list[str]:
    """The words of the language, from where the warehouse is."""
    try:
        rows = session.asked.sql_text("SELECT keyword_name FROM duckdb_keywords()").rows()
    except TidemillError:
        return []
    return [str(name).upper() for (name,) in rows]
