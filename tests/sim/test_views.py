"""Views against their queries, in random histories: see ``view_history``.

A failure prints its seed and the shortest history found that fails by itself. ``--view-seeds 5000``
runs more of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sim.view_history import History, Model, Step, draw_steps, shrunk
from warehouses import open_inline, quiet

from tidemill.clock import FakeClock
from tidemill.engine import Database

SEEDS = 300
GROUPS = 30  # histories of one group share a warehouse
STEPS = 7


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tidemill.hot.tier.EXPIRE_EVERY_S", 1e9)
    with quiet():
        yield


class Warehouse:
    """A warehouse that histories use one after the other, each with its own clock."""

    def __init__(self, path: Path, **settings: object) -> None:
        self.path, self._settings = path, settings

    def open(self, clock: FakeClock) -> Database:
        return open_inline(self.path, clock, **self._settings)


@pytest.mark.parametrize("group", range(GROUPS))
def test_views_answer_what_their_queries_answer(
    tmp_path: Path, small_blocks: int, group: int
) -> None:
    for seed in range(group, SEEDS, GROUPS):
        run(seed, tmp_path / "w", draw_steps(seed, STEPS))


def run(seed: int, path: Path, steps: Sequence[Step], **settings: object) -> None:
    """One history; what fails is made shorter before it is told."""
    try:
        _run(seed, path, steps, **settings)
    except Exception as error:
        number = 0

        def fails(fewer: Sequence[Step]) -> bool:
            nonlocal number
            number += 1
            place = path.with_name(f"shrink {number}")
            try:
                _run(seed, place, fewer, **settings)
            except Exception as again:
                return type(again) is type(error)
            finally:
                shutil.rmtree(place, ignore_errors=True)
            return False

        short = shrunk(steps, fails)
        error.add_note(f"seed {seed}, steps {short}")
        raise


def _run(seed: int, path: Path, steps: Sequence[Step], **settings: object) -> None:
    history = History(seed, Warehouse(path, **settings).open, path.with_name("loads"), Model())
    try:
        history.run(steps)
        history.end()
    except Exception as error:
        error.add_note("\n".join(history.log))
        raise
    finally:
        history.db.close()
