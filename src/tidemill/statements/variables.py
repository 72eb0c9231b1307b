"""Variables of a session: SET, RESET, SHOW."""

from __future__ import annotations

from tidemill.result import Result
from tidemill.sql import statements as st
from tidemill.statements.call import Call, Handlers


def set_variable(call: Call[st.SetVariable]) -> Result:
    return call.session.set(call.statement)


def show_variable(call: Call[st.ShowVariable]) -> Result:
    return call.session.show(call.statement)


HANDLERS: Handlers = {st.SetVariable: set_variable, st.ShowVariable: show_variable}
