"""Errors as people see them."""

from __future__ import annotations

import io

from tidemill.cli.report import error_lines, print_error
from tidemill.errors import Position, QueryError


def test_the_caret_stands_under_the_words() -> None:
    error = QueryError("no column spdd", hint="did you mean spd?", position=Position(2, 3, "spdd"))
    assert error_lines(error, "SELECT\n  spdd FROM t", line_offset=4, place="a.sql") == [
        "a.sql: error: no column spdd",
        "  line 6:   spdd FROM t",
        "            ^^^^",
        "hint: did you mean spd?",
    ]


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "x" * 500 + " wrong " + "y" * 500
    _, line, caret = error_lines(QueryError("m", position=Position(1, 502, "wrong")), text)
    assert len(line) < 150
    assert line[caret.index("^") :].startswith("wrong")


def test_a_place_outside_the_text_is_told_in_words() -> None:
    error = QueryError("m", detail="one\ntwo", position=Position(7, 3))
    assert error_lines(error, "short") == [
        "error: m",
        "  line 7, column 3",
        "detail: one",
        "        two",
    ]


def test_the_end_of_a_text_can_be_pointed_at() -> None:
    lines = error_lines(QueryError("m", position=Position(1, 9)), "SELECT 1")
    assert lines[1:] == ["  line 1: SELECT 1", "                  ^"]


def test_no_colours_outside_of_a_terminal() -> None:
    stream = io.StringIO()
    print_error(QueryError("m"), stream=stream)
    assert stream.getvalue() == "error: m\n"
