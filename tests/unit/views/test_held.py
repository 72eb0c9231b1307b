"""Views within one statement: each is worked out once, those that others read first."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from catalog_tables import view

from tidemill.federation.plan import VIEW, Scan
from tidemill.views.held import Held

ONE, TWO = view(1, "one", {"k": "INTEGER"}), view(2, "two", {"k": "INTEGER"})


@dataclass
class FakeView:
    """A view that its states answer, or that its query does if they cannot."""

    rows: pa.Table
    scans: tuple[Scan, ...] = ()
    by_states: bool = True
    calls: list[str] = field(default_factory=list)

    @property
    def plan(self) -> Any:
        return SimpleNamespace(scans=self.scans, key_queries=())

    def read_at(self, moment: Any) -> Any:
        self.calls.append("states")
        return SimpleNamespace(table=self.rows) if self.by_states else None

    def by_query_at(self, moment: Any) -> pa.Table:
        self.calls.append(f"query, with {sorted(moment.answers)}")
        return self.rows


def table(number: int) -> pa.Table:
    return pa.table({"k": [number]})


def moment() -> Any:
    return SimpleNamespace(answers={})


def held(by_query: bool = False, **views: FakeView) -> Held:
    ids = {"one": 1, "two": 2}
    return Held({ids[name]: each for name, each in views.items()}, by_query)  # type: ignore[misc]


def test_the_states_answer_once_for_a_moment() -> None:
    one, now = FakeView(table(1)), moment()
    views = held(one=one)
    assert views.read(ONE, now) is one.rows
    assert views.read(ONE, now) is one.rows
    assert one.calls == ["states"]


def test_the_query_answers_where_states_cannot() -> None:
    one = FakeView(table(1), by_states=False)
    assert held(one=one).read(ONE, moment()) is one.rows
    assert one.calls == ["states", "query, with []"]


def test_at_another_moment_queries_answer_alone() -> None:
    one = FakeView(table(1))
    held(by_query=True, one=one).read(ONE, moment())
    assert one.calls == ["query, with []"]


def test_a_view_that_another_reads_is_worked_out_before() -> None:
    one = FakeView(table(1))
    two = FakeView(table(2), (Scan("tm_scan_0", VIEW, "one", "one", ONE),))
    now = moment()
    held(by_query=True, one=one, two=two).read(TWO, now)
    assert two.calls == ["query, with [1]"]
    assert set(now.answers) == {1, 2}


def test_the_streams_that_views_read() -> None:
    scans = tuple(Scan(f"tm_scan_{at}", VIEW, "one", "one", ONE) for at in range(2))
    assert held(one=FakeView(table(1), scans), two=FakeView(table(2))).scans == list(scans)
