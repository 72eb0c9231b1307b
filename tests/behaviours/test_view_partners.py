"""Views that join a reference table below a sliding window: each row keeps the partners it had.

A model joins every row when it arrives, and must agree with the view at every moment: while tables
change, rows move, windows slide and the warehouse starts again.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from warehouses import compact, difference, flush, open_inline, quiet

from tidemill.clock import FakeClock, from_us
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.views import versions

START = datetime(2024, 5, 1, 10, 0, 30)  # amid a pane
STEPS = ("append", "append", "append", "change", "change", "wait", "wait", "move", "compact")
WINDOW = timedelta(hours=1)
QUERY = (
    "SELECT r.label, z.name, count(*) AS n, sum(v) AS total FROM s JOIN r USING (k) "
    "LEFT JOIN z ON z.g = s.g WHERE ts > CAST(now() AS TIMESTAMP) - INTERVAL '1' HOUR "
    "AND ts <= CAST(now() AS TIMESTAMP) GROUP BY ALL"
)


def now_of(clock: FakeClock) -> datetime:
    return from_us(clock.now_us())


@dataclass
class Model:
    clock: FakeClock
    labels: dict[int, list[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    joined: list[tuple[datetime, str, str | None, int]] = field(default_factory=list)

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        for ts, k, g, v in rows:
            for label in self.labels.get(k, []):
                self.joined.append((ts, label, self.names.get(g), v))

    def answer(self) -> list[tuple[Any, ...]]:
        now = now_of(self.clock)
        counts: Counter[Any] = Counter()
        totals: Counter[Any] = Counter()
        for ts, label, name, v in self.joined:
            if now - WINDOW < ts <= now:
                counts[label, name] += 1
                totals[label, name] += v
        return [(*key, count, totals[key]) for key, count in counts.items()]


def create(db: Database) -> None:
    columns = "ts TIMESTAMP, k INTEGER, g VARCHAR, v INTEGER"
    db.sql(f"CREATE STREAMING TABLE s ({columns}) WITH (move = 'manual', max_future = '2 hours')")
    db.sql("CREATE TABLE r (k INTEGER, label VARCHAR)")
    db.sql("CREATE TABLE z (g VARCHAR PRIMARY KEY, name VARCHAR)")


def change(db: Database, model: Model, rng: random.Random) -> None:
    """Change one of the tables, or fail to."""
    word, k, g = f"w{rng.randrange(1000)}", rng.randrange(4), rng.choice("ab")
    choice = rng.randrange(7)
    if choice == 0:
        db.sql("INSERT INTO r VALUES ($1, $2)", [k, word])
        model.labels.setdefault(k, []).append(word)
    elif choice == 1:
        db.sql("UPDATE r SET label = $2 WHERE k = $1", [k, word])
        model.labels[k] = [word] * len(model.labels.get(k, []))
    elif choice == 2:
        db.sql("DELETE FROM r WHERE k = $1", [k])
        model.labels.pop(k, None)
    elif choice == 3:
        db.sql("TRUNCATE r")
        model.labels.clear()
    elif choice == 4:
        db.sql("INSERT INTO r SELECT i, 'x' || i FROM range(4) t(i)")
        for i in range(4):
            model.labels.setdefault(i, []).append(f"x{i}")
    elif g not in model.names:
        db.sql("INSERT INTO z VALUES ($1, $2)", [g, word])
        model.names[g] = word
    elif choice == 5:
        db.sql("UPDATE z SET name = $2 WHERE g = $1", [g, word])
        model.names[g] = word
    else:
        with pytest.raises(TidemillError):
            db.sql("INSERT INTO z VALUES ($1, 'again')", [g])


def arriving(now: datetime, rng: random.Random) -> list[tuple[Any, ...]]:
    """Rows of now, late ones and ones of the future."""
    return [
        (now + timedelta(seconds=rng.choice((0, -10, -70, -3_000, -3_599, 600))), *rest)
        for rest in [(rng.randrange(5), rng.choice("abc"), n) for n in range(rng.randrange(1, 9))]
    ]


def check(db: Database, model: Model) -> None:
    wrong = difference(db.sql("SELECT * FROM v").fetchall(), model.answer())
    assert wrong is None, wrong


@pytest.mark.parametrize("seed", range(5))
def test_rows_keep_their_partners(seed: int, tmp_path: Path) -> None:
    rng, clock = random.Random(seed), FakeClock(START)
    model = Model(clock)
    with quiet():
        db = open_inline(tmp_path / "w", clock)
        try:
            create(db)
            change(db, model, rng)
            db.sql(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
            for _ in range(40):
                step = rng.choice((*STEPS, "restart"))
                if step == "append":
                    rows = arriving(now_of(clock), rng)
                    db.append("s", rows)
                    model.add(rows)
                elif step == "change":
                    change(db, model, rng)
                elif step == "move":
                    flush(db, "s")
                elif step == "compact":
                    compact(db, "s")
                elif step == "wait":
                    clock.advance(rng.choice((1, 17, 60, 700, 1_800)))
                else:
                    db.close()
                    db = open_inline(tmp_path / "w", clock)
                check(db, model)
        finally:
            db.close()


def kept(db: Database) -> list[str]:
    return sorted(path.name for path in (db.path / versions.FOLDER).iterdir())


def test_versions_go_when_no_window_reaches_them(tmp_path: Path) -> None:
    clock = FakeClock(START)
    model = Model(clock)
    with quiet():
        with open_inline(tmp_path / "w", clock) as db:
            create(db)
            db.sql("INSERT INTO r VALUES (1, 'one')")
            model.labels[1] = ["one"]
            db.sql(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
            for number in range(3):
                rows = [(now_of(clock), 1, "a", number)]
                db.append("s", rows)
                model.add(rows)
                for word in (f"a{number}", f"b{number}"):  # the second time no row came
                    db.sql("UPDATE r SET label = $1", [word])
                model.labels[1] = [f"b{number}"]
                clock.advance(100)
                check(db, model)
            names = kept(db)
            assert len(names) == 3
        with open_inline(tmp_path / "w", clock) as db:
            assert kept(db) == names
            check(db, model)
            clock.advance(3_390)  # the first row is gone, the second in a pane at the edge
            check(db, model)
            db.sql("UPDATE r SET label = 'x'")
            assert kept(db) == names[1:]
            clock.advance(3_600)
            check(db, model)
            db.sql("UPDATE r SET label = 'y'")
            assert kept(db) == []
            db.append("s", [(now_of(clock), 1, "a", 1)])
            db.sql("UPDATE r SET label = 'z'")
            assert len(kept(db)) == 1
            db.sql("DROP MATERIALIZED VIEW v")
        with open_inline(tmp_path / "w", clock) as db:
            assert kept(db) == []


def test_too_many_changes_are_joined_with_the_next_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "CHANGED_ROWS_MAX", 4)
    clock = FakeClock(START)
    with quiet(), open_inline(tmp_path / "w", clock) as db:
        create(db)
        db.sql("INSERT INTO r VALUES (1, 'a'), (2, 'never')")
        db.sql(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
        for word in "bcde":
            db.append("s", [(now_of(clock), 1, "a", 1)])
            db.sql("UPDATE r SET label = $1 WHERE k = 1", [word])
        assert len(kept(db)) == 3
        labels = "SELECT label, sum(n) FROM v GROUP BY label ORDER BY label"
        assert db.sql(labels).fetchall() == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
        clock.advance(3_590)  # all four are at the edge now
        assert db.sql(labels).fetchall() == [("b", 2), ("c", 1), ("d", 1)]


def test_a_view_made_later_begins_with_the_table_as_it_is(tmp_path: Path) -> None:
    clock = FakeClock(START)
    with quiet(), open_inline(tmp_path / "w", clock) as db:
        create(db)
        db.sql("INSERT INTO r VALUES (1, 'a')")
        db.sql(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
        db.append("s", [(now_of(clock), 1, "a", 1)])
        flush(db, "s")
        db.append("s", [(now_of(clock), 1, "a", 1)])
        db.sql("UPDATE r SET label = 'b'")
        db.sql(f"CREATE MATERIALIZED VIEW w AS {QUERY}")
        db.sql("REFRESH MATERIALIZED VIEW w")
        db.append("s", [(now_of(clock), 1, "a", 1)])
        db.sql("UPDATE r SET label = 'c'")
        for seconds in (0, 3_590):
            clock.advance(seconds)
            found = db.sql("SELECT label, n FROM v ORDER BY label").fetchall()
            assert found == [("a", 2), ("b", 1)]
            assert db.sql("SELECT label, n FROM w").fetchall() == [("b", 3)]
