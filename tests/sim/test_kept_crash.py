"""A process with kept queries and views is killed; each answer must be there once, and be right.

The answers of a query depend on the rows and on nothing else: not on when it is evaluated, how
often the process dies, or where the rows lie. So whatever death came, in the end every table of
answers holds what it holds in a life without any, and every view is its query.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sim import kept_writer as k
from sim.test_crash import Lives
from warehouses import copy_warehouse, difference

import tidemill
from tidemill.hot import crash
from tidemill.pipeline import backfill, keeping
from tidemill.views import continuous
from tidemill.views.kept import ledger

# Where a process with views and kept queries may die.
POINTS = (
    "view.digested",
    "view.made",
    "view.swapped",
    "view.dropped",
    "backfill.written",
    "backfill.committed",
    "kept.followed",
    "kept.evaluated",
    "kept.stored",
    "kept.noted",
)
# Points of the hot tier and of moves: where answers are stored and moved.
OTHERS = ("segment.created", "append.checked", "log.partial", "log.synced", "move.committed")
KILLS_PER_DEATH = 4  # of the simulations' --kills, one random death of kept queries
ACKS_MAX = 40
TABLES = (*k.KEPT, "joined", "named")
Answers = dict[str, Counter[tuple[Any, ...]]]


@contextmanager
def _restored() -> Iterator[pytest.MonkeyPatch]:
    """What the writer sets for good in its process must not outlive the test in this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "LOOK_EVERY_S", keeping.LOOK_EVERY_S)
        patch.setattr(ledger, "NOTE_EVERY_S", ledger.NOTE_EVERY_S)
        patch.setattr(backfill, "JOB_BYTES", backfill.JOB_BYTES)
        patch.setattr(continuous.KeptQueries, "start", continuous.KeptQueries.start)
        yield patch


@pytest.fixture(autouse=True)
def settings_end_with_the_test() -> Iterator[None]:
    with _restored():
        yield


class KeptLives(Lives):
    """The process of ``kept_writer.py``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stderr_path = folder.with_name("stderr")
        with self._stderr_path.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, k.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def at(self, folder: Path) -> KeptLives:
        """The next lives are lived in another warehouse."""
        self._folder = folder
        return self


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptLives]:
    with closing(KeptLives(tmp_path_factory.mktemp("lives") / "warehouse")) as found:
        yield found


def answers(db: tidemill.Database, names: tuple[str, ...]) -> Answers:
    return {name: Counter(db.sql(f"SELECT * FROM {name}").fetchall()) for name in names}


def check_views(db: tidemill.Database) -> None:
    """Views that are complete are their queries; no digest is without a view."""
    known = {table.name for table in db.catalog.snapshot().tables.values()}
    for name in known:
        assert "$digest" not in name or name.partition("$")[0] in known, name
    shown = db.sql("SELECT view_name, definition FROM tidemill.views WHERE history = 1")
    for name, query in shown.fetchall():
        if name in k.VIEWS:
            found = db.sql(f"SELECT * FROM {name}").fetchall()
            wrong = difference(found, db.sql(query).fetchall())
            assert wrong is None, f"{name}: {wrong}"


def check_files(db: tidemill.Database) -> None:
    db.sql("VACUUM")
    assert {path for path, *_ in db._keeping.storage.list("")} == db.catalog.records.known_paths()


# -- named points


class _Passes:
    """Stands where the name of the armed point stands, and notes the points that are passed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __eq__(self, name: object) -> bool:
        self.names.append(str(name))
        return False

    __hash__ = None  # type: ignore[assignment]  # what equals nothing has no place in a set


