"""The writers of test_crash, with views attached, are killed; then views and queries must agree.

Every life ends at a named point of ``tidemill.hot.crash`` or at random. After each death:

1. every view answers what its query answers, at times again when all rows have moved;
2. rows that are joined with a reference table are there once, under one version;
3. a view that was being replaced is the old one or the new one, and can be completed;
4. the catalog knows no digest without a view; VACUUM leaves exactly the files that it names.
"""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sim import view_writer as v
from sim import writer as w
from sim.test_crash import PASSES_MAX, Lives
from warehouses import difference

import tidemill
from tidemill.hot import crash, published, tier
from tidemill.hot import row_writer as stored
from tidemill.pipeline import keeping

ACKS_MAX = 60
RANDOM_DEATHS = 3
PASSES_MAX_OTHERS = 20


@pytest.fixture(autouse=True)
def small_blocks_end_with_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """``open_warehouse`` makes blocks small for good; the tests after this one want them large."""
    monkeypatch.setattr(published, "BLOCK_ROWS", published.BLOCK_ROWS)
    monkeypatch.setattr(published, "BLOCK_ROWS_MAX", published.BLOCK_ROWS_MAX)
    monkeypatch.setattr(stored, "IN_PLACE_BYTES_MIN", stored.IN_PLACE_BYTES_MIN)
    monkeypatch.setattr(tier, "EXPIRE_EVERY_S", tier.EXPIRE_EVERY_S)
    monkeypatch.setattr(keeping, "LOOK_EVERY_S", keeping.LOOK_EVERY_S)


class ViewLives(Lives):
    """The process of ``view_writer.py``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stderr_path = folder.with_name("stderr")
        with self._stderr_path.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, v.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )


def _deaths(draw: random.Random) -> list[str | None]:
    passes = {p: min(PASSES_MAX.get(p, PASSES_MAX_OTHERS), PASSES_MAX_OTHERS) for p in crash.POINTS}
    named = [f"{point}:{draw.randint(1, max(1, most // 2))}" for point, most in passes.items()]
    deaths = [*named, *[None] * RANDOM_DEATHS]
    draw.shuffle(deaths)
    return deaths


def test_views_are_right_after_every_kill(tmp_path: Path, sim_seed: int) -> None:
    draw = random.Random(sim_seed)
    folder = tmp_path / "warehouse"
    starts = dict.fromkeys(w.WRITERS, 0)
    with closing(ViewLives(folder)) as lives:
        for number, death in enumerate(_deaths(draw)):
            acknowledged = lives.live(starts, death, draw.randint(1, ACKS_MAX))
            with v.open_warehouse(str(folder)) as db:
                try:
                    _check(db, moves_all=number % 4 == 3)
                    starts = _next(db, acknowledged)
                except AssertionError as error:
                    error.add_note(f"seed {sim_seed}, kill {number} at {death or 'random'}")
                    raise


def _check(db: tidemill.Database, moves_all: bool) -> None:
    known = {table.name for table in db.catalog.snapshot().tables.values()}
    for name in known:
        assert "$digest" not in name or name.partition("$")[0] in known, "a digest without a view"
    _check_views(db)
    if "changed" in known:
        db.sql("REFRESH MATERIALIZED VIEW changed")
        (query,) = db.sql("SELECT definition FROM tidemill.views WHERE view_name = 'changed'")
        _compare(db, "changed", query[0])
    if moves_all:
        db.sql("FLUSH")
        _check_views(db)
    db.sql("VACUUM")
    there = {path for path, *_ in db._keeping.storage.list("")}
    assert there == db.catalog.records.known_paths()


def _check_views(db: tidemill.Database) -> None:
    for name, query in v.VIEWS.items():
        _compare(db, name, query)
    for name, query in v.VERSIONED.items():
        _compare(db, name, query)


def _compare(db: tidemill.Database, name: str, query: str) -> None:
    found = db.sql(f"SELECT * FROM {name}").fetchall()
    wrong = difference(found, db.sql(query).fetchall())
    assert wrong is None, f"{name}: {wrong}"


def _next(db: tidemill.Database, acknowledged: dict[int, int]) -> dict[int, int]:
    """Where each writer goes on: behind the batch in flight, if it is there."""
    starts = {}
    for number, batch in acknowledged.items():
        query = f"SELECT count(*) FROM {w.WRITERS[number]} WHERE writer = ? AND batch = ?"
        table = w.WRITERS[number]
        aside = f"SELECT count(*) FROM {table}$late WHERE writer = ? AND batch = ?"
        (count,) = db.sql(query, [number, batch + 1]).fetchall()[0]
        if table == "diverted" and not count:
            (count,) = db.sql(aside, [number, batch + 1]).fetchall()[0]
        starts[number] = batch + 1 + (count > 0)
    return starts
