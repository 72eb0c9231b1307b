"""What the catalog keeps of a kept query."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.catalog.model import REFERENCE, STREAMING, Table
from tidemill.sql.statements import Slide
from tidemill.views.kept.definition import (
    Definition,
    StreamBegin,
    definition_of,
    is_kept,
    loads_source_of,
    slide_text,
    source_of,
)

TABLE = Table(7, "s", STREAMING, (), (), "ts", None, {}, (), 0)
DEFINITION = Definition(
    "SELECT x FROM t WHERE note = 'é'",
    Slide(every_us=60_000_000),
    (StreamBegin(1, "t", 42),),
    ("t",),
    -5,
    9,
)


def test_a_definition_comes_back_from_its_text() -> None:
    table = replace(TABLE, definition=DEFINITION.to_json())
    assert definition_of(table) == DEFINITION
    assert DEFINITION.tree().sql("duckdb") == "SELECT x FROM t WHERE note = 'é'"
    assert DEFINITION.tree() is not DEFINITION.tree()


def test_only_streaming_tables_with_a_definition_are_kept() -> None:
    assert not is_kept(TABLE)
    assert is_kept(replace(TABLE, definition=DEFINITION.to_json()))
    assert not is_kept(replace(TABLE, kind=REFERENCE, definition="{}"))


def test_sources_are_the_querys_own() -> None:
    assert (source_of(7), loads_source_of(7)) == ("kept:7", "kept:7:loads")


@pytest.mark.parametrize(
    ("slide", "text"),
    [
        (Slide(every_us=90_000_000), "EVERY INTERVAL '90' SECOND"),
        (Slide(every_us=10_000), "EVERY INTERVAL '10' MILLISECOND"),
        (Slide(every_row=True), "EVERY ROW"),
        (Slide(on_close=True), "EMIT ON WINDOW CLOSE"),
    ],
)
def test_slides_as_people_write_them(slide: Slide, text: str) -> None:
    assert slide_text(slide) == text
