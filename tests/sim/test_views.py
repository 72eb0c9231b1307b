"""Views against their queries, in random histories: see ``view_history``.

A failure tells its seed, the statements, and the shortest history found that fails by itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sim.view_history import History, Step, Warehouse, draw_steps, shrunk
from view_queries import EVENINGS
from warehouses import quiet

SEEDS, SPARK_SEEDS = 304, 2
PER_WAREHOUSE = len(EVENINGS)  # histories that share a warehouse, one evening after the other
FOUND = (848,)  # failed once: the edge of a state after a load and a move
STEPS = 4
# What Spark has a part in: moves, loads, back-fills and compactions write partials.
SPARK_STEPS = (
    *("view", "view", "append", "flush", "append", "flush", "view", "load", "refer", "append"),
    *("move", "compact", "replace", "restart", "append", "flush", "view"),
)


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tidemill.hot.tier.EXPIRE_EVERY_S", 1e9)
    with quiet():
        yield


@pytest.mark.parametrize("first", [*range(0, SEEDS, PER_WAREHOUSE), *FOUND])
def test_views_answer_what_their_queries_answer(
    tmp_path: Path, small_blocks: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if first // PER_WAREHOUSE % 2:  # batches are small here: as if there were rows for each group
        monkeypatch.setattr("tidemill.views.states.ROWS_A_GROUP_MIN", 0)
    if first // PER_WAREHOUSE % 4 < 3:  # groups are few here: as if there were many
        monkeypatch.setattr("tidemill.views.key_joins.GROUPS_MIN", 0)
    with closing(Warehouse(tmp_path / "w")) as warehouse:
        for seed in range(first, first + PER_WAREHOUSE):
            run(seed, warehouse, tmp_path / "shrink")


@pytest.mark.spark
@pytest.mark.usefixtures("shared_spark")
def test_views_on_spark_answer_what_their_queries_answer(tmp_path: Path, small_blocks: int) -> None:
    with closing(Warehouse(tmp_path / "w", spark_master="local[2]")) as warehouse:
        for seed in range(SPARK_SEEDS):
            live(seed, warehouse, [(kind, at) for at, kind in enumerate(SPARK_STEPS)])
        assert warehouse.db.sql("SELECT count(*) FROM tidemill.jobs").fetchall() != [(0,)]


def run(seed: int, warehouse: Warehouse, scratch: Path) -> None:
    """One history; what fails is made shorter, in a folder for that, before it is told."""
    steps = draw_steps(seed, STEPS)
    try:
        live(seed, warehouse, steps)
    except Exception as error:
        error.add_note(f"shorter: seed {seed}, steps {_shorter(seed, steps, error, scratch)}")
        raise


def live(seed: int, warehouse: Warehouse, steps: Sequence[Step]) -> None:
    history = History(seed, warehouse, EVENINGS[seed % len(EVENINGS)])
    try:
        history.run(steps)
        history.end()
    except Exception as error:
        error.add_note("\n".join(history.log))
        raise


def _shorter(seed: int, steps: Sequence[Step], error: Exception, scratch: Path) -> list[Step] | str:
    def fails(fewer: Sequence[Step]) -> bool:
        scratch.mkdir()
        try:
            with closing(Warehouse(scratch / "w")) as warehouse:
                live(seed, warehouse, fewer)
        except Exception as again:
            return type(again) is type(error)
        finally:
            shutil.rmtree(scratch)
        return False

    return shrunk(steps, fails) if fails(steps) else "none: it does not fail by itself"
