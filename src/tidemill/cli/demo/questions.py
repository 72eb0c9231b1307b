"""What the dashboard asks the warehouse, again and again, in plain SQL."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidemill.cli.session import Database
from tidemill.errors import TidemillError

ROWS_SHOWN = 8
PAUSE_S = 1.0

CONGESTED = f"""\
SELECT xway, dir, seg, avg(spd) AS speed, count(DISTINCT vid) AS cars
FROM RECENT(pos_reports, INTERVAL '5' MINUTE)
WHERE lane BETWEEN 1 AND 3
GROUP BY xway, dir, seg HAVING count(DISTINCT vid) >= 5
ORDER BY speed LIMIT {ROWS_SHOWN}"""
STOPPED = f"""\
SELECT vid, any_value(xway) AS xway, any_value(dir) AS dir, any_value(seg) AS seg,
       count(*) OVER () AS cars
FROM RECENT(pos_reports, rows => 4, partition_by => vid)
GROUP BY vid
HAVING count(*) = 4 AND max(spd) = 0 AND min(pos) = max(pos)
   AND max(ts) > (SELECT max(ts) FROM pos_reports) - INTERVAL '1' MINUTE
ORDER BY max(ts) DESC, vid LIMIT {ROWS_SHOWN}"""
REJECTED = """\
SELECT _reason, count(*) AS rows FROM pos_reports$rejected
GROUP BY _reason ORDER BY max(_at) DESC LIMIT 3"""
HELD = """\
SELECT rows, bytes FROM tidemill.tables WHERE table_name = 'pos_reports'"""

QUESTIONS = {"congested": CONGESTED, "stopped": STOPPED, "rejected": REJECTED, "held": HELD}


@dataclass(frozen=True)
class Answer:
    """The newest answer to a question, and how long it took."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    elapsed_s: float = 0.0
    error: TidemillError | None = None


class Asker(threading.Thread):
    """A thread that asks every question in turn and keeps the newest answers."""

    def __init__(self, database: Database) -> None:
        super().__init__(name="tidemill-demo-asker", daemon=True)
        self.answers = {name: Answer() for name in QUESTIONS}
        self.asked = 0
        self._database = database
        self._ending = threading.Event()

    def stop(self) -> None:
        """Ends the thread after the question in hand."""
        self._ending.set()
        self.join()

    def run(self) -> None:
        while not self._ending.is_set():
            for _ in self.ask_all():
                if self._ending.is_set():
                    return
            self._ending.wait(PAUSE_S)

    def ask_all(self) -> Iterator[str]:
        """Asks everything once, and names each question that was answered."""
        for name, text in QUESTIONS.items():
            started = time.perf_counter()
            try:
                rows = self._database.sql(text).fetchall()
                self.answers[name] = Answer(rows, time.perf_counter() - started)
            except TidemillError as error:
                self.answers[name] = Answer(error=error)
            self.asked += 1
            yield name
