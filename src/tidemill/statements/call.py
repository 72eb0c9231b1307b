"""A call: one statement to be carried out, with all that belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from tidemill.result import Result
from tidemill.sql import statements as st
from tidemill.sql.params import Params
from tidemill.statements.caller import Find
from tidemill.statements.session import Session

S_co = TypeVar("S_co", bound=st.Statement, covariant=True)
T = TypeVar("T", bound=st.Statement)


class Call(Generic[S_co]):
    """``find`` gives the variables of the caller, if the statement may read them. Not changed once
    it is made; a frozen dataclass would take three times as long to make."""

    __slots__ = ("find", "params", "session", "statement")

    def __init__(
        self, statement: S_co, params: Params, session: Session, find: Find | None = None
    ) -> None:
        self.statement = statement
        self.params = params
        self.session = session
        self.find = find

    def of(self, statement: T) -> Call[T]:
        """Another statement as a part of this one."""
        return Call(statement, self.params, self.session, self.find)


Handler = Callable[[Call[Any]], Result]
"""Carries out the statements of one type."""
Handlers = Mapping[type[st.Statement], Handler]
RunQuery = Callable[[Call[st.Query]], Result]
