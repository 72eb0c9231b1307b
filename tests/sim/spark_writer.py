"""The process that test_spark kills as a whole: it appends, and moves rows by a real Spark.

It prints ``ack <rows>`` after each append that returned, ``moving`` before each FLUSH and ``moved``
after it. It ends when it has done so often enough, or earlier, when it is killed.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

import tidemill
from tidemill.pipeline import keeping, move

START = datetime(2024, 1, 1)
ROUNDS_MAX = 50
BATCH_ROWS = 2_000


def rows_of(batch: int) -> list[tuple[datetime, int, str]]:
    numbers = range(batch * BATCH_ROWS, (batch + 1) * BATCH_ROWS)
    return [(START + timedelta(seconds=n), n, f"row {n}" * 10) for n in numbers]


def main(folder: str) -> None:
    keeping.LOOK_EVERY_S = 1e6
    move.TASK_BYTES = 1  # a task for each segment
    db = tidemill.open(folder, spark_master="local[2]", segment_size="1 MB", threads=1)
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT, note VARCHAR)")
    for batch in range(ROUNDS_MAX * 5):
        db.append("t", rows_of(batch))
        print("ack", (batch + 1) * BATCH_ROWS, flush=True)
        if batch % 5 == 4:
            print("moving", flush=True)
            db.sql("FLUSH t")
            print("moved", flush=True)
    db.close()


if __name__ == "__main__":
    main(sys.argv[1])
