"""docs/sql.md: its examples run, in order, in one warehouse, and print what it says they print.

A ``sql`` block may be followed by a ``text`` block with its output: the table as ``tidemill sql``
prints it, a command tag, or an error. ``TIDEMILL_REWRITE_DOCS=1`` writes the actual output into
the page. The warehouse's clock stands at noon on 1 May 2024.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

import tidemill
from tidemill.as_text import TEXT, text_result
from tidemill.cli.render import collect, table
from tidemill.clock import FakeClock
from tidemill.config import (
    DATABASE_SETTINGS,
    SESSION_VARIABLES,
    TABLE_SETTINGS,
    VIEW_SETTINGS,
    Settings,
)
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.federation import system
from tidemill.types import _ARROW_BY_ID

PAGE = Path(__file__).parents[1] / "docs" / "sql.md"
NOON = datetime(2024, 5, 1, 12)
REWRITE = os.environ.get("TIDEMILL_REWRITE_DOCS") == "1"
BLOCK = re.compile(r"```sql\n(?P<sql>.*?)```\n(?:\n```text\n(?P<text>.*?)```\n)?", re.DOTALL)


def output(db: Database, text: str) -> str:
    """What a person sees: the answer of the last statement, or the error."""
    try:
        result = db.sql(text)
    except TidemillError as error:
        return f"error: {error}\n"
    shown = text_result(result, TEXT)
    lines = list(table(shown, collect(shown))) if result.columns else [result.message]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def run_page(page: str, db: Database) -> Iterator[tuple[re.Match[str], str]]:
    for block in BLOCK.finditer(page):
        yield block, output(db, block["sql"])


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A fresh warehouse; the examples read and write files in the current folder."""
    monkeypatch.chdir(tmp_path)
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "inline"})
    with Database(tmp_path / "warehouse", settings, clock=FakeClock(NOON)) as opened:
        yield opened


def test_examples(db: Database) -> None:
    page = PAGE.read_text()
    if REWRITE:
        outputs = [(block, found) for block, found in run_page(page, db)]
        for block, found in reversed(outputs):
            if block["text"] is not None:
                page = page[: block.start("text")] + found + page[block.end("text") :]
        PAGE.write_text(page)
        return
    for block, found in run_page(page, db):
        line = page.count("\n", 0, block.start()) + 1
        if block["text"] is None:
            assert not found.startswith("error"), f"docs/sql.md:{line}: {found}"
        else:
            assert found == block["text"], f"docs/sql.md:{line}: {block['sql']}"


def every_module() -> None:
    """Load all of the package: an error class counts once its module is there."""
    for module in pkgutil.walk_packages(tidemill.__path__, "tidemill."):
        importlib.import_module(module.name)


def every_error(kind: type[TidemillError]) -> Iterator[type[TidemillError]]:
    for below in kind.__subclasses__():
        yield below
        yield from every_error(below)


every_module()


@pytest.mark.parametrize("code", sorted({kind.code for kind in every_error(TidemillError)}))
def test_every_error_code_is_documented(code: str) -> None:
    assert f"| `{code}` |" in PAGE.read_text()


@pytest.mark.parametrize("name", [*TABLE_SETTINGS, *DATABASE_SETTINGS])
def test_every_setting_is_documented_with_its_default(name: str) -> None:
    setting = TABLE_SETTINGS.get(name) or DATABASE_SETTINGS[name]
    assert f"| `{name}` | `{setting.default}` |" in PAGE.read_text()


@pytest.mark.parametrize("name", VIEW_SETTINGS)
def test_every_setting_of_a_view_is_documented_with_its_default(name: str) -> None:
    assert f"| `{name}` | `{VIEW_SETTINGS[name].default}` |" in PAGE.read_text()


@pytest.mark.parametrize("name", SESSION_VARIABLES)
def test_every_variable_of_a_session_is_documented_with_its_default(name: str) -> None:
    assert f"`SET {name} = '{SESSION_VARIABLES[name].default}'" in PAGE.read_text()


@pytest.mark.parametrize("name", system.NAMES)
def test_every_system_table_is_documented(name: str) -> None:
    section = PAGE.read_text().partition(f"### `{name}`")[2].partition("\n### ")[0]
    assert section, f"{name} has no section"
    columns = [field.name for field in system.schema(name.partition(".")[2])]
    missing = [column for column in columns if f"`{column}`" not in section]
    assert not missing


@pytest.mark.parametrize("kind", _ARROW_BY_ID)
def test_every_type_is_documented(kind: str) -> None:
    name = {"float": "REAL", "timestamp with time zone": "TIMESTAMPTZ"}.get(kind, kind.upper())
    assert re.search(rf"`{name}`", PAGE.read_text())
