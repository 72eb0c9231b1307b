"""Cutting a text into statements, beside the parser's own tokens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as some

from tidemill.lexical import cut
from tidemill.sql.tokens import split, tokenize

WORDS = [
    "SELECT", "1", "x", "é", ",", "(", ")", "*", "-", "/", ".5", ";", ";;", " ", "\n", "$1", "?",
    "'a;b'", "''", "'it''s'", "e'a\\';b'", '"q;""x"', "-- a; 'b\n", "/* ; ' */", "/* /* ; */ */",
    "$$ ; ' $$", "$a$ ; $$ $a$", ":name",
]  # fmt: skip


@settings(deadline=None)
@given(some.lists(some.sampled_from(WORDS), max_size=12))
def test_statements_end_where_the_parser_says(words: list[str]) -> None:
    text = " ".join(words)
    tokens = tokenize(text)
    found = cut(text)
    assert not found.is_open
    assert found.statements == tuple((s[0].start, s[-1].end + 1) for s in split(tokens))
    assert found.is_ended == (bool(tokens) and text[tokens[-1].start] == ";")


def test_what_never_ends_is_open() -> None:
    for text in ("SELECT 'x;", 'SELECT "x;', "/* ; ", "/* /* */ ;", "$$ ;", "$a$ ; $$", "e'\\';"):
        assert cut(text).is_open, text
        assert not cut(text).is_ended
