"""The SQL of docs/linear-road.md and the validator call for the same answers."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from benchmarks.linear_road.fields import DAILY_TOLLS, INPUT
from benchmarks.linear_road.generator import asking_vehicles, batches, daily_tolls
from benchmarks.linear_road.traffic import Plan
from benchmarks.linear_road.validator import expect

PAGE = Path(__file__).parents[2] / "docs" / "linear-road.md"
PLAN = Plan(xways=2, minutes=10, peak_per_minute=12_000, ramp_minutes=2, accident_gap_minutes=0.5)


@pytest.mark.parametrize("from_minute", [0, 4])
def test_the_page_and_the_validator_agree(from_minute: int) -> None:
    plan = Plan(**asdict(PLAN) | {"from_minute": from_minute})
    rows = pa.Table.from_batches(batches(plan, 30), INPUT)
    past = pa.Table.from_batches(daily_tolls(plan.seed, asking_vehicles(plan)), DAILY_TOLLS)
    found = expect(rows.to_batches(), past.to_batches())
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with duckdb.connect(config={"threads": 2}) as page:
        page.register("input", rows)
        page.register("daily_tolls", past)
        page.execute("".join(blocks))

        def says(text: str) -> list[tuple[int, ...]]:
            return page.execute(f"{text} ORDER BY ALL").fetchall()

        tolls = says("SELECT vid, time, lav, toll FROM tolls")
        assert tolls == sorted(found.tolls)
        assert sum(toll > 0 for *_, toll in tolls) > 500
        accidents = says("SELECT vid, time, seg FROM accidents")
        assert accidents == sorted(found.accidents)
        assert len(accidents) > 200
        assert says("SELECT vid, time, toll FROM charges WHERE toll > 0") == sorted(
            (vid, *charge) for vid, charges in found.charges.items() for charge in charges
        )
        assert says("SELECT qid, time, balance FROM balances") == sorted(
            (qid, time, found.balance(vid, time)) for qid, (time, vid) in found.balances.items()
        )
        assert says("SELECT qid, time, expenditure FROM expenditures") == sorted(
            (qid, *answer) for qid, answer in found.expenditures.items()
        )
