"""The calls of the AIM benchmark are what their maker says, and its judge knows the answers."""

from __future__ import annotations

import datetime as dt
import importlib
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.compute as pc
import pytest

ROOT = Path(__file__).parents[2]
ANCHOR = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
ANCHOR_US = round(ANCHOR.timestamp() * 1_000_000)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))

    def by_name(name: str) -> ModuleType:
        return importlib.import_module(f"benchmarks.{name}")

    return by_name


def test_everyone_calls_before_anyone_calls_twice(load) -> None:
    data = load("aim_data")
    calls = data.Calls(ANCHOR_US, 150_000)
    first = calls.table(150_000)
    assert pc.count_distinct(first["entity_id"]).as_py() == 150_000
    assert pc.max(calls.piece(7).column("entity_id")).as_py() < 150_000


def test_batches_do_not_depend_on_how_they_are_cut(load) -> None:
    data = load("aim_data")
    calls = data.Calls(ANCHOR_US, 1_000)
    whole = calls.table(210_000)
    cut = list(calls.batches(0, 95_000, 10_000)) + list(calls.batches(95_000, 210_000, 7_000))
    assert pa.Table.from_batches(cut).equals(whole)
    times = whole["ts"].cast(pa.int64())
    assert (times[0].as_py(), times[-1].as_py()) == (ANCHOR_US, ANCHOR_US + 209_999)


def test_calls_are_local_or_not(load) -> None:
    data = load("aim_data")
    made = data.Calls(ANCHOR_US, 1_000).table(100_000)
    assert made["local_calls"].is_null().equals(made["long_distance"])
    total = pc.add(made["local_cost"], made["long_distance_cost"])
    assert total.equals(made["cost"])
    assert pc.sum(made["long_distance"]).as_py() / 100_000 == pytest.approx(0.3, abs=0.01)


def test_the_week_before_is_not_counted(load) -> None:
    data, questions = load("aim_data"), load("aim_questions")
    calls = data.Calls(ANCHOR_US, 500)
    assert calls.week == dt.datetime(2026, 11, 16)
    judge = questions.Judge(calls)
    none, some = judge.answers(0), judge.answers(10_000)
    judge.close()
    assert none["q1"] == [(None,)]
    assert none["q3"] == none["q4"] == none["q5"] == []
    assert all(some.values())
    assert questions.differences(some, some) == ""
    assert "q7" in questions.differences({**some, "q7": [(0.5,)]}, some)
