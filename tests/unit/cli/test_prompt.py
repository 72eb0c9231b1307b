"""The interactive prompt, typed at through a pipe."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import tidemill
from tidemill.cli.prompt import Names, SqlCompleter, is_finished, open_history, run_prompt
from tidemill.cli.session import Session
from tidemill.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with tidemill.open(tmp_path / "warehouse") as database:
        session = Session(database, database.path)
        yield Shell(session, io.StringIO(), timing=True)


def type_in(shell: Shell, keys: str) -> str:
    with create_pipe_input() as keyboard:
        keyboard.send_text(keys)
        assert run_prompt(shell, keyboard, DummyOutput()) == 0
    assert isinstance(shell.out, io.StringIO)
    return shell.out.getvalue()


def test_a_statement_may_have_many_lines(shell: Shell) -> None:
    out = type_in(shell, "SELECT 1 AS a,\r2 AS b;\r\\q\r")
    assert " a │ b" in out
    assert "(1 row, " in out


def test_an_error_does_not_end_the_shell(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    out = type_in(shell, "SELECT * FROM absent; SELECT 1;\rSELECT 2 AS two;\r\x04")
    assert "two" in out
    assert "error: " in capsys.readouterr().err


def test_ctrl_c_forgets_the_line_and_ctrl_d_leaves(shell: Shell) -> None:
    assert "SELECT" not in type_in(shell, "SELECT\x03\x04")


def test_what_was_typed_is_remembered(shell: Shell) -> None:
    type_in(shell, "SELECT 41 AS a;\r\x04")
    assert list(open_history().load_history_strings()) == ["SELECT 41 AS a;"]


def test_history_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    assert list(open_history().load_history_strings()) == []


@pytest.mark.parametrize(
    ("text", "finished"),
    [("", True), ("\\d", True), ("SELECT 1;", True), ("SELECT 1", False), ("SELECT ';", False)],
)
def test_enter_runs_what_is_finished(text: str, finished: bool) -> None:
    assert is_finished(text) is finished


def completions(names: Names, text: str) -> list[str]:
    found = SqlCompleter(names).get_completions(Document(text), CompleteEvent())
    return [completion.text for completion in found]


def test_names_and_words_are_completed(shell: Shell) -> None:
    shell.session.database.sql("CREATE STREAMING TABLE pos_reports (ts TIMESTAMP, pos INT)")
    names = Names(shell.session)
    names.refresh()
    assert completions(names, "SELECT pos")[:3] == ["pos_reports", "pos", "position"]
    assert "STREAMING" in completions(names, "CREATE STR")
    assert completions(names, "\\ti") == ["\\timing"]
    assert completions(names, "SELECT 1") == []