@dataclass(frozen=True)
class Course:
    """The steps when nobody dies: the warehouse before each, the points that it passes, and the
    answers after it."""

    folders: list[Path]
    passes: list[list[str]]
    answers: list[Answers]

    def passed(self, point: str) -> list[tuple[int, int]]:
        """Where a point is passed: the step, and the number of the pass within it."""
        return [
            (step, number + 1)
            for step, names in enumerate(self.passes)
            for number in range(names.count(point))
        ]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Course:
    place = tmp_path_factory.mktemp("undisturbed")
    course = Course([], [], [])
    with _restored() as patch:
        k.nothing_by_itself()
        with k.open_warehouse(place / "w") as db:
            for number, step in enumerate(k.STEPS):
                course.folders.append(place / str(number))
                copy_warehouse(place / "w", course.folders[-1])
                passes = _Passes()
                patch.setattr(crash, "_armed", passes)
                step(db)
                patch.setattr(crash, "_armed", "")
                course.passes.append(passes.names)
                course.answers.append(answers(db, _known(db)))
            check_views(db)
    assert all(course.answers[-1].values())
    assert course.answers[-1].keys() == set(TABLES)
    return course


def _known(db: tidemill.Database) -> tuple[str, ...]:
    snapshot = db.catalog.snapshot()
    return tuple(name for name in TABLES if snapshot.find(name) is not None)


ONCE = ("view.swapped", "view.dropped")
DEATHS = [(point, "first") for point in POINTS]
DEATHS += [(point, "any") for point in (*POINTS, *OTHERS) if point not in ONCE]


@pytest.mark.parametrize(("point", "which"), DEATHS)
def test_answers_are_there_once_after_a_death_at(
    point: str,
    which: str,
    tmp_path: Path,
    lives: KeptLives,
    undisturbed: Course,
    sim_seed: int,
) -> None:
    passed = undisturbed.passed(point)
    assert passed, "no step passes there"
    at = 0 if which == "first" else random.Random(f"{sim_seed} {point}").randrange(len(passed))
    step, number = passed[at]
    copy_warehouse(undisturbed.folders[step], tmp_path / "w")
    lives.at(tmp_path / "w").live({k.WRITER: step}, f"{point}:{number}", 0)
    after = undisturbed.answers[step]
    k.nothing_by_itself()
    with k.open_warehouse(tmp_path / "w") as db:
        check_views(db)
        for name, found in answers(db, _known(db)).items():
            assert name == "named" or found <= after[name], f"{name}: an answer too many"
        for again in k.STEPS[step : step + 2]:
            again(db)
        check_views(db)
        last = min(step + 1, len(k.STEPS) - 1)
        assert answers(db, _known(db)) == undisturbed.answers[last]
        check_files(db)


# -- any moment


def test_answers_are_there_once_after_kills_at_any_moment(
    tmp_path: Path, lives: KeptLives, sim_seed: int, kills: int
) -> None:
    draw = random.Random(sim_seed)
    with k.open_warehouse(tmp_path / "undisturbed") as db:
        k.make_all(db)
        for batch in range(k.BATCHES):
            k.append(db, batch)
        db._kept.catch_up()
        wanted = answers(db, tuple(k.KEPT))
    assert all(wanted.values())
    lives.at(tmp_path / "w")
    start = 0
    for number in range(max(1, kills // KILLS_PER_DEATH)):
        if start >= k.BATCHES - 1:
            break
        count = draw.randint(1, min(ACKS_MAX, k.BATCHES - 1 - start))
        # a batch that was not acknowledged is sent again
        start = lives.live({k.WRITER: start}, None, count)[k.WRITER] + 1
        with k.open_warehouse(tmp_path / "w") as db:
            for name, found in answers(db, tuple(k.KEPT)).items():
                assert found <= wanted[name], f"seed {sim_seed}, kill {number}: {name}"
    with k.open_warehouse(tmp_path / "w") as db:
        for batch in range(start, k.BATCHES):
            k.append(db, batch)
        db._kept.catch_up()
        assert answers(db, tuple(k.KEPT)) == wanted
        for name in k.VIEWS:
            db.sql(f"REFRESH MATERIALIZED VIEW {name}")
        check_views(db)
        check_files(db)
