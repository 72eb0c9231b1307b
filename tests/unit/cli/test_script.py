"""Cutting text into statements and commands."""

from __future__ import annotations

import pytest

from tidemill.cli.script import Piece, is_complete, read_pieces


def pieces(text: str) -> list[Piece]:
    return list(read_pieces(text.splitlines(keepends=True)))


def test_statements_end_with_semicolons() -> None:
    assert pieces("SELECT 1;\nSELECT\n  2;\n") == [Piece("SELECT 1", 0), Piece("SELECT\n  2", 1)]


def test_the_last_semicolon_may_be_missing() -> None:
    assert pieces("SELECT 1; SELECT 2") == [Piece("SELECT 1", 0), Piece(" " * 10 + "SELECT 2", 0)]


def test_a_column_stays_where_it_was() -> None:
    text = "SELECT 1; SELECT wrong"
    (second,) = pieces(text)[1:]
    assert second.text.index("wrong") == text.index("wrong")


def test_semicolons_inside_words_are_words() -> None:
    assert [piece.text for piece in pieces("SELECT ';', \";\" /* ; */ -- ;\n, 1;")] == [
        "SELECT ';', \";\" /* ; */ -- ;\n, 1"
    ]


def test_commands_stand_on_lines_of_their_own() -> None:
    assert pieces("\\d\nSELECT 1;\n  \\timing on\n") == [
        Piece("\\d", 0),
        Piece("SELECT 1", 1),
        Piece("\\timing on", 2),
    ]


def test_a_backslash_inside_a_statement_is_no_command() -> None:
    assert [piece.text for piece in pieces("SELECT '\n\\d';")] == ["SELECT '\n\\d'"]


def test_nothing_is_nothing() -> None:
    assert pieces("") == []
    assert pieces("\n  ;; \n-- only words\n") == []


def test_what_cannot_be_cut_is_one_piece() -> None:
    assert pieces("SELECT 'never closed") == [Piece("SELECT 'never closed", 0)]


@pytest.mark.parametrize(
    ("text", "complete"),
    [("SELECT 1;", True), ("SELECT 1", False), ("SELECT ';", False), ("; -- x", True), ("", False)],
)
def test_completeness(text: str, complete: bool) -> None:
    assert is_complete(text) is complete
