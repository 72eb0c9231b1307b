"""Views that join a reference table below their grouping: a view is its query.

Whatever happens to the tables (inserted, updated, deleted, emptied) and to the rows (late, moved,
compacted, slid out of the window), reading a view gives what its query gives, and what a model
gives that joins all rows with the tables as they are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from warehouses import compact, difference, flush, open_inline, quiet

from tidemill.clock import FakeClock, from_us
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.views.defining import ViewDefinition

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
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def joined(self) -> Iterator[tuple[datetime, str, str | None, int]]:
        for ts, k, g, v in self.rows:
            for label in self.labels.get(k, []):
                yield ts, label, self.names.get(g), v

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


QUERIES = (
    "SELECT label, count(*) AS n, avg(v) AS mean FROM s JOIN r USING (k) GROUP BY label",
    "SELECT count(*) AS n, sum(v) AS total, min(s.g) AS low FROM s JOIN r ON s.k = r.k",
    "SELECT count(*) AS n, max(v) AS top FROM r JOIN s ON r.k = s.k WHERE label > 'w5'",
    "SELECT s.g, name, count(DISTINCT v) AS vs, stddev(v) AS d FROM s LEFT JOIN z USING (g) "
    "GROUP BY ALL",
    "SELECT DISTINCT label, date_trunc('hour', ts) AS hour FROM s JOIN r USING (k)",
    "SELECT window_start, label, list(v ORDER BY v) AS vs "
    "FROM TUMBLE(s, ts, INTERVAL '10' MINUTE) AS t, r WHERE t.k = r.k GROUP BY 1, 2",
    "SELECT label, count(*) AS n FROM RECENT(s, INTERVAL '20' MINUTE) AS s JOIN r USING (k) "
    "GROUP BY label HAVING count(*) > 1",
    "SELECT g, count(*) AS n FROM s WHERE k IN (SELECT k FROM r) GROUP BY g",
    "SELECT g, sum(v) AS total FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k) GROUP BY g",
    "SELECT g, count(*) AS n FROM s ANTI JOIN r USING (k) GROUP BY g",
    "SELECT name, sum(v * length(label)) AS mixed FROM s JOIN r USING (k) JOIN z USING (g) "
    "GROUP BY name",
    "SELECT label, v FROM s JOIN r USING (k) ORDER BY v DESC, label LIMIT 3",
    "SELECT l, count(*) AS n FROM (SELECT s.v, r.label AS l FROM s JOIN r USING (k)) GROUP BY l",
    "SELECT a.label, a.n, b.n AS m FROM (SELECT label, count(*) AS n FROM s JOIN r USING (k) "
    "GROUP BY label) AS a LEFT JOIN (SELECT label, count(*) AS n FROM s JOIN r USING (k) "
    "WHERE v > 3 GROUP BY label) AS b USING (label)",
    "SELECT g, window_start, count(*) FILTER (WHERE k IN (SELECT k FROM r)) AS n "
    "FROM SESSION(s, ts, INTERVAL '1' MINUTE, partition_by => g) GROUP BY ALL",
)


def check(db: Database, model: Model) -> None:
    wrong = difference(db.sql("SELECT * FROM v").fetchall(), model.answer())
    assert wrong is None, wrong


def check_queries(db: Database) -> None:
    for at, query in enumerate(QUERIES):
        found = db.sql(f"SELECT * FROM v{at}").fetchall()
        wrong = difference(found, db.sql(query).fetchall())
        assert wrong is None, f"{query}\n{wrong}"


@pytest.mark.parametrize("seed", range(5))
def test_views_follow_the_tables_that_they_join(seed: int, tmp_path: Path) -> None:
    rng, clock = random.Random(seed), FakeClock(START)
    model = Model(clock)
    with quiet():
        db = open_inline(tmp_path / "w", clock)
        try:
            create(db)
            change(db, model, rng)
            db.sql(f"CREATE MATERIALIZED VIEW v AS {QUERY}")
            for at, query in enumerate(QUERIES):
                db.sql(f"CREATE MATERIALIZED VIEW v{at} AS {query}")
            for _ in range(40):
                step = rng.choice((*STEPS, "restart"))
                if step == "append":
                    rows = arriving(now_of(clock), rng)
                    db.append("s", rows)
                    model.rows += rows
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
                check_queries(db)
        finally:
            db.close()


def test_most_joins_are_made_when_the_view_is_read(tmp_path: Path) -> None:
    """The stream is grouped by what joins need; what cannot be is answered by its query."""
    with quiet(), open_inline(tmp_path / "w", FakeClock(START)) as db:
        create(db)
        for at, query in enumerate((QUERY, *QUERIES)):
            db.sql(f"CREATE MATERIALIZED VIEW v{at} AS {query}")
        states = db.sql("SELECT state, last_error FROM tidemill.views").fetchall()
        by_query = [state for state, _ in states if state.startswith("query: ")]
        assert len(by_query) == 4
        assert all(error is None for _, error in states)
        text = "\n".join(line for (line,) in db.sql("EXPLAIN MATERIALIZED VIEW v0").fetchall())
        assert 'reference table "r" is joined when the view is read' in text


def test_a_view_of_an_earlier_version_follows_its_tables(tmp_path: Path) -> None:
    """Its digest had the tables' columns in it, and goes at the next start."""
    clock = FakeClock(START)
    query = "SELECT label, count(*) AS n FROM s JOIN r USING (k) GROUP BY label"
    with quiet():
        with open_inline(tmp_path / "w", clock) as db:
            create(db)
            db.sql("INSERT INTO r VALUES (1, 'a')")
            db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
            view = db.catalog.snapshot().get("v")
            made = ViewDefinition.of(view)
            table_id = db.catalog.snapshot().get("r").table_id
            (digest,) = made.parts.digests
            old = replace(made.parts, digests=(replace(digest, references=(table_id,)),))
            with db.catalog.transaction() as change:
                change.alter_definition(view.table_id, replace(made, parts=old).text)
        with open_inline(tmp_path / "w", clock) as db:
            assert not [table for table in db.catalog.snapshot().tables.values() if table.is_digest]
            db.append("s", [(now_of(clock), 1, "a", 3)])
            flush(db, "s")
            db.sql("UPDATE r SET label = 'b'")
            assert db.sql("SELECT * FROM v").fetchall() == [("b", 1)]
            db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW v AS {query}")
            db.sql("REFRESH MATERIALIZED VIEW v")
            db.sql("UPDATE r SET label = 'c'")
            assert db.sql("SELECT * FROM v").fetchall() == [("c", 1)]
            assert [t for t in db.catalog.snapshot().tables.values() if t.is_digest]


def test_an_answer_by_query_is_kept_until_something_changes(tmp_path: Path) -> None:
    clock = FakeClock(START)
    with quiet(), open_inline(tmp_path / "w", clock) as db:
        create(db)
        db.sql("INSERT INTO r VALUES (1, 'aa')")
        query = "SELECT sum(v * length(label)) AS n FROM s JOIN r USING (k)"
        db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
        db.append("s", [(now_of(clock), 1, "a", 3)])
        for _ in range(3):
            assert db.sql("SELECT * FROM v").fetchall() == [(6,)]
        (live,) = db._views.live()
        assert (live.costs.answers, live.costs.served) == (2, 2)
        db.sql("UPDATE r SET label = 'a'")
        assert db.sql("SELECT * FROM v").fetchall() == [(3,)]
        flush(db, "s")
        db.append("s", [(now_of(clock), 1, "a", 4)])
        assert db.sql("SELECT * FROM v").fetchall() == [(7,)]
