"""The states of a query: columns of partials that a rule asks for, equal ones kept once."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from tidemill.sql.decompose.nodes import column
from tidemill.sql.decompose.plan import Fold, Merge, sql_of


@dataclass(frozen=True)
class State:
    """A column of a partial: how rows make it, how states make one, and what tidies that one."""

    name: str
    partial: exp.Expression
    merge: Merge
    tidy: Merge | None = None
    grows: str = ""

    @property
    def fold(self) -> Fold:
        return Fold(self.merge, self.tidy, self.grows)


@dataclass
class States:
    prefix: str
    all: list[State] = field(default_factory=list)
    _known: dict[str, State] = field(default_factory=dict)

    def add(
        self, partial: exp.Expression, merge: Merge, tidy: Merge | None = None, grows: str = ""
    ) -> exp.Column:
        """Keep a state; answers the column that holds it."""
        key = sql_of(partial)
        if key not in self._known:
            state = State(f"{self.prefix}{len(self.all)}", partial, merge, tidy, grows)
            self._known[key] = state
            self.all.append(state)
        return column(self._known[key].name)

    @property
    def growing(self) -> list[str]:
        """Which states grow with the rows, and how."""
        return [f"{state.name}: {state.grows}" for state in self.all if state.grows]
