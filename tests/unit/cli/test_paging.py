"""The pager: a real program at the other end of a pipe."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest

import tidemill
from tidemill.cli.paging import find_pager, page
from tidemill.cli.session import Session
from tidemill.cli.shell import Shell


def test_the_pager_is_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "cat -n")
    assert find_pager() == ["cat", "-n"]
    monkeypatch.setenv("PAGER", "")
    assert find_pager() is None
    monkeypatch.setenv("PAGER", "no-such-program-anywhere")
    assert find_pager() is None


def test_lines_arrive(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    page((f"line {n} é" for n in range(3)), ["sh", "-c", f"cat > {shlex.quote(str(seen))}"])
    assert seen.read_text() == "line 0 é\nline 1 é\nline 2 é\n"


def test_leaving_early_is_no_error() -> None:
    page(("x" * 1_000 for _ in range(10_000)), ["true"])


def test_long_answers_are_paged_and_short_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {shlex.quote(str(seen))}\n")
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", str(pager))
    monkeypatch.setenv("LINES", "24")
    with tidemill.open(tmp_path / "warehouse", spark_master="inline") as database:
        out = io.StringIO()
        shell = Shell(Session(database, database.path), out, interactive=True)
        shell.terminal = True
        shell.run_lines(["SELECT 1 AS a;"])
        assert not seen.exists()
        shell.run_lines(["SELECT range AS n, repeat('x', 200) AS wide FROM range(1000);"])
        told = seen.read_text()
        assert len(told.splitlines()) == 1_002
        assert "x" * 200 in told
        assert "(1,000 rows)" in out.getvalue()
        shell.run_lines(["\\pager off", "SELECT range AS n FROM range(1000);"])
        assert "800 more rows" in out.getvalue()
