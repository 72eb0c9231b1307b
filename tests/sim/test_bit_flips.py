"""One flipped bit anywhere in a warehouse: right answers or a clear error, never anything else.

``pytest tests/sim/test_bit_flips.py --flips 1000`` does what ``make test`` does a little of.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sim.bit_flips import Answers, build, files_by_kind, judge

KINDS = {
    *("catalog.id", "catalog.sqlite", "catalog.sqlite.head", "history", "log end", "log segment"),
    *("reference.duckdb", "reference.duckdb.head"),
}
KINDS_KILLED = {"catalog.sqlite-wal", "owner.lock", "reference.duckdb.wal"}
PARTS = 4  # so that processes share them


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Answers]:
    folder = tmp_path_factory.mktemp("flips")
    wanted = build(folder / "closed", folder / "killed")
    return [folder / "closed", folder / "killed"], wanted


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Damage is warned of; thousands of lines say nothing new."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_kind_of_file_is_there(templates: tuple[list[Path], Answers]) -> None:
    (closed, killed), _ = templates
    assert set(files_by_kind(closed)) >= KINDS
    assert set(files_by_kind(killed)) >= KINDS | KINDS_KILLED


@pytest.mark.parametrize("part", range(PARTS))
def test_a_flipped_bit_is_harmless_or_told(
    templates: tuple[list[Path], Answers], tmp_path: Path, flip_count: int, part: int
) -> None:
    paths, wanted = templates
    found: Counter[tuple[str, str]] = Counter()
    bad = []
    for number in range(part, flip_count, PARTS):
        rng = random.Random(number)
        outcome = judge(rng.choice(paths), tmp_path / "work", wanted, rng)
        found[outcome.kind, outcome.how] += 1
        if outcome.how not in ("right", "refused"):
            bad.append((number, outcome))
    for (kind, how), count in sorted(found.items()):
        print(f"{kind}: {how} {count}")
    assert not bad
