"""Dispatch: every statement has one that carries it out, with its parameters and its session."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from tidemill.clock import FakeClock
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.errors import TidemillError, UnknownNameError, UnsupportedError
from tidemill.executions import Executions
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers
from tidemill.statements.dispatch import TEXT_CACHED_CHARS_MAX, Statements, parsed
from tidemill.statements.session import Session

EVERY_TYPE = [
    kind
    for _, kind in inspect.getmembers(st, inspect.isclass)
    if issubclass(kind, st.Statement) and kind is not st.Statement
]


class Noting:
    """Handlers that note their calls, and the executions that run meanwhile."""

    def __init__(self) -> None:
        self.executions = Executions("w", FakeClock())
        self.calls: list[Call[Any]] = []
        self.running: list[str] = []

    def run(self, call: Call[Any]) -> Result:
        self.calls.append(call)
        self.running += [each.text for each in self.executions.running()]
        return done(type(call.statement).__name__)

    def fail(self, call: Call[Any]) -> Result:
        raise UnknownNameError('table "nowhere" does not exist')

    def statements(self, *parts: Handlers) -> Statements:
        return Statements(self.executions, parts or ({st.Flush: self.run, st.Query: self.run},))


def test_every_statement_is_carried_out_by_one(tmp_path: Path) -> None:
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "inline", "threads": 1})
    with Database(tmp_path / "w", settings) as db:
        handlers = db._statements.handlers
        assert set(handlers) == set(EVERY_TYPE)


def test_a_statement_gets_its_parameters_and_its_session() -> None:
    noting, session = Noting(), Session()
    result = noting.statements().run("SELECT 1; FLUSH", [7], session, {"x": 1}.get)
    assert result.message == "Flush"
    assert [type(call.statement) for call in noting.calls] == [st.Query, st.Flush]
    for call in noting.calls:
        assert (call.params, call.session is session) == ([7], True)
        assert call.find is not None
        assert call.find("x") == 1


def test_a_part_of_a_call_has_all_but_its_statement() -> None:
    noting, session = Noting(), Session()
    noting.statements().run("FLUSH", {"a": 1}, session, {"x": 1}.get)
    (call,) = noting.calls
    (query,) = parsed("SELECT 1")
    part = call.of(query)
    assert part.statement is query
    assert (part.params, part.session, part.find) == (call.params, session, call.find)


def test_a_text_is_one_execution() -> None:
    noting = Noting()
    text = "SELECT 1; FLUSH"
    noting.statements().run(text, None, Session())
    assert noting.running == [text, text]
    assert noting.executions.running() == []


def test_an_error_says_where_and_ends_the_text() -> None:
    noting = Noting()
    statements = noting.statements({st.Query: noting.fail, st.Flush: noting.run})
    with pytest.raises(TidemillError, match="does not exist") as caught:
        statements.run("SELECT *\nFROM nowhere; FLUSH", None, Session())
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (2, 6)
    assert noting.calls == []
    assert noting.executions.running() == []


def test_what_nobody_carries_out_is_refused() -> None:
    noting = Noting()
    with pytest.raises(UnsupportedError, match="not supported") as caught:
        noting.statements().run("SELECT 1; VACUUM", None, Session())
    assert caught.value.position is not None
    assert len(noting.calls) == 1


def test_nothing_is_carried_out_by_two() -> None:
    noting = Noting()
    with pytest.raises(AssertionError, match="Flush"):
        noting.statements({st.Flush: noting.run}, {st.Flush: noting.fail})


def test_short_texts_are_parsed_once() -> None:
    assert parsed("SELECT 1") is parsed("SELECT 1")
    long = f"SELECT '{'x' * TEXT_CACHED_CHARS_MAX}'"
    assert parsed(long) is not parsed(long)
