"""Catalog URLs: accepted forms, and passwords that stay hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.catalog.store import Catalog
from tidemill.catalog.urls import parse_url, shown, sqlite_url
from tidemill.clock import FakeClock
from tidemill.errors import CatalogError


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgres_in_three_spellings(scheme: str) -> None:
    url = parse_url(f"{scheme}://me:s3cret@db:5433/tm?sslmode=require")
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.host, url.port, url.database) == ("me", "db", 5433, "tm")
    assert shown(url) == '"postgresql+psycopg://me:***@db:5433/tm?sslmode=require"'


def test_a_password_in_the_query_is_hidden_too() -> None:
    assert "s3cret" not in shown(parse_url("postgresql://me@db/tm?password=s3cret"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sqlite",
        "sqlite://",
        "sqlite:///",
        "mysql://me:s3cret@db/x",
        "postgresql+psycopg2://me:s3cret@db/x",
        "postgresql://me:s3cret@db:s3cret/x",
        "postgresql:/me:s3cret@db",
    ],
)
def test_other_urls_are_refused_without_telling_secrets(text: str) -> None:
    with pytest.raises(CatalogError) as caught:
        parse_url(text)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "sqlite:///" in caught.value.hint


@pytest.mark.parametrize("name", ["plain", "what?x=1", "a#b", "a%20b", "ä 🌊", "a:b@c", "x;y"])
def test_any_folder_may_hold_a_catalog(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    Catalog.open(sqlite_url(folder / "catalog.db"), FakeClock(0)).close()
    assert sorted(file.name for file in folder.iterdir()) == ["catalog.db", "catalog.db.head"]
