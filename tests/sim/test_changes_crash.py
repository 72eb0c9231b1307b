"""A process that changes rows is killed (SIGKILL) again and again, amid changes, moves and jobs.

After each death the rows are those of all steps that were acknowledged, or of the one in flight
besides, as a whole: on every route, and through the index.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sim import change_writer as w
from warehouses import ROUTES, open_inline, quiet

POINTS = (
    None,
    "append.published",
    "log.written",
    "log.synced",
    "change.written",
    "change.committed",
    "move.written",
    "move.committed",
    "move.released",
)
STEPS_MAX = 60


def live(folder: Path, seed: int, mode: str, done: int, death: str | None, steps: int) -> int:
    """One life of the writer; answers how many steps were acknowledged in all."""
    env = {**os.environ, **({"TIDEMILL_CRASH_AT": death} if death else {})}
    process = subprocess.Popen(
        [sys.executable, w.__file__, str(folder), str(seed), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        print(done, file=process.stdin, flush=True)
        for line in process.stdout:
            if line.strip() != "open":
                done = int(line)
                steps -= 1
            if steps <= 0:
                process.send_signal(signal.SIGKILL)  # what is in the pipe still counts
        assert process.wait() == -signal.SIGKILL, process.stderr.read()
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
    return done


def shown(rows: w.Rows) -> list[tuple[Any, ...]]:
    return [(i, *row) for i, row in sorted(rows.items())]


@pytest.mark.parametrize("mode", ["defer", "eager"])
def test_acknowledged_changes_survive_every_kill(tmp_path: Path, mode: str, sim_seed: int) -> None:
    draw = random.Random(sim_seed)
    folder, done = tmp_path / "w", 0
    rows: w.Rows = {}
    deaths = list(POINTS)
    draw.shuffle(deaths)
    for death in deaths:
        at = None if death is None else f"{death}:{draw.randint(1, 12)}"
        acked = live(folder, sim_seed, mode, done, at, draw.randint(5, STEPS_MAX))
        for number in range(done, acked):
            w.step(sim_seed, number, rows)
        after = dict(rows)
        w.step(sim_seed, acked, after)
        with quiet(), open_inline(folder) as db:
            found = []
            for route in ROUTES:
                db.sql(f"SET route = '{route}'")
                found.append(db.sql("SELECT id, ts, k, v FROM t ORDER BY id").fetchall())
            told = f"seed {sim_seed}, {mode}, killed at {at} after step {acked}"
            assert all(each == found[0] for each in found), told
            assert found[0] in (shown(rows), shown(after)), told
            is_after = found[0] == shown(after)
            for number in draw.sample(sorted(rows), min(len(rows), 3)):
                one = db.sql("SELECT v FROM t WHERE id = ?", [number]).fetchall()
                assert one == [(r[3],) for r in found[0] if r[0] == number], told
            seqs = db.sql("SELECT count(*) - count(DISTINCT _seq) FROM t").fetchall()
            assert seqs == [(0,)], told
        done, rows = (acked + 1, after) if is_after else (acked, rows)
