"""SHOW and DESCRIBE are queries of system tables, run for the session that asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call
from tidemill.statements.dispatch import parsed
from tidemill.statements.session import Session
from tidemill.statements.showing import Showing


@dataclass(frozen=True)
class Named:
    name: str


class OneTable:
    """A catalog that finds a table by any spelling of its name."""

    def snapshot(self) -> OneTable:
        return self

    def get(self, name: str, position: object = None) -> Named:
        return Named(name.upper())


@pytest.mark.parametrize(
    ("text", "table", "params"),
    [
        ("SHOW TABLES", "tables", None),
        ("SHOW JOBS", "jobs", None),
        ("SHOW SOURCES", "sources", None),
        ("SHOW VIEWS", "views", None),
        ("SHOW INDEXES", "indexes", None),
        ("SHOW INDEXES ON t", "indexes", ["T"]),
        ("SHOW PARTITIONS", "partitions", None),
        ("SHOW PARTITIONS ON t", "partitions", ["T"]),
        ("DESCRIBE t", "columns", ["T"]),
    ],
)
def test_what_is_asked(text: str, table: str, params: list[str] | None) -> None:
    calls: list[Call[st.Query]] = []

    def query(call: Call[st.Query]) -> Result:
        calls.append(call)
        return done("SELECT 0")

    catalog: Any = OneTable()
    showing, session = Showing(catalog, query), Session()
    (statement,) = parsed(text)
    showing.handlers[type(statement)](Call(statement, None, session))
    (call,) = calls
    assert call.session is session
    assert call.params == params
    assert f"FROM tidemill.{table}" in call.statement.text
