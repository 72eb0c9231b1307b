"""``tidemill sql`` without a prompt: arguments, files, pipes, errors, exit codes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import tidemill
from tidemill.cli.main import SUBCOMMANDS, main
from tidemill.server.local import LocalServer

CREATE = (
    "CREATE STREAMING TABLE t (ts TIMESTAMP, a INT) WITH (late = 'divert'); CREATE INDEX ON t (a)"
)


@pytest.fixture(autouse=True)
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "warehouse"
    monkeypatch.setenv("TIDEMILL_WAREHOUSE", str(folder))
    return folder


def test_statements_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-c", "SELECT 1 AS a; SELECT 2 AS b", "-c", "SELECT 3 AS c"]) == 0
    assert capsys.readouterr().out == (
        " a\n───\n 1\n(1 row)\n b\n───\n 2\n(1 row)\n c\n───\n 3\n(1 row)\n"
    )


def test_a_statement_without_rows_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-c", "CREATE TABLE t (a INT)"]) == 0
    assert capsys.readouterr().out == "CREATE TABLE\n"


def test_formats_have_no_words_around_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "--format", "json", "-c", "SELECT 1 AS a"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"a": 1}]


def test_an_error_stops_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-c", "SELECT 1; SELECT * FROM absent; SELECT 3"]) == 1
    told = capsys.readouterr()
    assert "(1 row)" in told.out
    assert "3" not in told.out
    assert told.err.startswith("error: ")
    assert "  line 1: " in told.err
    assert "^^^^^^\n" in told.err
    assert "hint: " in told.err


def test_a_file_names_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.sql"
    script.write_text("-- words\n\nSELECT 1 AS a;\n\nSELECT * FROM absent;\n")
    assert main(["sql", "-f", str(script)]) == 1
    told = capsys.readouterr().err
    assert f"{script}: error:" in told
    assert "line 5: SELECT * FROM absent" in told


def test_a_file_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-f", str(tmp_path / "absent.sql")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_statements_from_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\\timing off\nSELECT\n 1 AS a;\n\\q\nSELECT 2;"))
    assert main(["sql"]) == 0
    assert capsys.readouterr().out == "timing is off\n a\n───\n 1\n(1 row)\n"


def test_timing_is_told_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-c", "\\timing", "-c", "SELECT 1 AS a"]) == 0
    assert "(1 row, " in capsys.readouterr().out


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "inner.sql"
    script.write_text("SELECT 7 AS seven;\n")
    words = ["-c", CREATE, "-c", "\\d", "-c", "\\d t", "-c", "\\di", "-c", "\\format csv", "-c"]
    assert main(["sql", *words, f"\\i {script}", "-c", "\\?"]) == 0
    out = capsys.readouterr().out
    assert " t          │ streaming " in out
    assert "index t_a_idx (a) ordered" in out
    assert "with late = 'divert'" in out
    assert "seven\n7\n" in out
    assert "\\format table|csv|json|markdown" in out


@pytest.mark.parametrize(
    "command", ["\\tming", "\\format xml", "\\timing maybe", "\\i", "\\format"]
)
def test_wrong_commands_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-c", command]) == 1
    assert "error: " in capsys.readouterr().err


def test_a_file_that_includes_itself_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "snake.sql"
    script.write_text(f"\\i {script}\n")
    assert main(["sql", "-f", str(script)]) == 1
    assert capsys.readouterr().err.count("error:") == 1


def test_an_owned_warehouse_is_asked_through_its_owner(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tidemill.open(warehouse) as owner, LocalServer(owner):
        owner.sql("CREATE TABLE t AS SELECT 42 AS answer")
        assert main(["sql", "-c", "SELECT answer FROM t"]) == 0
    told = capsys.readouterr()
    assert "42" in told.out
    assert "connected to process" in told.err


def test_an_owner_that_does_not_serve_is_named(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tidemill.open(warehouse):
        assert main(["sql", "-c", "SELECT 1"]) == 1
    assert "takes no connections" in capsys.readouterr().err


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert "--warehouse" in capsys.readouterr().out


def test_no_subcommand_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out = capsys.readouterr().out
    assert all(name in out for name in SUBCOMMANDS)
