"""What the documentation names exists, and what exists is documented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.cli.main import SUBCOMMANDS
from tidemill.config import DATABASE_SETTINGS, TABLE_SETTINGS

ROOT = Path(__file__).parents[2]
# Design notes are dated: they tell what was true when they were written.
PAGES = [
    page
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.exists() and "design" not in page.relative_to(ROOT).parts
]
TOP_LEVEL = ("src/", "tests/", "docs/", "benchmarks/", "examples/", "scripts/", ".ci/")
TOP_FILE = re.compile(r"(Makefile|[A-Za-z_]+\.(md|toml|lock))")
INLINE_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
MAKE = re.compile(r"(?:`|^\s*\$?\s*)make ([a-z]+)\b", re.MULTILINE)


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def named_paths(text: str) -> Iterator[str]:
    """The words in backticks that look like paths of this repository."""
    for code in INLINE_CODE.findall(text):
        word = code.strip().rstrip("/")
        if re.search(r"[\s<>*$…{}]", word):
            continue
        if word.startswith(TOP_LEVEL) or TOP_FILE.fullmatch(word):
            yield word.split("::")[0]


def documentation() -> str:
    return "\n".join(page.read_text() for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_named_paths_exist(page: Path) -> None:
    missing = [
        path
        for path in named_paths(page.read_text())
        if not (ROOT / path).exists() and not (page.parent / path).exists()
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_named_make_targets_exist(page: Path) -> None:
    assert set(MAKE.findall(page.read_text())) <= make_targets()


def test_every_make_target_is_listed_by_help() -> None:
    listed = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(listed) == make_targets()


@pytest.mark.parametrize("name", [*TABLE_SETTINGS, *DATABASE_SETTINGS])
def test_every_setting_is_documented(name: str) -> None:
    assert re.search(rf"`{name}`", documentation()), f"`{name}` is in no page of docs/"


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_is_documented(name: str) -> None:
    assert f"tidemill {name}" in documentation()
