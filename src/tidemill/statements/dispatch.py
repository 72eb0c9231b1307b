"""Dispatch: a text becomes statements, and each goes to the one that carries out its kind."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache

from tidemill.errors import TidemillError, UnsupportedError
from tidemill.executions import Executions
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.sql.locate import locate
from tidemill.sql.params import Params, plain_params
from tidemill.sql.parser import parse
from tidemill.statements.call import Call, Handler, Handlers
from tidemill.statements.caller import Find
from tidemill.statements.session import Session

TEXT_CACHED_CHARS_MAX = 10_000


class Statements:
    """Safe to call from many threads; each text is one execution."""

    def __init__(self, executions: Executions, parts: Iterable[Handlers]) -> None:
        self._executions = executions
        self.handlers: dict[type[st.Statement], Handler] = {}
        for part in parts:
            twice = self.handlers.keys() & part.keys()
            assert not twice, f"carried out by two: {twice}"
            self.handlers.update(part)

    def run(self, text: str, params: Params, session: Session, find: Find | None = None) -> Result:
        """Carry out the statements of a text; answers the result of the last one."""
        with self._executions.begin(text, session):
            began = time.perf_counter()
            given = plain_params(params)
            result = None
            for statement in parsed(text):
                result = self._run(Call(statement, given, session, find))
            if result is None:
                result = done("")
            result.elapsed_s = time.perf_counter() - began
            return result

    def _run(self, call: Call[st.Statement]) -> Result:
        statement = call.statement
        handler = self.handlers.get(type(statement))
        if handler is None:
            raise UnsupportedError("this statement is not supported", position=statement.position)
        try:
            return handler(call)
        except TidemillError as error:
            error.position = error.position or locate(error.message, statement)
            raise


def parsed(text: str) -> Iterable[st.Statement]:
    """The statements of a text; short texts are parsed once and kept."""
    return _parsed(text) if len(text) <= TEXT_CACHED_CHARS_MAX else parse(text)


@lru_cache(maxsize=512)
def _parsed(text: str) -> tuple[st.Statement, ...]:
    return tuple(parse(text))
