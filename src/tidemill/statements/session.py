"""Sessions: what one client has SET. A connection has its own; callers in one process may share."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemill.config import SESSION_VARIABLES, Settings
from tidemill.errors import SettingError, UnsupportedError, did_you_mean
from tidemill.result import Result, done
from tidemill.sql import statements as st


class Session:
    def __init__(self) -> None:
        self._values = Settings(SESSION_VARIABLES, {})

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def set(self, statement: st.SetVariable) -> Result:
        """SET name = value, RESET name, RESET ALL."""
        if statement.name is None:
            self._values = Settings(SESSION_VARIABLES, {})
            return done("RESET")
        _check(statement.name, statement)
        given = {k: v for k, v in self._values.given.items() if k != statement.name}
        if statement.value is not None:
            given[statement.name] = statement.value
        try:
            self._values = Settings(SESSION_VARIABLES, given)
        except SettingError as error:
            error.position = error.position or statement.position
            raise
        return done("SET" if statement.value is not None else "RESET")

    def show(self, statement: st.ShowVariable) -> Result:
        """SHOW name, SHOW ALL."""
        if statement.name is not None:
            _check(statement.name, statement)
            table = pa.table({statement.name: [self._values.text(statement.name)]})
            return Result(table, ["VARCHAR"], "SHOW")
        names = list(SESSION_VARIABLES)
        columns = {
            "name": names,
            "value": [self._values.text(name) for name in names],
            "about": [SESSION_VARIABLES[name].about for name in names],
        }
        table = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
        return Result(table, ["VARCHAR"] * 3, "SHOW")


def _check(name: str, statement: st.SetVariable | st.ShowVariable) -> None:
    if name not in SESSION_VARIABLES:
        raise UnsupportedError(
            f'variable "{name}" does not exist',
            hint=did_you_mean(name, SESSION_VARIABLES)
            or f"the variables are {', '.join(SESSION_VARIABLES)}; settings of the database are "
            "given to tidemill.open, those of a table to ALTER TABLE … SET (…)",
            position=statement.position,
        )
