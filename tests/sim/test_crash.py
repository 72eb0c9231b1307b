"""A writing process is killed (SIGKILL) again and again; what it acknowledged must be there.

Every life of the process goes on with the warehouse that the last one left. It dies at a named
point of ``tidemill.hot.crash`` or, at random, when it has acknowledged so many appends. Then this
process opens the warehouse and checks, for every writer of ``writer.py``:

1. acknowledged ⊆ present, nothing twice, no gaps, at most the one batch in flight more;
2. a batch is there as a whole or not at all, its diverted rows included;
3. the counters add up, and count exactly the rows that are there (or were, before retention);
4. sending the batch in flight again is a repeat exactly if it is there; so is loading its packages;
5. indices answer what full scans answer;
6. sequence numbers are there once, whatever moved, was loaded or compacted;
7. VACUUM leaves exactly the files that the catalog names, and all of those.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sim import writer as w

import tidemill
from tidemill.hot import crash, published, tier
from tidemill.hot import row_writer as stored
from tidemill.pipeline import keeping

ACKS_MAX = 150
RANDOM_DEATHS = 3  # for each round of named points
# Points that are passed rarely: their kill must come at an early pass. The others come often.
PASSES_MAX = {
    "log.unsealed": 9,
    "segment.created": 9,
    "segment.removed": 2,
    "move.planned": 16,
    "task.written": 16,
    "move.written": 16,
    "move.committed": 16,
    "move.released": 16,
    "load.written": 6,
    "load.committed": 6,
    "compact.written": 3,
    "compact.committed": 3,
    "expire.committed": 1,
}
PASSES_MAX_OTHERS = 60
HISTORY_POINTS = ("move.", "task.", "load.", "compact.", "expire.")


@pytest.fixture(autouse=True)
def small_blocks_end_with_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """``open_warehouse`` makes blocks small for good; the tests after this one want them large."""
    monkeypatch.setattr(published, "BLOCK_ROWS", published.BLOCK_ROWS)
    monkeypatch.setattr(published, "BLOCK_ROWS_MAX", published.BLOCK_ROWS_MAX)
    monkeypatch.setattr(stored, "IN_PLACE_BYTES_MIN", stored.IN_PLACE_BYTES_MIN)
    monkeypatch.setattr(tier, "EXPIRE_EVERY_S", tier.EXPIRE_EVERY_S)
    monkeypatch.setattr(keeping, "LOOK_EVERY_S", keeping.LOOK_EVERY_S)


class Lives:
    """The process of ``writer.py``, which forks one child after another for us to kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stderr_path = folder.with_name("stderr")
        with self._stderr_path.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, w.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def live(self, starts: dict[int, int], crash_at: str | None, acks_max: int) -> dict[int, int]:
        """One life until its death; answers the last batch that each writer acknowledged."""
        is_paced = (crash_at or "").startswith(HISTORY_POINTS)
        job = {
            "folder": str(self._folder),
            "starts": starts,
            "crash_at": crash_at,
            "paced": is_paced,
        }
        assert self._process.stdin is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)
        acknowledged = {number: start - 1 for number, start in starts.items()}
        pid, count = 0, 0
        for kind, *numbers in self._lines():
            if kind == "pid":
                pid = numbers[0]
            elif kind == "dead":
                errors = self._stderr_path.read_text()
                assert not errors, errors
                assert numbers == [-signal.SIGKILL], f"the writers ended before {crash_at}"
                break
            else:
                number, batch = numbers
                assert batch == acknowledged[number] + 1
                acknowledged[number] = batch
                count += 1
                if crash_at is None and count == acks_max:
                    os.kill(pid, signal.SIGKILL)  # what is in the pipe still counts
        return acknowledged

    def _lines(self) -> Iterator[tuple[Any, ...]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, *numbers = line.split()
            yield kind, *map(int, numbers)
        raise AssertionError(self._stderr_path.read_text())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _deaths(draw: random.Random, kills: int) -> list[str | None]:
    """How each life ends: rounds of every named point and a few random moments, shuffled."""
    deaths: list[str | None] = []
    while len(deaths) < kills:
        passes = {p: PASSES_MAX.get(p, PASSES_MAX_OTHERS) for p in crash.POINTS}
        named = [f"{point}:{draw.randint(1, most)}" for point, most in passes.items()]
        round_of: list[str | None] = [*named, *[None] * RANDOM_DEATHS]
        draw.shuffle(round_of)
        deaths += round_of
    return deaths[: max(kills, 0)]


def test_what_was_acknowledged_survives_every_kill(
    tmp_path: Path, kills: int, sim_seed: int
) -> None:
    draw = random.Random(sim_seed)
    folder = tmp_path / "warehouse"
    starts = dict.fromkeys(w.WRITERS, 0)
    torn = 0
    with closing(Lives(folder)) as lives:
        for number, death in enumerate(_deaths(draw, kills)):
            acknowledged = lives.live(starts, death, draw.randint(1, ACKS_MAX))
            ended = {writer: batch + 1 for writer, batch in acknowledged.items()}
            with w.open_warehouse(str(folder)) as db:
                try:
                    torn += sum(found.torn_bytes > 0 for found in db.recovered)
                    _check_files(db)
                    starts = _examine(db, ended, draw)
                except AssertionError as error:
                    error.add_note(f"seed {sim_seed}, kill {number} at {death or 'random'}")
                    raise
    assert torn or kills < len(crash.POINTS) + RANDOM_DEATHS, "log.partial left no torn tail"


def _check_files(db: tidemill.Database) -> None:
    """What the catalog names is there; after VACUUM nothing else is."""

    def there() -> set[str]:
        return {path for path, *_ in db._keeping.storage.list("")}

    assert db.catalog.records.known_paths() <= there(), "a file that the catalog names is missing"
    db.sql("VACUUM")
    assert db.catalog.records.known_paths() == there(), "VACUUM left an orphan, or took too much"


def _examine(db: tidemill.Database, ended: dict[int, int], draw: random.Random) -> dict[int, int]:
    """Check everything; answers the batch with which each writer goes on.

    ``ended`` holds for each writer the number of batches acknowledged."""
    present = {number: _batches(db, number, table) for number, table in w.WRITERS.items()}
    for number, count in present.items():
        assert ended[number] <= count <= ended[number] + 1, (number, w.WRITERS[number])
    for number, table in w.WRITERS.items():
        _check_rows(db, number, table, present[number])
    for table in w.TABLES:
        sent = {number: present[number] for number, name in w.WRITERS.items() if name == table}
        _check_counters(db, table, sum(w.first_id_of(n, count) for n, count in sent.items()))
        _check_indices(db, table, draw)
    for number, table in w.WRITERS.items():
        if table == "sourced":
            _send_again(db, number, ended[number], present[number])
            present[number] = ended[number] + 1
        elif w.is_loaded(number, ended[number]):
            _load_again(db, number, ended[number], present[number])
            present[number] = ended[number] + 1
    return present


def _everywhere(table: str) -> str:
    """All rows of a table, those set aside included."""
    columns = "writer, batch, size, id"
    if table != "diverted":
        return f"SELECT {columns} FROM {table}"
    aside = ", ".join(f"CAST(_row->>'{name}' AS BIGINT)" for name in columns.split(", "))
    return (
        f"SELECT {columns} FROM {table} UNION ALL SELECT {columns} FROM {table}$late "
        f"UNION ALL SELECT {aside} FROM {table}$rejected"
    )


def _batches(db: tidemill.Database, number: int, table: str) -> int:
    """How many batches of a writer are there, as its newest row says."""
    query = f"SELECT max(batch) FROM ({_everywhere(table)}) WHERE writer = ?"
    newest = db.sql(query, [number]).fetchall()[0][0]
    return 0 if newest is None else int(newest) + 1


def _check_rows(db: tidemill.Database, number: int, table: str, batches: int) -> None:
    query = f"SELECT batch, size, id FROM ({_everywhere(table)}) WHERE writer = ? ORDER BY id"
    rows = db.sql(query, [number]).fetchall()
    sent = w.first_id_of(number, batches)
    ids = [row[2] for row in rows]
    if table == "short":  # what memory and files drop as wholes may leave a gap
        assert len(set(ids)) == len(ids)
        assert set(range(max(sent - 120, 0), sent)) <= set(ids) <= set(range(sent))
    else:
        wanted = min(sent, w.KEYS) if table in w.KEYED else sent
        assert ids == list(range(sent - wanted, sent)), f"{table}: a gap, a repeat, a torn batch"
    starts = {b: w.first_id_of(number, b) for b in {row[0] for row in rows}}
    for batch, size, own in rows:
        assert size == w.size_of(number, batch)
        assert starts[batch] <= own < starts[batch] + size


def _check_counters(db: tidemill.Database, table: str, sent: int) -> None:
    query = (
        "SELECT rows_in, stored, late, rejected, ignored, replaced, expired, accepts_rows, "
        f"(SELECT count(*) FROM {table}), (SELECT count(*) FROM {table}$late), "
        f"(SELECT count(*) FROM {table}$rejected) FROM tidemill.ingest WHERE table_name = ?"
    )
    found = db.sql(query, [table]).fetchall()[0]
    rows_in, stored, late, rejected, ignored, replaced, expired, accepts, *counted = found
    assert accepts
    assert rows_in == stored + late + rejected == sent
    assert [stored - replaced - expired, late, rejected - ignored] == counted
    assert ignored == 0
    if table not in ("short", "mixed"):  # what a load replaced counts as expired
        assert expired == 0
    seqs = f"SELECT count(*) - count(DISTINCT _seq) FROM {table}"
    assert db.sql(seqs).fetchall() == [(0,)]


def _check_indices(db: tidemill.Database, table: str, draw: random.Random) -> None:
    """Lookups and full scans (the arithmetic hides the column) in one statement."""
    low = draw.randint(0, 3_000)
    pairs = [
        (f"id = {low}", f"id + 0 = {low}"),
        (f"id BETWEEN {low} AND {low + 90}", f"id + 0 BETWEEN {low} AND {low + 90}"),
        (f"batch = {low // 9} AND writer = 3", f"batch + 0 = {low // 9} AND writer + 0 = 3"),
        (f"id IN (1, {low}, {low + 7})", f"id + 0 IN (1, {low}, {low + 7})"),
    ]
    asked = [
        f"(SELECT list(id ORDER BY id, writer) FROM {table} WHERE {where})"
        for pair in pairs
        for where in pair
    ]
    found = db.sql(f"SELECT {', '.join(asked)}").fetchall()[0]
    assert found[::2] == found[1::2], table


def _send_again(db: tidemill.Database, number: int, batch: int, present: int) -> None:
    """The producer did not hear of its last batch, so it sends it again."""
    is_there = present > batch
    result = w.send(db, number, batch, w.rows_of(number, batch))
    assert result.is_repeat == is_there
    assert result.stored == (0 if is_there else w.size_of(number, batch))
    assert w.send(db, number, batch, w.rows_of(number, batch)).is_repeat
    query = "SELECT count(*) FROM sourced WHERE writer = ? AND batch = ?"
    assert db.sql(query, [number, batch]).fetchall() == [(w.size_of(number, batch),)]


def _load_again(db: tidemill.Database, number: int, batch: int, present: int) -> None:
    """The producer did not hear of its last load, so it asks for it again."""
    is_there = present > batch
    size = w.size_of(number, batch)
    again = "COPY 0 (2 packages were loaded before)"
    assert w.load(db, number, batch) == (again if is_there else f"COPY {size}")
    assert w.load(db, number, batch) == again
