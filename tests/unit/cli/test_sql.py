"""``tidemill sql`` without a prompt: arguments, files, pipes, errors, exit codes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import tidemill
from tidemill.cli.main import SUBCOMMANDS, main
from tidemill.cli.session import Session
from tidemill.cli.shell import Shell

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
    with tidemill.open(warehouse) as owner:
        owner.sql("CREATE TABLE t AS SELECT 42 AS answer")
        assert main(["sql", "-c", "SELECT answer FROM t"]) == 0
    told = capsys.readouterr()
    assert "42" in told.out
    assert "connected to process" in told.err


def test_an_owner_that_does_not_serve_is_named(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tidemill.open(warehouse, serve_local="off"):
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


def test_records_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    view = "CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n\nFROM t GROUP BY a"
    assert main(["sql", "-c", CREATE, "-c", view]) == 0
    capsys.readouterr()
    script = "\\x\nSELECT 1 AS a, 'x' AS long_name;\n\\x off\n\\dt\n\\dv\n\\d v"
    assert main(["sql", "-c", script]) == 0
    told = capsys.readouterr().out
    assert "a         │ 1\nlong_name │ x\n" in told
    assert " t          │ streaming │" in told
    assert " v         │ view │" in told
    assert "query:\n  SELECT a, count(*) AS n\n  FROM t GROUP BY a\n" in told


def test_words_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-c", "help\nSELECT 1 AS a;\nexit\nSELECT 2 AS b;"]) == 0
    told = capsys.readouterr().out
    assert "\\timing [on|off]" in told
    assert " a\n" in told
    assert " b\n" not in told
    assert main(["sql", "-c", "QUIT;\nSELECT 3"]) == 0
    assert "3" not in capsys.readouterr().out


def test_json_without_nan(capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT 'nan'::DOUBLE AS a, ['inf'::DOUBLE, 1] AS b"
    assert main(["sql", "--format", "json", "-c", query]) == 0
    assert capsys.readouterr().out == '[\n{"a":null,"b":[null,1.0]}\n]\n'


def test_explain_is_not_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, warehouse: Path
) -> None:
    condition = " OR ".join(f"a = {n}" for n in range(100))
    with tidemill.open(warehouse, spark_master="inline") as owner:
        owner.sql(CREATE)
        out = io.StringIO()
        shell = Shell(Session(owner, warehouse), out)
        shell.terminal = True
        monkeypatch.setenv("COLUMNS", "80")
        shell.run_lines([f"EXPLAIN SELECT * FROM t WHERE {condition} AND ts < now();"])
    assert "a = 99" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) > 300


def test_settings_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT value FROM tidemill.settings WHERE name = 'spark_master'"
    given = ["--set", "spark_master=local[2]", "--set", "threads=1"]
    assert main(["sql", *given, "-c", query]) == 0
    assert "local[2]" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["sql", "-c", "SELECT 1"], ["status"]])
def test_settings_are_those_of_the_owner(
    command: list[str], warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tidemill.open(warehouse, query_memory="1 GB"):
        assert main([*command, "--set", "query_memory=1000 MB"]) == 0  # the same, said otherwise
        capsys.readouterr()
        assert main([*command, "--set", "query_memory=2 GB"]) == 1
    told = capsys.readouterr().err
    assert "setting \"query_memory\" is '1 GB' in process" in told
    assert "cannot be '2 GB' here" in told


@pytest.mark.parametrize("given", ["threads", "thread=2", "threads=many"])
def test_wrong_settings_are_told(
    given: str, warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", "--set", given, "-c", "SELECT 1"]) == 1
    assert "setting" in capsys.readouterr().err
    assert not warehouse.exists()


def test_status_tells_what_is_going_on(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tidemill.open(warehouse, spark_master="inline") as owner:
        owner.sql(f"{CREATE}; INSERT INTO t VALUES ('2024-01-01', 1), ('2024-01-02', 2); FLUSH t")
        owner.append("t", {"ts": "2024-01-03", "a": 3})
        assert main(["status"]) == 0
    told = capsys.readouterr().out
    assert "history   2 rows in 2 partitions" in told
    assert "spark     none" in told
    assert "jobs      1 committed" in told
    assert "pending   1 rows in memory" in told
